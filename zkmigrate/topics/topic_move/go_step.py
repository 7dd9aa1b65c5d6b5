"""What: route the applications to target at every gateway, and close their clients' connections.

Why now: every gateway is sealed, so none sends a request to source any more.

Clients may notice: they connect again. Their requests still wait, at most policy.open_limit_s; then they go
on by themselves, on target.

Way back: every application on target is sealed there, so that none goes on by itself, and every other one
loses its staged route. Then they are routed back to source. There is no way back once an application has
gone on.

Proof: right before the order source's logs still ended where they were drained. Each gateway wrote its new
route, and the application waits there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Finding, claim, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Way
from zkmigrate.runbook.model.step_record import needed
from zkmigrate.topics.gateway.order import GatewayOrder
from zkmigrate.topics.topic_move.facts import (
    AppSeen,
    Drained,
    Ends,
    Gateways,
    both_ends,
    by_part,
    every_app,
    gateways,
)
from zkmigrate.topics.topic_move.hold_step import sealed
from zkmigrate.topics.topic_move.rules import cannot_read, check_in_sync, check_source_ends, wait_for_leaders
from zkmigrate.topics.topic_move.section import move_of

_SILENT_S, _POLL_S = 3.0, 0.1


@dataclass(frozen=True)
class GoFacts:
    """Facts for the steps go and open.

    ends: where the logs end; not read on the way back.
    """

    gateways: Gateways
    ends: Reading[Ends] = field(default_factory=lambda: Seen({}))


class GoStep(Step[GoFacts]):
    id = "go"
    title = "Route the applications to target"
    hazard = Hazard.WINDOW

    def observe(self, c: Context, look: Look) -> GoFacts:
        return read_ends(c, look)

    def check(self, c: Context, f: GoFacts) -> Verdict:
        move, found = move_of(c.inventory).topic_move, f.gateways
        if c.way is Way.BACK:
            return _check_back(found, move.source, move.target)
        if found.unknown:
            return Blocked(found.unknown)
        if wrong := found.not_in_state(
            "switch.go-gate",
            lambda app: app.route == move.target or sealed(app),
            f"sealed, or on {move.target}",
        ):
            return Blocked(wrong)
        todo = found.hosts(lambda app: app.route != move.target)
        if not todo:
            return Done()
        # Once an application is open on target there is no way back, so the others follow.
        if not hosts_open_on(found, move.target) and (held := find_obstacle(c, f.ends)):
            return held
        return Ready(todo)

    def plan(self, c: Context, f: GoFacts, target: str) -> Changes:
        to, ttl = move_of(c.inventory).topic_move.target, _ttl(c)
        return f.gateways.orders(target, "go", lambda app: app.route != to, ttl_ms=ttl)

    def undo(self, c: Context, f: GoFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        move, found = move_of(c.inventory).topic_move, f.gateways
        if found.hosts(lambda app: _may_open(app, move.target)):
            return tuple(
                order
                for (host, name), app in found.at.items()
                if host == target and _may_open(app, move.target)
                for order in _seal_orders(host, name, app, move.source)
            )
        if found.hosts(lambda app: _has_staged_route(app, move.source)):
            still = partial(_has_staged_route, source=move.source)
            return found.orders(target, "route", still, to=move.source)
        return found.orders(target, "go", lambda app: app.route == move.target, ttl_ms=_ttl(c))

    def forecast(self, c: Context, look: Look) -> Forecast[GoFacts]:
        return Forecast(GoFacts(every_app(c, "sealed")), records={Drained.step: Drained(()).encode()})


def read_ends(c: Context, look: Look) -> GoFacts:
    """Read the gateways' status, and on the way forward also where the logs end."""
    found = gateways(c, look)
    return GoFacts(found) if c.way is Way.BACK else GoFacts(found, both_ends(c, look))


def find_obstacle(c: Context, ends: Reading[Ends]) -> Verdict | None:
    """Return a verdict if the applications must not be routed to target; None if they may be.

    They must not be if somebody wrote on source, if target cannot take their records, or if one of these is
    not known. A replica of source that is out of sync is no obstacle, because everything was copied before.
    """
    if not isinstance(ends, Seen):
        return Blocked((cannot_read("ends", ends),))
    target = {part: replace(one, below="") for part, one in ends.value.items()}
    if wrong := (*check_source_ends(by_part(needed(Drained, c).ends), ends.value), *check_in_sync(target)):
        return Blocked(wrong)
    return wait_for_leaders(ends.value, _SILENT_S, _POLL_S)


def _ttl(c: Context) -> int:
    """Return how long requests may wait on the new route, in milliseconds."""
    return int(c.inventory.policy.open_limit_s * 1000)


def _seal_orders(host: str, name: str, app: AppSeen, source: str) -> tuple[GatewayOrder, ...]:
    """Return the orders that seal an application on target and stage its route to source.

    host: the gateway's host. name: the name of the application. If the application has opened meanwhile, the
    gateway refuses to seal it.
    """
    route = () if app.staged == source else (GatewayOrder(host, "route", name, to=source),)
    return (*route, GatewayOrder(host, "seal", name, hold=app.hold))


def _may_open(app: AppSeen, target: str) -> bool:
    """Return whether an application is on target and may open there without a further order."""
    return app.route == target and not sealed(app)


def _has_staged_route(app: AppSeen, source: str) -> bool:
    """Return whether an application is sealed on source while a route to another cluster is staged.

    If the order ``go`` arrived late, it would route such an application to target.
    """
    return app.route == source and sealed(app) and app.staged not in ("", source)


def _check_back(f: Gateways, source: str, target: str) -> Verdict:
    """Return the verdict of the step on the way back.

    No application opens on source while another one may still open on target. A gateway that does not answer
    may have routed its applications to target, so the step is blocked until that gateway answers.
    """
    if opened := hosts_open_on(f, target):
        return Blocked((no_way_back(opened, target),), no_way_back=True)
    if f.unknown:
        return Blocked(f.unknown)
    todo = (
        f.hosts(lambda app: _may_open(app, target))
        or f.hosts(lambda app: _has_staged_route(app, source))
        or f.hosts(lambda app: app.route == target)
    )
    return Ready(todo) if todo else Done()


def hosts_open_on(f: Gateways, target: str) -> tuple[str, ...]:
    """Return the hosts of the gateways where an application is open on target."""
    return f.hosts(lambda app: app.route == target and app.gate in ("open", "settling"))


def no_way_back(opened: tuple[str, ...], target: str) -> Finding:
    """Return the finding that clients write on target, so that only another switch can go back.

    opened: the hosts of the gateways where an application is open on target.
    """
    return claim(
        "open.no-way-back",
        "no client has written on target yet",
        False,
        seen=f"open on {target}: {', '.join(opened)}"
        if opened
        else "this run has released their requests on target",
        needed="applications whose requests wait",
        moves=(
            "resume: the run can only go forward",
            "to switch back afterwards, run the same playbook with topic_move.source and target exchanged",
        ),
    )


MEANINGS = meanings(
    """
    switch.go-gate: An application is neither sealed nor on target. Cause: Another operator changed it. To do:
    Let the run roll back. Look at zkmigrate gateway status to see what changed.
    """
)
