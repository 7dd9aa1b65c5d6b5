"""SERVE: dest's own quorum, host by host."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.steps.facts import OPEN, STARTED, context, statuses, stopped_by, well
from zkmigrate.facts.host import HostStatus
from zkmigrate.model.step import Done, Verdict, Waiting, Way
from zkmigrate.steps.serve import ServeStep


def verdict(good: HostStatus, **fact: Any) -> Verdict:
    return ServeStep().check(context(), statuses(good, **fact), Way.FORWARD)


@pytest.mark.parametrize("phase", ["started", "checked", "open"])
def test_hosts_that_serve_are_done(phase: str) -> None:
    assert well(verdict(STARTED, phase=phase))


def test_a_host_that_has_its_go_and_does_not_serve_yet_is_waited_for() -> None:
    waits = verdict(STARTED, phase="go", finisher="running", finisher_note="waits for a leader")
    assert isinstance(waits, Waiting)
    assert waits.progress == "dest2: waits for a leader"


def test_a_host_that_cannot_start_blocks() -> None:
    stopped = verdict(STARTED, phase="go", finisher="failed", finisher_note="no java")
    assert stopped_by(stopped) == [("serve.finisher", "dest2")]


def test_once_a_host_is_open_one_that_is_missing_is_only_told() -> None:
    done = verdict(OPEN, phase="go", finisher="failed", finisher_note="no java")
    assert isinstance(done, Done)
    assert [(f.id, f.target, f.severity) for f in done.findings] == [("serve.late", "dest2", "warn")]
