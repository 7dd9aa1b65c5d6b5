"""What: open the applications on target. This is the point of no return.

Why now: target was checked while the applications waited.

Clients may notice: requests get answers again. Consumers join their groups again and continue from their
committed offsets.

Way back: this run has none, because clients write on target. To return, run the same playbook with source and
target exchanged.

Proof: right before the order, source's logs still ended at the offsets that the step drain recorded. Every
gateway has opened the applications on target.
"""

from __future__ import annotations

from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.finding import meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Way
from zkmigrate.runbook.model.step_record import known
from zkmigrate.topics.topic_move.facts import Drained, Opened, every_app
from zkmigrate.topics.topic_move.go_step import GoFacts, find_obstacle, hosts_open_on, no_way_back, read_ends
from zkmigrate.topics.topic_move.hold_step import release
from zkmigrate.topics.topic_move.section import move_of


class OpenStep(Step[GoFacts]):
    id = Opened.step
    title = "Release the applications' requests on target"
    hazard = Hazard.FINAL

    def observe(self, c: Context, look: Look) -> GoFacts:
        return read_ends(c, look)

    def check(self, c: Context, f: GoFacts) -> Verdict:
        target, found = move_of(c.inventory).topic_move.target, f.gateways
        opened = hosts_open_on(found, target)
        if c.way is Way.BACK and (opened or known(Opened, c)):
            return Blocked((no_way_back(opened, target),), no_way_back=True)
        if found.unknown:
            return Blocked(found.unknown)
        if c.way is Way.BACK:
            return Done()
        if wrong := found.not_in_state("switch.open-route", lambda app: app.route == target, f"on {target}"):
            return Blocked(wrong)
        todo = found.hosts(lambda app: app.requests_wait)
        if not todo:
            return Done(record=Opened(target).encode())
        # A run may be resumed long after CHECK. Once an order may have arrived, there is no way back.
        if not opened and not c.begun and (held := find_obstacle(c, f.ends)):
            return held
        return Ready(todo)

    def plan(self, c: Context, f: GoFacts, target: str) -> Changes:
        # An interrupted way back may have left an application sealed.
        return release(c, f.gateways, target)

    def undo(self, c: Context, f: GoFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()

    def forecast(self, c: Context, look: Look) -> Forecast[GoFacts]:
        gone = GoFacts(every_app(c, "gone", switched_over=True))
        return Forecast(gone, records={Drained.step: Drained(()).encode()})


MEANINGS = meanings(
    """
    switch.open-route: A gateway still routes an application to source when its requests are to be released.
    Cause: Another operator changed it. To do: Look at zkmigrate gateway status on that host.
    """
)
