"""The records that the steps of the move and of the return write to the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import PlainSerializer, PlainValidator

from zkmigrate.runbook.model.step import Context, Way
from zkmigrate.runbook.model.step_record import Hex, Recorded, recorded
from zkmigrate.zookeeper.data.txnlog import Cursor, cursor_from_json, cursor_to_json
from zkmigrate.zookeeper.facts.ownership import Ownership

Place = Annotated[Cursor | None, PlainValidator(cursor_from_json), PlainSerializer(cursor_to_json)]
"""A position in a log; null if the log held no record yet."""


@dataclass(frozen=True)
class ChosenLease:
    """The lease that the measured round trips to the dest hosts require, in milliseconds."""

    fence_ttl_ms: int
    cut_ttl_ms: int


@dataclass(frozen=True)
class Surveyed(Recorded):
    """The record of SURVEY.

    leader, epoch, learners: source's leader, its epoch and its number of learners beside its followers in
    sync. ownership: the owners of ephemerals under the chroot. cursors: host → the position in its log up to
    which SURVEY read. smallest_timeout_ms: T. on_dest: the sessions that own ephemerals under the chroot and
    are clients of dest; empty in a rehearsal. lease: None if no round trip was measured.
    """

    step: ClassVar[str] = "survey"

    leader: str
    epoch: int
    learners: int
    ownership: Ownership
    cursors: Mapping[str, Place]
    smallest_timeout_ms: int | None
    on_dest: tuple[Hex, ...]
    lease: ChosenLease | None = None


@dataclass(frozen=True)
class TimeoutAndLease(Recorded):
    """The part of SURVEY's record that the window and its way back need.

    This part is parsed separately, so that a run can go back even if the rest of the record cannot be parsed.
    """

    step: ClassVar[str] = "survey"

    smallest_timeout_ms: int | None
    lease: ChosenLease | None = None


@dataclass(frozen=True)
class Drained(Recorded):
    """The record of DRAIN.

    z: the zxid of source's leader, read once no request was outstanding on any dest host. leader: the leader
    from which it was read. zxids: dest host → the zxid that the host had applied at the end of DRAIN.
    """

    step: ClassVar[str] = "drain"

    z: Hex
    leader: str | None
    zxids: Mapping[str, Hex]


@dataclass(frozen=True)
class Stopped(Recorded):
    """The record of STOP. Each field is keyed by dest host.

    tails: the newest zxid on the host's disk. stamps: a digest of the host's data files, which SEAL compares.
    boots: the host's boot id.
    """

    step: ClassVar[str] = "stop"

    tails: Mapping[str, Hex]
    stamps: Mapping[str, str]
    boots: Mapping[str, str]


@dataclass(frozen=True)
class ReadDelta:
    """The part of source's log that PROVE read.

    after: the lowest zxid at which a dest disk ends. last: the last zxid that was read. records: the number
    of transactions between the two.
    """

    after: Hex
    last: Hex
    records: int


@dataclass(frozen=True)
class Proved(Recorded):
    """The record of PROVE.

    first: the dest hosts whose disks hold the newest transaction. needed: the newest zxid that touched the
    chroot. delta: the part of source's log that was read. cursor: where reading ended in the log of source's
    leader. baseline: the state under the chroot that dest must serve.
    """

    step: ClassVar[str] = "prove"

    first: tuple[str, ...]
    needed: Hex
    delta: ReadDelta
    cursor: Place
    baseline: Ownership


@dataclass(frozen=True)
class Freshest(Recorded):
    """The part of PROVE's record that GO needs: the dest hosts whose disks hold the newest transaction."""

    step: ClassVar[str] = "prove"

    first: tuple[str, ...]


@dataclass(frozen=True)
class Checked(Recorded):
    """The record of CHECK. leader: the leader of dest."""

    step: ClassVar[str] = "check"

    leader: str | None


@dataclass(frozen=True)
class Verified(Recorded):
    """The record of VERIFY. missing: the dest hosts that were left out."""

    step: ClassVar[str] = "verify"

    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Timed(Recorded):
    """How many seconds each step of a stage took the last time it completed, as the engine measured.

    seconds: step id → direction → seconds.
    """

    step: ClassVar[str] = "seconds"

    seconds: Mapping[str, Mapping[Way, float]]


def seconds(c: Context, stage: str, way: Way = Way.FORWARD) -> dict[str, float]:
    """Return the duration in seconds of each completed step of this stage, by step id."""
    body = c.records.get(stage)
    timed = recorded(Timed, body, c.run).seconds if body else {}
    return {step: took[way] for step, took in timed.items() if way in took}


@dataclass(frozen=True)
class Installed(Recorded):
    """The record of INSTALL. without: the hosts on which zkm-host was not installed before."""

    step: ClassVar[str] = "install"

    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outage(Recorded):
    """The record of the step that stops every broker.

    order: the order in which the brokers were stopped. epoch: the epoch of dest's last controller; 0 until
    all brokers are down.
    """

    step: ClassVar[str] = "brokers"

    order: tuple[str, ...]
    epoch: int = 0


@dataclass(frozen=True)
class Planned(Recorded):
    """The record of the transactions to replay on source.

    disk: the dest host from whose disk they are read. cut: the newest zxid that both ensembles share. upto:
    the newest zxid of dest. batches: (last zxid, number of transactions, fingerprint) of each change, in
    order.
    """

    step: ClassVar[str] = "read"

    disk: str
    cut: Hex
    upto: Hex
    batches: tuple[tuple[Hex, int, str], ...]
