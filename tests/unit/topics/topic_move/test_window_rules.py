"""The rules of the switch's window: what is done about trouble, over the whole domain, and its times."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import cast

import pytest

from playbooks.kafka_topic_move import PLAYBOOK
from tests.unit.topics.topic_move.test_facts import Notes
from tests.world.switch.look import SwitchLook
from tests.world.switch.operator import inventory
from tests.world.switch.site import Shape, World
from zkmigrate.inventory.inventory import Policy
from zkmigrate.runbook.model.finding import Finding, Held
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Hazard
from zkmigrate.runbook.model.window import Decision, Phase, Trouble
from zkmigrate.topics.topic_move import window_rules

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "topic-move.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"

PHASES = tuple(dict.fromkeys(window_rules.STEPS.phases.values()))
ROWS = {row: window_rules.decide(*row) for row in itertools.product(PHASES, Trouble)}
BEFORE, SHUT = ("", "look", "arm", "settle", "hold", "drain", "prove"), ("seal", "go", "check")


def rendered() -> str:
    """The decisions as Markdown: neighbouring phases that decide alike share a column."""

    def column(phase: Phase) -> tuple[Decision, ...]:
        return tuple(ROWS[phase, trouble] for trouble in Trouble)

    groups = [tuple(same) for _, same in itertools.groupby(PHASES, column)]
    lines = ["| trouble | " + " | ".join(", ".join(phases) for phases in groups) + " |"]
    lines.append("|---" * (len(groups) + 1) + "|")
    for trouble in Trouble:
        cells = " | ".join(ROWS[phases[0], trouble] for phases in groups)
        lines.append(f"| `{trouble}` | {cells} |")
    return "\n".join(lines) + "\n"


def test_the_reference_prints_the_table() -> None:
    """To renew the page, put ``rendered()`` between its two marks."""
    printed = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert printed.strip("\n") == rendered().strip("\n")


def test_the_decision_is_total_and_never_asks() -> None:
    """Nobody could answer in the seconds that requests may wait."""
    assert set(PHASES) == {window_rules.STEPS.reached(step) for step in (*BEFORE, *SHUT, "open")}
    assert set(ROWS.values()) == {Decision.GO, Decision.BACK}
    assert {window_rules.decide(*row) for row in itertools.product(Phase, Trouble)} == set(ROWS.values())


@pytest.mark.parametrize("trouble", Trouble)
def test_before_seal_all_trouble_turns_back_and_after_open_none(trouble: Trouble) -> None:
    for step in BEFORE:
        assert ROWS[window_rules.STEPS.reached(step), trouble] is Decision.BACK
    assert ROWS[Phase.OPEN, trouble] is Decision.GO


@pytest.mark.parametrize("step", SHUT)
def test_once_sealed_only_a_step_that_cannot_go_on_turns_back(
    step: str,
) -> None:
    unheard = Finding("switch.gateway", "the gateway responds", Held.UNKNOWN)
    wrong = Finding("switch.check-ends", "the ends are the same", Held.NO)
    assert window_rules.decide_finding(step, unheard, Policy()) is Decision.GO
    assert window_rules.decide_finding(step, wrong, Policy()) is Decision.BACK
    late = Finding(Trouble.DEADLINE.value, "there is time", Held.NO)
    assert window_rules.decide_finding(step, late, Policy()) is Decision.GO


def test_nobody_to_ask_means_back_until_all_are_sealed_and_go_after() -> None:
    assert window_rules.without_operator(all_sealed=False) == "back"
    assert window_rules.without_operator(all_sealed=True) == "go"


def test_the_playbook_walks_the_steps_of_its_window_in_their_order() -> None:
    for stage in (stage for stage in PLAYBOOK.stages if stage.window):
        assert stage.window is window_rules.WINDOW
        ids = [step.id for step in stage.steps]
        order = [step for step in window_rules.STEPS.phases if step in ids]
        assert ids == order
    [switch] = [stage for stage in PLAYBOOK.stages if stage.id == "switch"]
    assert [step.id for step in switch.steps] == list(window_rules.STEPS.phases)
    assert [step.hazard for step in switch.steps if step.id == window_rules.STEPS.opens] == [Hazard.FINAL]


def test_the_way_back_starts_before_the_hold_ends_by_itself() -> None:
    context = Context("run", inventory(World(1, Shape())))
    assert window_rules.deadline_s(context) == 3.0, "of 4 s"
    for phase in ("", "arm", "settle"):
        assert window_rules.limits(phase, "", False, None) == (math.inf, math.inf)
    assert window_rules.limits("hold", "", False, 2.0) == (2.0, 2.0)
    assert window_rules.limits("hold", "", False, 60.0) == (3.0, 60.0)
    assert window_rules.limits("hold", "order", False, None) == (3.0, 3.0)
    assert window_rules.limits("hold", "order", False, 0.1) == (0.5, 0.5)
    assert window_rules.limits("drain", "service", False, 60.0) == (30.0, 30.0)
    assert window_rules.limits("seal", "order", True, 0.1) == (3.0, 3.0)


def test_h25_the_probe_of_the_window_notes_what_the_gateways_told_it() -> None:
    notes, world = Notes(), World(1, Shape())
    world.gateways["gw2"].silent = True
    [probe] = window_rules.probes(inventory(world), cast(Look, SwitchLook(world)), notes)
    assert [(one.target, one.held) for one in probe.ask()] == [("gw1", Held.YES)]
    [(kind, body)] = notes
    assert (kind, list(body["apps"]), body["unknown"]) == ("gateways", ["gw1"], ["gw2"])
    assert [(one.target, one.held) for one in probe.ask()] == [("gw1", Held.YES), ("gw2", Held.UNKNOWN)]
