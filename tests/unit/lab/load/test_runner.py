"""Load processes as a run starts and ends them; no server is needed: the clients wait for theirs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.process import stand_still
from zkmigrate.lab.failure import LabError, NotReady
from zkmigrate.lab.judge import judge, load_history
from zkmigrate.lab.load.config import LoadConfig, load_config
from zkmigrate.lab.load.json_lines import load_recording
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.wait import wait_until

NOBODY = "127.0.0.1:1"
CONFIG = LoadConfig(raw_hosts={"d1": NOBODY}, tenant_servers=(NOBODY,), session_timeout_ms=600)


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[LoadRunner]:
    made = LoadRunner(tmp_path / "load", CONFIG)
    yield made
    made.kill()


def pid_of(runner: LoadRunner, kind: str) -> int:
    return next(item.pid for item in runner.status() if item.kind == kind)


def test_raw_clients_wait_for_their_host_and_end_in_order(runner: LoadRunner) -> None:
    runner.start(["raw"])

    def refused() -> str | None:
        tried = load_recording(runner.directory, "raw").of("connect_failed")
        return None if tried else "a connection attempt"

    wait_until("a connection attempt", refused, 20)
    assert [(item.kind, item.running, item.problem) for item in runner.status()] == [("raw", True, "")]
    assert runner.stop(["raw"]) == []
    recording = load_recording(runner.directory, "raw")
    assert recording.problem == ""
    assert recording.closing is not None
    assert recording.closing["acked"] == {"d1": 0}
    assert [(item.running, item.last_event) for item in runner.status()] == [(False, "closed")]


def test_two_runners_over_one_directory_see_the_same_processes(runner: LoadRunner) -> None:
    runner.start(["raw"])
    other = LoadRunner(runner.directory, CONFIG)
    assert pid_of(other, "raw") == pid_of(runner, "raw")
    assert other.stop(["raw"]) == []
    assert load_recording(runner.directory, "raw").problem == ""


def test_a_recording_is_not_overwritten(runner: LoadRunner) -> None:
    runner.start(["raw"])
    with pytest.raises(LabError, match="already has a recording of raw"):
        LoadRunner(runner.directory, LoadConfig()).start(["tenant", "raw"])
    assert [item.kind for item in runner.status()] == ["raw"]
    assert load_config(runner.directory / "load.json") == CONFIG


def test_a_load_that_does_not_end_is_killed_and_stays_unknown(runner: LoadRunner) -> None:
    runner.start(["raw"])
    stand_still(pid_of(runner, "raw"))
    assert runner.stop(["raw"], deadline_s=0.3) == ["raw"]
    assert load_recording(runner.directory, "raw").problem == "no closing line"
    assert judge(load_history(runner.directory))["raw_sessions_lost"].held.value == "unknown"


def test_a_load_that_dies_is_reported_with_what_it_said(runner: LoadRunner) -> None:
    runner.start(["raw"])
    os.kill(pid_of(runner, "raw"), signal.SIGKILL)
    with pytest.raises(LabError, match="load raw has ended by itself"):
        runner.wait_flowing(["raw"], deadline_s=20)


def test_waiting_for_flow_names_what_is_missing(runner: LoadRunner) -> None:
    runner.start(["raw"])
    with pytest.raises(NotReady, match=r"load raw flowing.*an acknowledged create on d1"):
        runner.wait_flowing(["raw"], deadline_s=0.3)


def test_a_command_that_cannot_start_is_reported(tmp_path: Path) -> None:
    broken = LoadRunner(tmp_path, CONFIG, lambda _argv: ["sh", "-c", "echo no namespace >&2; exit 1"])
    with pytest.raises(LabError, match="no namespace"):
        broken.start(["raw"])


def test_the_load_behind_a_wrapper_is_the_one_that_is_stopped(tmp_path: Path) -> None:
    """A wrapper that does not exec keeps its own pid; the signal has to reach the load itself."""
    wrapped = LoadRunner(tmp_path / "load", CONFIG, lambda argv: ["sh", "-c", '"$@"; exit $?', "sh", *argv])
    wrapped.start(["raw"])
    assert wrapped.stop(["raw"]) == []
    assert load_recording(wrapped.directory, "raw").problem == ""


def test_a_tree_that_cannot_be_listed_is_incomplete(tmp_path: Path) -> None:
    unlistable = LoadRunner(tmp_path, LoadConfig(raw_hosts={"d1": NOBODY}, drain_deadline_s=1.0))
    unlistable.config.write(tmp_path / "load.json")
    assert not unlistable.list_trees()
