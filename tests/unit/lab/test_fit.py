"""How a demo is set up on a machine of any speed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.inventory.test_inventory import GOOD
from zkmigrate.inventory.inventory import Policy, load
from zkmigrate.lab import fit as module
from zkmigrate.lab.fit import Speed, fit
from zkmigrate.lab.load.config import LoadConfig, parse_config
from zkmigrate.lab.spec import LabSpec
from zkmigrate.move.rules.window_rules import deadlines

REFERENCE = Speed(module.START_S, module.ROUND_TRIP_MS)
speeds = st.builds(Speed, st.floats(0.05, 120.0), st.floats(0.05, 5_000.0))


def leases(speed: Speed) -> tuple[int, int]:
    chosen = fit(speed)
    lease = chosen.policy(chosen.session_timeout_ms)["lease"]
    return lease["cut_ttl_ms"], lease["fence_ttl_ms"]


def test_the_machine_of_our_figures_gets_the_defaults() -> None:
    chosen = fit(REFERENCE)
    defaults = Policy()
    assert chosen.session_timeout_ms == LabSpec.session_timeout_ms
    assert chosen.tick_time_ms(chosen.session_timeout_ms) == LabSpec.tick_time_ms
    rates: dict[str, Any] = dict(chosen.rates())
    assert replace(LoadConfig(), **rates) == LoadConfig()
    assert Policy.model_validate(chosen.policy(chosen.session_timeout_ms)) == defaults
    assert (chosen.judge().ack_gap_limit_s, chosen.judge().tenant_gap_limit_s) == (10.0, 5.0)


def test_a_machine_four_times_slower_gets_the_longest_sessions_and_little_load() -> None:
    speed = Speed(4 * module.START_S, module.ROUND_TRIP_MS)
    assert fit(speed).session_timeout_ms == 90_000
    assert fit(speed).load == 1 / 16
    assert leases(speed) == (11313, 28284)


def test_a_slow_disk_alone_makes_a_machine_slow() -> None:
    assert fit(Speed(module.START_S, 100 * module.ROUND_TRIP_MS)).slowness > 4


@given(speeds, st.floats(1.0, 20.0))
def test_a_slower_machine_never_gets_shorter_times_or_more_load(speed: Speed, times: float) -> None:
    quick, slow = fit(speed), fit(Speed(speed.start_s * times, speed.round_trip_ms * times))
    assert slow.session_timeout_ms >= quick.session_timeout_ms
    assert slow.tick_time_ms(slow.session_timeout_ms) >= quick.tick_time_ms(quick.session_timeout_ms)
    mine, theirs = slow.policy(slow.session_timeout_ms), quick.policy(quick.session_timeout_ms)
    assert all(mine["lease"][key] >= theirs["lease"][key] for key in theirs["lease"])
    assert all(mine[key] >= theirs[key] for key in theirs if key != "lease")
    for key, rate in slow.rates().items():
        assert rate <= quick.rates()[key] if key.endswith("_rate") else rate >= quick.rates()[key]
    assert slow.judge().ack_gap_limit_s >= quick.judge().ack_gap_limit_s
    assert slow.judge().tenant_gap_limit_s >= quick.judge().tenant_gap_limit_s


@given(speeds)
def test_every_setting_is_one_that_lab_load_and_inventory_take(speed: Speed) -> None:
    chosen = fit(speed)
    timeout_ms = chosen.session_timeout_ms
    LabSpec(session_timeout_ms=timeout_ms, tick_time_ms=chosen.tick_time_ms(timeout_ms))
    parse_config(json.dumps(chosen.rates()), "load.json")
    Policy.model_validate(chosen.policy(timeout_ms))


@given(speeds)
def test_the_way_back_counted_by_the_policy_fits_the_sessions(speed: Speed) -> None:
    chosen = fit(speed)
    policy = chosen.policy(chosen.session_timeout_ms)
    timeout_s = chosen.session_timeout_ms / 1000
    assert deadlines(timeout_s, policy["way_back_s"]).start_back > 0
    assert policy["open_limit_s"] < timeout_s
    assert policy["lease"]["fence_ttl_ms"] < chosen.session_timeout_ms * 2 / 3


@pytest.mark.parametrize("timeout_ms", [18_000, 25_000, 40_000, 60_000])
@pytest.mark.parametrize("slowness", [1.0, 1.3, 2.0, 4.0, 8.0])
def test_sessions_that_were_asked_for_get_a_lease_that_the_inventory_takes(
    tmp_path: Path, timeout_ms: int, slowness: float
) -> None:
    chosen = module.Fit(slowness)
    policy = chosen.policy(timeout_ms)
    path = tmp_path / "migration.yml"
    path.write_text(GOOD + f"policy: {json.dumps(policy)}\n")
    assert load(path).policy == Policy.model_validate(policy)
    LabSpec(session_timeout_ms=timeout_ms, tick_time_ms=chosen.tick_time_ms(timeout_ms))
    assert deadlines(timeout_ms / 1000, chosen.policy(timeout_ms)["way_back_s"]).start_back > 0
