"""CLOSE: the mark is removed where it is."""

from __future__ import annotations

from tests.unit.move.steps.facts import context, well
from zkmigrate.move.steps.replay_close import ReplayCloseStep
from zkmigrate.runbook.model.fact import Absent, Seen, Unknown
from zkmigrate.runbook.model.step import Done, Ready, Waiting, Way
from zkmigrate.zookeeper.changes import SOURCE, EndReplay


def test_a_mark_is_removed_and_a_source_that_does_not_tell_is_waited_for() -> None:
    step, c = ReplayCloseStep(), context()
    there = Seen("a mark")
    assert step.check(c, there) == Ready((SOURCE,))
    assert step.plan(c, there, SOURCE) == (EndReplay(SOURCE, "/kafka"),)
    assert well(step.check(c, Absent("none")))
    assert isinstance(step.check(c, Unknown("timeout", "no")), Waiting)
    assert step.check(context(way=Way.BACK), there) == Done()
