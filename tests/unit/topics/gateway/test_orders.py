"""Orders: fencing numbers, repeated operations, and the record that outlives the process."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkmigrate.topics.gateway.rules import forms
from zkmigrate.topics.gateway.rules.hold import MOST_TTL_MS, VERBS, App, Gate, Order
from zkmigrate.topics.gateway.rules.orders import (
    MOST_ANSWERS,
    MOST_STEP,
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
    assert answer == Answer("fenced", "fencing number 6 is outdated; the current number of orders is 7")


def test_a_run_of_another_set_fences_no_sealed_application_off() -> None:
    """Two sets with mirror hosts of their own, so each run has its own numbers."""
    state, _ = give(fresh(ROUTES), "route", "r", fencing=3, to="b")
    state, _ = give(state, "hold", "h", fencing=3, ttl_ms=1000)
    state, answer = give(state, "seal", "s", fencing=3, hold="h")
    assert answer.outcome == "done"
    state, answer = give(state, "settle", "other", fencing=9, app="others", ttl_ms=1000)
    assert answer.outcome == "done"
    state = restored(json.loads(json.dumps(durable(state))), ROUTES, CLUSTERS)
    _, unsealed = give(state, "unseal", "u", fencing=3, ttl_ms=1000)
    _, gone = give(state, "go", "g", fencing=3)
    assert (unsealed.outcome, gone) == ("done", Answer("done", "orders: open on b"))
    _, late = give(state, "unhold", "l", fencing=8, app="others")
    assert late.outcome == "fenced"


def test_a_mistyped_fencing_number_leaves_numbers_for_the_runs_to_come() -> None:
    state, answer = give(fresh(ROUTES), "hold", fencing=MOST_STEP + 1, ttl_ms=1000)
    assert (answer.outcome, state) == ("refused", fresh(ROUTES))
    assert f"is too high; needed: at most {MOST_STEP}" in answer.text
    state, answer = give(state, "hold", fencing=MOST_STEP, ttl_ms=1000)
    assert answer.outcome == "done"
    _, answer = give(state, "hold", "id-2", fencing=2 * MOST_STEP, app="others", ttl_ms=1000)
    assert answer.outcome == "done", "the lock counts on from the highest number of all"


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
    assert answer.text.startswith("operation id-1 was already used for: hold orders")


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
        "orders": App("b", "a", Gate.SEALED, "h", flipped=5000.0, flips=1, fencing=7),
        "others": App("a", "b", Gate.HELD, "h", until=102.0),
    }
    state = State(apps, {"id-1": ("hold others", "others: held on a")})
    again = restored(json.loads(json.dumps(durable(state))), ROUTES, CLUSTERS)
    assert again == replace(
        state,
        apps={
            "orders": App("b", "a", Gate.SEALED, flipped=5000.0, flips=1, fencing=7),
            "others": App("a", "b"),
        },
    )


def test_a_new_application_begins_on_its_route() -> None:
    record = durable(fresh({"others": "a"}))
    assert restored(record, {"orders": "b", "others": "b"}, CLUSTERS).apps == {
        "orders": App("b"),
        "others": App("a"),
    }


def test_the_number_of_an_earlier_record_counts_for_every_application() -> None:
    app = {"route": "a", "staged": "", "sealed": True, "flipped": 0.0}
    record = {"version": 1, "fencing": 7, "done": {}, "apps": {"orders": app, "others": {**app, "flips": 2}}}
    state = restored(record, ROUTES, CLUSTERS)
    assert state.apps == {
        "orders": App("a", gate=Gate.SEALED, fencing=7),
        "others": App("a", gate=Gate.SEALED, flips=2, fencing=7),
    }
    assert durable(state)["version"] == 2


NUMBER, TRUTH = "should be a valid integer", "should be a valid boolean"
ODD: tuple[tuple[str, object, str], ...] = (
    ("sealed", "false", f"{TRUTH} (seen 'false')"),
    ("sealed", 0, f"{TRUTH} (seen 0)"),
    ("flips", -1, "should be greater than or equal to 0 (seen -1)"),
    ("flips", 1.5, NUMBER),
    ("flips", "3", f"{NUMBER} (seen '3')"),
    ("flips", True, f"{NUMBER} (seen True)"),
    ("flips", 10**30, "should be less than or equal to 1000000000"),
    ("flipped", float("nan"), "should be a finite number (seen nan)"),
    ("flipped", float("inf"), "should be a finite number (seen inf)"),
    ("flipped", -1.0, "should be greater than or equal to 0"),
    ("flipped", 1e300, "should be less than or equal to 100000000000"),
    ("flipped", "0", "should be a valid number (seen '0')"),
    ("fencing", 1.0, NUMBER),
    ("fencing", -1, "should be greater than or equal to 0"),
    ("fencing", 10**15, "should be less than or equal to 999999999999999"),
    ("fencing", None, f"{NUMBER} (seen None)"),
    ("route", 5, "should be a valid string (seen 5)"),
    ("staged", None, "should be a valid string (seen None)"),
    ("odd", 1, "this field is unknown"),
)


@pytest.mark.parametrize(("field", "value", "why"), ODD)
def test_a_record_with_an_odd_value_is_refused_by_its_field(field: str, value: object, why: str) -> None:
    record = durable(fresh(ROUTES))
    record["apps"]["orders"][field] = value
    with pytest.raises(RecordError) as seen:
        restored(record, ROUTES, CLUSTERS)
    assert f"the record is damaged: apps.orders.{field}: " in str(seen.value)
    assert why in str(seen.value)
    assert "Next: " in str(seen.value)


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {},
        {"version": 3},
        {"version": True},
        durable(fresh(ROUTES)) | {"version": 1},
        durable(fresh(ROUTES)) | {"version": "2"},
        {"version": 1, "fencing": 10**30, "done": {}, "apps": {}},
        {"version": 1, "fencing": 1.5, "done": {}, "apps": {}},
        durable(fresh(ROUTES)) | {"fencing": 3},
        durable(fresh(ROUTES)) | {"apps": {"orders": {}}},
        durable(fresh(ROUTES)) | {"apps": []},
        durable(fresh(ROUTES)) | {"done": {"id": "x"}},
        durable(fresh(ROUTES)) | {"done": {"id": ["x", "y", "z"]}},
        durable(fresh(ROUTES)) | {"done": {"id": ["x", 5]}},
        durable(fresh({"gone": "a"})),
        durable(fresh({"orders": "c"})),
    ],
)
def test_a_record_that_does_not_fit_is_refused(record: object) -> None:
    with pytest.raises(RecordError, match="Next: "):
        restored(record, ROUTES, CLUSTERS)


GOOD = {
    "fencing": 1,
    "id": "move-1.o.2",
    "verb": "seal",
    "app": "orders",
    "to": "b",
    "hold": "h",
    "ttl_ms": 5,
}


def test_an_order_with_sound_fields_is_one() -> None:
    assert forms.order(GOOD) == Order(1, "move-1.o.2", "seal", "orders", "b", "h", 5)
    assert forms.order({key: GOOD[key] for key in ("fencing", "id", "verb", "app")}).ttl_ms == 0
    assert forms.order(asdict(Order(forms.MOST_FENCING, "x", "go", "app"))).fencing == forms.MOST_FENCING


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("fencing", odd) for odd in (10**15, 10**30, -1, 1.0, "1", True, None, float("inf"), float("nan"))),
        *(("id", odd) for odd in ("", "a b", "a\n", "a\x1b", "x" * 201, 5, None, "\u0661")),
        *(("verb", odd) for odd in ("", "HOLD", "h" * 21, 5, None)),
        *(("app", odd) for odd in ("", "a b", "A", "a\n", "x" * 64, 5, None)),
        *(("to", odd) for odd in ("a b", "-", "a\n", "x" * 64, 5, None)),
        *(("hold", odd) for odd in ("a b", "a\n", "x" * 201, 5, None)),
        *(("ttl_ms", odd) for odd in (-1, MOST_TTL_MS + 1, 5.0, "5", True, None, float("nan"))),
        ("odd", 1),
    ],
)
def test_an_order_with_an_odd_field_is_none(field: str, value: object) -> None:
    with pytest.raises(forms.FormError, match=f"^{field}: ") as seen:
        forms.order({**GOOD, field: value})
    assert len(str(seen.value)) < 300


def test_a_number_of_thousands_of_digits_is_no_traceback() -> None:
    with pytest.raises(forms.FormError, match="seen a number of thousands of digits"):
        forms.order({**GOOD, "ttl_ms": 10**5000})


def test_the_mistakes_that_are_told_are_bounded() -> None:
    with pytest.raises(forms.FormError, match=r"more$") as seen:
        forms.order({f"{n}" * 500: n for n in range(1000)})
    assert len(str(seen.value)) < 1500


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
