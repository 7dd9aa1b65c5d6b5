"""What samples of a switch make of the live view and of a report."""

from __future__ import annotations

from typing import Any

import pytest

from playbooks.kafka_topic_move import PLAYBOOK
from zkmigrate.runbook.model.report import Curve, Window
from zkmigrate.topics.topic_move.report import REPORTING, curves, sampled


def mirror(behind: Any = 0, written: Any = 0, copied: Any = 0, way: str = "old new") -> dict[str, Any]:
    source, _, target = way.partition(" ")
    ends = {"behind": behind, "written": written, "copied": copied}
    return {"kind": "mirror", "from": source, "to": target, **ends}


def gateways(*unknown: str, app: str = "shop", **hosts: Any) -> dict[str, Any]:
    """The same application at these gateways."""
    apps = {host: {app: told} for host, told in hosts.items()}
    return {"kind": "gateways", "apps": apps, "unknown": list(unknown)}


def told(answered: Any = 0, **more: Any) -> dict[str, Any]:
    return {"route": "old", "gate": "held", "answered": answered, "parked": {}, "longest_ms": {}, **more}


def points(found: tuple[Curve, ...], plot: str, name: str) -> list[tuple[float, float]]:
    return [point for one in found if (one.plot, one.name) == (plot, name) for point in one.points]


def window(start: float) -> Window:
    return Window("switch", False, start, None, "not over", (), None, {})


def test_h25_the_curves_of_the_mirror_are_its_lag_and_what_each_cluster_gets() -> None:
    found = curves(
        [
            (100.0, mirror(5, 1000, 995)),
            (100.1, mirror(3, 1010, 1007)),
            (102.0, mirror(0, 1200, 1200)),
            (103.0, mirror(None, None, 1200)),
            (104.0, mirror(2, 1300, 1298, "new old")),
        ]
    )
    assert points(found, "records behind", "old to new") == [(100.0, 5.0), (100.1, 3.0), (102.0, 0.0)]
    assert points(found, "records behind", "new to old") == [(104.0, 2.0)]
    assert points(found, "records/s", "old") == [(102.0, 100.0), (104.0, 49.0)], (
        "none over a tenth of a second"
    )
    assert points(found, "records/s", "new")[-1] == (104.0, 100.0)


def test_h25_the_curves_of_the_gateways_are_their_parked_requests_and_answers() -> None:
    found = curves(
        [
            (100.0, gateways(g1=told(10), g2=told(20))),
            (101.0, gateways(g1=told(15, parked={"PRODUCE": 2}), g2=told(25, parked={"PRODUCE": 3}))),
            (102.0, gateways("g2", g1=told(16, parked={"FETCH": 1}))),
            (103.0, gateways(g1=told(20), g2=told(3))),
            (104.0, gateways(g1=told(24), g2=told(4))),
        ]
    )
    nothing = [(103.0, 0.0), (104.0, 0.0)]
    produced = [(100.0, 0.0), (101.0, 5.0), (102.0, 0.0), *nothing]
    assert points(found, "parked requests", "PRODUCE") == produced
    assert points(found, "parked requests", "FETCH") == [(100.0, 0.0), (101.0, 0.0), (102.0, 1.0), *nothing]
    answered = points(found, "answers/s", "shop")
    assert answered == [(101.0, 10.0), (104.0, 5.0)], "not with one silent, nor after one began anew"


def test_h25_what_clients_felt_is_the_most_of_all_looks_and_the_newest_of_who_came_back() -> None:
    names = ["app-9 at 10.0.0.9"]
    back = {"back": 1, "first_s": 0.4, "last_s": 0.4, "missing": 2, "names": names}
    rows = [
        (90.0, gateways(g1=told(parked={"PRODUCE": 99}, longest_ms={"PRODUCE": 99_000}))),
        (100.0, gateways(g1=told(parked={"FETCH": 2, "PRODUCE": 1}, longest_ms={"FETCH": 6900}))),
        (101.0, gateways(g1=told(parked={"PRODUCE": 7}, longest_ms={"PRODUCE": 812, "FETCH": 10}))),
        (102.0, gateways(g1=told(returned=back))),
        (103.0, gateways(g1=told(returned={**back, "back": 2, "last_s": 2.5, "missing": 1}))),
        (104.0, gateways(g1=told(returned={}))),
    ]
    [table] = sampled(rows, (), window(95.0), "").felt
    felt = ("PRODUCE 7, FETCH 2", "FETCH 6.9 s, PRODUCE 812 ms")
    returned = "2 clients: after 400 ms to 2.5 s"
    assert table.rows == (("shop", "g1", *felt, returned, "1: app-9 at 10.0.0.9"),)
    [table] = sampled(rows[:4], (), None, "").felt
    felt = ("PRODUCE 99, FETCH 2", "PRODUCE 99.0 s, FETCH 6.9 s")
    assert table.rows[0][2:] == (*felt, "1 client: after 400 ms", "2: app-9 at 10.0.0.9")
    [table] = sampled([(1.0, gateways(g1=told()))], (), None, "").felt
    assert table.rows[0][2:] == ("none", "-", "-", "-")
    back = {"back": 3, "first_s": 0.1, "last_s": 0.1, "missing": 0, "names": []}
    [table] = sampled([(1.0, gateways(g1=told(returned=back)))], (), None, "").felt
    assert table.rows[0][5] == "none"


@pytest.mark.parametrize(
    "row",
    [
        {"kind": "gateways"},
        {"kind": "gateways", "apps": [1]},
        {"kind": "gateways", "apps": {"g1": 1}},
        {"kind": "gateways", "apps": {"g1": {"shop": "x"}}},
        gateways(g1=told(parked=[1], longest_ms="x", returned=3, answered="many")),
        gateways(g1=told(parked={"FETCH": "x"}, longest_ms={"FETCH": None}, returned={"back": "x"})),
        gateways(g1=told(parked={"FETCH": float("nan")}, returned={"missing": 1, "names": 7})),
        {"kind": "mirror"},
        mirror("x", [], {}),
        {"kind": 3},
    ],
)
def test_a_value_of_another_type_is_left_out(row: dict[str, Any]) -> None:
    rows = [(100.0, row), (101.0, row)]
    [table] = sampled(rows, (), None, "").felt
    assert all(cells[2:4] == ("none", "-") for cells in table.rows)
    assert all(one.plot == "answers/s" for one in curves(rows))


def test_h25_the_live_view_tells_lag_rate_and_parked_requests_and_each_gateways_state() -> None:
    [view] = PLAYBOOK.views()
    assert view.head((), 100.0) is None
    assert (view.host("g1", (), 100.0), view.troubled("g1")) == ("", False)
    view.take(100.0, "mirror", mirror(1, 1000))
    assert view.head((), 100.0) == ("mirror to new: 1 record behind", False)
    view.take(101.0, "mirror", mirror(120, 3300))
    view.take(
        101.0, "gateways", gateways("g3", g1=told(parked={"FETCH": 4}), g2=told(parked={"PRODUCE": 12}))
    )
    said = "mirror to new: 120 records behind, 2,300 records/s; parked: PRODUCE 12, FETCH 4"
    assert view.head((), 101.0) == (said, False)
    assert view.host("g1", (), 101.0) == "shop held on old"
    assert (view.host("g3", (), 101.0), view.troubled("g3")) == ("state of the gateway unknown", True)
    assert view.host("m1", (), 101.0) == ""
    assert view.head((), 112.0) is None, "the samples are old"
    view.take(113.0, "mirror", mirror(None, None, way="new old"))
    assert view.head((), 113.0) == ("mirror to old: not known", False)


def test_the_report_says_what_it_lacks_without_samples() -> None:
    assert "samples" in REPORTING.unsampled
    assert sampled((), (), None, "").felt[0].rows == ()
