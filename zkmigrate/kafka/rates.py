"""Define the values that the throttle's rules take and return, such as rates, limits and measurements."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from zkmigrate.errors import UsageError

LEAST, MOST = 1000, 100_000_000_000
"""The lowest and the highest accepted rate, in bytes per second. A rate outside this range is rejected as
a mistake."""

_RATE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?) ?([kKMG]?)(?:B?(?:/s)?)")
_UNITS = {"": 1, "k": 1000, "K": 1000, "M": 1_000_000, "G": 1_000_000_000}


class Role(StrEnum):
    """The direction that a rate limits: what a broker sends as leader, or what it receives as follower."""

    LEADER = "leader"
    FOLLOWER = "follower"


class Rate(NamedTuple):
    """The limits of one broker in bytes per second: what it may send as leader and receive as follower."""

    leader: int
    follower: int

    def of(self, role: Role) -> int:
        return self.leader if role is Role.LEADER else self.follower


@dataclass(frozen=True, slots=True)
class Moving:
    """A partition that is being moved.

    adding: ids of the brokers that copy it. left: bytes that each of them still lacks. produced: bytes per
    second that clients write to it. lags: messages that each broker still lacks, by broker id, where known.
    followers: how many followers are in sync. Kafka does not delay them, but counts their traffic in the
    leader's rate.
    """

    topic: str
    partition: int
    leader: int
    adding: tuple[int, ...]
    left: int = 0
    produced: float = 0.0
    lags: Mapping[int, int] = field(default_factory=dict)
    followers: int = 0

    @property
    def name(self) -> str:
        """The partition as ``TOPIC-NUMBER``, such as ``orders-3``."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Sample:
    """The measurements of one broker since the last tick; None means not measured.

    sent, received: all traffic of its host, in bytes per second. copied: the part of that traffic that was
    throttled replication. busy: share of the time, 0 to 1, that its busiest disk worked. await_ms: mean
    milliseconds per disk request, on its slowest disk. latency_ms: p99 latency of the canary. The latency of
    a canary that belongs to no single broker applies to all brokers.
    """

    sent: float
    received: float
    copied: Rate | None = None
    busy: float | None = None
    await_ms: float | None = None
    latency_ms: float | None = None

    def traffic(self, role: Role) -> float:
        """Return the traffic in the direction of one role, in bytes per second."""
        return self.sent if role is Role.LEADER else self.received


@dataclass(frozen=True, slots=True)
class Settings:
    """The limits of the throttle; raises UsageError if they are impossible.

    floor: the lowest rate. cap: what a broker can send and receive by default. caps: the same by broker id. A
    rate never exceeds ``percent`` of the cap. threshold: a smaller relative change is not sent. keep_ticks:
    for how many ticks a rate is kept without measurements; after that the floor applies.

    raise_factor: the largest increase of a rate in one tick. busy_limit, await_limit_ms, latency_limit_ms: a
    broker above one of these limits gets a lower rate; None for no limit. pause_ticks: the number of
    consecutive ticks above the latency limit at which no new move is submitted any more.

    end_within_s: how many seconds a move may take if its rate was too low to finish. raise_to_end: whether to
    raise such a rate; otherwise it is only reported. steps: the only rates that are computed, from the floor
    upwards; empty for any rate.
    """

    floor: int
    cap: Rate
    caps: Mapping[int, Rate] = field(default_factory=dict)
    percent: Rate = field(default_factory=lambda: Rate(90, 90))
    threshold: float = 0.1
    keep_ticks: int = 1
    raise_factor: float = 1.25
    busy_limit: float | None = 0.9
    await_limit_ms: float | None = None
    latency_limit_ms: float | None = None
    pause_ticks: int = 3
    end_within_s: float = 86_400.0
    raise_to_end: bool = False
    steps: Sequence[int] = ()

    def __post_init__(self) -> None:
        numbers = [getattr(self, one.name) for one in fields(self)]
        if not all(math.isfinite(one) for one in numbers if isinstance(one, int | float)):
            raise UsageError("throttle: a setting is not a finite number. Next: fix the setting")
        wrong = [
            (self.floor < LEAST, f"floor {self.floor}", f"{LEAST} bytes per second or more"),
            (
                not all(1 <= one <= 100 for one in self.percent),
                f"percent {tuple(self.percent)}",
                "1 to 100",
            ),
            (not 0 <= self.threshold < 1, f"threshold {self.threshold}", "0 or more, below 1"),
            (
                self.raise_factor <= 1 + self.threshold,
                f"raise_factor {self.raise_factor}",
                f"more than 1 + threshold, {1 + self.threshold:g}, or no increase is ever sent",
            ),
            (self.keep_ticks < 0, f"keep_ticks {self.keep_ticks}", "0 or more"),
            (
                self.pause_ticks < 2,
                f"pause_ticks {self.pause_ticks}",
                "2 or more, because slowing down comes before pausing",
            ),
            (
                bool(self.steps) and self.steps[0] != self.floor,
                f"steps {self.steps}",
                "steps that begin with the floor",
            ),
            (self.end_within_s <= 0, f"end_within_s {self.end_within_s}", "more than 0"),
            *(
                (limit is not None and limit <= 0, f"{name} {limit}", "more than 0")
                for name, limit in (
                    ("busy_limit", self.busy_limit),
                    ("await_limit_ms", self.await_limit_ms),
                    ("latency_limit_ms", self.latency_limit_ms),
                )
            ),
        ]
        for bad, seen, needed in wrong:
            if bad:
                raise UsageError(f"throttle: {seen}. Needed: {needed}. Next: fix the setting")
        for broker in (None, *self.caps):
            for role in Role:
                if (most := self.ceiling(broker, role)) < self.floor:
                    who = "every broker" if broker is None else f"broker {broker}"
                    raise UsageError(
                        f"throttle: {who} may get at most {amount(most)} as {role}. Needed: the floor of "
                        f"{amount(self.floor)} or more. Next: lower the floor, or raise cap or percent"
                    )

    def bounded(self, broker: int, wish: int) -> Rate:
        """Return the rate that an operator set for a broker, limited to the range from floor to ceiling."""
        return Rate(*(max(min(wish, self.ceiling(broker, role)), self.floor) for role in Role))

    def ceiling(self, broker: int | None, role: Role) -> int:
        """Return the highest rate of a broker in one role.

        broker: None for the brokers that ``caps`` does not name.
        """
        cap = self.cap if broker is None else self.caps.get(broker, self.cap)
        return cap.of(role) * self.percent.of(role) // 100


@dataclass(frozen=True, slots=True)
class Overrides:
    """Rates that an operator has set, in bytes per second.

    every: the rate of all brokers; None if there is none. each: rates by broker id, which take precedence.
    by: ``user@machine`` of the last change. since: time of the last change, in seconds since the epoch.
    wrong: why the overrides cannot be read; empty if they can.
    """

    every: int | None = None
    each: Mapping[int, int] = field(default_factory=dict)
    by: str = ""
    since: float = 0.0
    wrong: str = ""

    def __bool__(self) -> bool:
        return self.every is not None or bool(self.each)

    def of(self, broker: int) -> int | None:
        """Return the rate that an operator set for a broker, or None if there is none."""
        return self.each.get(broker, self.every)


Replica: TypeAlias = tuple[str, int, int]
"""Topic, partition and broker id."""


@dataclass(frozen=True, slots=True)
class State:
    """The state that one tick passes to the next.

    rates: the rates in force. missed: consecutive ticks without measurements, by broker id. late: consecutive
    ticks above the latency limit, by broker id. lags: messages that each moving replica lacks.
    """

    rates: Mapping[int, Rate] = field(default_factory=dict)
    missed: Mapping[int, int] = field(default_factory=dict)
    late: Mapping[int, int] = field(default_factory=dict)
    lags: Mapping[Replica, int] = field(default_factory=dict)
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Reason:
    """The explanation, as one clause, of the rate of a broker in one role."""

    broker: int
    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Endless:
    """A rate at which a move can never finish, because ``produced`` is at least as high.

    ending: the rate at which the move would finish. seconds: how long it would then take. within_ceiling:
    whether the broker may have that rate.
    """

    broker: int
    role: Role
    rate: int
    produced: float
    ending: int
    seconds: float
    within_ceiling: bool

    def words(self) -> str:
        """Return the warning to show before this rate is set."""
        told = (
            f"broker {self.broker} as {self.role}: {amount(self.rate)} can never finish, because clients "
            f"produce {amount(self.produced)} to the moving partitions; {amount(self.ending)} would finish "
            f"in {self.seconds / 3600:.1f} h"
        )
        return told if self.within_ceiling else f"{told}, but it is above the ceiling"


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of one tick about all rates.

    rates: the rate of every broker that takes part. changed: brokers with a rate that differs from the one in
    force. pause: whether to submit no new move, for the reasons in ``pauses``. state: the state for the next
    tick.
    """

    rates: Mapping[int, Rate]
    changed: tuple[int, ...]
    pause: bool
    reasons: Sequence[Reason]
    endless: Sequence[Endless]
    pauses: Sequence[str]
    state: State


def parse_rate(text: str) -> int:
    """Return the bytes per second in a text such as ``10M``, ``1.5 GB/s`` or ``250000``.

    Raises UsageError if the text is not a rate or the rate is out of range.
    """
    match = _RATE.fullmatch(text.strip())
    rate = round(float(match[1]) * _UNITS[match[2]]) if match else 0
    if not LEAST <= rate <= MOST:
        raise UsageError(
            f"rate {text!r}. Needed: bytes per second from 1k to 100G, such as 10M (k, M, G: thousands, "
            "millions and billions)"
        )
    return rate


def amount(bytes_s: float) -> str:
    """Return a rate as text for people, such as ``12.5 MB/s``."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_s >= size:
            return f"{bytes_s / size:.4g} {unit}"
    return f"{bytes_s:.0f} B/s"
