"""What: plan the moves again, from the state now, and record the replica lists, sizes and leaders.

Why now: new replicas are kept away, so the plan lasts. Kafka keeps neither an old replica list nor its order,
so the way back needs the record.

Clients may notice: nothing. On the way back a client finds the leader that it had before.

Way back: preferred leaders that led before the run are elected again.

Proof: going forward, the record in the journal; going back, each partition has its former replica list, in
order.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.cluster.reassign.moves import Originals
from zkmigrate.cluster.reassign.originals_step import OriginalsFacts, OriginalsStep
from zkmigrate.cluster.removal.rules import before
from zkmigrate.cluster.removal.survey import Survey, survey
from zkmigrate.cluster.removal.validate_step import unsized
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.finding import blocking
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Forecast, Hazard, Step, Verdict, Way


@dataclass(frozen=True)
class PlannedFacts:
    """The cluster to plan for, or the moves to undo.

    survey: the cluster; None on the way back. back: the state that the way back restores.
    """

    survey: Survey | None
    back: OriginalsFacts


class PlannedStep(Step[PlannedFacts]):
    id = Originals.step
    title = "Plan the moves and record the replica lists from before the run"
    hazard = Hazard.REVERSIBLE
    _back = OriginalsStep()

    def observe(self, c: Context, look: Look) -> PlannedFacts:
        if c.way is Way.FORWARD:
            return PlannedFacts(survey(c, look), OriginalsFacts(None, None, None))
        return PlannedFacts(None, self._back.observe(c, look))

    def check(self, c: Context, f: PlannedFacts) -> Verdict:
        if f.survey is None:
            return self._back.check(c, f.back)
        if waits := unsized(c, f.survey):
            return waits
        if blocking(findings := before(c, f.survey)):
            return Blocked(findings)
        moves, here = f.survey.moves, f.survey.view.brokers
        gone = sorted({id for move in moves for id in move.before if id not in here})
        return Done(findings, Originals(moves, tuple(gone), at=f.survey.at).encode())

    def plan(self, c: Context, f: PlannedFacts, target: str) -> Changes:
        return ()

    def undo(self, c: Context, f: PlannedFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return self._back.undo(c, f.back, target, applied)

    def forecast(self, c: Context, look: Look) -> Forecast[PlannedFacts]:
        return Forecast(self.observe(c, look), ())
