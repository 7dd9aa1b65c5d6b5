"""The drill of the switch: its cases, and what it takes for right."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import pytest

from tests.drills import test_topic_move as topic_move
from tests.drills.test_topic_move import FAULTS, Fault, Switches, wrong_figures
from tests.unit.lab.judge.test_switches import rows
from zkmigrate.lab import killing
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.topic_site import TopicSite, two_clusters
from zkmigrate.runbook.model.change import KINDS
from zkmigrate.topics.gateway.order import GatewayOrder
from zkmigrate.topics.topic_move.window_rules import STEPS


def test_each_case_has_a_name_of_its_own_and_a_moment() -> None:
    assert max(Counter(one.name for one in FAULTS).values()) == 1
    for one in FAULTS:
        assert (one.kill is None) != (one.hold == ""), one.name
        assert bool(one.harm) is bool(one.hold), one.name
        assert bool(one.then) is (one.kill is not None or one.harm == "operator"), one.name
        assert not one.hold or one.hold in STEPS.phases
        kind = one.kill[0] if one.kill else "GatewayOrder"
        assert issubclass(KINDS[kind], object)


def test_the_operator_is_killed_at_each_phase_with_an_order_or_a_proof() -> None:
    phases = {one.name.split("-")[1] for one in FAULTS if one.name.startswith("kill-")}
    assert phases == {"arm", "settle", "hold", "drain", "prove", "seal", "go", "open"}


def test_the_operator_is_killed_before_the_order_that_the_case_names() -> None:
    told = {one.kill[1] for one in FAULTS if one.kill and one.kill[0] == "GatewayOrder"}
    for word in told:
        order = GatewayOrder("gateway1", cast(Any, word), "clients")
        assert killing._part(order) == word


class Placed(TopicSite):
    """A site whose clients are where the test says. log: where they were asked for."""

    def __init__(self, *places: str) -> None:
        self.places_left = list(places)

    def open_on(self) -> str:
        return self.places_left.pop(0)


class Disturbed(Switches):
    """A switch whose run and verbs end with these codes."""

    codes: list[int]
    options: list[tuple[str, ...]]

    def aimed(self, run: str, source: str) -> Any:
        return run

    def _first(self, one: Fault, operator: Any, source: str) -> int:
        return self.codes.pop(0)

    def _verb(self, operator: Any, verb: str, *more: str) -> int:
        self.options.append(more)
        return self.codes.pop(0)


def disturbed(way: str, codes: list[int], *places: str, then: str = "") -> str:
    made = Disturbed(Placed(*places), {})
    made.codes, made.options = codes, []
    fault = Fault("x", "x", cast(Any, way), hold="hold", harm="gateway", then=cast(Any, then))
    told = made._disturbed(fault)
    forward = then == "resume"
    assert made.options == [topic_move.SHORT] * forward + [()] * (len(made.options) - forward)
    return told


@pytest.mark.parametrize(
    ("way", "codes", "places", "then", "told"),
    [
        ("there", [0], ("old", "new"), "", "run 0: there"),
        ("either", [7, 0], ("old", "old"), "", "run 7, rollback 0: back"),
        ("back", [-9, 0], ("new", "new"), "rollback", "run -9, rollback 0: back"),
        ("there", [-9, 0], ("old", "new"), "resume", "run -9, resume 0: there"),
        ("back", [8, 7, 0], ("old", "old"), "", "run 8, resume 7, rollback 0: back"),
    ],
)
def test_a_case_is_as_expected_when_codes_and_place_are(
    way: str, codes: list[int], places: tuple[str, ...], then: str, told: str
) -> None:
    assert disturbed(way, codes, *places, then=then) == told


@pytest.mark.parametrize(
    ("way", "codes", "places", "then", "said"),
    [
        ("there", [7, 0], ("old", "old"), "", "the clients are back"),
        ("back", [0], ("old", "new"), "", "the clients are there"),
        ("either", [8, 8], ("old", "old"), "", "run 8, resume 8"),
        ("either", [0], ("old", "new"), "resume", "the operator was not killed: 0"),
        ("either", [-9, 8, 8], ("old", "old"), "resume", "run -9, resume 8, resume 8"),
    ],
)
def test_a_wrong_code_or_place_fails_the_case(
    way: str, codes: list[int], places: tuple[str, ...], then: str, said: str
) -> None:
    with pytest.raises(LabError, match=said):
        disturbed(way, codes, *places, then=then)


def test_the_lab_has_what_the_cases_kill() -> None:
    shape = two_clusters("2.8.2", "4.3.1").shape
    assert shape is not None
    assert (shape.gateways, shape.mirrors, [len(one.brokers) for one in shape.clusters]) == (1, 1, [3, 3])
    assert not any(name.endswith("-plain") for name in topic_move.CLIENTS)


def test_a_figure_that_is_not_0_or_not_known_is_wrong_unless_it_does_not_count() -> None:
    bad = [*rows(), *rows(lost=None, again=2)]
    assert wrong_figures(rows()) == {}
    assert wrong_figures(bad) == {"b": {"lost": None, "again": 2}}
    assert wrong_figures(bad, ("lost", "again")) == {}
