"""Kafka's replication throttle: its settings, their values before the run, and the values to set.

A broker has one rate for what it sends as leader and one for what it receives as follower. A rate holds only
for the replicas that a topic's two lists name, ``PARTITION:BROKER`` with commas between, or ``*`` for all.
Kafka throttles only replicas that are not in sync.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Self, TypeAlias

from zkmigrate.cluster.reassign.moves import Move, section, stragglers
from zkmigrate.cluster.reassign.section import Pace
from zkmigrate.cluster.throttle.kafka_settings import with_entries, without_entries, without_rate
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.kafka.questions import ReadBrokerSettings, ReadTopicSettings, TopicSetting
from zkmigrate.kafka.rates import Rate, Role
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Way
from zkmigrate.runbook.model.step_record import Recorded, known

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADER_LIST, FOLLOWER_LIST = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
INSIDE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
"""The rate for copies between a broker's log directories; it needs no list."""
RATES, LISTS = (LEADER_RATE, FOLLOWER_RATE), (LEADER_LIST, FOLLOWER_LIST)
ROLES = {LEADER_RATE: Role.LEADER, FOLLOWER_RATE: Role.FOLLOWER}
Values: TypeAlias = Mapping[str, Mapping[str, str | None]]
"""Settings by target (``broker-1``, ``topic-orders``) and key; None for unset."""
Seens: TypeAlias = Mapping[str, Mapping[str, Reading[TopicSetting]]]
"""Readings of settings, by target and key."""


def preset(c: Context, brokers: Collection[int]) -> Mapping[int, Rate]:
    """Return the rates that an operator set before the run, within floor and ceiling of ``adapt``."""
    adapt = section(c.inventory).adapt
    settings = adapt.settings() if adapt is not None else None
    wishes = {id: wish for id in brokers if (wish := c.overrides.of(id)) is not None}
    if settings is None:
        return {id: Rate(wish, wish) for id, wish in wishes.items()}
    return {id: settings.bounded(id, wish) for id, wish in wishes.items()}


def fixed(wanted: Pace, brokers: Collection[int]) -> Mapping[int, Rate]:
    """Return the inventory's rate for every broker, in both roles."""
    return {broker: Rate(wanted.throttle_bytes_s, wanted.throttle_bytes_s) for broker in brokers}


@dataclass(frozen=True)
class Throttles(Recorded):
    """The throttle settings that a run found, and those that it sets.

    found: the settings before the first change of the run.
    rates: the rates that the run sets, by broker id.
    inside: the rate that the run sets for copies between directories of a broker, by broker id.
    preset: the rates that an operator set before the run; they are set in place of ``rates``.
    """

    step: ClassVar[str] = "throttle"

    found: Values
    rates: Mapping[int, Rate]
    inside: Mapping[int, int] = field(default_factory=dict)
    preset: Mapping[int, Rate] = field(default_factory=dict)


@dataclass(frozen=True)
class FirstLimits(Recorded):
    """The throttle settings that a run saw at its preflight.

    limits: the settings that were set, by target and key.
    """

    step: ClassVar[str] = "reassignment"

    limits: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, seen: Values) -> Self:
        """Return the record of these settings, without unset ones."""
        return cls({t: {key: v for key, v in own.items() if v is not None} for t, own in seen.items()})

    def set_since(self, now: Values) -> tuple[str, ...]:
        """Describe the settings that another tool has set since the preflight.

        The run would otherwise restore them as the settings from before it. Settings that were unset
        meanwhile, as at the end of another run, are ignored.
        """
        return tuple(
            f"{target}: {key} is {own} (at the preflight: {self.limits[target].get(key, 'unset')})"
            for target, settings in now.items()
            if target in self.limits
            for key, own in settings.items()
            if _parts(key, own) - _parts(key, self.limits[target].get(key))
        )


def _parts(key: str, value: str | None) -> set[str]:
    """Return the entries of a list, or a rate as a single entry."""
    return set() if value is None else set(value.split(",")) if key in LISTS else {value}


@dataclass(frozen=True)
class SentRates(Recorded):
    """Every rate that the moves may have set, recorded before it is sent.

    rates: by broker id. steps: rates that may be set on any broker, because they follow the load.
    """

    step: ClassVar[str] = "replicas"

    rates: Mapping[int, tuple[Rate, ...]]
    steps: tuple[int, ...] = ()

    def with_rates(self, rates: Mapping[int, Rate], steps: Collection[int] = ()) -> SentRates:
        """Return the record to write before these rates are sent."""
        more = {id: tuple(dict.fromkeys((*self.rates.get(id, ()), rate))) for id, rate in rates.items()}
        return SentRates({**self.rates, **more}, tuple(sorted({*self.steps, *steps})))


def throttles(c: Context) -> Throttles | None:
    """Return the throttle settings that this run recorded, or None if it has not recorded any yet.

    They include the lists of topics whose moves were added later.
    """
    record, added = known(Throttles, c), stragglers(c).found
    return record if record is None or not added else replace(record, found={**added, **record.found})


def sent_rates(c: Context) -> SentRates:
    """Return this run's record of sent rates; empty if the moves have set none."""
    return known(SentRates, c) or SentRates({})


def of_broker(id: int) -> str:
    """Return the target name of a broker's rates."""
    return f"broker-{id}"


def of_topic(name: str) -> str:
    """Return the target name of a topic's lists."""
    return f"topic-{name}"


def involved(moves: Iterable[Move]) -> tuple[int, ...]:
    """Return the brokers that send or receive for these moves in either direction, in order."""
    return tuple(sorted({broker for move in moves if move.copies for broker in (*move.before, *move.after)}))


def choosing(moves: Iterable[Move]) -> tuple[int, ...]:
    """Return the brokers for which a move names a log directory in either direction, in order."""
    return tuple(sorted({broker for move in moves for way in Way for broker in move.paths(way)}))


def read(
    look: Look, brokers: Collection[int], topics: Collection[str], inside: Collection[int] = ()
) -> Reading[Seens]:
    """Read the throttle settings of these brokers and topics.

    inside: the brokers to query for the rate between their log directories.
    """
    found: dict[str, dict[str, Reading[TopicSetting]]] = {}
    for key, asked in (*((key, brokers) for key in RATES), (INSIDE_RATE, inside)):
        of_brokers = look.ask(ReadBrokerSettings(KAFKA, key, tuple(asked))) if asked else Seen({})
        if not isinstance(of_brokers, Seen):
            return of_brokers
        for id, setting in of_brokers.value.items():
            found.setdefault(of_broker(id), {})[key] = setting
    for key in LISTS if topics else ():
        of_topics = look.ask(ReadTopicSettings(KAFKA, key, tuple(topics)))
        if not isinstance(of_topics, Seen):
            return of_topics
        for name, setting in of_topics.value.items():
            found.setdefault(of_topic(name), {})[key] = setting
    return Seen(found)


def values(seen: Seens) -> dict[str, dict[str, str | None]]:
    """Return the values that were read. Deleted topics and settings without an answer are left out."""
    return {
        target: {key: own.value.own for key, own in settings.items() if isinstance(own, Seen)}
        for target, settings in seen.items()
        if not any(isinstance(own, Absent) for own in settings.values())
    }


def unreadable(seen: Seens) -> dict[str, Unknown]:
    """Return the targets with a setting that could not be read, with the reason."""
    return {
        target: own
        for target, settings in seen.items()
        for own in settings.values()
        if isinstance(own, Unknown)
    }


def listed(found: Values) -> tuple[str, ...]:
    """Describe each setting that is set, for messages."""
    return tuple(
        f"{target}: {key}={value}"
        for target, settings in found.items()
        for key, value in settings.items()
        if value is not None
    )


Entries: TypeAlias = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Entries of the throttle lists, by target and key."""


def _entries(moves: Iterable[Move], receive: Callable[[Move], Iterable[int]]) -> Entries:
    entries: dict[str, dict[str, tuple[str, ...]]] = {}
    for move in moves:
        if move.copies:
            own = entries.setdefault(of_topic(move.topic), dict.fromkeys(LISTS, ()))
            for key, brokers in ((LEADER_LIST, (*move.before, *move.added)), (FOLLOWER_LIST, receive(move))):
                own[key] += tuple(f"{move.number}:{broker}" for broker in brokers)
    return entries


@dataclass(frozen=True)
class Limits:
    """The throttle of one run.

    found: the settings before the run.
    rates, inside: the rates that the run sets. preset: the rates that it sets in place of ``rates``.
    sent, steps: the rates that the moves have set since.
    moves: the moves of this run. others: reassignments of other tools, which go forward only.
    """

    found: Values
    rates: Mapping[int, Rate]
    inside: Mapping[int, int]
    sent: Mapping[int, tuple[Rate, ...]]
    steps: tuple[int, ...]
    moves: Sequence[Move]
    way: Way
    others: Sequence[Move] = ()
    preset: Mapping[int, Rate] = field(default_factory=dict)

    @staticmethod
    def of(
        record: Throttles, sent: SentRates, moves: Sequence[Move], way: Way, others: Sequence[Move] = ()
    ) -> Limits:
        return Limits(
            record.found,
            record.rates,
            record.inside,
            sent.rates,
            sent.steps,
            moves,
            way,
            others,
            record.preset,
        )

    @cached_property
    def entries(self) -> Entries:
        """The entries that the run adds to the lists in its direction.

        The leaders' list names every replica that may send. The followers' list names only those that receive
        in this direction. Kafka would otherwise also delay an in-sync follower that is a record behind, and
        with it every producer that waits for all replicas.
        """
        taken = frozenset(self.others)
        back = self.way is Way.BACK
        moves = (*self.moves, *self.others)
        return _entries(moves, lambda move: move.dropped if back and move not in taken else move.added)

    @cached_property
    def every(self) -> Entries:
        """The entries that the run may have added in either direction."""
        return _entries((*self.moves, *self.others), lambda move: (*move.added, *move.dropped))

    def on(self, target: str, key: str, now: str | None) -> str | None:
        """Return the value of a setting with the throttle.

        now: the current value. A list is read, merged and written as a whole.
        """
        if key in LISTS:
            return with_entries(now, self.entries[target][key])
        return self.ours(target, key)[0]

    def off(self, target: str, key: str, now: str | None) -> str | None:
        """Return the value of a setting without the throttle.

        This is the value found before the run, with what other tools have set since.
        """
        found = self.found[target].get(key)
        if key in LISTS:
            return without_entries(found, self.every[target][key], now)
        return without_rate(found, [int(rate) for rate in self.ours(target, key)], now)

    def ours(self, target: str, key: str) -> tuple[str, ...]:
        """Return every value that the run may have given a rate, the first one first."""
        id = int(target.removeprefix(of_broker(0)[:-1]))
        if key == INSIDE_RATE:
            return (str(self.inside[id]),)
        begins = (self.preset[id],) if id in self.preset else ()
        own = (rate.of(ROLES[key]) for rate in (*begins, self.rates[id], *self.sent.get(id, ())))
        return tuple(map(str, (*own, *self.steps)))
