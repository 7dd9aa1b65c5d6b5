"""The lease: long enough for the renewals that were measured, short enough for the deadline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.move.steps.facts import surveyed
from tests.unit.runbook.engine.test_watch import Moment, Renewals, fenced
from tests.world.operator import inventory
from zkmigrate.inventory.checks import FENCE_OUTLIVES_CUT_MS
from zkmigrate.inventory.inventory import Lease
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.facts.dest_status import DestStates, Statuses
from zkmigrate.move.facts.records import ChosenLease
from zkmigrate.move.rules.lease import Longest, choose_lease, lease_in_force, longest, needed_ms
from zkmigrate.move.rules.window_rules import FIND_DOOR_S, deadlines, expected_way_back_s
from zkmigrate.move.steps.cut import CutFacts, CutStep
from zkmigrate.move.steps.fence import FenceFacts, FenceStep
from zkmigrate.move.steps.seal import SealStep
from zkmigrate.runbook.engine.watch import Watch
from zkmigrate.runbook.model.change import Cut, Fence, Unseal
from zkmigrate.runbook.model.step import Context

POLICY = Lease()
FREE = Longest(10_000, 10_000)
RECORD = {"survey": surveyed(lease=ChosenLease(7000, 5000), smallest_timeout_ms=60_000)}


def context(records: dict[str, Any] | None = None) -> Context:
    return Context("run", inventory(), records=records or {})


@pytest.mark.parametrize(
    ("worst_s", "allowed", "ttls"),
    [
        (0.05, FREE, (5000, 2000)),
        (0.5, FREE, (5000, 2000)),
        (0.5001, FREE, (5000, 3000)),
        (1.5, FREE, (7000, 5000)),
        (2.5, FREE, (10_000, 8000)),
        (2.51, FREE, None),
        (1.5, Longest(9000, 4900), None),
        (1.5, Longest(6900, 9000), None),
        (0.05, Longest(4900, 2000), (4000, 2000)),
        (0.05, Longest(9000, 1900), (5000, 1000)),
        (0.2, Longest(9000, 1900), None),
        (0.0, Longest(3000, 1000), (3000, 1000)),
        (0.0, Longest(-1000, -2000), None),
    ],
)
def test_the_lease_for_a_round_trip_and_what_is_allowed(
    worst_s: float, allowed: Longest, ttls: tuple[int, int] | None
) -> None:
    lease = choose_lease(POLICY, worst_s, allowed)
    assert (None if lease is None else (lease.fence_ttl_ms, lease.cut_ttl_ms)) == ttls
    assert lease is None or lease.renew_every_ms == POLICY.renew_every_ms


def test_a_cut_is_never_shorter_than_two_periods() -> None:
    assert needed_ms(Lease(renew_every_ms=1000), 0.0) == 2000


def test_the_deadline_of_18_s_sessions_bounds_the_lease() -> None:
    """Clients need 3 s to find the door within 12 s; a way back of 2.5 s must start after 6.5 s."""
    assert longest(context(), 18.0) == Longest(9000, 6500)


LEASES = st.builds(
    lambda cut, more, every: Lease(
        fence_ttl_ms=cut * 1000 + 2000 + more * 1000, cut_ttl_ms=cut * 1000, renew_every_ms=every
    ),
    st.integers(1, 30),
    st.integers(0, 20),
    st.integers(100, 500),
)


@given(LEASES, st.floats(0, 10), st.floats(-5000, 60_000), st.floats(-5000, 60_000))
def test_a_lease_is_chosen_exactly_where_one_fits(
    policy: Lease, worst_s: float, fence_ms: float, cut_ms: float
) -> None:
    lease = choose_lease(policy, worst_s, Longest(fence_ms, cut_ms))
    least = needed_ms(policy, worst_s)
    if lease is None:
        assert cut_ms < least or fence_ms < least + FENCE_OUTLIVES_CUT_MS
        return
    assert least <= lease.cut_ttl_ms <= cut_ms
    assert lease.cut_ttl_ms + FENCE_OUTLIVES_CUT_MS <= lease.fence_ttl_ms <= fence_ms


@given(
    st.integers(100, 5000),
    st.lists(st.tuples(st.floats(0.001, 3.0), st.floats(0, 1)), min_size=2, max_size=30),
)
def test_renewals_no_slower_than_measured_never_let_it_lapse(
    every_ms: int, trips: list[tuple[float, float]]
) -> None:
    """A renewal takes effect somewhere in its round trip; the next is sent one period after its answer."""
    ttl_s = needed_ms(Lease(renew_every_ms=every_ms), max(took for took, _ in trips)) / 1000
    now, held_until = 0.0, None
    for took, part in trips:
        effect = now + took * part
        assert held_until is None or effect < held_until
        held_until = effect + ttl_s
        now += took + every_ms / 1000


@given(st.integers(9, 120), st.floats(0, 20), st.floats(0, 5))
def test_an_operator_who_dies_costs_no_session_however_long_the_lease_is(
    timeout_s: int, way_back_s: float, to_cut_s: float
) -> None:
    seconds = {"cut": {"back": way_back_s}, "fence": {"forward": to_cut_s}, "drain": {"forward": 0.0}}
    c = context({"rehearse": {"seconds": seconds}})
    allowed = longest(c, timeout_s)
    clients_back = deadlines(timeout_s, 0).clients_back
    assert allowed.fence_ms / 1000 + FIND_DOOR_S <= clients_back + 1e-6
    cut_ends = to_cut_s + allowed.cut_ms / 1000
    assert cut_ends + expected_way_back_s(c) + FIND_DOOR_S <= clients_back + 1e-6
    assert max(allowed.fence_ms, allowed.cut_ms) <= POLICY.longest_ms


def test_while_no_client_is_at_stake_only_the_policy_bounds_the_lease() -> None:
    assert longest(context(), None) == Longest(POLICY.longest_ms, POLICY.longest_ms)


NOWHERE = DestStates(Statuses({}, ()), Statuses({}, ()))


def test_steps_send_the_lease_that_was_chosen() -> None:
    for c, fence, cut in ((context(), 5000, 2000), (context(RECORD), 7000, 5000)):
        assert (lease_in_force(c).fence_ttl_ms, lease_in_force(c).cut_ttl_ms) == (fence, cut)
        assert FenceStep(KAFKA).plan(c, FenceFacts(NOWHERE), "dest1")[0] == Fence("dest1", fence)
        facts = CutFacts(NOWHERE, {}, None, {})
        assert CutStep().plan(c, facts, "dest1")[0] == Cut("dest1", cut)
        assert SealStep().undo(c, NOWHERE, "dest1", ())[1] == Unseal("dest1", fence, cut)


def test_the_watch_renews_with_the_lease_that_was_chosen(tmp_path: Path) -> None:
    renew, moment = Renewals(), Moment()
    watch = Watch(("d1", "d2", "d3"), renew, moment.now, moment.wall)
    try:
        stage, history = fenced(tmp_path)
        assert stage.window is not None
        leased = replace(stage, window=replace(stage.window, lease=lease_in_force))
        watch.follow(leased, history, context(RECORD))
    finally:
        watch.close()
    assert set(renew.sent) >= {(host, 7000, 5000) for host in ("d1", "d2", "d3")}
