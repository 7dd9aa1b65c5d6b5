"""What: record replica sets, sizes and leaders of the partitions to move.

Why now: Kafka keeps neither an old set nor its order, so the way back needs them from the journal.

Clients may notice: nothing. On the way back a client finds the leader that it had before.

Way back: preferred leaders that led before the run are elected again.

Proof: going forward, the record; going back, each partition has its set from before, in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.model.change import Applied, Changes
from zkmigrate.model.finding import Finding, Severity, blocking, claim, few
from zkmigrate.model.look import Look
from zkmigrate.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Waiting, Way
from zkmigrate.reassign.election import LEADERS, Election, elect
from zkmigrate.reassign.facts import Cluster, FirstLook, Originals, cluster, originals, wanted
from zkmigrate.reassign.look_step import first_look
from zkmigrate.reassign.rules import before


@dataclass(frozen=True)
class OriginalsFacts:
    """first: the look before anything is sent; None on the way back. record, now: what is restored, and what
    is there."""

    first: FirstLook | None
    record: Originals | None
    now: Cluster | None


class OriginalsStep(Step[OriginalsFacts]):
    id = Originals.step
    title = "Record what is there"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> OriginalsFacts:
        if c.way is Way.FORWARD:
            return OriginalsFacts(first_look(c, look), None, None)
        record = originals(c)
        if record is None:
            return OriginalsFacts(None, None, None)
        return OriginalsFacts(None, record, cluster(look, (move.name for move in record.moves)))

    def check(self, c: Context, f: OriginalsFacts) -> Verdict:
        if f.first is not None:
            if blocking(findings := before(c, f.first)):
                return Blocked(findings)
            return Done(findings, Originals(f.first.moves(wanted(c.inventory).sets)).encode())
        if f.record is None or f.now is None:
            return Done()  # killed before the record: nothing was sent
        if f.now.missing is not None:
            limit = c.inventory.policy.step_deadline_s
            return Waiting("an answer of Kafka about partitions", str(f.now.missing), limit, poll_s=1.0)
        if self._election(f).todo:
            return Ready((LEADERS,))
        return Done((_as_before(f.record, f.now),))

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

    def forecast(self, c: Context, look: Look) -> Forecast[OriginalsFacts]:
        return Forecast(self.observe(c, look), ())


def _as_before(record: Originals, now: Cluster) -> Finding:
    """Whether the partitions are as they were, and which are not; these are of other hands."""
    partitions = now.partitions
    odd = []
    for move in record.moves:
        state = partitions.get(move.name)
        if state is None:
            odd.append(f"{move.target}: gone")
        elif state.replicas != move.before:
            odd.append(f"{move.target}: {list(state.replicas)} (before the run: {list(move.before)})")
        elif move.preferred and state.leader != move.before[0]:
            odd.append(f"{move.target}: led by {state.leader} (before the run: {move.before[0]})")
    return claim(
        "reassign.back",
        "every partition has its set and its leader from before the run",
        not odd,
        seen=f"{len(odd):,} of {len(record.moves):,} partitions differ: {few(odd)}"
        if odd
        else f"{len(record.moves):,} partitions",
        needed="the sets from before the run, apart from what other hands changed",
        moves=("see who changed these",),
        severity=Severity.WARN,
    )
