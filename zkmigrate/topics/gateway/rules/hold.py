"""Decide how orders change an application's route and hold, and how its requests are served meanwhile."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from zkmigrate.topics.gateway.rules.apis import API_VERSIONS, APIS, FETCH, Api, name_of
from zkmigrate.topics.gateway.rules.messages import Head

SYNC_S = 10.0
"""The most seconds after a switch in which a client's FETCH gets no records, from its first FETCH on."""
MEMBER_S = 60.0
"""The most seconds in which the FETCH of a group's member gets no records until SYNC_GROUP is answered."""
LONG_S = 3.0
"""The length of a hold, in seconds, after which a group may have lost members.

Brokers allow no session timeout below 6 seconds, and members send three HEARTBEAT requests in that time.
"""
FLIPPED_S = 600.0
"""Seconds after which a switch no longer affects FETCH."""
MOST_TTL_MS = 600_000


class Gate(enum.Enum):
    """The gate of an application, which decides which of its requests the gateway serves.

    OPEN: all requests.
    SETTLING: all requests except FETCH.
    HELD: only requests that neither read nor change data, until the lease ends.
    SEALED: the same requests as HELD, without a lease.
    GONE: the same requests as HELD, on the new route, until the order ``unhold`` or a time limit.
    """

    OPEN = "open"
    SETTLING = "settling"
    HELD = "held"
    SEALED = "sealed"
    GONE = "gone"


@dataclass(frozen=True)
class App:
    """The state of an application.

    route: the cluster that serves it now.
    staged: the cluster to which the order ``go`` will route it.
    hold: the operation id of its hold.
    until: the time when its lease ends, in seconds of a monotonic clock, or None without a lease.
    lapsed: whether a lease has ended by itself.
    flipped: the time of its last switch in seconds since the epoch, 0 if there was none.
    flips: how many times it has switched.
    fencing: the highest fencing number of its orders.
    """

    route: str
    staged: str = ""
    gate: Gate = Gate.OPEN
    hold: str = ""
    until: float | None = None
    lapsed: bool = False
    flipped: float = 0.0
    flips: int = 0
    fencing: int = 0


@dataclass(frozen=True)
class Refused:
    """The refusal of an order.

    why: a text that says what was seen and what is needed.
    """

    why: str


@dataclass(frozen=True)
class Order:
    """An order to a gateway.

    fencing: the operator's fencing number. id: the operation id. app: the name of the application. to: the
    name of a cluster, for ``route``. hold: the operation id of the hold, for ``seal``. ttl_ms: the length of
    the lease in milliseconds; for ``go``, the longest time until ``unhold``.
    """

    fencing: int
    id: str
    verb: str
    app: str
    to: str = ""
    hold: str = ""
    ttl_ms: int = 0


VERBS = ("route", "settle", "hold", "unhold", "seal", "unseal", "go")
_LEASED = ("settle", "hold", "unseal")


def lapsed(app: App, now: float) -> App:
    """Return an application as it is at a time, with an open gate if its lease has ended by then."""
    if app.until is None or now < app.until:
        return app
    opened = replace(app, gate=Gate.OPEN, hold="", until=None)
    return opened if app.gate is Gate.GONE else replace(opened, lapsed=True)


def carry_out(
    app: App,
    order: Order,
    clusters: Mapping[str, object],
    now: float,
    wall: float,
    in_flight: int,
    unsure: Sequence[str] = (),
) -> App | Refused:
    """Return the application after an order, or a refusal that says why the order cannot be carried out.

    now, wall: the current time in seconds, of a monotonic clock and since the epoch. in_flight: the number of
    the application's unanswered requests. unsure: descriptions of the batches whose outcome is not known to
    the clients that sent them.
    """
    if order.verb in _LEASED and not 0 < order.ttl_ms <= MOST_TTL_MS:
        return Refused(f"a lease of {order.ttl_ms} ms is not possible; needed: 1 to {MOST_TTL_MS}")
    until = now + order.ttl_ms / 1000
    match order.verb, app.gate:
        case "route", Gate.OPEN | Gate.SETTLING | Gate.HELD | Gate.GONE:
            if order.to not in clusters or order.to == app.route:
                others = ", ".join(one for one in clusters if one != app.route)
                return Refused(f"{order.to!r} cannot be the next route; needed: {others}")
            return replace(app, staged=order.to)
        case "route", Gate.SEALED if order.to == app.route:
            return replace(app, staged="")
        case "settle", Gate.OPEN | Gate.SETTLING:
            return replace(app, gate=Gate.SETTLING, until=until, lapsed=False)
        case "hold", Gate.OPEN | Gate.SETTLING | Gate.GONE:
            return replace(app, gate=Gate.HELD, hold=order.id, until=until, lapsed=False)
        case "hold", Gate.HELD:
            return replace(app, until=until)
        case "unhold", Gate.OPEN | Gate.SETTLING | Gate.HELD | Gate.GONE:
            return replace(app, gate=Gate.OPEN, hold="", until=None)
        case "seal", Gate.HELD | Gate.GONE:  # an application that is gone has no hold
            return _sealed(app, order, in_flight, unsure)
        case "unseal", Gate.SEALED:
            return replace(app, gate=Gate.HELD, hold=order.id, until=until)
        case "go", Gate.SEALED if not app.staged:
            return Refused(f"{order.app} has no staged route; it remains on {app.route}")
        case "go", Gate.SEALED:
            gone = Gate.GONE if order.ttl_ms > 0 else Gate.OPEN
            left = until if order.ttl_ms > 0 else None
            return App(app.staged, gate=gone, until=left, flipped=wall, flips=app.flips + 1)
    return Refused(f"{order.app} is {app.gate.value}; {order.verb} needs {_NEEDED[order.verb]}")


_NEEDED = {
    "route": "open, settling, held or gone; sealed for its own cluster",
    "settle": "open or settling",
    "hold": "open, settling, held or gone",
    "unhold": "open, settling, held or gone",
    "seal": "held or gone",
    "unseal": "sealed",
    "go": "sealed",
}


def _sealed(app: App, order: Order, in_flight: int, unsure: Sequence[str]) -> App | Refused:
    if order.hold != app.hold:
        return Refused(f"hold {order.hold!r} has ended; the current hold is {app.hold!r}")
    if not app.staged:
        return Refused(f"{order.app} has no staged route; send the order route first")
    if in_flight:
        return Refused(f"{in_flight} requests of {order.app} are in flight; needed: 0")
    if unsure:
        return Refused(
            f"the clients of {order.app} do not know the outcome of {len(unsure)} batches; needed: 0. They "
            f"send them again, and {app.staged} would store them twice: {', '.join(unsure[:3])}"
        )
    return replace(app, gate=Gate.SEALED, until=None)


# -- requests


class Act(enum.Enum):
    """The ways in which the gateway can treat a request.

    FORWARD: send the request to the broker.
    REWRITE: send the request to the broker, and change the answer.
    PARK: let the request wait, then decide again.
    ANSWER: answer the request in the gateway.
    REFUSE: close the connection.
    EMPTY: answer the request in the gateway after a moment, without records, so that the client asks again.
    """

    FORWARD = "forward"
    REWRITE = "rewrite"
    PARK = "park"
    ANSWER = "answer"
    REFUSE = "refuse"
    EMPTY = "empty"


@dataclass(frozen=True)
class Verdict:
    """A decision on how the gateway treats a request.

    why: the reason, if ``act`` is PARK, REFUSE or EMPTY.
    """

    act: Act
    why: str = ""


def decide(gate: Gate, head: Head, *, synced: bool) -> Verdict:
    """Decide how the gateway treats a request of an application whose gate is in a given state.

    head: the header of the request. synced: whether the client may fetch records already, as far as its group
    is concerned. This is False for a client that is still to be confirmed by its group after a switch or a
    long hold.
    """
    api = head.api
    if api is None:
        if head.key == API_VERSIONS and head.version > APIS[API_VERSIONS].most:
            return Verdict(Act.ANSWER)
        return Verdict(Act.REFUSE, _not_served(head))
    if gate is Gate.OPEN and api.key == FETCH and not synced:
        # Records would be delivered beside what the client fetches after its SYNC_GROUP.
        return Verdict(Act.EMPTY, "its group has not confirmed the client yet")
    if why := parks(gate, api):
        return Verdict(Act.PARK, why)
    return Verdict(Act.REWRITE if api.rewritten else Act.FORWARD)


def _not_served(head: Head) -> str:
    if api := APIS.get(head.key):
        return f"{api.name} version {head.version}, needed: {api.least} to {api.most}"
    return f"{name_of(head.key)} is not offered"


def parks(gate: Gate, api: Api) -> str:
    """Return why a request has to wait at a gate, or an empty text if it need not wait."""
    match gate:
        case Gate.OPEN:
            return ""
        case Gate.SETTLING:
            return gate.value if api.key == FETCH else ""
        case Gate.HELD | Gate.SEALED | Gate.GONE:
            return "" if api.free else gate.value
