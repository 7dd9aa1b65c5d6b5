"""Orders: fencing numbers, repeated operations, and the record that outlives the process."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkmigrate.gateway.rules.hold import VERBS, App, Gate, Order
from zkmigrate.gateway.rules.orders import (
    MOST_ANSWERS,
    Answer,
    RecordError,
    State,
    at,
    durable,
    fresh,
    restored,
    take,
)

CLUSTERS = {"a": (), "b": ()}
ROUTES = {"orders": "a", "others": "a"}


def give(
    state: State, verb: str, id: str = "id-1", fencing: int = 1, app: str = "orders", **more: Any
) -> tuple[State, Answer]:
    return take(state, Order(fencing, id, verb, app, **more), CLUSTERS, 100.0, 5000.0, 0)


def test_a_lower_fencing_number_is_refused_by_name() -> None:
    state, answer = give(fresh(ROUTES), "hold", fencing=7, ttl_ms=1000)
    assert (answer.outcome, state.fencing) == ("done", 7)
    after, answer = give(state, "unhold", "id-2", fencing=6)
    assert after == state
    assert answer == Answer("fenced", "fencing number 6 is out; the present one is 7")


def test_a_refused_order_of_a_higher_number_locks_the_lower_one_out_too() -> None:
    state, answer = give(fresh(ROUTES), "go", fencing=9)
    assert (answer.outcome, state.fencing) == ("refused", 9)


def test_a_repeated_operation_is_answered_as_before() -> None:
    state, first = give(fresh(ROUTES), "hold", ttl_ms=1000)
    opened = at(state, 200.0)
    assert opened.apps["orders"].lapsed
    again, answer = give(opened, "hold", ttl_ms=1000)
    assert (again, answer) == (opened, first), "it does not hold a second time"
    again, answer = give(opened, "unhold")
    assert answer.outcome == "refused"
    assert answer.text.startswith("operation id-1 was: hold orders")


def test_a_refused_operation_may_be_tried_again() -> None:
    state, answer = give(fresh(ROUTES), "seal", hold="h")
    assert answer.outcome == "refused"
    state, _ = give(state, "route", "r", to="b")
    state, _ = give(state, "hold", "h", ttl_ms=1000)
    state, answer = give(state, "seal", hold="h")
    assert answer == Answer("done", "orders: sealed on a")


@pytest.mark.parametrize(("verb", "app"), [("dance", "orders"), ("hold", "nobody")])
def test_unknown_orders_are_refused_by_name(verb: str, app: str) -> None:
    _, answer = give(fresh(ROUTES), verb, app=app, ttl_ms=1000)
    assert answer.outcome == "refused"
    assert "needed:" in answer.text


def test_so_many_operations_are_remembered() -> None:
    state = fresh(ROUTES)
    for n in range(MOST_ANSWERS + 3):
        state, _ = give(state, "unhold", f"id-{n}")
    assert len(state.done) == MOST_ANSWERS
    assert next(iter(state.done)) == "id-3"


def test_route_and_seal_outlive_the_process_and_a_lease_does_not() -> None:
    apps = {
        "orders": App("b", "a", Gate.SEALED, "h", flipped=5000.0),
        "others": App("a", "b", Gate.HELD, "h", until=102.0),
    }
    state = State(7, apps, {"id-1": ("hold others", "others: held on a")})
    again = restored(json.loads(json.dumps(durable(state))), ROUTES, CLUSTERS)
    assert again == replace(
        state, apps={"orders": App("b", "a", Gate.SEALED, flipped=5000.0), "others": App("a", "b")}
    )


def test_a_new_application_begins_on_its_route() -> None:
    record = durable(fresh({"others": "a"}))
    assert restored(record, {"orders": "b", "others": "b"}, CLUSTERS).apps == {
        "orders": App("b"),
        "others": App("a"),
    }


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {},
        {"version": 2},
        durable(fresh(ROUTES)) | {"apps": {"orders": {}}},
        durable(fresh(ROUTES)) | {"done": {"id": "x"}},
        durable(fresh({"gone": "a"})),
        durable(fresh({"orders": "c"})),
    ],
)
def test_a_record_that_does_not_fit_is_refused(record: object) -> None:
    with pytest.raises(RecordError):
        restored(record, ROUTES, CLUSTERS)


@given(
    st.lists(
        st.builds(
            Order,
            st.integers(0, 3),
            st.sampled_from(["i1", "i2", "i3", "i4", "i5", "i6"]),
            st.sampled_from(VERBS),
            st.sampled_from(["orders", "others"]),
            st.sampled_from(["a", "b"]),
            st.sampled_from(["i1", "i2"]),
            st.sampled_from([0, 1000]),
        ),
        max_size=30,
    )
)
def test_no_order_of_orders_moves_a_route_without_seal_and_go(given_orders: list[Order]) -> None:
    state, now = fresh(ROUTES), 0.0
    for order in given_orders:
        now += 0.4
        state = at(state, now)
        after, answer = take(state, order, CLUSTERS, now, now, 0)
        for name, app in after.apps.items():
            before = state.apps[name]
            if app.route != before.route:
                assert (order.verb, before.gate, app.route) == ("go", Gate.SEALED, before.staged)
            if app.gate is Gate.SEALED and before.gate is not Gate.SEALED:
                assert (before.gate, before.hold) == (Gate.HELD, order.hold)
        if answer.outcome == "fenced":
            assert after == state
        assert restored(durable(after), ROUTES, CLUSTERS).apps.keys() == after.apps.keys()
        state = after
