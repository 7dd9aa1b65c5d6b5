"""What: record replica lists, sizes and leaders of the partitions to move.

Why now: Kafka keeps neither an old replica list nor its order, so the way back needs them from the journal.

Clients may notice: nothing. On the way back a client finds the leader that it had before.

Way back: preferred leaders that led before the run are elected again.

Proof: going forward, the record in the journal; going back, each partition has its former replica list, in
order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from zkmigrate.cluster.placement.plan import Refused
from zkmigrate.cluster.reassign.answers import Cluster, Disks, Flights, cluster, placed
from zkmigrate.cluster.reassign.choice import in_room, tight
from zkmigrate.cluster.reassign.election import LEADERS, Election, elect
from zkmigrate.cluster.reassign.facts import FirstLook, unmade
from zkmigrate.cluster.reassign.look_step import first_look
from zkmigrate.cluster.reassign.moves import Originals, Stand, originals, reassign_inventory, section
from zkmigrate.cluster.reassign.rules import before, gib
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.finding import Finding, Severity, blocking, claim, few
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.report import counted
from zkmigrate.runbook.model.step import Blocked, Context, Done, Hazard, Ready, Step, Verdict, Waiting, Way


@dataclass(frozen=True)
class OriginalsFacts:
    """The state before the first change, or on the way back the state to restore.

    first: what was read before anything is sent; None on the way back.
    record: the moves to undo.
    now, disks: the current state.
    """

    first: FirstLook | None
    record: Originals | None
    now: Cluster | None
    disks: Disks = field(default_factory=lambda: Disks({}, {}))


class OriginalsStep(Step[OriginalsFacts]):
    id = Originals.step
    title = "Record the replica lists from before the run"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> OriginalsFacts:
        if c.way is Way.FORWARD:
            return OriginalsFacts(first_look(c, look), None, None)
        record = originals(c)
        if record is None:
            return OriginalsFacts(None, None, None)
        record = replace(record, moves=record.whole)
        now = cluster(look, (move.name for move in record.moves))
        return OriginalsFacts(None, record, now, placed(look, record.moves, now.alive, Way.BACK))

    def check(self, c: Context, f: OriginalsFacts) -> Verdict:
        if f.first is not None:
            if blocking(findings := before(c, f.first)):
                return Blocked(findings)
            mode, names = (
                reassign_inventory(c.inventory).reassign.others,
                reassign_inventory(c.inventory).sets,
            )
            if flights := f.first.awaited(mode, names):
                return _until_over(c, f.first, flights)
            moves, alive = unmade(c, f.first), f.first.cluster.alive
            gone = {broker for move in moves for broker in move.before if broker not in alive}
            others = f.first.of_others(names) if mode == "take" else ()
            room = f.first.disks.room
            ordered = in_room(moves, room)
            assert not isinstance(ordered, Refused), "a finding blocks"
            record = Originals(ordered, tuple(sorted(gone)), others, tight=tight(moves, room))
            return Done(findings, record.encode())
        if f.record is None or f.now is None:
            return Done()  # the process ended before the record, so nothing was sent
        if f.now.missing is not None:
            limit = c.inventory.policy.step_deadline_s
            return Waiting("a response of Kafka about partitions", str(f.now.missing), limit, poll_s=1.0)
        if self._election(f).todo:
            return Ready((LEADERS,))
        return Done((_as_before(f.record, f.now, f.disks),))

    def _election(self, f: OriginalsFacts) -> Election:
        assert f.record is not None
        assert f.now is not None
        partitions = f.now.partitions
        back = [
            move
            for move in f.record.moves
            if move.preferred and move.name in partitions and partitions[move.name].replicas == move.before
        ]
        return Election(tuple(back), partitions)

    def plan(self, c: Context, f: OriginalsFacts, target: str) -> Changes:
        return ()

    def undo(self, c: Context, f: OriginalsFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return elect(self._election(f).todo) if target == LEADERS else ()


def _until_over(c: Context, first: FirstLook, flights: Flights) -> Waiting:
    """Return the wait for other tools' reassignments; nothing is changed before all of them have ended."""
    sizes = first.disks.sizes
    copied = {
        (name, broker): sizes[broker, name]
        for name, flight in flights.items()
        for broker in flight.adding
        if (broker, name) in sizes
    }
    told = [
        f"{name[0]}-{name[1]} on {broker}: {gib(size)} of {gib(first.sizes.get(name, 0))}"
        for (name, broker), size in copied.items()
    ]
    return Waiting(
        "other tools' reassignments have ended",
        f"{len(flights):,} in flight; {few(told)}" if told else f"{len(flights):,} in flight",
        math.inf,
        poll_s=2.0,
        mark=(tuple(sorted(flights)), tuple(sorted(copied.items()))),
        stalled_s=section(c.inventory).stalled_s,
    )


def _as_before(record: Originals, now: Cluster, disks: Disks) -> Finding:
    """Return the finding about partitions that are not as before the run because of other tools."""
    partitions = now.partitions
    odd = []
    for move in record.moves:
        state = partitions.get(move.name)
        if state is None:
            odd.append(f"{move.target}: the partition does not exist")
        elif state.replicas != move.before:
            odd.append(f"{move.target}: {list(state.replicas)} (before the run: {list(move.before)})")
        elif move.preferred and state.leader != move.before[0]:
            odd.append(f"{move.target}: led by {state.leader} (before the run: {move.before[0]})")
        else:
            odd += [
                f"{move.target} on {broker}: {disks.stand(broker, move.name, path).value}, not {path}"
                for broker, path in move.paths(Way.BACK).items()
                if disks.stand(broker, move.name, path) is not Stand.DONE
            ]
    return claim(
        "reassign.back",
        "every partition has its replica list, leader and directories from before the run",
        not odd,
        seen=f"{len(odd):,} of {counted(len(record.moves), 'partition')} differ: {few(odd)}"
        if odd
        else counted(len(record.moves), "partition"),
        needed="the replica lists from before the run, apart from changes by other tools",
        severity=Severity.WARN,
    )
