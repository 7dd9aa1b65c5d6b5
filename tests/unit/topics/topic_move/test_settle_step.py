"""When a hold may begin: consumers had their time, and the mirror is close behind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from tests.unit.topics.topic_move.facts import SHORT, UNHEARD, app, why
from tests.world.switch.look import SwitchLook
from tests.world.switch.operator import inventory
from tests.world.switch.site import Shape, World
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Held
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Ready, Verdict, Waiting, Way
from zkmigrate.topics.mirror.questions import BothEnds
from zkmigrate.topics.topic_move.facts import Ends
from zkmigrate.topics.topic_move.settle_step import LATE_S, LONGER_MS, SettleFacts, SettleStep

C = Context("r-1", inventory(World(1, Shape())))
BACK = replace(C, way=Way.BACK)
SETTLE_S = 1.5
BEGUN: dict[str, Any] = {"since": 5.0, "mark": (5.0, 850)}
SILENT = Unknown("timeout", "no answer")


def at(
    seconds: float, ends: Reading[Ends] | None, kept: dict[str, Any] | None = None, unsure: str = ""
) -> Verdict:
    """The verdict so long after the first look; source got 100 records/s in the time to settle."""
    facts = SettleFacts(app("settling", unsure=unsure), 5.0 + seconds, ends)
    return SettleStep().check(replace(C, kept=BEGUN if kept is None else kept), facts)


def behind(records: int) -> Seen[Ends]:
    return Seen({("orders", 0): BothEnds(1_000, 1_000, 1_000 - records)})


@pytest.mark.parametrize("odd", [{"gate": "held"}, {"gate": "gone"}, {"route": "new"}])
def test_consumers_settle_only_where_their_application_is_open_on_source(odd: dict[str, Any]) -> None:
    verdict = SettleStep().check(C, SettleFacts(app("settling", **odd), 5.0))
    assert why(verdict) == [("switch.settle-gate", "gw2:orders")]


def test_every_gateway_is_told_to_settle_before_the_time_runs_and_only_those_that_settle_are_let_go() -> None:
    at_one = SettleFacts(app("settling", gate="open"), 5.0)
    assert SettleStep().check(C, at_one) == Ready(("gw2",), keep={"since": None})
    assert SettleStep().check(BACK, at_one) == Ready(("gw1",))
    assert SettleStep().check(BACK, SettleFacts(app("open"), 5.0)) == Done()


@pytest.mark.parametrize("c", [C, BACK])
def test_a_gateway_that_is_not_heard_stops_the_step_and_no_other_gateway(c: Context) -> None:
    verdict = SettleStep().check(c, SettleFacts(UNHEARD, 5.0))
    assert why(verdict) == [("switch.gateway", "gw2")]
    assert cast(Blocked, verdict).others_back


@pytest.mark.parametrize(
    ("way", "passed", "read"),
    [
        (Way.FORWARD, None, True),
        (Way.FORWARD, SETTLE_S - 0.1, False),
        (Way.FORWARD, SETTLE_S, True),
        (Way.BACK, None, False),
    ],
)
def test_ends_are_read_at_the_first_look_and_from_the_end_of_the_time_on(
    way: Way, passed: float | None, read: bool
) -> None:
    world = World(1, Shape())
    look = SwitchLook(world)
    kept = {} if passed is None else {"since": look.now() - passed}
    found = SettleStep().observe(replace(C, way=way, kept=kept), cast(Look, look))
    assert (found.ends is not None) is read


def test_h14_the_first_look_keeps_what_the_rate_is_told_from() -> None:
    verdict = at(0.0, behind(0), {"since": None})
    assert isinstance(verdict, Waiting)
    assert verdict.keep == {"since": 5.0, "mark": (5.0, 1_000)}
    dark = at(0.0, SILENT, {})
    assert isinstance(dark, Waiting)
    assert dark.keep == {"since": 5.0, "mark": None}
    meanwhile = at(0.5, None)
    assert isinstance(meanwhile, Waiting)
    assert meanwhile.keep == BEGUN


@pytest.mark.parametrize(("records", "done"), [(0, True), (50, True), (51, False)])
def test_h14_a_hold_begins_only_when_the_mirror_is_close_behind(records: int, done: bool) -> None:
    verdict = at(SETTLE_S, behind(records))
    assert isinstance(verdict, Done if done else Waiting)
    if isinstance(verdict, Waiting):
        assert verdict.progress == "51 records behind, 100 records/s, a lag of 0.5 s"


def test_no_hold_begins_while_too_few_replicas_are_in_sync() -> None:
    blocked = at(SETTLE_S, Seen({("orders", 0): BothEnds(1_000, 1_000, 1_000, SHORT, SHORT)}))
    assert why(blocked) == [("switch.in-sync", "")]


@pytest.mark.parametrize(
    ("ends", "held", "seen"),
    [
        (behind(90), Held.NO, "90 records behind"),
        (SILENT, Held.UNKNOWN, "no answer"),
        (Seen({("orders", 0): BothEnds(9, 9, None)}), Held.UNKNOWN, "not known: orders-0"),
    ],
)
def test_h14_a_mirror_that_stays_behind_or_does_not_tell_turns_the_run_back(
    ends: Reading[Ends], held: Held, seen: str
) -> None:
    waiting = at(SETTLE_S + LATE_S - 0.1, ends)
    assert isinstance(waiting, Waiting)
    assert seen in waiting.progress
    assert waiting.deadline_s > LATE_S, "the step's own finding comes first"
    blocked = at(SETTLE_S + LATE_S, ends)
    assert isinstance(blocked, Blocked)
    [found] = blocked.findings
    assert (found.id, found.held) == ("switch.settle-lag", held)
    assert seen in found.seen


def test_h14_the_lease_outlasts_the_wait() -> None:
    assert 2 * LATE_S * 1000 < LONGER_MS


def test_a_hold_begins_only_when_clients_know_the_outcome_of_each_batch() -> None:
    waiting = at(SETTLE_S, behind(0), unsure="producer 5, for at most 200 s")
    assert isinstance(waiting, Waiting)
    assert waiting.progress == "producer 5, for at most 200 s"
    assert waiting.keep == BEGUN
    assert why(at(SETTLE_S + LATE_S, behind(0), unsure="producer 5")) == [("switch.outcomes", "gw2:orders")]
    both = [("switch.settle-lag", ""), ("switch.outcomes", "gw2:orders")]
    assert why(at(SETTLE_S + LATE_S, behind(90), unsure="producer 5")) == both
