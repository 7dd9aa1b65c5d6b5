"""SERVE: dest's own quorum, host by host."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.move.steps.facts import OPEN, STARTED, context, statuses, stopped_by, well
from zkmigrate.hosts.facts.status import HostStatus
from zkmigrate.move.steps.serve import ServeStep
from zkmigrate.runbook.model.step import Done, Verdict, Waiting


def verdict(good: HostStatus, **fact: Any) -> Verdict:
    return ServeStep().check(context(), statuses(good, **fact))


@pytest.mark.parametrize("phase", ["started", "checked", "open"])
def test_hosts_that_serve_are_done(phase: str) -> None:
    assert well(verdict(STARTED, phase=phase))


def test_a_host_that_has_its_go_and_does_not_serve_yet_is_waited_for() -> None:
    waits = verdict(STARTED, phase="go", finisher="running", finisher_note="waits for a leader")
    assert isinstance(waits, Waiting)
    assert waits.progress == "dest2: waits for a leader"


@pytest.mark.parametrize(
    ("took_s", "rehearsal", "at_most_s"),
    [(None, False, 30.0), (2.0, False, 30.0), (22.0, False, 33.0), (None, True, 300.0)],
)
def test_hosts_that_were_slow_in_the_rehearsal_get_longer_to_serve(
    took_s: float | None, rehearsal: bool, at_most_s: float
) -> None:
    rehearsed = {} if took_s is None else {"seconds": {"serve": {"forward": took_s}}}
    slow = statuses(STARTED, phase="go", finisher="running")
    waits = ServeStep().check(context(rehearsal, rehearse=rehearsed), slow)
    assert isinstance(waits, Waiting)
    assert waits.deadline_s == at_most_s


def test_a_host_that_cannot_start_blocks() -> None:
    stopped = verdict(STARTED, phase="go", finisher="failed", finisher_note="no java")
    assert stopped_by(stopped) == [("serve.finisher", "dest2")]


def test_once_a_host_is_open_one_that_is_missing_is_only_told() -> None:
    done = verdict(OPEN, phase="go", finisher="failed", finisher_note="no java")
    assert isinstance(done, Done)
    assert [(f.id, f.target, f.severity) for f in done.findings] == [("serve.late", "dest2", "warn")]
