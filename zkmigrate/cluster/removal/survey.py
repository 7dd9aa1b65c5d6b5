"""The cluster before a removal: partitions, sizes, free bytes, reassignments, and the resulting plan."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

from zkmigrate.cluster import placed
from zkmigrate.cluster.placement.check import faults
from zkmigrate.cluster.placement.cluster import Cluster, Name
from zkmigrate.cluster.placement.plan import Notice, Plan, Refused
from zkmigrate.cluster.placement.planner import planned
from zkmigrate.cluster.placement.request import By, Choice, LogDirs, Rebuild, Rollout
from zkmigrate.cluster.reassign.answers import Flights
from zkmigrate.cluster.reassign.moves import Move
from zkmigrate.cluster.removal.section import Removal, removal
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.kafka.questions import KafkaView, ListReassignments, PartitionState
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context

NO_SIZE = "placement.size-missing"


@dataclass(frozen=True)
class Survey:
    """The cluster before a removal, with the moves that it needs.

    wanted: the request for the removal.
    in_flight: the reassignments that were in flight before or after the rest was read.
    cluster: the cluster with sizes and free bytes.
    only: the partitions to place; empty for all that name a broker to be removed.
    at: the time at which it was read, in seconds since the epoch.
    """

    wanted: Removal
    in_flight: Reading[Flights]
    view: KafkaView
    cluster: Cluster | Refused
    only: frozenset[Name] = frozenset()
    at: float = 0.0

    @property
    def leaving(self) -> tuple[int, ...]:
        """The brokers to be removed that are registered."""
        return tuple(id for id in self.wanted.brokers if id in self.view.brokers)

    @property
    def staying(self) -> tuple[int, ...]:
        """The registered brokers that are not removed, in order."""
        return tuple(sorted(self.view.brokers.keys() - set(self.wanted.brokers)))

    @cached_property
    def naming(self) -> tuple[PartitionState, ...]:
        """The partitions with a replica on a broker to be removed."""
        return naming(self.view.partitions, self.wanted.brokers)

    @cached_property
    def plan(self) -> Plan | Refused:
        """The plan, which moves only what must move.

        New replicas go where most bytes are free, and the margin stays free. Replica lists span as many racks
        as possible, or as many as before if there is no room for that.
        """
        if isinstance(self.cluster, Refused):
            return self.cluster
        share = 1 - self.wanted.margin
        roomy = Cluster.of(
            (replace(b, limit=int(b.free * share), dirs=()) for b in self.cluster.brokers.values()),
            (replace(p, dirs=()) for p in self.cluster.partitions),
        )
        request = Rebuild(
            Choice(brokers=self.staying, partitions=self.only),
            Rollout(log_dirs=LogDirs.KAFKA),
            placement=By.STORAGE,
            min_rack_ids=max(1, roomy.racks(self.staying)),
        )
        plan = planned(roomy, request)
        if isinstance(plan, Refused):
            plan = planned(roomy, replace(request, min_rack_ids=1))
        if isinstance(plan, Refused):
            return plan
        wrong = faults(roomy, ({move.name: move.after for move in plan.moves},))
        return Refused(tuple(Notice("placement.broken", text) for text in wrong)) if wrong else plan

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """The moves of the plan; empty without a plan."""
        if isinstance(self.plan, Refused):
            return ()
        leaders = {(p.topic, p.partition): p.leader for p in self.view.partitions}
        return tuple(
            Move(one.topic, one.number, one.before, one.after, one.size, leaders[one.name])
            for one in self.plan.moves
        )

    @property
    def free_moves(self) -> tuple[Move, ...]:
        """The moves of partitions that no other reassignment is moving."""
        flights = self.in_flight.value if isinstance(self.in_flight, Seen) else {}
        return tuple(move for move in self.moves if move.name not in flights)

    @property
    def unsized(self) -> bool:
        """Whether a size is missing, for instance of a partition that was just created."""
        return isinstance(self.plan, Refused) and any(one.id == NO_SIZE for one in self.plan.reasons)


def naming(partitions: Collection[PartitionState], brokers: Collection[int]) -> tuple[PartitionState, ...]:
    """Return the partitions with a replica on one of these brokers."""
    gone = frozenset(brokers)
    return tuple(one for one in partitions if not gone.isdisjoint(one.replicas))


def survey(c: Context, look: Look, only: Collection[Name] = ()) -> Survey:
    """List the reassignments in flight, then read the cluster. Raises HostError if no broker answers."""
    in_flight = look.ask(ListReassignments(KAFKA))

    def tell(line: str) -> None:
        c.tell("the state of the cluster", line)

    view = placed.seen_by_brokers(look, tell)
    if isinstance(in_flight, Seen):  # the steps distinguish the run's own from others
        view = replace(view, reassigning=())
    cluster = placed.measured(c.inventory, look, view, tell, only)
    again = look.ask(ListReassignments(KAFKA))
    if isinstance(in_flight, Seen) and isinstance(again, Seen):
        again = Seen({**in_flight.value, **again.value})
    return Survey(removal(c.inventory), again, view, cluster, frozenset(only), look.wall())
