"""What: lead the applications to target at every gateway, and end their clients' connections.

Why now: every gateway is sealed, so none sends a request to source any more.

Clients may notice: they connect again. Their requests still wait, at most policy.open_limit_s; then they go
on by themselves, on target.

Way back: the applications are held, led back to source and sealed there, as long as none has gone on.

Proof: each gateway wrote its new route, and the application waits there.
"""

from __future__ import annotations

from zkmigrate.model.change import Applied, Changes, GatewayOrder
from zkmigrate.model.finding import Finding, claim, meanings
from zkmigrate.model.look import Look
from zkmigrate.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Way
from zkmigrate.topic_move.facts import AppSeen, Gateways, every_app, gateways
from zkmigrate.topic_move.seal_step import sealed
from zkmigrate.topic_move.section import move_of


class GoStep(Step[Gateways]):
    id = "go"
    title = "Lead the applications to target"
    hazard = Hazard.WINDOW

    def observe(self, c: Context, look: Look) -> Gateways:
        return gateways(c, look)

    def check(self, c: Context, f: Gateways) -> Verdict:
        move = move_of(c.inventory).topic_move
        if c.way is Way.BACK:
            return _back(f, move.target)
        if f.unknown:
            return Blocked(f.unknown)
        if wrong := f.outside(
            "switch.go-gate",
            lambda app: app.route == move.target or sealed(app),
            f"sealed, or on {move.target}",
        ):
            return Blocked(wrong)
        todo = f.hosts(lambda app: app.route != move.target)
        return Ready(todo) if todo else Done()

    def plan(self, c: Context, f: Gateways, target: str) -> Changes:
        to, ttl = move_of(c.inventory).topic_move.target, _ttl(c)
        return f.orders(target, "go", lambda app: app.route != to, ttl_ms=ttl)

    def undo(self, c: Context, f: Gateways, target: str, applied: tuple[Applied, ...]) -> Changes:
        move = move_of(c.inventory).topic_move
        found: list[GatewayOrder] = []
        for (host, name), app in f.at.items():
            if host == target and app.route == move.target:
                found += _led_back(host, name, app, move.source, move.hold_ms, _ttl(c))
        return tuple(found)

    def forecast(self, c: Context, look: Look) -> Forecast[Gateways]:
        return Forecast(every_app(c, "sealed"))


def _ttl(c: Context) -> int:
    """How long requests wait on the new route, in milliseconds."""
    return int(c.inventory.policy.open_limit_s * 1000)


def _led_back(
    host: str, name: str, app: AppSeen, source: str, hold_ms: int, ttl_ms: int
) -> tuple[GatewayOrder, ...]:
    """The next orders of the way back; a seal needs the hold's operation id, which only its gateway knows."""
    if app.gate == "gone":
        return (
            GatewayOrder(host, "hold", name, ttl_ms=hold_ms),
            GatewayOrder(host, "route", name, to=source),
        )
    if app.gate == "held" and app.staged != source:
        return (GatewayOrder(host, "route", name, to=source),)
    if app.gate == "held":
        return (GatewayOrder(host, "seal", name, hold=app.hold),)
    return (GatewayOrder(host, "go", name, ttl_ms=ttl_ms),)


def _back(f: Gateways, target: str) -> Verdict:
    if opened := opened_on(f, target):
        return Blocked((no_way_back(opened, target),), no_way_back=True)
    if todo := f.hosts(lambda app: app.route == target):
        return Ready(todo)
    return Blocked(f.unknown, others_back=True) if f.unknown else Done()


def opened_on(f: Gateways, target: str) -> tuple[str, ...]:
    """The gateways that let an application go on, on target."""
    return f.hosts(lambda app: app.route == target and app.gate in ("open", "settling"))


def no_way_back(opened: tuple[str, ...], target: str) -> Finding:
    """Clients write on target: the way back is another switch."""
    return claim(
        "open.no-way-back",
        "no client has written on target yet",
        False,
        seen=f"open on {target}: {', '.join(opened)}",
        needed="applications that wait",
        moves=(
            "resume: it goes forward",
            "then switch back: the same playbook with topic_move.source and target exchanged",
        ),
    )


MEANINGS = meanings(
    """
    switch.go-gate: An application is neither sealed nor on target. Cause: Another operator. To do: Look
    at zkmigrate gateway status. Let the run walk back.
    """
)
