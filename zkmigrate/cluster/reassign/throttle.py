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
    """Return this run's record, with the lists of topics whose moves were added; None before its step."""
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


def wanted_rates(record: Throttles, overrides: Overrides, control: Control | None) -> Mapping[int, Rate]:
    """Return the rate to set for each broker.

    An operator's rate comes first, then the one that follows the load, then the one that the throttle began
    with.
    """
    if control is not None:
        return {id: control.rate(id, overrides) or rate for id, rate in record.rates.items()}
    told = {id: overrides.of(id) for id in record.rates}
    return {id: rate if (wish := told[id]) is None else Rate(wish, wish) for id, rate in record.rates.items()}


@dataclass(frozen=True)
class RatesInForce:
    """The broker rates while partitions move.

    wanted: the rates to set, by broker id.
    seen: the rates that live brokers report.
    unchanged: whether every broker was already seen to have the wanted rates, so that none was queried again.
    control: the control that makes the rates follow the load; None for fixed rates.
    """

    limits: Limits
    sent: SentRates
    wanted: Mapping[int, Rate]
    seen: Reading[Seens]
    unchanged: bool
    control: Control | None = None

    @property
    def withheld(self) -> tuple[str, ...]:
        """The reasons why no move is submitted now; empty if moves may be submitted."""
        return () if self.control is None else self.control.withheld

    @property
    def listening(self) -> str:
        """What the last tick measured and changed, for the progress report; empty for fixed rates."""
        return "" if self.control is None else self.control.words

    @property
    def found(self) -> tuple[Finding, ...]:
        """The finding about how the throttle followed the load; empty for fixed rates."""
        return () if self.control is None else (self.control.found(),)

    def recorded(self, rates: Mapping[int, Rate]) -> SentRates:
        """Return the record to write before these rates are sent.

        Rates that are steps are recorded with the steps.
        """
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
        """Whether every broker reported its rates, and has the wanted ones or those of another tool."""
        whole = sum(len(own) == len(RATES) for own in self._now.values())
        return self.unchanged or (whole == len(self.wanted) and not self.differ)

    @cached_property
    def differ(self) -> tuple[int, ...]:
        """The brokers that have a rate of this run other than the wanted one."""
        return tuple(id for id in self.wanted if self.changes(id))

    @property
    def of_others(self) -> tuple[str, ...]:
        """The rates that another tool has set, in words. The run leaves them."""
        return tuple(
            f"{target}: {key} is {'unset' if own is None else own} (set by another tool), and the "
            "run keeps it"
            for target, settings in self._now.items()
            for key, own in settings.items()
            if own not in self.limits.ours(target, key) and own != self._wanted(target, key)
        )

    def changes(self, id: int) -> Changes:
        """Return the changes that give a broker its wanted rates. A rate that another tool has set stays."""
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
    """Look up the rates of the moves, and the load if the rates follow it and a tick is due.

    Returns None if the run has set no throttle. Brokers are not queried again once all had the wanted rates.
    """
    record, sent = throttles(c), sent_rates(c)
    if record is None:
        return None
    limits, alive = Limits.of(record, sent, copying.every, c.way), copying.found.alive
    control: Control | None = c.kept.get("control")
    adapt = section(c.inventory).adapt
    if adapt is not None and copying.found.missing_answer is None:
        shown = {} if control is not None else _shown(look, limits, alive)
        control = listen(c, look, adapt, shown, copying, control)
    wanted = wanted_rates(record, c.overrides, control)
    unchanged = c.kept.get("settled") == wanted
    asked = () if unchanged else tuple(id for id in wanted if id in alive)
    return RatesInForce(limits, sent, wanted, read(look, asked, ()), unchanged, control)


def keeping_control(c: Context, rates: RatesInForce | None, verdict: Verdict) -> Verdict:
    """Return the verdict with the control kept for the next look."""
    if rates is None or rates.control is None or not isinstance(verdict, Ready | Waiting):
        return verdict
    return replace(verdict, keep={**(verdict.keep or c.kept), "control": rates.control})


def _shown(look: Look, limits: Limits, alive: Collection[int]) -> Mapping[int, Rate]:
    """Return the rates that brokers show if the run may have set them, else those that the run began with.

    After a killed process the run continues from these. Raises HostError if no broker answers.
    """
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
