"""The records that the steps of the move and of the return leave in the journal."""

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
"""A place in a log; null where the log held no record yet."""


@dataclass(frozen=True)
class ChosenLease:
    """The lease that the round trips to the dest hosts need, in milliseconds."""

    fence_ttl_ms: int
    cut_ttl_ms: int


@dataclass(frozen=True)
class Surveyed(Recorded):
    """SURVEY. leader: source's, with its epoch and learners. cursors: host → the place in its log up to which
    SURVEY read. smallest_timeout_ms: T. on_dest: the sessions that own a part of the chroot and are clients
    of dest; none in a rehearsal. lease: None where no round trip was measured."""

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
    """The part of SURVEY's record that the window and its way back need: whatever else in it cannot be read,
    a run can go back."""

    step: ClassVar[str] = "survey"

    smallest_timeout_ms: int | None
    lease: ChosenLease | None = None


@dataclass(frozen=True)
class Drained(Recorded):
    """DRAIN. z: the zxid of source's leader once nothing was outstanding on any dest host. zxids: what each
    dest host had applied then."""

    step: ClassVar[str] = "drain"

    z: Hex
    leader: str | None
    zxids: Mapping[str, Hex]


@dataclass(frozen=True)
class Stopped(Recorded):
    """STOP, by dest host. tails: the newest zxid on its disk. stamps: of its data, for SEAL to compare.
    boots: its boot id."""

    step: ClassVar[str] = "stop"

    tails: Mapping[str, Hex]
    stamps: Mapping[str, str]
    boots: Mapping[str, str]


@dataclass(frozen=True)
class ReadDelta:
    """Source's log after dest's oldest disk. records: transactions between these two zxids."""

    after: Hex
    last: Hex
    records: int


@dataclass(frozen=True)
class Proved(Recorded):
    """PROVE. first: the dest hosts whose disks hold the newest transaction. needed: the newest zxid that
    touched the chroot. cursor: where the proof ended in the log of source's leader. baseline: the state under
    the chroot that dest must serve."""

    step: ClassVar[str] = "prove"

    first: tuple[str, ...]
    needed: Hex
    delta: ReadDelta
    cursor: Place
    baseline: Ownership


@dataclass(frozen=True)
class Freshest(Recorded):
    """What GO needs of PROVE's record."""

    step: ClassVar[str] = "prove"

    first: tuple[str, ...]


@dataclass(frozen=True)
class Checked(Recorded):
    """CHECK. leader: that of dest."""

    step: ClassVar[str] = "check"

    leader: str | None


@dataclass(frozen=True)
class Verified(Recorded):
    """VERIFY. missing: the dest hosts that were left out."""

    step: ClassVar[str] = "verify"

    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Timed(Recorded):
    """The seconds that each step of a stage took on its last completed walk, as the engine measured them."""

    step: ClassVar[str] = "seconds"

    seconds: Mapping[str, Mapping[Way, float]]


def seconds(c: Context, stage: str, way: Way = Way.FORWARD) -> dict[str, float]:
    """Step id → seconds that it took, of the steps of this stage that were completed."""
    body = c.records.get(stage)
    timed = recorded(Timed, body, c.run).seconds if body else {}
    return {step: took[way] for step, took in timed.items() if way in took}


@dataclass(frozen=True)
class Installed(Recorded):
    """INSTALL. without: the hosts that had no zkm-host before."""

    step: ClassVar[str] = "install"

    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outage(Recorded):
    """The stop of every broker. order: in which they were stopped. epoch: of dest's last controller; 0 before
    all are down."""

    step: ClassVar[str] = "brokers"

    order: tuple[str, ...]
    epoch: int = 0


@dataclass(frozen=True)
class Planned(Recorded):
    """What to replay on source. disk: the dest host that it is read from. cut: the newest zxid that both
    share; upto: dest's newest. batches: (zxid, transactions, fingerprint) of each change, in order."""

    step: ClassVar[str] = "read"

    disk: str
    cut: Hex
    upto: Hex
    batches: tuple[tuple[Hex, int, str], ...]
