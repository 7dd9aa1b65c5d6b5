"""What: hold every request of the applications that reads or changes data, at the gateways.

Why now: consumers have settled. From here on, source's logs must not grow.

Clients may notice: their requests take longer, up to topic_move.hold_ms. No request fails.

Way back: the requests are sent to source. A gateway does that by itself when the lease ends.

Proof: each gateway holds the applications and has no request without an answer. Their clients know the
outcome of each batch, because a retry that is held here would become a second record on target.
"""

from __future__ import annotations

from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.finding import meanings
from zkmigrate.runbook.model.look import Look
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
from zkmigrate.topics.topic_move.facts import AppSeen, Gateways, Held, every_app, gateways
from zkmigrate.topics.topic_move.rules import check_leases, check_outcomes
from zkmigrate.topics.topic_move.section import move_of

_POLL_S = 0.05


class HoldStep(Step[Gateways]):
    id = Held.step
    title = "Hold the applications"
    hazard = Hazard.WINDOW

    def observe(self, c: Context, look: Look) -> Gateways:
        return gateways(c, look)

    def check(self, c: Context, f: Gateways) -> Verdict:
        move = move_of(c.inventory).topic_move
        if c.way is Way.BACK:
            return _check_back(f, move.source)
        if f.unknown:
            return Blocked(f.unknown)
        if wrong := f.not_in_state(
            "switch.hold-route", lambda app: app.route == move.source, f"on {move.source}"
        ):
            return Blocked(wrong)
        if wrong := check_outcomes(f):
            return Blocked(wrong)
        if todo := f.hosts(lambda app: app.gate in ("open", "settling") and not app.lapsed):
            return Ready(todo)
        if wrong := check_leases(f):
            return Blocked(wrong)
        busy = {f"{host}:{name}": app.in_flight for (host, name), app in f.at.items() if app.in_flight}
        if busy:
            told = ", ".join(f"{where}: {count}" for where, count in busy.items())
            return Waiting(
                "the requests in flight have their responses", told, move.hold_ms / 1000, poll_s=_POLL_S
            )
        holds = tuple((host, name, app.hold) for (host, name), app in f.at.items())
        return Done(record=Held(holds).encode())

    def plan(self, c: Context, f: Gateways, target: str) -> Changes:
        ttl = move_of(c.inventory).topic_move.hold_ms
        return f.orders(target, "hold", lambda app: app.gate in ("open", "settling"), ttl_ms=ttl)

    def undo(self, c: Context, f: Gateways, target: str, applied: tuple[Applied, ...]) -> Changes:
        return release(c, f, target)

    def forecast(self, c: Context, look: Look) -> Forecast[Gateways]:
        return Forecast(every_app(c, "settling"))


def sealed(app: AppSeen) -> bool:
    """Return whether an application's hold has no end."""
    return app.gate == "sealed"


def release(c: Context, f: Gateways, target: str) -> Changes:
    """Return the orders that release the requests that wait at the gateways.

    A permanent hold is first turned into a hold with a lease.
    """
    ttl = move_of(c.inventory).topic_move.hold_ms
    unsealed = f.orders(target, "unseal", sealed, ttl_ms=ttl)
    return (*unsealed, *f.orders(target, "unhold", lambda app: app.requests_wait))


def _check_back(f: Gateways, source: str) -> Verdict:
    """Return the verdict of the step on the way back.

    Requests are released on source, at each gateway that answers. A permanent hold is released too, because
    the order for it may have arrived after the step seal was undone.
    """
    if wrong := f.not_in_state("switch.hold-back", lambda app: app.route == source, f"on {source}"):
        return Blocked(wrong)
    if todo := f.hosts(lambda app: app.requests_wait):
        return Ready(todo)
    return Blocked(f.unknown, others_back=True) if f.unknown else Done()


MEANINGS = meanings(
    """
    switch.hold-route: An application is not on source. Cause: It has switched already. To do: Exchange
    topic_move.source and target if you want to switch it back.

    switch.hold-back: An application is on target when its hold is to be released. Cause: An earlier step of
    the rollback did not reach its gateway. To do: Look at zkmigrate gateway status on that host, then resume.
    """
)
