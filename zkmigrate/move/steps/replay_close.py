"""What: remove the mark of the replay from source.

Why now: the brokers run against source, so no replay continues from the mark.

Clients may notice: nothing.

Way back: none is needed; the step before has none.

Proof: source shows no mark.
"""

from __future__ import annotations

from typing import TypeAlias

from zkmigrate.move.facts.replay_disks import mark_on
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.fact import Absent, Reading, Unknown
from zkmigrate.runbook.model.finding import claim, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Done, Forecast, Hazard, Ready, Step, Verdict, Waiting, Way
from zkmigrate.zookeeper.changes import SOURCE, EndReplay
from zkmigrate.zookeeper.facts.ensemble import source_view

Marked: TypeAlias = Reading[object]
"""The reading of the mark on source."""


class ReplayCloseStep(Step[Marked]):
    id = "close"
    title = "Remove the mark from source"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> Marked:
        leader = source_view(c.inventory, look).leader
        if leader is None:
            return Unknown("failed", "source has no single leader")
        return mark_on(look, leader, c.inventory.kafka.subtree)

    def check(self, c: Context, f: Marked) -> Verdict:
        if c.way is Way.BACK:
            return Done()
        if isinstance(f, Unknown):
            what = "source shows whether the mark is there"
            return Waiting(what, str(f), c.inventory.policy.step_deadline_s, 1.0)
        if isinstance(f, Absent):
            return Done((claim("close.mark", "source shows no mark of the replay", True, seen="none"),))
        return Ready((SOURCE,))

    def plan(self, c: Context, f: Marked, target: str) -> Changes:
        return (EndReplay(SOURCE, c.inventory.kafka.chroot),)

    def undo(self, c: Context, f: Marked, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()

    def forecast(self, c: Context, look: Look) -> Forecast[Marked]:
        """Forecast the removal of the mark, which will exist by then."""
        return Forecast(Absent("not read"), (SOURCE,))


MEANINGS = meanings(
    """
    close.mark: Source still shows the mark of the replay. Cause: The step has not removed it yet. To do:
    Resume.
    """
)
