"""READ: the disks are read once dest is down and source has let go; every condition must hold then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.move.steps.facts import context, stopped_by, well
from tests.unit.move.steps.outage import DOWN, SILENT, UNTOLD, UP, looked, registered, services
from zkmigrate.move.facts.records import Planned
from zkmigrate.move.steps.replay_read import ReadFacts, ReplayReadStep
from zkmigrate.runbook.model.fact import Absent, Unknown
from zkmigrate.runbook.model.step import Done, Verdict, Waiting
from zkmigrate.runbook.model.step_record import recorded


def verdict(**facts: Any) -> Verdict:
    well = ReadFacts(services(DOWN), registered(), looked())
    return ReplayReadStep().check(context(), replace(well, **facts))


def test_the_plan_is_recorded_batch_by_batch() -> None:
    done = verdict()
    assert well(done)
    assert isinstance(done, Done)
    plan = recorded(Planned, done.record, "r1")
    assert (plan.disk, plan.cut, plan.upto) == ("dest2", 1 << 32 | 9, 2 << 32 | 8)
    assert plan.batches == ((2 << 32 | 4, 2, "a" * 32), (2 << 32 | 8, 3, "b" * 32))


@pytest.mark.parametrize("status", [UP, SILENT, UNTOLD])
def test_a_dest_server_that_may_run_blocks(status: Any) -> None:
    for source in (registered(), registered(1)):  # what source still holds is no reason to wait first
        refused = verdict(services=services(DOWN, dest3=status), source=source)
        assert stopped_by(refused) == [("read.dest-down", "dest3")]


@pytest.mark.parametrize("source", [registered(1), registered(controller=1)])
def test_old_sessions_on_source_are_waited_for(source: Any) -> None:
    assert isinstance(verdict(source=source, replay=Absent("not asked")), Waiting)


@pytest.mark.parametrize("id", ["cut.same", "source.untouched", "source.at-rest", "dest.at-rest"])
def test_each_condition_blocks_now(id: str) -> None:
    assert stopped_by(verdict(replay=looked(id))) == [(id, "")]
    assert stopped_by(verdict(replay=looked(unknown=id))) == [(id, "")]


def test_disks_that_cannot_be_read_block() -> None:
    assert stopped_by(verdict(replay=Unknown("failed", "a hole"))) == [("return.disks", "")]
