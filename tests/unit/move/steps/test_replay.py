"""REPLAY: what is left is told by the mark on source; done is what compares the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.move.steps.facts import context, stopped_by, well
from tests.world.returned import AGREED
from zkmigrate.move.facts.records import Planned
from zkmigrate.move.facts.replay import Condition
from zkmigrate.move.steps.replay import BEGIN, ReplayFacts, ReplayStep
from zkmigrate.runbook.model.fact import Absent, Seen, Unknown
from zkmigrate.runbook.model.step import Context, Done, Ready, Verdict, Waiting, Way
from zkmigrate.zookeeper.changes import SOURCE, BeginReplay, ReplayTransactions
from zkmigrate.zookeeper.data.replay import Mark

CUT, MIDDLE, END = 1 << 32 | 9, 2 << 32 | 4, 2 << 32 | 8
PLAN = Planned("dest2", CUT, END, ((MIDDLE, 2, "a" * 32), (END, 3, "b" * 32)))
NOW = 1_800_000_000.0


def c(*accept: Any) -> Context:
    made = context(read=PLAN.encode())
    return replace(made, inventory=made.inventory.model_copy(update={"accept": accept}))


def mark(done: int, version: int = 0) -> Seen[Mark]:
    return Seen(Mark(done, "f" * 32, "Ada", version, 77))


def same(held: bool | None) -> Seen[Condition]:
    return Seen(Condition("replay.same", "source holds the same subtree as dest", held, "seen"))


DONE = ReplayFacts(mark(END, 5), True, same(True), NOW)


def verdict(**facts: Any) -> Verdict:
    return ReplayStep().check(c(AGREED), replace(DONE, **facts))


def test_without_a_mark_it_begins_with_the_name_of_who_agrees() -> None:
    begins = verdict(mark=Absent("no mark"))
    assert isinstance(begins, Ready)
    assert begins.targets == (BEGIN,)
    facts = replace(DONE, mark=Absent("no mark"))
    assert ReplayStep().plan(c(AGREED), facts, BEGIN) == (
        BeginReplay(SOURCE, "/kafka", "dest2", "0x100000009", "Ada, who owns source"),
    )


def test_nothing_is_written_where_nobody_agrees_any_more() -> None:
    over = AGREED.model_copy(update={"until": "2020-01-01T00:00Z"})
    for asked in (c(), c(over)):
        refused = ReplayStep().check(asked, replace(DONE, mark=Absent("no mark")))
        assert stopped_by(refused) == [("return.source-owner", "")]


@pytest.mark.parametrize(
    ("done", "next_batch"),
    [(CUT, "0x200000004"), (MIDDLE - 1, "0x200000004"), (MIDDLE, "0x200000008"), (END - 1, "0x200000008")],
)
def test_the_first_batch_that_is_not_done_is_next_and_alone(done: int, next_batch: str) -> None:
    assert verdict(mark=mark(done, 1), same=Absent("not asked")) == Ready((next_batch,))


def test_a_batch_is_one_change_and_holds_no_content() -> None:
    assert ReplayStep().plan(c(AGREED), DONE, "0x200000008") == (
        ReplayTransactions(SOURCE, "/kafka", "dest2", "0x100000009", "0x200000008", 3, "b" * 32),
    )


def test_a_disk_that_does_not_show_the_mark_is_of_another_ensemble() -> None:
    assert stopped_by(verdict(mark=mark(CUT), own=False)) == [("replay.disk", "")]
    assert isinstance(verdict(mark=mark(CUT), own=None), Waiting)


def test_a_source_that_does_not_tell_is_waited_for() -> None:
    assert isinstance(verdict(mark=Unknown("timeout", "no answer")), Waiting)


def test_done_is_what_compares_the_same() -> None:
    assert well(verdict())
    assert stopped_by(verdict(same=same(False))) == [("replay.same", "")]
    for unread in (same(None), Unknown("failed", "no disk")):
        assert isinstance(verdict(same=unread), Waiting)


def test_going_back_what_was_done_stays() -> None:
    assert ReplayStep().check(replace(c(), way=Way.BACK), DONE) == Done()
