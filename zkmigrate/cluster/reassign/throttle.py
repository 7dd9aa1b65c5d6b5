"""Kafka's replication throttle: four settings, what they were before the run, and what they are to be.

A broker has one rate for what it sends as leader and one for what it receives as follower. A rate holds only
for the replicas that a topic's two lists name, ``PARTITION:BROKER`` with commas between, or ``*`` for all.
Kafka throttles only replicas that are not in sync.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Self, TypeAlias

from zkmigrate.cluster.reassign.facts import Move, section, stragglers
from zkmigrate.cluster.reassign.rate_control import Control, Copying, listen
from zkmigrate.cluster.reassign.section import Pace
from zkmigrate.cluster.throttle.kafka_settings import with_entries, without_entries, without_rate
from zkmigrate.errors import HostError
from zkmigrate.kafka.changes import KAFKA, AlterBrokerConfig
from zkmigrate.kafka.questions import ReadBrokerSettings, ReadTopicSettings, TopicSetting
from zkmigrate.kafka.rates import Overrides, Rate, Role
from zkmigrate.runbook.model.change import Changes
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Ready, Verdict, Waiting, Way
from zkmigrate.runbook.model.step_record import Recorded, known

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADER_LIST, FOLLOWER_LIST = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
INSIDE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
"""What a broker copies from directory to directory; it needs no list."""
RATES, LISTS = (LEADER_RATE, FOLLOWER_RATE), (LEADER_LIST, FOLLOWER_LIST)
ROLES = {LEADER_RATE: Role.LEADER, FOLLOWER_RATE: Role.FOLLOWER}
Values: TypeAlias = Mapping[str, Mapping[str, str | None]]
"""Settings by target (``broker-1``, ``topic-orders``) and key; None for unset."""
Seens: TypeAlias = Mapping[str, Mapping[str, Reading[TopicSetting]]]
"""The same as they were read."""


def preset(c: Context, brokers: Collection[int]) -> Mapping[int, Rate]:
    """Return the rates that an operator set before the run, within floor and ceiling of ``adapt``."""
    adapt = section(c.inventory).adapt
    settings = adapt.settings() if adapt is not None else None
    wishes = {id: wish for id in brokers if (wish := c.overrides.of(id)) is not None}
    if settings is None:
        return {id: Rate(wish, wish) for id, wish in wishes.items()}
    return {id: settings.bounded(id, wish) for id, wish in wishes.items()}


def fixed(wanted: Pace, brokers: Collection[int]) -> Mapping[int, Rate]:
    """The inventory's rate for every broker and role."""
    return {broker: Rate(wanted.throttle_bytes_s, wanted.throttle_bytes_s) for broker in brokers}


@dataclass(frozen=True)
class Throttles(Recorded):
    """found: what the run found before its first change. rates: what it sets, by broker id. inside: the
    rate that it sets for copies between directories of a broker, by broker id. preset: the rates that an
    operator set before the run; they are set in place of ``rates``."""

    step: ClassVar[str] = "throttle"

    found: Values
    rates: Mapping[int, Rate]
    inside: Mapping[int, int] = field(default_factory=dict)
    preset: Mapping[int, Rate] = field(default_factory=dict)


@dataclass(frozen=True)
class FirstLimits(Recorded):
    """What a run saw at its preflight. limits: by target, the settings that were set."""

    step: ClassVar[str] = "reassignment"

    limits: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, seen: Values) -> Self:
        """The record of what was read."""
        return cls({t: {key: v for key, v in own.items() if v is not None} for t, own in seen.items()})

    def set_since(self, now: Values) -> tuple[str, ...]:
        """What another hand has set since, in words: it would be taken for what was there before. What is
        unset by now, as at the end of another run, is no matter."""
        return tuple(
            f"{target}: {key} is {own} (at the preflight: {self.limits[target].get(key, 'unset')})"
            for target, settings in now.items()
            if target in self.limits
            for key, own in settings.items()
            if _parts(key, own) - _parts(key, self.limits[target].get(key))
        )


def _parts(key: str, value: str | None) -> set[str]:
    """The entries of a list, or a rate as a whole."""
    return set() if value is None else set(value.split(",")) if key in LISTS else {value}


@dataclass(frozen=True)
class SentRates(Recorded):
    """Every rate that the moves may have set since, by broker id, or on any broker where it is one of
    ``steps``: those that follow the load. Recorded before the rate is sent."""

    step: ClassVar[str] = "replicas"

    rates: Mapping[int, tuple[Rate, ...]]
    steps: tuple[int, ...] = ()

    def with_rates(self, rates: Mapping[int, Rate], steps: Collection[int] = ()) -> SentRates:
        """The record before these are sent."""
        more = {id: tuple(dict.fromkeys((*self.rates.get(id, ()), rate))) for id, rate in rates.items()}
        return SentRates({**self.rates, **more}, tuple(sorted({*self.steps, *steps})))


def throttles(c: Context) -> Throttles | None:
    """The record of this run, with the lists of the topics whose moves it added; None before its step."""
    record, added = known(Throttles, c), stragglers(c).found
    return record if record is None or not added else replace(record, found={**added, **record.found})


def sent_rates(c: Context) -> SentRates:
    """The record of this run; an empty one where the moves have set none."""
    return known(SentRates, c) or SentRates({})


def of_broker(id: int) -> str:
    """The target that a broker's rates are."""
    return f"broker-{id}"


def of_topic(name: str) -> str:
    """The target that a topic's lists are."""
    return f"topic-{name}"


def involved(moves: Iterable[Move]) -> tuple[int, ...]:
    """The brokers that send or receive for these moves, in either direction, in order."""
    return tuple(sorted({broker for move in moves if move.copies for broker in (*move.before, *move.after)}))


def choosing(moves: Iterable[Move]) -> tuple[int, ...]:
    """The brokers where a directory is named for a replica, in either direction, in order."""
    return tuple(sorted({broker for move in moves for way in Way for broker in move.paths(way)}))


def read(
    look: Look, brokers: Collection[int], topics: Collection[str], inside: Collection[int] = ()
) -> Reading[Seens]:
    """The throttle settings of these brokers and topics. inside: brokers that tell the rate between their
    directories too."""
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


Entries: TypeAlias = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Entries of the lists, by target and key."""


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
    """The throttle of one run. found: before it. rates, inside: what it sets; preset: in place of them. sent,
    steps: what the moves set since. moves, others: of this run and of another hand; the latter go forward
    only."""

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
        """What it adds to the lists in one direction. The leaders' list names every replica that may send.
        The followers' names those that receive in this direction alone: Kafka would also hold up a follower
        in sync that is a record behind, and with it every producer that waits for all."""
        taken = frozenset(self.others)
        back = self.way is Way.BACK
        moves = (*self.moves, *self.others)
        return _entries(moves, lambda move: move.dropped if back and move not in taken else move.added)

    @cached_property
    def every(self) -> Entries:
        """What it may have added, in both."""
        return _entries((*self.moves, *self.others), lambda move: (*move.added, *move.dropped))

    def on(self, target: str, key: str, now: str | None) -> str | None:
        """The value with the throttle. now: the present value. A list is read, merged and set whole."""
        if key in LISTS:
            return with_entries(now, self.entries[target][key])
        return self.ours(target, key)[0]

    def off(self, target: str, key: str, now: str | None) -> str | None:
        """The value without it: the one found, with what other hands have set meanwhile."""
        found = self.found[target].get(key)
        if key in LISTS:
            return without_entries(found, self.every[target][key], now)
        return without_rate(found, [int(rate) for rate in self.ours(target, key)], now)

    def ours(self, target: str, key: str) -> tuple[str, ...]:
        """Every value that the run may have given a rate, the first one first."""
        id = int(target.removeprefix(of_broker(0)[:-1]))
        if key == INSIDE_RATE:
            return (str(self.inside[id]),)
        begins = (self.preset[id],) if id in self.preset else ()
        own = (rate.of(ROLES[key]) for rate in (*begins, self.rates[id], *self.sent.get(id, ())))
        return tuple(map(str, (*own, *self.steps)))


def wanted_rates(record: Throttles, overrides: Overrides, control: Control | None) -> Mapping[int, Rate]:
    """The rate of each broker: an operator's, else the one that follows the load, else the one that the
    throttle began with."""
    if control is not None:
        return {id: control.rate(id, overrides) or rate for id, rate in record.rates.items()}
    told = {id: overrides.of(id) for id in record.rates}
    return {id: rate if (wish := told[id]) is None else Rate(wish, wish) for id, rate in record.rates.items()}


@dataclass(frozen=True)
class RatesInForce:
    """The rates while partitions move. wanted: by broker id. seen: what brokers tell, of those that are
    alive. unchanged: every broker was seen to have the wanted ones, and none was asked again. control: what
    makes the rates follow the load; None where they do not."""

    limits: Limits
    sent: SentRates
    wanted: Mapping[int, Rate]
    seen: Reading[Seens]
    unchanged: bool
    control: Control | None = None

    @property
    def withheld(self) -> tuple[str, ...]:
        """Why no move is submitted; empty where moves are."""
        return () if self.control is None else self.control.withheld

    @property
    def listening(self) -> str:
        """What the last tick saw and did, for the progress; empty without one."""
        return "" if self.control is None else self.control.words

    @property
    def found(self) -> tuple[Finding, ...]:
        """What following the load came to."""
        return () if self.control is None else (self.control.found(),)

    def recorded(self, rates: Mapping[int, Rate]) -> SentRates:
        """The record before these rates are sent; one that is a step is recorded with the steps."""
        steps = () if self.control is None else self.control.settings.steps
        limits = replace(self.limits, steps=tuple({*self.limits.steps, *steps}))
        new = {
            id: rate
            for id, rate in rates.items()
            if any(str(rate.of(role)) not in limits.ours(of_broker(id), key) for key, role in ROLES.items())
        }
        return self.sent.with_rates(new, steps)

    @cached_property
    def _now(self) -> Values:
        return values(self.seen.value) if isinstance(self.seen, Seen) else {}

    @property
    def settled(self) -> bool:
        """Whether every broker told its rates and has the wanted ones, or those of another hand."""
        whole = sum(len(own) == len(RATES) for own in self._now.values())
        return self.unchanged or (whole == len(self.wanted) and not self.differ)

    @cached_property
    def differ(self) -> tuple[int, ...]:
        """The brokers with a rate of this run that is not the wanted one."""
        return tuple(id for id in self.wanted if self.changes(id))

    @property
    def of_others(self) -> tuple[str, ...]:
        """The rates that another hand has set, in words. They stay."""
        return tuple(
            f"{target}: {key} is {'unset' if own is None else own} by another hand, and stays"
            for target, settings in self._now.items()
            for key, own in settings.items()
            if own not in self.limits.ours(target, key) and own != self._wanted(target, key)
        )

    def changes(self, id: int) -> Changes:
        """What gives a broker its wanted rates. A rate of another hand stays."""
        target = of_broker(id)
        now = self._now.get(target, {})
        return tuple(
            AlterBrokerConfig(KAFKA, id, key, self._wanted(target, key), own)
            for key, own in now.items()
            if own != self._wanted(target, key) and own in self.limits.ours(target, key)
        )

    def _wanted(self, target: str, key: str) -> str:
        return str(self.wanted[int(target.removeprefix(of_broker(0)[:-1]))].of(ROLES[key]))


def rates_in_force(c: Context, look: Look, copying: Copying) -> RatesInForce | None:
    """Look at the rates of the moves, and at the load where they follow it and that is due; None where the
    run has set no throttle. Wanted rates that every broker was seen to have are not looked at again."""
    record, sent = throttles(c), sent_rates(c)
    if record is None:
        return None
    limits, alive = Limits.of(record, sent, copying.every, c.way), copying.found.alive
    control: Control | None = c.kept.get("control")
    adapt = section(c.inventory).adapt
    if adapt is not None and copying.found.unheard is None:
        shown = {} if control is not None else _shown(look, limits, alive)
        control = listen(c, look, adapt, shown, copying, control)
    wanted = wanted_rates(record, c.overrides, control)
    unchanged = c.kept.get("settled") == wanted
    asked = () if unchanged else tuple(id for id in wanted if id in alive)
    return RatesInForce(limits, sent, wanted, read(look, asked, ()), unchanged, control)


def keeping_control(c: Context, rates: RatesInForce | None, verdict: Verdict) -> Verdict:
    """The verdict, with the control for the next look."""
    if rates is None or rates.control is None or not isinstance(verdict, Ready | Waiting):
        return verdict
    return replace(verdict, keep={**(verdict.keep or c.kept), "control": rates.control})


def _shown(look: Look, limits: Limits, alive: Collection[int]) -> Mapping[int, Rate]:
    """The rates that brokers show, where the run may have set them; else those that it began with.
    HostError where no broker tells: a run that was killed goes on from its rates."""
    seen = read(look, tuple(id for id in limits.rates if id in alive), ())
    if not isinstance(seen, Seen):
        raise HostError(f"the rates in force: {seen}")
    now = values(seen.value)

    def rate(id: int, key: str) -> int:
        own, target = now.get(of_broker(id), {}).get(key), of_broker(id)
        return (
            int(own)
            if own is not None and own in limits.ours(target, key)
            else limits.preset.get(id, limits.rates[id]).of(ROLES[key])
        )

    return {id: Rate(rate(id, LEADER_RATE), rate(id, FOLLOWER_RATE)) for id in limits.rates}
