"""The checks of the run itself: the maintenance window, and what its own rehearsal measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.move.preflight.test_checks import DUMPS, no_word
from tests.unit.preflight_world import PreflightWorld, healthy, inventory, run_preflight
from zkmigrate.inventory.inventory import Window
from zkmigrate.move.rules.window_rules import deadlines, expected_way_back_s
from zkmigrate.runbook.model.finding import Finding, Held, Severity
from zkmigrate.runbook.model.step import Context

BEGIN, END = "2026-11-21T22:00+01:00", "2026-11-22T02:00:00+01:00"
AT_BEGIN, AT_END = 1795294800.0, 1795309200.0


class At(PreflightWorld):
    """A healthy world at some hour."""

    hour = 0.0

    def wall(self) -> float:
        return self.hour


def at(seconds: float) -> At:
    world = At(**vars(healthy()))
    world.hour = seconds
    return world


def rehearsed(**seconds: Mapping[str, float]) -> dict[str, Any]:
    """The records of a run whose rehearsal took this long: step → forward and back."""
    return {"rehearse": {"seconds": dict(seconds)}}


def with_window(records: dict[str, Any] | None = None) -> Context:
    asked = inventory()
    policy = asked.policy.model_copy(update={"window": Window(begin=BEGIN, end=END)})
    return Context("r1", asked.model_copy(update={"policy": policy}), records=records or {})


def judged(world: PreflightWorld, c: Context, id: str, gate: str) -> Finding:
    (found,) = (f for f in run_preflight(c, world, gate) if f.id == id)
    return found


@pytest.mark.parametrize("gate", ["roll", "cutover"])
@pytest.mark.parametrize(
    ("seconds", "held"),
    [(AT_BEGIN - 1, Held.NO), (AT_BEGIN, Held.YES), (AT_END - 1, Held.YES), (AT_END, Held.NO)],
)
def test_outside_the_maintenance_window_nothing_that_is_noticed_begins(
    seconds: float, held: Held, gate: str
) -> None:
    found = judged(at(seconds), with_window(), "run.hour", gate)
    assert found.held is held
    assert found.blocks == (held is Held.NO)
    assert BEGIN in found.needed


def test_near_its_end_the_window_is_too_short_for_what_was_rehearsed() -> None:
    c = with_window(rehearsed(fence={"forward": 1.0}, serve={"forward": 4.0}, arm={"forward": 99.0}))
    for seconds, held in ((AT_END - 15.5, Held.YES), (AT_END - 14.5, Held.NO), (AT_BEGIN - 1, Held.NO)):
        assert judged(at(seconds), c, "run.hour", "cutover").held is held


def test_before_the_roll_the_hour_is_free() -> None:
    found = judged(at(0), with_window(), "run.hour", "preflight")
    assert (found.severity, found.seen) == (Severity.INFO, "later: checked at the gate roll")
    assert judged(healthy(), Context("r1", inventory()), "run.hour", "roll").held is Held.YES


def test_the_way_forward_is_compared_with_the_smallest_timeout() -> None:
    """T is 20 s in this world."""
    for serve, held in ((2.0, Held.YES), (21.0, Held.NO)):
        records = rehearsed(serve={"forward": serve}, check={"forward": 0.5}, stop={"forward": 30.0})
        found = judged(healthy(), Context("r1", inventory(), records=records), "run.forward", "cutover")
        assert (found.held, found.severity) == (held, Severity.WARN)
        assert found.seen == f"{serve + 0.5:.1f} s, T = 20 s"
    world = healthy()
    no_word("dump", *DUMPS)(world)
    c = Context("r1", inventory(), records=rehearsed(serve={"forward": 2.0}))
    assert judged(world, c, "run.forward", "cutover").held is Held.UNKNOWN
    assert judged(healthy(), Context("r1", inventory()), "run.forward", "cutover").held is Held.UNKNOWN


def test_the_way_back_is_the_longer_of_the_policys_and_the_rehearsals() -> None:
    """T = 20 s leaves 20 - 6.7 - 3 = 10.3 s for it."""
    for seconds, told, held in ((1.0, "leaves 7.8 s", Held.YES), (6.0, "leaves -1.7 s", Held.NO)):
        records = rehearsed(cut={"forward": 0.1, "back": seconds}, stop={"forward": 0.3, "back": seconds})
        found = judged(
            healthy(), Context("r1", inventory(), records=records), "kafka.session-timeout", "cutover"
        )
        assert told in found.seen
        assert (found.held, found.blocks) == (held, held is Held.NO)


@pytest.mark.parametrize(("seconds", "enough_s"), [(6.0, 26), (8.4, 33)])
def test_the_session_timeout_that_is_advised_leaves_time_for_the_way_back(
    seconds: float, enough_s: int
) -> None:
    records = rehearsed(cut={"forward": 0.1, "back": seconds}, stop={"forward": 0.3, "back": seconds})
    c = Context("r1", inventory(), records=records)
    found = judged(healthy(), c, "kafka.session-timeout", "cutover")
    assert f"to {enough_s}000 and roll" in found.moves[0]
    assert deadlines(enough_s, expected_way_back_s(c)).start_back > 0
