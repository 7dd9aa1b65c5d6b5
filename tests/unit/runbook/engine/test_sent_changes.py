"""The changes of a run that are not undone: what was undone leaves nothing behind."""

from __future__ import annotations

import pytest

from zkmigrate.runbook.engine.sent_changes import SentChanges
from zkmigrate.runbook.model.change import Applied, HostVerb


@pytest.fixture
def sent() -> SentChanges:
    made = SentChanges()
    for operation, step, target in (("o1", "s.t", "d1"), ("o2", "s.u", "d1"), ("o3", "s.t", "d2")):
        made.add(step, target, Applied(HostVerb(target, "started-observer"), operation, confirmed=False))
    return made


def test_changes_are_found_by_step_and_target_in_the_order_of_sending(sent: SentChanges) -> None:
    assert [(step, target, applied.operation) for step, target, applied in sent] == [
        ("s.t", "d1", "o1"), ("s.u", "d1", "o2"), ("s.t", "d2", "o3"),
    ]  # fmt: skip
    assert list(sent.of_step("s.t")) == ["d1", "d2"]
    sent.confirm("o3")
    sent.confirm("of no change")
    assert [applied.confirmed for _, _, applied in sent] == [False, False, True]


def test_a_target_and_a_step_without_changes_are_gone(sent: SentChanges) -> None:
    sent.drop("o1")
    sent.drop("of no change")
    assert (list(sent.of_step("s.t")), sent.of("s.t", "d1")) == (["d2"], ())
    sent.drop("o3")
    assert list(sent.steps()) == ["s.u"]
    assert [applied.operation for _, _, applied in sent] == ["o2"]


def test_a_step_that_was_walked_back_is_gone_whole(sent: SentChanges) -> None:
    sent.clear("s.t")
    sent.clear("of no step")
    assert list(sent.steps()) == ["s.u"]
    assert [applied.operation for _, _, applied in sent] == ["o2"]
    sent.confirm("o1")
    assert sent.of("s.t", "d1") == ()
