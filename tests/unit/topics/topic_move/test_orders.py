"""What each gateway is told, on and back: no order may let requests go on at both clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.topics.topic_move.facts import UNHEARD, C, app, why
from zkmigrate.errors import RecordError
from zkmigrate.runbook.model.change import Changes
from zkmigrate.runbook.model.step import Blocked, Done, Ready, Verdict, Way
from zkmigrate.topics.gateway.order import GatewayOrder
from zkmigrate.topics.topic_move.facts import Gateways, Held, Opened
from zkmigrate.topics.topic_move.go_step import GoFacts, GoStep
from zkmigrate.topics.topic_move.hold_step import HoldStep
from zkmigrate.topics.topic_move.open_step import OpenStep
from zkmigrate.topics.topic_move.seal_step import SealStep
from zkmigrate.topics.topic_move.section import move_of

MOVE = move_of(C.inventory).topic_move
SOURCE, TARGET = MOVE.source, MOVE.target
BACK = replace(C, way=Way.BACK)
HOLDS: Any = (("gw1", "orders", "r-1.a"), ("gw2", "orders", "r-1.b"))
HELD = replace(C, records={Held.step: Held(HOLDS).encode()})
TTL = int(C.inventory.policy.open_limit_s * 1000)


def silent(at: Gateways) -> Gateways:
    """The same, with a third gateway that is not heard."""
    return replace(at, unknown=UNHEARD.unknown)


def go_back(at: Gateways) -> Verdict:
    return GoStep().check(BACK, GoFacts(at))


def go_undo(at: Gateways, host: str = "gw2") -> Changes:
    return GoStep().undo(BACK, GoFacts(at), host, ())


def orders(changes: Changes) -> list[str]:
    """Their verbs."""
    return [change.order for change in changes if isinstance(change, GatewayOrder)]


# --- hold ----------------------------------------------------------------------------------------------


def test_only_an_application_that_is_open_is_held_and_for_its_time() -> None:
    step, ttl = HoldStep(), MOVE.hold_ms
    assert step.plan(C, app("settling"), "gw2") == (GatewayOrder("gw2", "hold", "orders", ttl_ms=ttl),)
    assert step.plan(C, app("settling", gate="held"), "gw2") == ()


def test_a_hold_is_taken_back_on_source_alone_and_a_seal_becomes_a_hold_first() -> None:
    step = HoldStep()
    assert step.check(BACK, app("held")) == Ready(("gw1", "gw2"))
    assert step.check(BACK, app("settling", gate="sealed")) == Ready(("gw2",))
    assert why(step.check(BACK, app("held", route=TARGET))) == [("switch.hold-back", "gw2:orders")]
    assert orders(step.undo(BACK, app("sealed"), "gw1", ())) == ["unseal", "unhold"]
    assert orders(step.undo(BACK, app("held"), "gw1", ())) == ["unhold"]
    assert step.undo(BACK, app("settling"), "gw1", ()) == ()


def test_those_that_answer_go_on_and_one_that_does_not_is_waited_for() -> None:
    for step in (HoldStep(), SealStep()):
        verdict = step.check(BACK, silent(app("settling")))
        assert isinstance(verdict, Blocked)
        assert verdict.others_back
        assert isinstance(step.check(BACK, app("settling")), Done)
    assert HoldStep().check(BACK, silent(app("held"))) == Ready(("gw1", "gw2"))
    assert SealStep().check(BACK, silent(app("sealed"))) == Ready(("gw1", "gw2"))


# --- seal ----------------------------------------------------------------------------------------------


def test_a_seal_names_the_hold_that_was_proved_under() -> None:
    """Another hold, begun since, has let requests through: its gateway refuses this order."""
    at = app("held", hold="r-1.later")
    for host, hold in (("gw1", "r-1.a"), ("gw2", "r-1.b")):
        assert SealStep().plan(HELD, at, host) == (GatewayOrder(host, "seal", "orders", hold=hold),)
    assert SealStep().plan(HELD, app("held", gate="sealed"), "gw2") == ()
    with pytest.raises(RecordError):
        SealStep().plan(C, at, "gw1")


def test_a_seal_is_taken_back_on_source_alone() -> None:
    assert SealStep().check(BACK, app("sealed", route=TARGET)) == Ready(("gw1",))
    assert isinstance(SealStep().check(BACK, app("gone", gate="held")), Done)
    ttl = MOVE.hold_ms
    assert SealStep().undo(BACK, app("sealed"), "gw1", ()) == (
        GatewayOrder("gw1", "unseal", "orders", ttl_ms=ttl),
    )
    assert SealStep().undo(BACK, app("held"), "gw1", ()) == ()


# --- go ------------------------------------------------------------------------------------------------


def test_only_who_is_not_on_target_is_led_there() -> None:
    at = GoFacts(app("sealed", route=TARGET))
    assert GoStep().plan(C, at, "gw1") == (GatewayOrder("gw1", "go", "orders", ttl_ms=TTL),)
    assert GoStep().plan(C, at, "gw2") == ()


@pytest.mark.parametrize("gate", ["open", "settling"])
def test_once_one_went_on_at_target_there_is_no_way_back(gate: str) -> None:
    verdict = go_back(app("gone", target=True, gate=gate))
    assert isinstance(verdict, Blocked)
    assert verdict.no_way_back
    assert verdict.findings[0].seen == f"open on {TARGET}: gw2"
    assert isinstance(go_back(app("settling")), Done), "they went on, on source"


def test_none_is_led_back_while_a_gateway_is_not_heard() -> None:
    """It may have been led to target, and go on there by itself."""
    verdict = go_back(silent(app("gone", target=True)))
    assert isinstance(verdict, Blocked)
    assert [f.target for f in verdict.findings] == ["gw2"]


def test_first_those_that_may_go_on_at_target_are_shut_there() -> None:
    at = app("sealed", route=TARGET, gate="gone", hold="r-1.b")
    assert go_back(at) == Ready(("gw2",))
    assert go_undo(at) == (
        GatewayOrder("gw2", "route", "orders", to=SOURCE),
        GatewayOrder("gw2", "seal", "orders", hold="r-1.b"),
    )
    staged = app("sealed", route=TARGET, gate="gone", staged=SOURCE)
    assert orders(go_undo(staged)) == ["seal"]
    assert go_undo(at, "gw1") == (), "the others keep their seal until then"


def test_then_the_others_lose_their_way_to_target() -> None:
    at = app("sealed", route=TARGET, gate="sealed", staged=SOURCE)
    assert go_back(at) == Ready(("gw1",)), "a late order to go would lead it there"
    assert go_undo(at, "gw1") == (GatewayOrder("gw1", "route", "orders", to=SOURCE),)
    assert go_undo(at) == ()


@pytest.mark.parametrize("staged", ["", SOURCE])
def test_last_those_on_target_are_led_back(staged: str) -> None:
    at = app("sealed", route=TARGET, staged=SOURCE)
    at = replace(at, at={**at.at, ("gw1", "orders"): replace(at.at["gw1", "orders"], staged=staged)})
    assert go_back(at) == Ready(("gw2",))
    assert go_undo(at) == (GatewayOrder("gw2", "go", "orders", ttl_ms=TTL),)
    assert go_undo(at, "gw1") == ()


def test_a_way_back_that_is_complete_asks_nothing_more() -> None:
    at = app("sealed")
    home = {where: replace(one, staged=SOURCE) for where, one in at.at.items()}
    assert isinstance(go_back(replace(at, at=home)), Done)


# --- open ----------------------------------------------------------------------------------------------


def test_who_waits_on_target_is_let_go_and_that_is_recorded() -> None:
    step = OpenStep()
    assert step.check(C, GoFacts(app("gone", target=True, gate="open"))) == Ready(("gw1",))
    assert orders(step.plan(C, GoFacts(app("gone", target=True)), "gw1")) == ["unhold"]
    assert orders(step.plan(C, GoFacts(app("sealed", target=True)), "gw1")) == ["unseal", "unhold"]
    done = step.check(C, GoFacts(app("open", target=True)))
    assert isinstance(done, Done)
    assert done.record == Opened(TARGET).encode()


@pytest.mark.parametrize("recorded", [True, False])
def test_behind_the_door_there_is_no_way_back(recorded: bool) -> None:
    records = {Opened.step: Opened(TARGET).encode()} if recorded else {}
    at = app("sealed") if recorded else app("gone", target=True, gate="open")
    verdict = OpenStep().check(replace(BACK, records=records), GoFacts(at))
    assert isinstance(verdict, Blocked)
    assert verdict.no_way_back


def test_before_the_door_the_way_back_passes_once_every_gateway_is_heard() -> None:
    assert isinstance(OpenStep().check(BACK, GoFacts(app("gone", target=True))), Done)
    assert why(OpenStep().check(BACK, GoFacts(silent(app("gone", target=True))))) == [
        ("switch.gateway", "gw2")
    ]
    assert OpenStep().undo(BACK, GoFacts(app("gone", target=True)), "gw1", ()) == ()
