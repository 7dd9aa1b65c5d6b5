"""Make the throttle follow the load: at each tick measure the load, decide the rates and keep the state.

A tick compares two readings. So the first tick of a process only takes a reading, and no move is submitted
before the second. A process reads the rates in force from the brokers at its start, so it continues from the
rates of a killed one.

A broker that sends no copies keeps its rate for sending, and one that receives none keeps its rate for
receiving, because each change costs a request and lines in the journal. Before a move begins there, the rate
falls to the one that the last tick computed; it rises only while the broker copies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign.adapt import Adapt, Exporter
from zkmigrate.cluster.reassign.answers import Cluster
from zkmigrate.cluster.reassign.estimate import ends
from zkmigrate.cluster.reassign.moves import Move
from zkmigrate.cluster.throttle.controller import decide
from zkmigrate.hosts.facts import load as load_facts
from zkmigrate.hosts.facts.load import Counters
from zkmigrate.inventory.inventory import Broker
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.kafka.questions import DescribeLogDirs, LogDirs
from zkmigrate.kafka.rates import Decision, Moving, Overrides, Rate, Role, Sample, Settings, State, amount
from zkmigrate.kafka.rules import throttle_series
from zkmigrate.kafka.rules.copying import Copied, measure_copying, sample
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Severity, claim, few, meanings
from zkmigrate.runbook.model.look import Look, Pulse
from zkmigrate.runbook.model.report import counted
from zkmigrate.runbook.model.step import Context

STALE_TICKS = 4
"""The number of ticks without a reading, as during a hold, after which the last reading is discarded."""


@dataclass(frozen=True)
class Figures:
    """One reading of the load.

    counters: counters of the brokers' hosts, by broker id.
    missing: why a broker has no counters.
    dirs: what brokers report about the requested partitions.
    paths: the log directories of the brokers.
    moving: the partitions that copied or were about to.
    sent: every partition whose move was sent.
    """

    counters: Mapping[int, Counters] = field(default_factory=dict)
    missing: Mapping[int, str] = field(default_factory=dict)
    dirs: Mapping[int, LogDirs] = field(default_factory=dict)
    paths: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    moving: tuple[Moving, ...] = ()
    sent: frozenset[Name] = frozenset()


@dataclass(frozen=True)
class Control:
    """The result of a tick, which is kept until the next tick.

    at: the time of the tick's reading, on the operator's clock.
    state: the state with the rates that are in force or about to be.
    computed: the rates that the last tick computed for each broker, also for brokers that copy nothing.
    decision: the decision of the tick; None if it only took a reading.
    ticks, pauses: how many decisions this process made, and how many of them paused new moves.
    endless: rates at which moves could never finish, in words, as reported before they were set.
    """

    settings: Settings
    at: float
    state: State
    computed: Mapping[int, Rate]
    figures: Figures
    decision: Decision | None = None
    ticks: int = 0
    pauses: int = 0
    endless: tuple[str, ...] = ()

    def between(self, active: Collection[tuple[int, Role]]) -> Control:
        """Return the control for a time between two ticks.

        active: the brokers and roles that copy or are about to. Their rate is the lower of the current and
        computed one.
        """
        state = _taking(self.state, self.computed, active, min)
        return replace(self, state=state)

    def rate(self, id: int, overrides: Overrides) -> Rate | None:
        """Return the rate of a broker between two ticks, or None if it has none.

        An operator's rate takes effect at once, within floor and ceiling.
        """
        wish = overrides.of(id)
        if wish is None:
            return self.state.rates.get(id)
        return self.settings.bounded(id, wish)

    @property
    def withheld(self) -> tuple[str, ...]:
        """The reasons why no move is submitted now; empty if moves may be submitted."""
        if self.decision is None:
            return ("no move is submitted before two readings of the load",)
        return tuple(f"no move is submitted: {why}" for why in self.decision.pauses)

    @property
    def words(self) -> str:
        """What the last tick measured and changed, for the progress report."""
        told = list(self.withheld)
        told += [f"no load figures of broker {id}: {why}" for id, why in self.figures.missing.items()]
        if self.decision is not None:
            told += [one.words() for one in self.decision.endless]
            told += self._changes(self.decision)
        return few(told) if told else ""

    def _changes(self, decision: Decision) -> list[str]:
        rates = decision.rates
        return [
            f"broker {why.broker} as {why.role}: {amount(rates[why.broker].of(why.role))}, {why.text}"
            for why in decision.reasons
        ]

    def found(self) -> Finding:
        """Return the finding about what the run's last process decided."""
        seen = f"{counted(self.ticks, 'decision')} by this process; "
        seen += f"no move was submitted after {self.pauses:,} of them"
        seen += (
            f"; rates too low for a move ever to finish, which the run reported first: {few(self.endless)}"
            if self.endless
            else ""
        )
        return claim(
            "reassign.listened", "the throttle followed the load", True, seen=seen, severity=Severity.INFO
        )


@dataclass(frozen=True)
class Copying:
    """The state of the moves at one time.

    every: all moves of the run. flying: the moves in flight. starting: the moves about to be submitted.
    sent: every partition whose move was sent. found: what the brokers report.
    """

    every: Sequence[Move]
    flying: Sequence[Move]
    starting: Sequence[Move]
    sent: frozenset[Name]
    found: Cluster


def listen(
    c: Context,
    look: Look,
    adapt: Adapt,
    shown: Mapping[int, Rate],
    moves: Copying,
    before: Control | None,
) -> Control:
    """Return the current control: from a new tick if one is due, else the control from before.

    shown: the current rates of all brokers of the run, by id; needed if ``before`` is None.
    """
    settings, now = adapt.settings(), look.now()
    past = before.figures if before is not None else Figures()
    moving = _moving(c, moves, past)
    if before is not None and now - before.at < adapt.tick_s:
        return replace(before, settings=settings).between(_roles(moving))
    state = State(shown) if before is None else before.state
    stale = before is None or now - before.at > STALE_TICKS * adapt.tick_s
    ended = () if stale else _ended(c, moves, past)
    figures = _figures(c, look, adapt, tuple(state.rates), (*moving, *ended), past)
    figures = replace(figures, moving=moving, sent=moves.sent)
    pulses = look.produced() if settings.latency_limit_ms is not None else {}
    if before is None or stale:
        told = (0, 0, ()) if before is None else (before.ticks, before.pauses, before.endless)
        return Control(settings, now, state, state.rates, figures, None, *told)
    seen = measure_copying((*moving, *ended), past.dirs, figures.dirs, now - before.at)
    samples, missing = _samples(c, past, figures, seen, pulses)
    told_moving = seen.moving[: len(moving)]
    decision = decide(told_moving, samples, settings, state, c.overrides)
    computed = decision.rates
    wished = {(id, role) for id in computed for role in Role if c.overrides.of(id) is not None}
    decision = _of_active(decision, state, wished | _roles((*moving, *ended)))
    figures = replace(figures, moving=told_moving, missing={**figures.missing, **missing})
    if words := [one.words() for one in decision.endless]:
        c.tell("the rates of the throttle", few(words))
    c.note(throttle_series.KIND, throttle_series.body(decision, samples, (*told_moving, *_later(c, moves))))
    endless = tuple(dict.fromkeys((*before.endless, *words)))[-10:]
    pauses = before.pauses + decision.pause
    return Control(
        settings, now, decision.state, computed, figures, decision, before.ticks + 1, pauses, endless
    )


def _roles(moving: Iterable[Moving]) -> set[tuple[int, Role]]:
    """Return the brokers that copy, with the role in which they do."""
    some = tuple(moving)
    leaders = {(one.leader, Role.LEADER) for one in some}
    return leaders | {(broker, Role.FOLLOWER) for one in some for broker in one.adding}


def _taking(
    state: State,
    found: Mapping[int, Rate],
    active: Collection[tuple[int, Role]],
    choose: Callable[[int, int], int],
) -> State:
    """Return the state with a new rate for each active role.

    choose: returns the new rate from the current rate and the rate in ``found``.
    """

    def rate(id: int, now: Rate) -> Rate:
        new = found.get(id, now)
        return Rate(
            *(choose(now.of(role), new.of(role)) if (id, role) in active else now.of(role) for role in Role)
        )

    return replace(state, rates={id: rate(id, now) for id, now in state.rates.items()})


def _of_active(decision: Decision, before: State, active: Collection[tuple[int, Role]]) -> Decision:
    """Return the decision limited to roles that copy; the other roles keep their rate.

    Reasons are kept only for rates that change.
    """
    known = {**decision.rates, **before.rates}
    state = _taking(replace(decision.state, rates=known), decision.rates, active, lambda _now, new: new)
    changed = tuple(id for id, rate in state.rates.items() if rate != before.rates.get(id))
    reasons = tuple(
        why
        for why in decision.reasons
        if why.broker not in before.rates
        or state.rates[why.broker].of(why.role) != before.rates[why.broker].of(why.role)
    )
    return replace(decision, rates=state.rates, changed=changed, reasons=reasons, state=state)


def _moving(c: Context, moves: Copying, past: Figures) -> tuple[Moving, ...]:
    """Return the partitions that copy or are about to, with the senders and receivers that Kafka reports."""
    flights, there = moves.found.flights, moves.found.partitions
    known = {(one.topic, one.partition): one for one in past.moving}
    made = []
    for move in (*moves.flying, *moves.starting):
        sender, receivers = ends(move, c.way)
        flight, state, was = flights.get(move.name), there.get(move.name), known.get(move.name)
        leader = state.leader if state is not None and state.leader >= 0 else sender
        adding = receivers if flight is None else flight.adding
        produced = was.produced if was is not None else 0.0
        in_sync = 0 if state is None else len({*state.isr} - {leader, *adding})
        if adding:
            made.append(Moving(*move.name, leader, adding, move.size, produced, followers=in_sync))
    return tuple(made)


def _ended(c: Context, moves: Copying, past: Figures) -> tuple[Moving, ...]:
    """Return the partitions whose copies ended since the last reading; their bytes count as copied, too."""
    now = {move.name for move in (*moves.flying, *moves.starting)}
    known = {(one.topic, one.partition): one for one in past.moving}
    over = moves.sent - now
    gone = [one for name, one in known.items() if name in over]
    quick = over - past.sent - known.keys()
    new = [move for move in moves.every if move.name in quick and ends(move, c.way)[1]]
    return (*gone, *(Moving(*move.name, *ends(move, c.way), move.size) for move in new))


def _later(c: Context, moves: Copying) -> Iterable[Moving]:
    """Yield the moves that are not sent yet, so that their remaining bytes are counted."""
    near = {move.name for move in moves.starting} | moves.sent
    for move in moves.every:
        if move.name not in near:
            sender, receivers = ends(move, c.way)
            yield Moving(*move.name, sender, receivers, move.size)


def _figures(
    c: Context, look: Look, adapt: Adapt, brokers: Collection[int], asked: Sequence[Moving], past: Figures
) -> Figures:
    """Read the log directories of these partitions, and the counters of the brokers' hosts."""
    by_topic: dict[str, list[int]] = {}
    for one in asked:
        by_topic.setdefault(one.topic, []).append(one.partition)
    told = look.ask(DescribeLogDirs(KAFKA, tuple(brokers), by_topic)) if by_topic else Seen({})
    dirs = told.value if isinstance(told, Seen) else {}
    paths = {**past.paths, **{id: tuple(own.value) for id, own in dirs.items() if isinstance(own, Seen)}}
    counters, missing = _counters(c, look, adapt, brokers, paths)
    return Figures(counters, missing, dirs, paths)


def unreadable_loads(
    c: Context, look: Look, adapt: Adapt, brokers: Collection[int], paths: Mapping[int, tuple[str, ...]]
) -> Mapping[int, str]:
    """Return why the load of some of these brokers could not be read. paths: their log directories."""
    return _counters(c, look, adapt, brokers, paths)[1]


def _counters(
    c: Context, look: Look, adapt: Adapt, brokers: Collection[int], paths: Mapping[int, tuple[str, ...]]
) -> tuple[dict[int, Counters], dict[int, str]]:
    """Return the counters of the brokers' hosts, and why a broker has none."""
    read: dict[int, Reading[Counters]]
    if adapt.source == "prometheus":
        exporters = {str(one.id): one for one in adapt.exporters if one.id in brokers}
        texts = look.each(exporters, lambda id: look.metrics(exporters[id].url))
        read = {int(id): _exported(text, exporters[id], adapt) for id, text in texts.items()}
        unnamed = "adapt.exporters does not name the broker"
    else:
        hosts = {broker.name: broker for broker in c.inventory.brokers if broker.id in brokers}
        texts = look.each(hosts, look.load_counters)
        read = {hosts[name].id: _parsed(text, hosts[name], paths, adapt) for name, text in texts.items()}
        unnamed = "the inventory does not name the broker"
    missing = dict.fromkeys((id for id in brokers if id not in read), unnamed)
    missing |= {id: str(one) for id, one in read.items() if not isinstance(one, Seen)}
    return {id: one.value for id, one in read.items() if isinstance(one, Seen)}, missing


def _parsed(
    text: Reading[str], broker: Broker, paths: Mapping[int, tuple[str, ...]], adapt: Adapt
) -> Reading[Counters]:
    if not isinstance(text, Seen):
        return text
    if adapt.disks_count and broker.id not in paths:
        return Unknown("failed", "the broker has not reported its log directories yet")
    own = paths[broker.id] if adapt.disks_count else ()
    return load_facts.parse(text.value, broker.address, own, adapt.interfaces)


def _exported(text: Reading[str], exporter: Exporter, adapt: Adapt) -> Reading[Counters]:
    if not isinstance(text, Seen):
        return text
    disks = (exporter.disks or adapt.disks) if adapt.disks_count else ()
    found = load_facts.parse_metrics(text.value, disks, exporter.interfaces or adapt.interfaces)
    return Unknown(found.cause, f"{exporter.url}: {found.why}") if isinstance(found, Unknown) else found


def _samples(
    c: Context, past: Figures, now: Figures, seen: Copied, pulses: Mapping[str, Sequence[Pulse]]
) -> tuple[dict[int, Sample], dict[int, str]]:
    """Return a sample for each broker since the last tick, and why a broker has none.

    If no log directory was queried, nothing was copied.
    """
    names = {broker.id: broker.name for broker in c.inventory.brokers}
    samples, missing = {}, {}
    for id, counters in now.counters.items():
        if id not in past.counters:
            missing[id] = past.missing.get(id, "none at the last tick")
            continue
        load = load_facts.load(past.counters[id], counters)
        if not isinstance(load, Seen):
            missing[id] = str(load)
            continue
        own = seen.rates.get(id) if now.dirs or past.dirs else Rate(0, 0)
        samples[id] = sample(load.value, own, pulses.get(names[id], ()))
    return samples, missing


MEANINGS = meanings(
    """
    reassign.listened: How often the throttle followed the load, and what it reported. Cause: A remark; it
    stops nothing. To do: Nothing. If a rate could never finish, raise floor or cap.
    """
)
