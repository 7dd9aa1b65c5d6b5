"""What a window does about trouble once all hosts are sealed, and about several findings at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.engine_world import Tiny, tiny_window
from zkmigrate.inventory.inventory import Policy
from zkmigrate.runbook.model.finding import Finding, Held
from zkmigrate.runbook.model.step import Blocked, Verdict, Way
from zkmigrate.runbook.model.window import Decide, Decision, Word

LATE, IN_TIME = -1.0, 1e9
"""How long after the first FENCE the way back may still begin."""


def trouble(id: str) -> Finding:
    return Finding(id, "all is well", Held.NO, seen="it is not")


def once(*ids: str) -> Callable[[Way], Verdict | None]:
    """Blocked by these findings, the first time it is asked going forward."""
    left = [Blocked(tuple(trouble(id) for id in ids))]
    return lambda way: left.pop() if left and way is Way.FORWARD else None


def back(phase: str, finding: Finding, policy: Policy) -> Decision:
    return Decision.BACK


def cut_over(
    folder: Path, step: str, deadline_s: float, answer: Word | None = None, *ids: str,
    decide: Decide = back,
) -> tuple[int, list[str]]:  # fmt: skip
    """A window with one step blocked once: exit code, and what the operator was asked to decide."""
    tiny = Tiny(folder / "r", window=tiny_window(decide, deadline_s))
    assert tiny.process(lambda walk: walk.forward(until="rehearse")).code == 0
    tiny.steps[step].verdict = once(*(ids or ("main.trouble",)))
    tiny.confirm.ask_means = answer
    code = tiny.process(lambda walk: walk.forward()).code
    return code, [asked for asked in tiny.confirm.asked if asked.startswith("decide")]


@pytest.mark.parametrize(
    ("answer", "code"), [(None, 0), ("go", 0), ("back", 7)], ids=["nobody", "go", "back"]
)
def test_once_all_are_sealed_a_late_way_back_is_taken_by_name_only(
    tmp_path: Path, answer: Word | None, code: int
) -> None:
    assert cut_over(tmp_path, "open", LATE, answer) == (code, ["decide seal main.trouble"])


def test_once_all_are_sealed_a_way_back_in_time_is_taken_without_asking(tmp_path: Path) -> None:
    assert cut_over(tmp_path, "open", IN_TIME) == (7, [])


def test_before_all_are_sealed_a_late_way_back_is_taken_without_asking(tmp_path: Path) -> None:
    """Hosts that are not sealed go back alone, whatever anybody says."""
    assert cut_over(tmp_path, "prove", LATE) == (7, [])


@pytest.mark.parametrize("ids", [("harmless", "grave"), ("grave", "harmless")])
def test_every_finding_of_a_step_is_judged(tmp_path: Path, ids: tuple[str, ...]) -> None:
    def decide(phase: str, finding: Finding, policy: Policy) -> Decision:
        return Decision.BACK if finding.id == "grave" else Decision.GO

    assert cut_over(tmp_path, "prove", IN_TIME, None, *ids, decide=decide) == (7, [])


def test_where_no_finding_is_grave_the_step_is_tried_again(tmp_path: Path) -> None:
    assert cut_over(tmp_path, "prove", IN_TIME, decide=lambda *_a, **_k: Decision.GO) == (0, [])


def test_once_all_are_sealed_what_may_go_on_goes_on_unasked_however_late(tmp_path: Path) -> None:
    assert cut_over(tmp_path, "open", LATE, "back", decide=lambda *_a, **_k: Decision.GO) == (0, [])
