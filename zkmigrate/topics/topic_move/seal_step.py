"""What: make the hold permanent at every gateway, if it is still the hold that the step hold began.

Why now: all checks are done, and their results hold as long as requests wait. No lease may end from here on,
because requests would go to source at one gateway while they go to target at another.

Clients may notice: they still wait. Without an operator they wait from here on.

Way back: the hold gets a lease again.

Proof: each gateway compared the hold's id, had no request in flight and no batch of unknown outcome, wrote
its record and reported that the application is sealed.
"""

from __future__ import annotations

from dataclasses import replace

from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.finding import meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Way
from zkmigrate.runbook.model.step_record import needed
from zkmigrate.topics.topic_move.facts import Gateways, Held, every_app, gateways
from zkmigrate.topics.topic_move.hold_step import sealed
from zkmigrate.topics.topic_move.rules import check_leases, check_outcomes
from zkmigrate.topics.topic_move.section import move_of


class SealStep(Step[Gateways]):
    id = "seal"
    title = "Seal the hold"
    hazard = Hazard.WINDOW

    def observe(self, c: Context, look: Look) -> Gateways:
        return gateways(c, look)

    def check(self, c: Context, f: Gateways) -> Verdict:
        source = move_of(c.inventory).topic_move.source
        if c.way is Way.BACK:
            if todo := f.hosts(lambda app: sealed(app) and app.route == source):
                return Ready(todo)
            return Blocked(f.unknown, others_back=True) if f.unknown else Done()
        if f.unknown:
            return Blocked(f.unknown)
        if wrong := check_leases(f) or check_outcomes(f):
            return Blocked(wrong)
        if wrong := f.not_in_state(
            "switch.seal-gate",
            lambda app: app.gate in ("held", "sealed") and app.route == source,
            f"held on {source}",
        ):
            return Blocked(wrong)
        todo = f.hosts(lambda app: app.gate == "held")
        return Ready(todo) if todo else Done()

    def plan(self, c: Context, f: Gateways, target: str) -> Changes:
        held = needed(Held, c)
        orders = f.orders(target, "seal", lambda app: app.gate == "held")
        return tuple(replace(order, hold=held.hold_of(target, order.app)) for order in orders)

    def undo(self, c: Context, f: Gateways, target: str, applied: tuple[Applied, ...]) -> Changes:
        ttl = move_of(c.inventory).topic_move.hold_ms
        return f.orders(target, "unseal", sealed, ttl_ms=ttl)

    def forecast(self, c: Context, look: Look) -> Forecast[Gateways]:
        held = every_app(c, "held")
        holds = tuple((host, name, app.hold) for (host, name), app in held.at.items())
        return Forecast(held, records={Held.step: Held(holds).encode()})


MEANINGS = meanings(
    """
    switch.seal-gate: An application is not held on source when it is to be sealed. Cause: Another operator or
    an earlier step of this run changed it. To do: Let the run roll back. Look at zkmigrate gateway status to
    see what changed.
    """
)
