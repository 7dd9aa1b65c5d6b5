"""What a tick of the throttle leaves for the report."""

from __future__ import annotations

import json

from zkmigrate.cluster.throttle.controller import decide
from zkmigrate.kafka.rates import Moving, Rate, Sample, Settings, State
from zkmigrate.kafka.rules.throttle_series import KIND, body, curves
from zkmigrate.runbook.model.report import Curve

M = 1_000_000


def test_a_tick_is_told_as_curves_of_each_broker_by_number_and_of_all() -> None:
    moving = (Moving("t", 0, 10, (2, 3), left=500 * M),)
    seen = {10: Sample(50e6, 1e6), 2: Sample(2e6, 60e6)}
    decision = decide(moving, seen, Settings(5 * M, Rate(100 * M, 100 * M)), State())
    row = {"kind": KIND, **json.loads(json.dumps(body(decision, seen, moving)))}
    found = curves([(7.0, row), (8.0, {"kind": "else"}), (9.0, row)])
    plots = ("send rate, MB/s", "receive rate, MB/s", "sent, MB/s", "received, MB/s", "remaining, GB")
    assert list(dict.fromkeys(one.plot for one in found)) == list(plots)
    assert [one.name for one in found if one.plot == "send rate, MB/s"] == [
        "broker 2",
        "broker 3",
        "broker 10",
    ]
    assert found[2] == Curve("send rate, MB/s", "broker 10", ((7.0, 45.0), (9.0, 45.0)))
    assert found[-1] == Curve("remaining, GB", "all", ((7.0, 1.0), (9.0, 1.0)))


def test_what_does_not_read_is_left_out() -> None:
    odd = [
        {"rates": 5, "traffic": {"1": 7}, "left": True},
        {"rates": {"1": ["x", -5]}, "traffic": {"1": [float("nan")]}, "left": -1},
        {},
    ]
    assert curves([(float(n), {"kind": KIND, **row}) for n, row in enumerate(odd)]) == ()
