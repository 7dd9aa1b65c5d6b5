"""What: let the applications go on, on target: the point of no return.

Why now: target has been checked while they wait.

Clients may notice: requests are answered again. Consumers join their groups anew and read on from their
commits.

Way back: this run has none, for clients write on target. The way back is the same playbook with source and
target exchanged.

Proof: every gateway lets the applications go on, on target.
"""

from __future__ import annotations

from zkmigrate.model.change import Applied, Changes
from zkmigrate.model.finding import meanings
from zkmigrate.model.look import Look
from zkmigrate.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Way
from zkmigrate.model.step_record import known
from zkmigrate.topic_move.facts import Gateways, Opened, every_app, gateways
from zkmigrate.topic_move.go_step import no_way_back, opened_on
from zkmigrate.topic_move.hold_step import let_go
from zkmigrate.topic_move.section import move_of


class OpenStep(Step[Gateways]):
    id = Opened.step
    title = "Let the applications go on"
    hazard = Hazard.FINAL

    def observe(self, c: Context, look: Look) -> Gateways:
        return gateways(c, look)

    def check(self, c: Context, f: Gateways) -> Verdict:
        target = move_of(c.inventory).topic_move.target
        opened = opened_on(f, target)
        if c.way is Way.BACK and (opened or known(Opened, c)):
            return Blocked((no_way_back(opened, target),), no_way_back=True)
        if f.unknown:
            return Blocked(f.unknown)
        if c.way is Way.BACK:
            return Done()
        if wrong := f.outside("switch.open-route", lambda app: app.route == target, f"on {target}"):
            return Blocked(wrong)
        todo = f.hosts(lambda app: app.waits)
        return Ready(todo) if todo else Done(record=Opened(target).encode())

    def plan(self, c: Context, f: Gateways, target: str) -> Changes:
        # A way back that was broken off may have left one sealed.
        return let_go(c, f, target)

    def undo(self, c: Context, f: Gateways, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()

    def forecast(self, c: Context, look: Look) -> Forecast[Gateways]:
        return Forecast(every_app(c, "gone", switched_over=True))


MEANINGS = meanings(
    """
    switch.open-route: A gateway leads an application to source when it is to go on. Cause: Another
    operator. To do: Look at zkmigrate gateway status.
    """
)
