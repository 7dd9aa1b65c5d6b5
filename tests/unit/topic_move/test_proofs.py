"""The proofs of a switch: each wrong fact alone keeps a step from being done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from tests.unit.topic_move.facts import (
    BOTH,
    DRAINED,
    EQUAL,
    SILENT,
    UNHEARD,
    C,
    P,
    Q,
    app,
    compared,
    copiers,
    ends,
    groups,
    why,
)
from tests.world.switch.look import SwitchLook
from tests.world.switch.operator import inventory
from tests.world.switch.site import Shape, World
from zkmigrate.model.fact import Reading, Seen
from zkmigrate.model.finding import Held
from zkmigrate.model.look import BothEnds, GroupPair, Look
from zkmigrate.model.step import Blocked, Context, Done, Ready, Verdict, Waiting
from zkmigrate.topic_move.arm_step import ArmFacts, ArmStep
from zkmigrate.topic_move.check_step import CheckFacts, CheckStep
from zkmigrate.topic_move.drain_step import OFFSETS, DrainFacts, DrainStep
from zkmigrate.topic_move.facts import Armed, Drained, Part, offsets
from zkmigrate.topic_move.prove_step import ProveFacts, ProveStep

# -- arm

ARM = ArmFacts(app("open"), ends(), 10.0, compared())


def test_arm_is_done_where_all_is_well() -> None:
    verdict = ArmStep().check(C, ARM)
    assert isinstance(verdict, Done)
    assert verdict.record == Armed(offsets(EQUAL)).encode()
    assert ArmStep().check(C, replace(ARM, gateways=app("open", staged=""))) == Ready(("gw2",))


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"gateways": UNHEARD}, ("switch.gateway", "gw2")),
        ({"gateways": app("open", gate="held")}, ("switch.arm-gate", "gw2:orders")),
        ({"gateways": app("open", route="new")}, ("switch.arm-gate", "gw2:orders")),
        ({"compared": compared(Seen("offset 3"))}, ("switch.arm-records", "")),
        ({"compared": compared(SILENT)}, ("switch.arm-records", "")),
        ({"compared": SILENT}, (BOTH, "")),
    ],
)
def test_arm_is_blocked_by_each_wrong_fact(wrong: dict[str, Any], found: tuple[str, str]) -> None:
    assert why(ArmStep().check(C, replace(ARM, **wrong))) == [found]


def test_records_that_differ_are_named_before_those_that_nobody_could_read() -> None:
    both: dict[Part, Reading[str]] = {P: SILENT, Q: Seen("offset 3")}
    verdict = ArmStep().check(C, replace(ARM, compared=Seen(both)))
    assert isinstance(verdict, Blocked)
    assert [(one.held, one.seen) for one in verdict.findings] == [(Held.NO, "orders-1: offset 3")]


@pytest.mark.parametrize(
    ("behind", "before", "close"),
    [(0, 0, 1), (0, 1, 2), (5, 1, 2), (6, 1, 0)],
)
def test_h14_the_mirror_is_close_at_looks_in_a_row(behind: int, before: int, close: int) -> None:
    """Source got 10 records/s, and the limit is half a second."""
    facts = replace(ARM, ends=ends(20, 20, 20 - behind), compared=None)
    verdict = ArmStep().check(replace(C, kept={"before": (8.0, 9), "close": before}), facts)
    assert isinstance(verdict, Waiting)
    assert verdict.keep == {"before": (10.0, 29), "close": close}


def test_h14_records_are_compared_after_the_second_close_look() -> None:
    world = World(1, Shape())
    world.advance(3.0)
    context, look = Context("run", inventory(world)), cast(Look, SwitchLook(world))
    told = [ArmStep().observe(replace(context, kept={"close": close}), look).compared for close in (1, 2)]
    assert told == [None, Seen({part: Seen("") for part in world.parts})]


# -- drain

DRAIN = DrainFacts(app("held"), ends(), copiers(), groups())
TWICE = replace(C, kept={"before": {P: 9, Q: 4}, "equal": 1})
"""The second look at equal ends."""


def test_drain_is_done_where_all_is_well() -> None:
    verdict = DrainStep().check(TWICE, DRAIN)
    assert isinstance(verdict, Done)
    assert verdict.record == Drained(offsets(EQUAL)).encode()


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"gateways": UNHEARD}, ("switch.gateway", "gw2")),
        ({"gateways": app("held", gate="open")}, ("switch.lapsed", "gw2:orders")),
        ({"gateways": app("held", lapsed=True)}, ("switch.lapsed", "gw2:orders")),
        ({"ends": ends(5, 5, 5)}, ("switch.bypassed", "")),
        ({"copiers": copiers("")}, ("switch.copier", "m2")),
        ({"copiers": copiers("unknown")}, ("switch.copier", "m2")),
        ({"groups": SILENT}, (BOTH, "")),
        ({"groups": groups("active")}, ("switch.commits", "")),
        ({"groups": groups("ahead")}, ("switch.commits", "")),
        ({"groups": groups("unknown")}, ("switch.commits", "")),
        ({"groups": groups("refused")}, ("switch.commits", "")),
    ],
)
def test_drain_is_blocked_by_each_wrong_fact(wrong: dict[str, Any], found: tuple[str, str]) -> None:
    assert why(DrainStep().check(TWICE, replace(DRAIN, **wrong))) == [found]


def kept(verdict: Verdict) -> int:
    """How many looks in a row have seen equal ends."""
    assert isinstance(verdict, Waiting)
    count: int = verdict.keep["equal"]
    return count


@pytest.mark.parametrize("last", [(4, 4, 3), (4, 3, 4), (4, 4, None), (4, 4, 5)])
def test_the_mirror_is_drained_at_equal_ends_alone(last: tuple[int | None, ...]) -> None:
    assert kept(DrainStep().check(TWICE, replace(DRAIN, ends=ends(*last)))) == 0


def test_a_leader_of_source_that_is_silent_for_a_moment_is_waited_for() -> None:
    """It is no sign of a producer beside the gateways."""
    dark = replace(DRAIN, ends=ends(None, None, 4))
    first = DrainStep().check(replace(C, kept={}), dark)
    assert isinstance(first, Waiting)
    assert (first.progress, first.keep) == ("silent: orders-1", {})
    assert kept(DrainStep().check(TWICE, dark)) == 0


def test_the_ends_are_equal_at_two_looks_before_copiers_are_asked() -> None:
    assert kept(DrainStep().check(replace(C, kept={}), DRAIN)) == 1
    assert kept(DrainStep().check(TWICE, replace(DRAIN, copiers=None, groups=None))) == 2
    context, look = Context("run", inventory(World(1, Shape()))), cast(Look, SwitchLook(World(1, Shape())))
    asked = [DrainStep().observe(replace(context, kept={"equal": equal}), look).copiers for equal in (1, 2)]
    assert [one is not None for one in asked] == [False, True]


def test_copiers_are_stopped_and_then_commits_that_are_behind_are_copied() -> None:
    running = DrainStep().check(TWICE, replace(DRAIN, copiers=copiers("active"), groups=None))
    assert isinstance(running, Ready)
    assert running.targets == ("m2",)
    behind = DrainStep().check(TWICE, replace(DRAIN, groups=groups("behind")))
    assert isinstance(behind, Ready)
    assert behind.targets == (OFFSETS,)
    for state in ("active", "refused"):
        mixed = Seen({**groups("behind").value, "audit": GroupPair(state, 0, "has members")})
        assert why(DrainStep().check(TWICE, replace(DRAIN, groups=mixed))) == [("switch.commits", "")]


# -- prove

PROVE = ProveFacts(app("held"), ends(), compared(), groups(), copiers())


def test_prove_is_done_where_all_is_well() -> None:
    assert isinstance(ProveStep().check(DRAINED, PROVE), Done)
    assert isinstance(ProveStep().check(DRAINED, replace(PROVE, compared=Seen({}))), Done)


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"gateways": UNHEARD}, ("switch.gateway", "gw2")),
        ({"gateways": app("held", lapsed=True)}, ("switch.lapsed", "gw2:orders")),
        ({"gateways": app("held", gate="settling")}, ("switch.lapsed", "gw2:orders")),
        ({"ends": SILENT}, (BOTH, "")),
        ({"ends": ends(5, 5, 5)}, ("switch.bypassed", "")),
        ({"ends": Seen({P: EQUAL[P]})}, ("switch.bypassed", "")),
        ({"ends": Seen({**EQUAL, ("orders", 2): BothEnds(0, 0, 0)})}, ("switch.bypassed", "")),
        ({"ends": ends(4, 4, 5)}, ("switch.prove-ends", "")),
        ({"ends": ends(4, 4, None)}, ("switch.prove-ends", "")),
        ({"ends": ends(4, 3, 4)}, ("switch.prove-ends", "")),
        ({"compared": compared(Seen("offset 3"))}, ("switch.prove-records", "")),
        ({"compared": compared(SILENT)}, ("switch.prove-records", "")),
        ({"compared": SILENT}, ("switch.prove-records", "")),
        ({"groups": groups("behind")}, ("switch.commits", "")),
        ({"groups": groups("ahead")}, ("switch.commits", "")),
        ({"groups": SILENT}, (BOTH, "")),
        ({"copiers": copiers("active")}, ("switch.prove-copiers", "")),
        ({"copiers": copiers("")}, ("switch.copier", "m2")),
    ],
)
def test_prove_is_blocked_by_each_wrong_fact(wrong: dict[str, Any], found: tuple[str, str]) -> None:
    assert why(ProveStep().check(DRAINED, replace(PROVE, **wrong))) == [found]


# -- check

CHECK = CheckFacts(app("gone", target=True), ends())
OPEN = app("gone", target=True, gate="open")
UNREACHED = replace(CHECK.gateways, brokers={"gw2": {"new": {1: "TimeoutError"}}})


def test_check_is_done_where_all_is_well() -> None:
    assert isinstance(CheckStep().check(DRAINED, CHECK), Done)


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"gateways": UNHEARD}, ("switch.gateway", "gw2")),
        ({"gateways": app("gone", target=True, route="old")}, ("switch.check-route", "gw2:orders")),
        ({"ends": SILENT}, (BOTH, "")),
        ({"ends": ends(4, 4, None)}, ("switch.check-leaders", "")),
        ({"ends": Seen({P: EQUAL[P]})}, ("switch.check-leaders", "")),
        ({"ends": ends(4, 4, 5)}, ("switch.check-ends", "")),
        ({"ends": ends(4, 4, 3)}, ("switch.check-ends", "")),
        ({"ends": ends(4, 4, None), "gateways": OPEN}, ("switch.check-leaders", "")),
    ],
)
def test_check_is_blocked_by_each_wrong_fact(wrong: dict[str, Any], found: tuple[str, str]) -> None:
    assert why(CheckStep().check(DRAINED, replace(CHECK, **wrong))) == [found]


def test_h20_a_broker_that_a_gateway_does_not_reach_is_waited_for_until_clients_go_on() -> None:
    waiting = CheckStep().check(DRAINED, replace(CHECK, gateways=UNREACHED))
    assert isinstance(waiting, Waiting)
    assert waiting.progress == "gw2: broker 1: TimeoutError"
    gone_on = replace(OPEN, brokers=UNREACHED.brokers)
    assert isinstance(CheckStep().check(DRAINED, CheckFacts(gone_on, ends(4, 4, 7))), Done)
