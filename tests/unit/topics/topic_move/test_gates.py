"""Where an application must stand when a step of a switch tells its gateway something."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.topics.topic_move.facts import DRAINED, UNHEARD, C, app, ends, short, why
from zkmigrate.runbook.model.step import Blocked, Done, Ready, Verdict, Waiting, Way
from zkmigrate.topics.topic_move.facts import Gateways, Held
from zkmigrate.topics.topic_move.go_step import GoFacts, GoStep
from zkmigrate.topics.topic_move.hold_step import HoldStep
from zkmigrate.topics.topic_move.open_step import OpenStep
from zkmigrate.topics.topic_move.seal_step import SealStep

STEPS = {"hold": HoldStep(), "seal": SealStep()}
LEADING = {"go": GoStep(), "open": OpenStep()}
"""Steps that also look where the logs end."""
BEFORE = {
    "hold": app("settling"),
    "seal": app("held"),
    "go": app("sealed"),
    "open": app("gone", target=True),
}
AFTER = {
    "hold": app("held"),
    "seal": app("sealed"),
    "go": app("gone", target=True),
    "open": app("open", target=True),
}


def check(step: str, at: Gateways) -> Verdict:
    """What a step finds with the gateways like this, where all else is well."""
    if step in LEADING:
        return LEADING[step].check(DRAINED, GoFacts(at, ends()))
    return STEPS[step].check(C, at)


@pytest.mark.parametrize("step", BEFORE)
def test_orders_go_to_every_gateway_until_each_has_carried_its_own_out(step: str) -> None:
    assert check(step, BEFORE[step]) == Ready(("gw1", "gw2"))
    assert isinstance(check(step, AFTER[step]), Done)


@pytest.mark.parametrize("step", BEFORE)
def test_a_gateway_that_is_not_heard_gets_no_order(step: str) -> None:
    assert why(check(step, UNHEARD)) == [("switch.gateway", "gw2")]


@pytest.mark.parametrize(
    ("step", "at", "found"),
    [
        ("hold", app("settling", route="new"), "switch.hold-route"),
        ("seal", app("held", lapsed=True), "switch.lapsed"),
        ("seal", app("held", gate="open"), "switch.lapsed"),
        ("seal", app("held", gate="gone"), "switch.seal-gate"),
        ("seal", app("held", route="new"), "switch.seal-gate"),
        ("go", app("sealed", gate="held"), "switch.go-gate"),
        ("go", app("sealed", gate="open"), "switch.go-gate"),
        ("open", app("gone", target=True, route="old"), "switch.open-route"),
        ("open", app("gone", target=True, route="old", gate="open"), "switch.open-route"),
    ],
)
def test_an_application_elsewhere_stops_the_step(step: str, at: Gateways, found: str) -> None:
    assert why(check(step, at)) == [(found, "gw2:orders")]


@pytest.mark.parametrize("gate", ["open", "held"])
def test_h14_a_hold_that_ended_by_itself_is_not_begun_anew(gate: str) -> None:
    verdict = HoldStep().check(C, app("held", lapsed=True, gate=gate))
    assert why(verdict) == [("switch.lapsed", "gw2:orders")]


@pytest.mark.parametrize(
    ("step", "gate"), [("hold", "open"), ("hold", "settling"), ("hold", "held"), ("seal", "held")]
)
def test_nobody_is_held_or_sealed_whose_clients_do_not_know_an_outcome(step: str, gate: str) -> None:
    at = app(gate, unsure="producer 5", in_flight=2)
    assert why(STEPS[step].check(C, at)) == [("switch.outcomes", "gw2:orders")]
    assert not isinstance(STEPS[step].check(replace(C, way=Way.BACK), at), Blocked), "the way back is open"


def test_h14_requests_in_flight_are_waited_for_and_then_the_holds_are_recorded() -> None:
    waiting = HoldStep().check(C, app("held", in_flight=3))
    assert isinstance(waiting, Waiting)
    assert waiting.progress == "gw2:orders: 3"
    done = HoldStep().check(C, app("held", hold="r-1.hold-2"))
    assert isinstance(done, Done)
    holds: Any = (("gw1", "orders", "HOLD"), ("gw2", "orders", "r-1.hold-2"))
    assert done.record == Held(holds).encode()


def test_nobody_is_led_to_a_target_with_too_few_replicas_in_sync() -> None:
    assert why(GoStep().check(DRAINED, GoFacts(BEFORE["go"], short(target=True)))) == [("switch.in-sync", "")]
    assert isinstance(GoStep().check(DRAINED, GoFacts(BEFORE["go"], short())), Ready), "source holds nothing"
