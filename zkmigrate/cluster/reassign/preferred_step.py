"""What: elect the preferred leader of each moved partition that another broker leads.

Why now: all new replicas are in sync. A partition keeps its old leader as long as that broker stays a
replica.

Clients may notice: one metadata refresh for each partition that gets another leader.

Way back: the step that recorded the replica lists elects the former leaders, once these lists are restored.

Proof: a new query shows that the preferred leaders lead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign.answers import Cluster, Disks, cluster
from zkmigrate.cluster.reassign.election import LEADERS, Election, elect
from zkmigrate.cluster.reassign.moves import Move, Originals, joined, originals
from zkmigrate.cluster.reassign.rules import originals_lost
from zkmigrate.kafka.questions import PartitionState, TopicPartitions
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Finding, Severity, claim, few, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.report import counted
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


@dataclass(frozen=True)
class PreferredFacts:
    """The moved partitions and their leaders.

    plan: the moves of the run.
    now: the partitions; None if they were not described.
    disks: where the replicas with named directories are.
    disputes: the moves that ZooKeeper shows as not done, with the reason.
    """

    plan: Originals | None
    now: Cluster | None
    disks: Disks = field(default_factory=lambda: Disks({}, {}))
    disputes: Mapping[Name, str] = field(default_factory=dict)


class PreferredStep(Step[PreferredFacts]):
    id = "preferred"
    title = "Elect preferred leaders"
    hazard = Hazard.REVERSIBLE

    def __init__(self, foresee: Callable[[Context, Look], tuple[Move, ...]] | None = None) -> None:
        """Create the step.

        foresee: returns what the moves will be, before they are recorded; None if that is unknown.
        """
        self.foresee = foresee

    def observe(self, c: Context, look: Look) -> PreferredFacts:
        plan = originals(c)
        if plan is None or c.way is Way.BACK:
            return PreferredFacts(plan, None)
        plan = replace(plan, moves=plan.whole)
        return PreferredFacts(plan, cluster(look, (move.name for move in plan.moves)))

    def check(self, c: Context, f: PreferredFacts) -> Verdict:
        if c.way is Way.BACK:
            return Done()
        if f.plan is None or f.now is None:
            return Blocked((originals_lost(),))
        if f.now.missing is not None:
            limit = c.inventory.policy.step_deadline_s
            return Waiting("a response of Kafka about leaders", str(f.now.missing), limit, poll_s=1.0)
        if elected(f.plan.moves, f.now.partitions).todo:
            return Ready((LEADERS,))
        return Done((led(f.plan.moves, f.now.partitions),))

    def plan(self, c: Context, f: PreferredFacts, target: str) -> Changes:
        assert f.plan is not None
        assert f.now is not None
        return elect(elected(f.plan.moves, f.now.partitions).todo)

    def undo(self, c: Context, f: PreferredFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()

    def forecast(self, c: Context, look: Look) -> Forecast[PreferredFacts] | None:
        """Forecast from the partitions as the moves will leave them.

        A leader that stays a replica goes on leading.
        """
        if self.foresee is None:
            return None
        moves = joined(self.foresee(c, look))
        after = Cluster(Seen({}), Seen(TopicPartitions("", frozenset(), (), _after(moves))))
        targets = (LEADERS,) if elected(moves, after.partitions).todo else ()
        return Forecast(PreferredFacts(Originals(moves), after), targets)


def _after(moves: tuple[Move, ...]) -> Mapping[str, Reading[tuple[PartitionState, ...]]]:
    """Return the moved partitions of each topic as they will be after the moves."""
    made: dict[str, list[PartitionState]] = {}
    for move in moves:
        leader = move.leader if move.leader in move.after else move.after[0]
        state = PartitionState(move.topic, move.number, leader, move.after, move.after)
        made.setdefault(move.topic, []).append(state)
    return {topic: Seen(tuple(states)) for topic, states in made.items()}


def elected(moves: tuple[Move, ...], now: Mapping[Name, PartitionState]) -> Election:
    """Return the election of the preferred leaders of the moved partitions.

    A partition is left out if its preferred leader stays the same and was not the leader before the run.
    """
    some = [
        move
        for move in moves
        if move.name in now
        and now[move.name].replicas == move.after
        and (move.preferred or move.after[0] != move.before[0])
    ]
    return Election(some, now)


def led(moves: tuple[Move, ...], now: Mapping[Name, PartitionState]) -> Finding:
    """Return the finding that says whether the preferred leaders lead."""
    some = elected(moves, now).moves
    odd = [move.target for move in some if now[move.name].leader != move.after[0]]
    return claim(
        "reassign.preferred",
        "the preferred leaders lead the moved partitions",
        not odd,
        seen=f"{len(odd):,} have another leader: {few(odd)}" if odd else counted(len(some), "partition"),
        needed="the preferred leader of each partition in sync",
        severity=Severity.WARN,
    )


MEANINGS = meanings(
    """
    reassign.preferred: Another broker than the preferred leader leads a moved partition. Cause: The preferred
    leader is not in sync. To do: Once it is in sync, run kafka-leader-election.sh --election-type preferred.
    """
)
