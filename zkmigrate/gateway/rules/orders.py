"""Orders to a gateway: fencing numbers, operation ids, and the record that outlives the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from zkmigrate.gateway.rules.hold import VERBS, App, Gate, Order, Refused, carried_out, lapsed

MOST_ANSWERS = 1000
"""So many operation ids are remembered."""
VERSION = 1


class RecordError(ValueError):
    """The record on disk is not one, or belongs to another configuration."""


@dataclass(frozen=True)
class Answer:
    """The answer to an order. outcome: done, refused or fenced."""

    outcome: str
    text: str


@dataclass(frozen=True)
class State:
    """All that orders decide. fencing: the highest number seen. done: the orders carried out, by operation
    id, oldest first, with what each was and its answer. apps: by name."""

    fencing: int
    apps: Mapping[str, App]
    done: Mapping[str, tuple[str, str]]


def fresh(apps: Mapping[str, str]) -> State:
    """Before the first order. apps: the route of each application."""
    return State(0, {name: App(route) for name, route in apps.items()}, {})


def at(state: State, now: float) -> State:
    """The state at this time, after leases that ended."""
    return replace(state, apps={name: lapsed(app, now) for name, app in state.apps.items()})


def take(
    state: State, order: Order, clusters: Mapping[str, object], now: float, wall: float, in_flight: int
) -> tuple[State, Answer]:
    """The state after an order, and the answer. ``at`` this time. in_flight: of the order's application."""
    if order.fencing < state.fencing:
        why = f"fencing number {order.fencing} is out; the present one is {state.fencing}"
        return state, Answer("fenced", why)
    what = f"{order.verb} {order.app} {order.to} {order.hold} {order.ttl_ms}"
    if order.id in state.done:
        before, text = state.done[order.id]
        if before != what:
            return state, Answer("refused", f"operation {order.id} was: {before.strip()}")
        return state, Answer("done", text)
    if order.verb not in VERBS:
        return state, Answer("refused", f"{order.verb!r} is not an order, needed: {', '.join(VERBS)}")
    if order.app not in state.apps:
        return state, Answer("refused", f"no application {order.app!r}, needed: {', '.join(state.apps)}")
    told = carried_out(state.apps[order.app], order, clusters, now, wall, in_flight)
    if isinstance(told, Refused):
        return replace(state, fencing=order.fencing), Answer("refused", told.why)
    text = f"{order.app}: {told.gate.value} on {told.route}"
    done = {**state.done, order.id: (what, text)}
    for old in list(done)[:-MOST_ANSWERS]:
        del done[old]
    return State(order.fencing, {**state.apps, order.app: told}, done), Answer("done", text)


def durable(state: State) -> dict[str, Any]:
    """What the record on disk holds. A lease is not in it: a gateway that starts again has none."""
    return {
        "version": VERSION,
        "fencing": state.fencing,
        "done": {id: list(pair) for id, pair in state.done.items()},
        "apps": {
            name: {
                "route": app.route,
                "staged": app.staged,
                "sealed": app.gate is Gate.SEALED,
                "flipped": app.flipped,
                "flips": app.flips,
            }
            for name, app in state.apps.items()
        },
    }


def restored(record: object, apps: Mapping[str, str], clusters: Mapping[str, object]) -> State:
    """The state of a record. apps, clusters: of the configuration; a new application begins on its route.
    RecordError."""
    try:
        if not isinstance(record, dict) or record["version"] != VERSION:
            raise ValueError(f"version {VERSION} is needed")
        kept = {str(name): _app(told) for name, told in record["apps"].items()}
        done = {str(id): (str(what), str(text)) for id, (what, text) in record["done"].items()}
        fencing = int(record["fencing"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"it is damaged: {type(error).__name__} {error}") from None
    for name, app in kept.items():
        if name not in apps:
            raise RecordError(f"it has application {name!r}, the configuration has not")
        for cluster in (app.route, app.staged):
            if cluster and cluster not in clusters:
                raise RecordError(
                    f"application {name!r} is on cluster {cluster!r}, the configuration lacks it"
                )
    return State(fencing, {name: kept.get(name, App(route)) for name, route in apps.items()}, done)


def _app(told: Mapping[str, Any]) -> App:
    gate = Gate.SEALED if told["sealed"] else Gate.OPEN
    flips = int(told.get("flips", 0))  # records of before have none
    return App(str(told["route"]), str(told["staged"]), gate, flipped=float(told["flipped"]), flips=flips)
