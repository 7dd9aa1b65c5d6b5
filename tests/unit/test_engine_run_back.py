"""The way back must not look where there is nothing to undo: a whole tree read again cost 52 s there."""

from __future__ import annotations

from pathlib import Path

from tests.unit.engine_world import LookStep, Tiny, blocked
from zkmigrate.engine.leaving import Ended
from zkmigrate.engine.run import Walk


def forward(walk: Walk) -> Ended:
    return walk.forward()


def test_a_step_that_only_looks_is_not_observed_on_the_way_back(tmp_path: Path) -> None:
    tiny = Tiny(tmp_path / "r")
    prove, seal = LookStep("prove"), LookStep("seal", verdict=blocked("tiny.seal"))
    tiny.steps |= {"prove": prove, "seal": seal}

    assert tiny.process(forward).code == 7

    assert (prove.visits, seal.visits) == (1, 1), "observed on the way forward only"
    assert not any(path in ("/fence", "/cut") for _, path in tiny.hosts.files), "and the way back was walked"
