"""Kafka's replication throttle: four settings, what they were before the run, and what they are to be.

A broker has one rate for what it sends as leader and one for what it receives as follower. A rate holds only
for the replicas that a topic's two lists name, ``PARTITION:BROKER`` with commas between, or ``*`` for all.
Kafka throttles only replicas that are not in sync.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

from zkmigrate.model.change import KAFKA
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.look import Look, TopicSetting
from zkmigrate.model.step_record import Recorded
from zkmigrate.reassign.facts import Move
from zkmigrate.reassign.section import Reassign

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADER_LIST, FOLLOWER_LIST = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
RATES, LISTS = (LEADER_RATE, FOLLOWER_RATE), (LEADER_LIST, FOLLOWER_LIST)
EVERY = "*"
"""In a list: every replica of the topic."""

Values: TypeAlias = Mapping[str, Mapping[str, str | None]]
"""Settings by target (``broker-1``, ``topic-orders``) and key; None for unset."""
Seens: TypeAlias = Mapping[str, Mapping[str, Reading[TopicSetting]]]
"""The same as they were read."""


class Rate(NamedTuple):
    """Bytes per second that a broker sends as leader, and that it receives as follower."""

    leader: int
    follower: int


Rates: TypeAlias = Callable[[Reassign, Collection[int]], Mapping[int, Rate]]
"""The rate of each of these brokers."""


def fixed(wanted: Reassign, brokers: Collection[int]) -> Mapping[int, Rate]:
    """The inventory's rate for every broker and role."""
    return {broker: Rate(wanted.throttle_bytes_s, wanted.throttle_bytes_s) for broker in brokers}


@dataclass(frozen=True)
class Throttles(Recorded):
    """found: what the run found before its first change. rates: what it sets, by broker id."""

    step: ClassVar[str] = "throttle"

    found: Values
    rates: Mapping[int, Rate]


def of_broker(id: int) -> str:
    """The target that a broker's rates are."""
    return f"broker-{id}"


def of_topic(name: str) -> str:
    """The target that a topic's lists are."""
    return f"topic-{name}"


def involved(moves: Iterable[Move]) -> tuple[int, ...]:
    """The brokers that send or receive for these moves, in either direction, in order."""
    return tuple(sorted({broker for move in moves if move.copies for broker in (*move.before, *move.after)}))


def read(look: Look, brokers: Collection[int], topics: Collection[str]) -> Reading[Seens]:
    """The throttle settings of these brokers and topics."""
    found: dict[str, dict[str, Reading[TopicSetting]]] = {}
    for key in RATES if brokers else ():
        of_brokers = look.broker_settings(KAFKA, key, tuple(brokers))
        if not isinstance(of_brokers, Seen):
            return of_brokers
        for id, setting in of_brokers.value.items():
            found.setdefault(of_broker(id), {})[key] = setting
    for key in LISTS if topics else ():
        of_topics = look.topic_settings(KAFKA, key, tuple(topics))
        if not isinstance(of_topics, Seen):
            return of_topics
        for name, setting in of_topics.value.items():
            found.setdefault(of_topic(name), {})[key] = setting
    return Seen(found)


def values(seen: Seens) -> dict[str, dict[str, str | None]]:
    """What was read; a topic that is gone is left out."""
    return {
        target: {key: own.value.own for key, own in settings.items() if isinstance(own, Seen)}
        for target, settings in seen.items()
        if not any(isinstance(own, Absent) for own in settings.values())
    }


def unread(seen: Seens) -> dict[str, Unknown]:
    """The targets that did not tell a setting."""
    return {
        target: own
        for target, settings in seen.items()
        for own in settings.values()
        if isinstance(own, Unknown)
    }


def listed(found: Values) -> tuple[str, ...]:
    """Each setting that is set, for messages."""
    return tuple(
        f"{target}: {key}={value}"
        for target, settings in found.items()
        for key, value in settings.items()
        if value is not None
    )


@dataclass(frozen=True)
class Limits:
    """The throttle of one run. found: before it. rates: what it sets. entries: what it adds to the lists."""

    found: Values
    rates: Mapping[int, Rate]
    entries: Mapping[str, Mapping[str, tuple[str, ...]]]

    @staticmethod
    def of(record: Throttles, moves: Iterable[Move]) -> Limits:
        """The lists name every replica that sends or receives, going forward or back."""
        entries: dict[str, dict[str, tuple[str, ...]]] = {}
        for move in moves:
            if not move.copies:
                continue
            own = entries.setdefault(of_topic(move.topic), dict.fromkeys(LISTS, ()))
            sends = (*move.before, *move.added)
            for key, brokers in ((LEADER_LIST, sends), (FOLLOWER_LIST, (*move.added, *move.dropped))):
                own[key] += tuple(f"{move.number}:{broker}" for broker in brokers)
        return Limits(record.found, record.rates, entries)

    def on(self, target: str, key: str, now: str | None) -> str | None:
        """The value with the throttle. now: the present value. A list is read, merged and set whole."""
        if key in LISTS:
            there = _entries(now)
            if EVERY in there:
                return now
            added = [entry for entry in self.entries[target][key] if entry not in set(there)]
            return ",".join((*there, *added)) if added else now
        return self._rate(target, key)

    def off(self, target: str, key: str, now: str | None) -> str | None:
        """The value without it: the one found, with what other hands have set meanwhile."""
        found = self.found[target].get(key)
        if key in LISTS:
            kept = set(_entries(found))
            own = {entry for entry in self.entries[target][key] if entry not in kept}
            left = [entry for entry in _entries(now) if entry not in own]
            return found if set(left) == kept else ",".join(left)
        return found if now == self._rate(target, key) else now

    def _rate(self, target: str, key: str) -> str:
        id = int(target.removeprefix(of_broker(0)[:-1]))
        return str(self.rates[id].leader if key == LEADER_RATE else self.rates[id].follower)


def _entries(value: str | None) -> tuple[str, ...]:
    """The entries of a list; an empty one that APPEND has left is none."""
    return tuple(entry.strip() for entry in (value or "").split(",") if entry.strip())
