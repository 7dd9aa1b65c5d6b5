"""Carry out orders: check fencing numbers and operation ids, and build the record for a restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zkmigrate.topics.gateway.rules import forms
from zkmigrate.topics.gateway.rules.hold import VERBS, App, Gate, Order, Refused, carry_out, lapsed

MOST_ANSWERS = 1000
"""The most operation ids that the gateway remembers."""
MOST_STEP = 1_000_000
"""How much higher than the gateway's highest fencing number the next fencing number may be.

The lock of a run increases the fencing number by one. If an operator types a wrong number, enough higher
numbers must remain for later runs.
"""
VERSION = 2


class RecordError(ValueError):
    """Raised when the record on disk is damaged or belongs to another configuration."""


@dataclass(frozen=True)
class Answer:
    """The answer to an order.

    outcome: done, refused, fenced or failed.
    """

    outcome: str
    text: str


@dataclass(frozen=True)
class State:
    """The part of the gateway's state that orders change.

    apps: the applications by name. done: by operation id, the oldest first, a pair of the order as text and
    the outcome of the order.
    """

    apps: Mapping[str, App]
    done: Mapping[str, tuple[str, str]]

    @property
    def fencing(self) -> int:
        """The highest fencing number of all applications."""
        return max((app.fencing for app in self.apps.values()), default=0)


def fresh(apps: Mapping[str, str]) -> State:
    """Return the state before the first order.

    apps: by name of the application, the cluster that serves it.
    """
    return State({name: App(route) for name, route in apps.items()}, {})


def at(state: State, now: float) -> State:
    """Return the state as it is at a time, with open gates for all applications whose leases have ended."""
    return replace(state, apps={name: lapsed(app, now) for name, app in state.apps.items()})


def take(
    state: State,
    order: Order,
    clusters: Mapping[str, object],
    now: float,
    wall: float,
    in_flight: int,
    unsure: Sequence[str] = (),
) -> tuple[State, Answer]:
    """Return the state after an order, and the answer to the order.

    state: the result of :func:`at` for the time ``now``. in_flight, unsure: see
    :func:`zkmigrate.topics.gateway.rules.hold.carry_out`.
    """
    app = state.apps.get(order.app)
    if app is not None and order.fencing < app.fencing:
        why = (
            f"fencing number {order.fencing} is outdated; the current number of {order.app} is {app.fencing}"
        )
        return state, Answer("fenced", why)
    if order.fencing > state.fencing + MOST_STEP:
        most = state.fencing + MOST_STEP
        why = (
            f"fencing number {order.fencing} is too high; needed: at most {most}, the number of a run's lock"
        )
        return state, Answer("refused", why)
    what = f"{order.verb} {order.app} {order.to} {order.hold} {order.ttl_ms}"
    if order.id in state.done:
        before, text = state.done[order.id]
        if before != what:
            return state, Answer("refused", f"operation {order.id} was already used for: {before.strip()}")
        return state, Answer("done", text)
    if order.verb not in VERBS:
        return state, Answer("refused", f"{order.verb!r} is not an order; needed: one of {', '.join(VERBS)}")
    if app is None:
        return state, Answer(
            "refused", f"there is no application {order.app!r}; needed: one of {', '.join(state.apps)}"
        )
    told = carry_out(app, order, clusters, now, wall, in_flight, unsure)
    if isinstance(told, Refused):
        fenced = replace(app, fencing=order.fencing)
        return replace(state, apps={**state.apps, order.app: fenced}), Answer("refused", told.why)
    text = f"{order.app}: {told.gate.value} on {told.route}"
    done = {**state.done, order.id: (what, text)}
    for old in list(done)[:-MOST_ANSWERS]:
        del done[old]
    told = replace(told, fencing=order.fencing)
    return State({**state.apps, order.app: told}, done), Answer("done", text)


def durable(state: State) -> dict[str, Any]:
    """Return the content of the record, without leases.

    A gateway that starts again therefore has no leases.
    """
    return {
        "version": VERSION,
        "done": {id: list(pair) for id, pair in state.done.items()},
        "apps": {
            name: {
                "route": app.route,
                "staged": app.staged,
                "sealed": app.gate is Gate.SEALED,
                "flipped": app.flipped,
                "flips": app.flips,
                "fencing": app.fencing,
            }
            for name, app in state.apps.items()
        },
    }


def restored(record: object, apps: Mapping[str, str], clusters: Mapping[str, object]) -> State:
    """Return the state that was saved in a record.

    apps: the configured cluster of each application. clusters: the configured clusters. An application that
    the record does not contain starts on its configured cluster. Raises RecordError.
    """
    try:
        told = forms.record(record)
    except forms.FormError as error:
        raise RecordError(f"the record is damaged: {error}. {_CORRECT}") from None
    kept = {name: _app(app) for name, app in told.apps.items()}
    for name, app in kept.items():
        if name not in apps:
            raise RecordError(
                f"the record has application {name!r}, but the configuration does not. {_CONFIGURE}"
            )
        for cluster in (app.route, app.staged):
            if cluster and cluster not in clusters:
                raise RecordError(
                    f"application {name!r} is on cluster {cluster!r}, which the configuration lacks. "
                    f"{_CONFIGURE}"
                )
    done = {id: (what, text) for id, (what, text) in told.done.items()}
    return State({name: kept.get(name, App(route)) for name, route in apps.items()}, done)


_CONFIGURE = "Next: use the configuration with which the record was written"
_CORRECT = (
    "Next: compare the named fields with the other gateways' status, correct them, then start this gateway"
)


def _app(told: forms.KeptApp) -> App:
    gate = Gate.SEALED if told.sealed else Gate.OPEN
    return App(told.route, told.staged, gate, flipped=told.flipped, flips=told.flips, fencing=told.fencing)
