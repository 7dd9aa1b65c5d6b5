"""The way back must not look where there is nothing to undo: a whole tree read again cost 52 s there."""

from __future__ import annotations

import pytest

from tests.unit.engine_world import LookStep, Tiny, blocked, forward
from zkmigrate.errors import UsageError
from zkmigrate.runbook.engine.events import RunEnded


def test_a_step_that_only_looks_is_not_observed_on_the_way_back(tiny: Tiny) -> None:
    prove, seal = LookStep("prove"), LookStep("seal", verdict=blocked("tiny.seal"))
    tiny.steps |= {"prove": prove, "seal": seal}

    assert tiny.process(forward).code == 7

    assert (prove.visits, seal.visits) == (1, 1), "observed on the way forward only"
    assert not any(path in ("/fence", "/cut") for _, path in tiny.hosts.files), "and the way back was walked"


def test_a_place_that_the_run_has_not_come_to_is_no_place_to_be_back_at(tiny: Tiny) -> None:
    first = dict(tiny.hosts.files)
    tiny.process(lambda walk: walk.forward(until="preflight"))
    with pytest.raises(UsageError, match=r"has not reached main: it is at prepare\.one\. Nothing was"):
        tiny.process(lambda walk: walk.back("main"))
    with pytest.raises(UsageError, match=r"has not reached prepare\.two: it is at prepare\.one"):
        tiny.process(lambda walk: walk.back("prepare.two"))
    assert tiny.hosts.files == first
    assert tiny.process(forward).code == 0, "the direction is as it was"


def test_back_at_a_place_twice_is_back_at_it(tiny: Tiny) -> None:
    tiny.process(lambda walk: walk.forward(until="main.cut"))
    for _ in range(2):
        ended = tiny.process(lambda walk: walk.back("main"))
        assert ended == RunEnded(0, "back at the start of main: asked by the operator")
