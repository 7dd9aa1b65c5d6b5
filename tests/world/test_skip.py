"""A rehearsal that is skipped: the move goes on without its figures, and the way back passes over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.world.operator import Killed, Operator, quiet_world
from tests.world.rolled import walked
from zkmigrate.errors import UsageError
from zkmigrate.move.rules import window_estimate
from zkmigrate.report.story import story_of
from zkmigrate.report.timebase import Timebase
from zkmigrate.runbook.engine.events import StageSkipped, StepBegun
from zkmigrate.runbook.engine.journal import kept_lines, read
from zkmigrate.runbook.engine.ports import Answer
from zkmigrate.runbook.model.playbook import Stage
from zkmigrate.runbook.model.step import Context, Way


class Skipping(Operator):
    """Answers skip wherever it is asked about a stage."""

    def consent(self, stage: Stage) -> Answer:
        return Answer("skip" if stage.skip else "go", by="anna")


def skipped_by(operator: Operator) -> list[tuple[str, str]]:
    return [(e.stage, e.by) for e in operator.events if isinstance(e, StageSkipped)]


@pytest.mark.parametrize("asked", [True, False], ids=["answered", "--skip"])
def test_a_skipped_rehearsal_leaves_the_window_to_the_policy(tmp_path: Path, asked: bool) -> None:
    world = quiet_world()
    operator = (Skipping if asked else Operator)(world, tmp_path / "run")
    skip = () if asked else ("rehearse",)
    with operator._process() as walk:
        assert walk.forward("roll", skip=skip).code == 0
    assert skipped_by(operator) == [("rehearse", "anna" if asked else "--skip")]
    assert not [e for e in operator.events if isinstance(e, StepBegun) and e.stage == "rehearse"]
    history = read(tmp_path / "run")
    assert history.stages_skipped == {"rehearse"} <= history.stages_done
    entries = kept_lines(tmp_path / "run")
    decided = [
        (d.where, d.answer) for d in story_of(entries, Timebase(entries)).decisions if d.kind == "consent"
    ]
    assert ("rehearse", "skip") in decided, "the report says so"
    said = window_estimate.cutover_lines(Context("run", world.inventory, records=history.records()))
    assert said[:2] == (
        "not rehearsed: the window's length is not known; the way back is assumed to take 2.5 s "
        "(policy.way_back_s)",
        "  and FENCE to SEAL 3.8 s or more; SURVEY fails if that does not fit",
    )
    assert operator.forward().code == 0
    assert {world.hosts[h].phase for h in world.inventory.dest_names} <= {"open", "idle"}


def test_a_run_that_skipped_walks_back_and_is_asked_again(tmp_path: Path) -> None:
    operator = Skipping(quiet_world(), tmp_path / "run")
    assert operator.forward(until="roll").code == 0
    assert operator.back("rehearse").code == 0
    assert read(tmp_path / "run").stages_skipped == set()
    again = Operator(operator.world, tmp_path / "run")
    assert again.forward(until="rehearse").code == 0
    assert [e for e in again.events if isinstance(e, StepBegun) and e.stage == "rehearse"]
    assert skipped_by(again) == []


def test_a_rehearsal_that_was_cut_short_is_walked_back_before_it_is_skipped(tmp_path: Path) -> None:
    operator = walked(tmp_path, "join")
    killed = Operator(operator.world, tmp_path / "run", kill_after=12)
    with pytest.raises(Killed):
        killed.forward()
    assert read(tmp_path / "run").entered("rehearse")
    operator.world.advance(30.0)
    again = Operator(operator.world, tmp_path / "run")
    with again._process() as walk:
        assert walk.resume("rehearse", skip=("rehearse",)).code == 0
    assert skipped_by(again) == [("rehearse", "--skip")]
    ways = {e.way for e in again.events if isinstance(e, StepBegun)}
    assert ways == {Way.BACK}
    assert not read(tmp_path / "run").touched_in("rehearse")


@pytest.mark.parametrize("stage", ["preflight", "roll", "cutover", "nothing"])
def test_no_other_stage_can_be_skipped(tmp_path: Path, stage: str) -> None:
    operator = Operator(quiet_world(), tmp_path / "run")
    with (
        operator._process() as walk,
        pytest.raises(UsageError, match=f"'{stage}' cannot be skipped in kafka.*; possible: rehearse"),
    ):
        walk.forward(skip=(stage,))
