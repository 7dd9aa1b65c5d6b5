"""What steps leave in the journal for those after them, as typed values.

In the journal a record is JSON; a zxid there is hexadecimal text, because it may pass 2^53. A field that is
missing, or is of another kind, is a :class:`RecordError`; fields of a later version are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, TypeVar

from zkmigrate.model.step import Context


class RecordError(ValueError):
    """A record is not there, or is none that this version can read."""


class Recorded(Protocol):
    """A record and its codec. step: whose it is."""

    step: ClassVar[str]

    def encode(self) -> dict[str, Any]: ...

    @classmethod
    def decode(cls, body: Mapping[str, Any]) -> Self: ...


R = TypeVar("R", bound=Recorded)


def recorded(kind: type[R], body: Mapping[str, Any]) -> R:
    """A record that the journal holds. RecordError where this version cannot read it."""
    try:
        return kind.decode(body)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(
            f"the journal's record of {kind.step} cannot be read: {error!r}. Needed: what this version "
            "writes. Possible now: go on with the version that wrote it"
        ) from error


def known(kind: type[R], c: Context) -> R | None:
    """The record of a step; None where there is none, as where the journal that held it is lost."""
    body = c.records.get(kind.step)
    return recorded(kind, body) if body else None


def needed(kind: type[R], c: Context) -> R:
    """The record of a step that must have been walked. RecordError where there is none."""
    found = known(kind, c)
    if found is None:
        raise RecordError(
            f"the journal holds no record of {kind.step}. Needed: that step, walked before. Possible now: "
            "zkmigrate rollback, then run again"
        )
    return found


@dataclass(frozen=True)
class Drained:
    """DRAIN. z: the newest zxid of source's leader once nothing was outstanding on any dest host. zxids: the
    last one that each dest host had applied then."""

    step: ClassVar[str] = "drain"

    z: int
    leader: str | None
    zxids: Mapping[str, int]

    def encode(self) -> dict[str, Any]:
        return {"z": hex(self.z), "leader": self.leader, "zxids": {h: hex(z) for h, z in self.zxids.items()}}

    @classmethod
    def decode(cls, body: Mapping[str, Any]) -> Self:
        return cls(int(body["z"], 16), body["leader"], _zxids(body["zxids"]))


@dataclass(frozen=True)
class Stopped:
    """STOP, by dest host. tails: the newest zxid on its disk. stamps: what SEAL compares the disk with.
    boots: the boot that it was stopped in."""

    step: ClassVar[str] = "stop"

    tails: Mapping[str, int]
    stamps: Mapping[str, str]
    boots: Mapping[str, str]

    def encode(self) -> dict[str, Any]:
        tails = {host: hex(zxid) for host, zxid in self.tails.items()}
        return {"tails": tails, "stamps": dict(self.stamps), "boots": dict(self.boots)}

    @classmethod
    def decode(cls, body: Mapping[str, Any]) -> Self:
        return cls(_zxids(body["tails"]), dict(body["stamps"]), dict(body["boots"]))


@dataclass(frozen=True)
class Outage:
    """Every broker is down. order: in which they were stopped. epoch: of dest's controller then; 0 before."""

    step: ClassVar[str] = "brokers"

    order: tuple[str, ...]
    epoch: int = 0

    def encode(self) -> dict[str, Any]:
        return {"order": list(self.order), "epoch": self.epoch}

    @classmethod
    def decode(cls, body: Mapping[str, Any]) -> Self:
        return cls(tuple(str(name) for name in body["order"]), int(body["epoch"]))


@dataclass(frozen=True)
class Planned:
    """What is to be replayed on source, from the disk of the dest host `disk`. cut: the newest zxid that both
    share; upto: dest's newest. batches: (zxid, transactions, fingerprint) of each change, in order."""

    step: ClassVar[str] = "read"

    disk: str
    cut: int
    upto: int
    batches: tuple[tuple[int, int, str], ...]

    def encode(self) -> dict[str, Any]:
        batches = [[hex(zxid), count, text] for zxid, count, text in self.batches]
        return {"disk": self.disk, "cut": hex(self.cut), "upto": hex(self.upto), "batches": batches}

    @classmethod
    def decode(cls, body: Mapping[str, Any]) -> Self:
        batches = tuple((int(zxid, 16), int(count), str(text)) for zxid, count, text in body["batches"])
        return cls(str(body["disk"]), int(body["cut"], 16), int(body["upto"], 16), batches)


def _zxids(body: Mapping[str, str]) -> dict[str, int]:
    return {host: int(zxid, 16) for host, zxid in body.items()}
