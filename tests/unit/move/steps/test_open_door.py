"""OPEN: which facts say that clients reach dest, and that there is no way back any more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.move.steps.facts import DEST, OPEN, SEALED, STARTED, context, dest_states, stopped_by, well
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.steps.open_door import OpenStep
from zkmigrate.runbook.model.step import Blocked, Done, Ready, Verdict, Way


def verdict(good: Any = OPEN, way: Way = Way.FORWARD, silent: str = "", **fact: Any) -> Verdict:
    return OpenStep(KAFKA).check(context(way=way), dest_states(good, silent, **fact))


def test_an_empty_fence_on_every_open_host_is_done() -> None:
    assert well(verdict())


@pytest.mark.parametrize("entries", [1, 2])
def test_any_entry_left_in_the_fence_keeps_the_door_shut(entries: int) -> None:
    assert stopped_by(verdict(fence_entries=entries)) == [("open.door", "dest2")]


@pytest.mark.parametrize("phase", ["started", "checked"])
def test_hosts_that_serve_are_to_be_opened(phase: str) -> None:
    assert verdict(phase=phase) == Ready(("dest2",))


def test_a_host_in_another_phase_blocks() -> None:
    assert stopped_by(verdict(phase="stopped")) == [("open.phase", "dest2")]
    assert stopped_by(verdict(SEALED)) == [("open.phase", host) for host in DEST]


def test_once_a_door_is_open_a_host_that_has_not_come_is_only_told() -> None:
    for done in (verdict(silent="dest3"), verdict(phase="go", fence_entries=2)):
        assert isinstance(done, Done)
        assert [f.id for f in done.findings if f.severity == "warn"] == ["serve.late"]


def test_behind_an_open_door_there_is_no_way_back() -> None:
    refused = verdict(STARTED, Way.BACK, phase="open")
    assert isinstance(refused, Blocked)
    assert refused.no_way_back
    assert [f.id for f in refused.findings] == ["open.no-way-back"]
    assert well(verdict(STARTED, Way.BACK))
    assert stopped_by(verdict(STARTED, Way.BACK, silent="dest1")) == [("host.dest1", "dest1")]
