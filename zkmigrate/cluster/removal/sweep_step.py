"""What: find the replicas that were created on the brokers meanwhile, record a plan for them, and move them,
until the brokers are empty.

Why now: topics are created while partitions move, some by explicit assignment. A broker may stop once no
partition names it.

Clients may notice: the traffic of the copies, up to the throttle; a new leader for each partition whose old
leader is removed.

Way back: each partition that this step moved gets its former replica list, in its order.

Proof: two queries find no partition that names a broker to be removed, and no replica in the log directories
of these brokers. If the brokers are to stop and topics are created faster than they are moved, only
partitions newer than the last plan may name these brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from zkmigrate.cluster.reassign.answers import Cluster, described
from zkmigrate.cluster.reassign.choice import next_moves
from zkmigrate.cluster.reassign.facts import LOOKS
from zkmigrate.cluster.reassign.moves import Move, Originals, Stand, Stragglers, originals, planned, section
from zkmigrate.cluster.reassign.moves_facts import MovesFacts
from zkmigrate.cluster.reassign.moves_step import MovesStep
from zkmigrate.cluster.reassign.rules import in_sync
from zkmigrate.cluster.reassign.throttle import (
    LISTS,
    Limits,
    Seens,
    Values,
    of_topic,
    read,
    sent_rates,
    throttles,
    unreadable,
    values,
)
from zkmigrate.cluster.removal.disks import Held, OnDisks, directories_left, on_disks, replicas_on_disks
from zkmigrate.cluster.removal.section import removal
from zkmigrate.cluster.removal.survey import Survey, naming, survey
from zkmigrate.cluster.removal.sweep_findings import came, empty, in_flight_elsewhere, only_there
from zkmigrate.cluster.removal.validate_step import unsized
from zkmigrate.hosts.facts.status import HostStatus
from zkmigrate.kafka.changes import KAFKA, AlterTopicConfig, ReassignPartition
from zkmigrate.kafka.questions import KafkaView, ListTopics, PartitionState
from zkmigrate.kafka.rules.identity import Identity
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import few, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import (
    Blocked,
    Context,
    Done,
    Forecast,
    Hazard,
    Ready,
    Step,
    Verdict,
    Waiting,
    Way,
)
from zkmigrate.runbook.model.step_record import known

EMPTY_S = 1.0
"""Seconds between the two queries that must find the brokers empty."""

ROUNDS = 3
"""How many rounds of new replicas to move before concluding that topics are created continuously."""

_LIST = "list:"
"""The prefix of a topic's name in targets that set a list; no topic name has a colon."""


@dataclass(frozen=True)
class SweepFacts:
    """Facts about new replicas on the brokers to be removed.

    moves: the state of the moves that this step has added.
    every: all partitions; None while the step's own moves are in flight.
    survey: the cluster, to plan new moves; None if there are none.
    lists: the throttle lists of topics that are about to move.
    limits: the throttle with the new moves; None if the run has none.
    held: the replicas on the disks as the brokers report them. aside: the same as the hosts report them.
    now: the time of the reading on the monotonic clock, in seconds.

    Only the step that stops brokers uses these:
    services: the brokers' services, by host.
    identities: whether brokers to be started have their own id and cluster, by host.
    view: the cluster, if it was read once more.
    """

    moves: MovesFacts
    every: Cluster | None = None
    survey: Survey | None = None
    lists: Reading[Seens] = field(default_factory=lambda: Seen({}))
    limits: Limits | None = None
    held: Held = field(default_factory=Held)
    aside: OnDisks = field(default_factory=dict)
    now: float = 0.0
    services: Mapping[str, Reading[HostStatus]] = field(default_factory=dict)
    identities: Mapping[str, Reading[Identity]] = field(default_factory=dict)
    view: Reading[KafkaView] | None = None

    @cached_property
    def own(self) -> tuple[Move, ...]:
        """The moves of this step, with the new ones.

        A partition that must move again has only its new move.
        """
        new = {move.name: move for move in self.survey.free_moves} if self.survey is not None else {}
        old = self.moves.plan.moves if self.moves.plan is not None else ()
        return (*(move for move in old if move.name not in new), *new.values())

    @cached_property
    def by_target(self) -> Mapping[str, Move]:
        """The moves of this step by their names in the journal."""
        return Originals(self.own).by_target

    @cached_property
    def listed(self) -> Values:
        """The throttle lists that were read."""
        return values(self.lists.value) if isinstance(self.lists, Seen) else {}

    @cached_property
    def differ(self) -> Mapping[str, Changes]:
        """The changes for topics whose throttle lists are not as wanted, by target."""
        if self.limits is None:
            return {}
        to = self.limits.on if self.limits.way is Way.FORWARD else self.limits.off
        found = {}
        for target, now in self.listed.items():
            topic = target.removeprefix(of_topic(""))
            wanted = {key: to(target, key, now[key]) for key in LISTS if target in self.limits.entries}
            found[f"{_LIST}{topic}"] = tuple(
                AlterTopicConfig(KAFKA, topic, key, value, now[key])
                for key, value in wanted.items()
                if value != now[key]
            )
        return {target: changes for target, changes in found.items() if changes}


class SweepStep(Step[SweepFacts]):
    id = Stragglers.step
    title = "Empty the brokers"
    hazard = Hazard.REVERSIBLE
    record = Stragglers

    def __init__(self) -> None:
        self._moving = MovesStep(self._own_moves, sets_rates=False, replans=True)

    def _added(self, c: Context) -> Stragglers:
        """Return the record of this step; empty at first."""
        record, now = known(self.record, c), planned(c)
        at = now.at if now is not None else 0.0
        return record if record is not None and record.planned_at == at else self.record(planned_at=at)

    def _own_moves(self, c: Context) -> Originals | None:
        return Originals(self._added(c).moves)

    def observe(self, c: Context, look: Look) -> SweepFacts:
        moves = self._moving.observe(c, look)
        assert moves.plan is not None
        if moves.found is None or moves.found.missing is not None:
            return SweepFacts(moves)
        if c.way is Way.BACK:
            topics = {target.removeprefix(of_topic("")) for target in self._added(c).found}
            return self._throttled(c, look, SweepFacts(moves), topics)
        if _busy(moves):
            topics = {move.topic for move in moves.plan.moves if move.target not in c.unrestored}
            return self._throttled(c, look, SweepFacts(moves), topics)
        names = look.ask(ListTopics(KAFKA))
        if not isinstance(names, Seen):
            return SweepFacts(moves, Cluster(moves.found.in_flight, names))
        every = described(look, moves.found.in_flight, ((name, 0) for name in names.value.names))
        gone = removal(c.inventory).brokers
        found = naming(tuple(every.partitions.values()), gone)
        new = [(p.topic, p.partition) for p in found if (p.topic, p.partition) not in every.flights]
        now = look.now()
        if every.missing is not None:
            return SweepFacts(moves, every, now=now)
        there = replicas_on_disks(look, [id for id in gone if id in every.alive], found)
        second = c.kept.get("empty") is not None and self.record is Stragglers  # reported once in the run
        aside = on_disks(c.inventory, look) if second else {}
        f = SweepFacts(moves, every, survey(c, look, new) if new else None, held=there, aside=aside, now=now)
        return self._throttled(c, look, f, {topic for topic, _ in new})

    def _throttled(self, c: Context, look: Look, f: SweepFacts, topics: Collection[str]) -> SweepFacts:
        """Return the facts with the throttle lists of these topics, and their wanted values."""
        lists, record, every = read(look, (), sorted(topics)), throttles(c), originals(c)
        if record is None:
            return replace(f, lists=lists)
        moves = (*(every.moves if every is not None else ()), *f.own)
        new = {target: dict.fromkeys(LISTS) for target in replace(f, lists=lists).listed}
        record = replace(record, found={**new, **record.found})
        return replace(f, lists=lists, limits=Limits.of(record, sent_rates(c), moves, c.way))

    def check(self, c: Context, f: SweepFacts) -> Verdict:
        if f.every is None:
            return self._go_on(c, f, self._moving.check(c, f.moves))
        limit = c.inventory.policy.step_deadline_s
        if f.every.missing is not None:
            what = "Kafka reports all topics"
            return Waiting(what, str(f.every.missing), limit, poll_s=1.0, keep=c.kept)
        if f.survey is not None:
            if self._outrun(c, f):
                return self._empty(c, replace(f, survey=None))  # the newest partitions are not added here
            return unsized(c, f.survey) or self._add(c, f, f.survey)
        left = self._remaining_partitions(c, f)
        if left or f.held.replicas or f.held.silent:
            told = few((*map(in_flight_elsewhere, left), *f.held.replicas, *f.held.silent))
            keep = {**c.kept, "empty": None}
            mark = (told, len(left), len(f.held.replicas))
            still = section(c.inventory).stalled_s
            return Waiting("the brokers are empty", told, float("inf"), 1.0, keep, mark, still)
        first = c.kept.get("empty")
        if first is None or f.now - first < EMPTY_S:
            keep = {**c.kept, "empty": f.now if first is None else first}
            return Waiting(
                "a second check of the empty brokers", "no partition names them", limit, EMPTY_S, keep
            )
        return self._empty(c, f)

    def _remaining_partitions(self, c: Context, f: SweepFacts) -> tuple[PartitionState, ...]:
        """Return the partitions that name a broker to be removed."""
        assert f.every is not None
        return naming(tuple(f.every.partitions.values()), removal(c.inventory).brokers)

    def _outrun(self, c: Context, f: SweepFacts) -> bool:
        """Return whether topics are created faster than they are moved.

        It is True only if the brokers are to stop and nothing older than these topics is on them.
        """
        assert f.every is not None
        left = self._remaining_partitions(c, f)
        alone = all(born_late(c, p) and (p.topic, p.partition) not in f.every.flights for p in left)
        return removal(c.inventory).shutdown and alone and not f.held.replicas and not f.held.silent

    def _empty(self, c: Context, f: SweepFacts) -> Verdict:
        """Return the verdict ``Done``, because the brokers to be removed are empty."""
        assert f.every is not None
        wanted = removal(c.inventory)
        told = empty(wanted.brokers, f.every, f.own, self._remaining_partitions(c, f))
        if not wanted.shutdown:
            told = replace(
                told,
                seen=f"{told.seen}; the brokers continue to run, and new replicas are still kept off them",
            )
        return Done((told, *directories_left(f.aside)), self._record(c, f).encode())

    def _go_on(self, c: Context, f: SweepFacts, verdict: Verdict) -> Verdict:
        """Return the verdict of the moves, or the changes of throttle lists that have to come before it.

        Going forward the lists name the topics before they move; on the way back the entries are removed
        last.
        """
        if isinstance(verdict, Waiting):
            return replace(verdict, keep={**c.kept, **verdict.keep, "empty": None})
        if isinstance(verdict, Blocked) or (isinstance(verdict, Done) is (c.way is Way.FORWARD)):
            return verdict
        if waiting := self._wait_for_lists(c, f):
            return waiting
        differ = f.differ
        if c.way is Way.BACK:
            return self._let_go(c, differ, verdict)
        todo = self._unsent(c, differ)
        keep = {**c.kept, "listed": {**c.kept.get("listed", {}), **todo}}
        return Ready(tuple(todo), keep=keep) if todo else verdict

    def _wait_for_lists(self, c: Context, f: SweepFacts) -> Waiting | None:
        """Return a wait if the throttle lists could not be read."""
        if isinstance(f.lists, Seen) and not unreadable(f.lists.value):
            return None
        what, limit = "a response of Kafka about throttles", c.inventory.policy.step_deadline_s
        return Waiting(what, str(f.lists), limit, poll_s=1.0, keep=c.kept)

    def _unsent(self, c: Context, differ: Mapping[str, Changes]) -> dict[str, Changes]:
        """Return the throttle lists to set, each with its change.

        Each list is sent once, because brokers may report a change late.
        """
        sent: Mapping[str, Changes] = c.kept.get("listed", {})
        return {t: made for t, made in differ.items() if sent.get(t) != made or t in c.unconfirmed}

    def _let_go(self, c: Context, differ: Collection[str], verdict: Verdict) -> Verdict:
        """Restore the throttle lists, once the moves are undone."""
        looks = c.kept.get("released", 0)
        if not differ or looks >= LOOKS:  # another tool has set what still differs
            return verdict
        if todo := tuple(target for target in differ if target in c.unrestored):
            return Ready(todo)
        limit = c.inventory.policy.step_deadline_s + LOOKS
        what, keep = (
            "the brokers report the throttle that Kafka has confirmed",
            {**c.kept, "released": looks + 1},
        )
        return Waiting(what, few(differ), limit, 1.0, keep)

    def _add(self, c: Context, f: SweepFacts, s: Survey) -> Verdict:
        """Record the new moves before any of them is sent."""
        partitions = {(p.topic, p.partition): p for p in s.view.partitions}
        findings = (came(s), only_there(s), *in_sync(s.free_moves, partitions))
        if any(finding.blocks for finding in findings):
            return Blocked(findings)
        if waiting := self._wait_for_lists(c, f):
            return waiting
        names = {move.name for move in s.free_moves}
        if not names:  # deleted, or being moved by another tool
            limit = c.inventory.policy.step_deadline_s
            return Waiting(
                "the brokers are empty",
                "the partitions that named these brokers have changed",
                limit,
                0.2,
                c.kept,
            )
        assert f.every is not None
        finished = c.kept.get("finished", frozenset()) - names
        rounds = {"rounds": c.kept.get("rounds", 0) + 1, "known": frozenset(f.every.partitions)}
        lists = self._unsent(c, f.differ)
        listed = {**c.kept.get("listed", {}), **lists}
        moves = next_moves(section(c.inventory), (), s.free_moves, Way.FORWARD)
        return Ready(
            tuple(lists) or tuple(move.target for move in moves),
            findings,
            self._record(c, f).encode(),
            keep={
                **c.kept,
                **rounds,
                "finished": finished,
                "listed": listed,
                "looks": 0,
                "unsized": 0,
                "empty": None,
            },
        )

    def _record(self, c: Context, f: SweepFacts) -> Stragglers:
        """Return the record with the new moves, and the throttle lists of their topics as they were found."""
        old = self._added(c)
        now = f.listed if f.survey is not None else {}
        throttled = throttles(c)
        before = throttled.found if throttled is not None else {}
        found = {target: own for target, own in now.items() if target not in before}
        return self.record(f.own, {**found, **old.found}, old.planned_at)

    def plan(self, c: Context, f: SweepFacts, target: str) -> Changes:
        if target.startswith(_LIST):
            return f.differ.get(target, ())
        move = f.by_target[target]
        return (ReassignPartition(KAFKA, move.topic, move.number, move.after, move.before),)

    def undo(self, c: Context, f: SweepFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        if target.startswith(_LIST):
            return f.differ.get(target, ())
        return self._moving.undo(c, f.moves, target, applied)

    def forecast(self, c: Context, look: Look) -> Forecast[SweepFacts] | None:
        return None  # what lands on the brokers is known only then


def _busy(f: MovesFacts) -> bool:
    """Return whether moves of the step are not complete."""
    assert f.found is not None
    stands = f.stands(Way.FORWARD)
    foreign = [move for move in stands.at(Stand.FOREIGN) if move.name in f.found.flights]
    waits = stands.at(Stand.TO_SUBMIT, Stand.MOVING, Stand.BEHIND, Stand.TURNED, Stand.ADRIFT)
    return not f.whole or bool(waits or foreign)


def born_late(c: Context, p: PartitionState) -> bool:
    """Return whether a partition was created after the last round in which moves were added.

    It is False until ``ROUNDS`` rounds have been made.
    """
    return c.kept.get("rounds", 0) >= ROUNDS and (p.topic, p.partition) not in c.kept["known"]


MEANINGS = meanings(
    """
    remove.came: A partition that was placed on a broker to be removed has no room elsewhere. Cause: There is
    too little disk space, or there are too few brokers or racks. To do: Add brokers, free disk space, or
    delete the topic, then resume.

    remove.only-there: All replicas of a partition are on brokers that are down. Cause: The partition was
    assigned to these brokers while they stopped. To do: Run rollback --to stopped, which starts these
    brokers, then resume. Or delete the topic.

    remove.empty: A broker to be removed still has replicas. Cause: The replicas are being moved. To do: Wait,
    or resume.
    """
)
