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
"""A place in a log; null if the log held no record yet."""


@dataclass(frozen=True)
class ChosenLease:
    """The lease required by the round-trip times to the dest hosts, in milliseconds."""

    fence_ttl_ms: int
    cut_ttl_ms: int


@dataclass(frozen=True)
class Surveyed(Recorded):
    """The record of SURVEY.

    leader: source's leader, with its epoch and number of learners. cursors: host → the place in its log up to
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

    It is read by itself, so that a run can go back even if the rest of the record cannot be read.
    """

    step: ClassVar[str] = "survey"

    smallest_timeout_ms: int | None
    lease: ChosenLease | None = None


@dataclass(frozen=True)
class Drained(Recorded):
    """The record of DRAIN.

    z: the zxid of source's leader, read once nothing was outstanding on any dest host. zxids: dest host → the
    zxid that it had applied then.
    """

    step: ClassVar[str] = "drain"

    z: Hex
    leader: str | None
    zxids: Mapping[str, Hex]


@dataclass(frozen=True)
class Stopped(Recorded):
    """The record of STOP. Each field is keyed by dest host.

    tails: the newest zxid on its disk. stamps: a stamp of its data, which SEAL compares. boots: its boot id.
    """

    step: ClassVar[str] = "stop"

    tails: Mapping[str, Hex]
    stamps: Mapping[str, str]
    boots: Mapping[str, str]


@dataclass(frozen=True)
class ReadDelta:
    """The part of source's log after dest's oldest disk.

    records: number of transactions between the two zxids.
    """

    after: Hex
    last: Hex
    records: int


@dataclass(frozen=True)
class Proved(Recorded):
    """The record of PROVE.

    first: the dest hosts whose disks hold the newest transaction. needed: the newest zxid that touched the
    chroot. cursor: where the proof ended in the log of source's leader. baseline: the state under the chroot
    that dest must serve.
    """

    step: ClassVar[str] = "prove"

    first: tuple[str, ...]
    needed: Hex
    delta: ReadDelta
    cursor: Place
    baseline: Ownership


@dataclass(frozen=True)
class Freshest(Recorded):
    """The part of PROVE's record that GO needs."""

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
    """The seconds that each step of a stage took on its last completed walk, as the engine measured them."""

    step: ClassVar[str] = "seconds"

    seconds: Mapping[str, Mapping[Way, float]]


def seconds(c: Context, stage: str, way: Way = Way.FORWARD) -> dict[str, float]:
    """Return step id → seconds that the step took, for the completed steps of this stage."""
    body = c.records.get(stage)
    timed = recorded(Timed, body, c.run).seconds if body else {}
    return {step: took[way] for step, took in timed.items() if way in took}


@dataclass(frozen=True)
class Installed(Recorded):
    """The record of INSTALL. without: the hosts that had no zkm-host before."""

    step: ClassVar[str] = "install"

    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outage(Recorded):
    """The record of stopping every broker.

    order: the order in which they were stopped. epoch: the epoch of dest's last controller; 0 before all
    brokers are down.
    """

    step: ClassVar[str] = "brokers"

    order: tuple[str, ...]
    epoch: int = 0


@dataclass(frozen=True)
class Planned(Recorded):
    """The record of what to replay on source.

    disk: the dest host from which it is read. cut: the newest zxid that both ensembles share. upto: the
    newest zxid of dest. batches: (zxid, transactions, fingerprint) of each change, in order.
    """

    step: ClassVar[str] = "read"

    disk: str
    cut: Hex
    upto: Hex
    batches: tuple[tuple[Hex, int, str], ...]
