"""What: stop the copiers from target to source, and disable their start at boot.

Why now: the switch will not be undone. From here on, source falls behind target.

Clients may notice: nothing. The gateway keeps running; it must remain until no client connects to it.

Way back: start these copiers. They continue from the ends of both logs, as long as target still has the
records from there on.

Proof: no copier runs on a mirror host.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.finding import Severity, claim, few, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Way
from zkmigrate.topics.topic_move.direction import start_again, stop
from zkmigrate.topics.topic_move.facts import Copiers, Gateways, backward_unit, copiers, gateways
from zkmigrate.topics.topic_move.rules import check_copiers_report
from zkmigrate.topics.topic_move.section import mirror_hosts, move_of
from zkmigrate.topics.topic_move.verify_step import left_ports


@dataclass(frozen=True)
class FinishFacts:
    copiers: Copiers
    gateways: Gateways


class FinishStep(Step[FinishFacts]):
    id = "finish"
    title = "Stop the copiers back to source"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> FinishFacts:
        source = move_of(c.inventory).topic_move.source
        return FinishFacts(copiers(c, look, source), gateways(c, look))

    def check(self, c: Context, f: FinishFacts) -> Verdict:
        if wrong := check_copiers_report(f.copiers):
            return Blocked(wrong)
        if c.way is Way.BACK:
            return Ready(f.copiers.down) if f.copiers.down else Done()
        if todo := tuple(dict.fromkeys((*f.copiers.running, *f.copiers.enabled))):
            return Ready(todo)
        source = move_of(c.inventory).topic_move.source
        stopped = claim(
            "switch.finished", f"no copier to {source} runs", True, seen=f"{f.copiers.unit} is down"
        )
        stays = claim(
            "switch.stays",
            "the report lists what remains after the run",
            True,
            seen=f"zkm-host on {few(f.copiers.at)}; both units; the gateways; {source}'s topics",
            severity=Severity.INFO,
        )
        return Done((stopped, stays, left_ports(f.gateways)))

    def plan(self, c: Context, f: FinishFacts, target: str) -> Changes:
        return stop(f.copiers, target)

    def undo(self, c: Context, f: FinishFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return start_again(f.copiers, target, applied)

    def forecast(self, c: Context, look: Look) -> Forecast[FinishFacts]:
        running = FinishFacts(Copiers(backward_unit(c), {}), Gateways({}, ()))
        return Forecast(running, mirror_hosts(c.inventory))


MEANINGS = meanings(
    """
    switch.finished: A copier runs. Cause: The step is not finished. To do: Wait, or resume.

    switch.stays: These things remain after the end of the run. Cause: This is only a remark: a later switch,
    or a client, may need them. To do: Remove them once no client connects to the gateways.
    """
)
