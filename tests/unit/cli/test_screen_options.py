"""``-v``, ``--log-file``, ``--no-color``, ``status --watch``, examples, and what --json always has."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import pty
import signal
import stat
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import click
import pytest
from rich.console import Console
from rich.live import Live

from tests.unit.cli.test_main import Place
from tests.unit.disk_world import DiskSite
from tests.unit.runbook.ui.test_views import read_until
from zkmigrate.cli.command_log import verbose
from zkmigrate.hosts.transport import command_log


def test_the_log_has_commands_and_answers_and_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("zkmigrate").propagate = True
    with caplog.at_level(logging.DEBUG, "zkmigrate"):
        command_log.sent("broker1", ("sudo", "cat", "/etc/kafka/server.properties"), b"content")
        command_log.answered(
            "broker1",
            0,
            'broker.id=1\nssl.key.password = hidden1\n  password="hidden2";\n'
            "token=hidden3\ndigest: hidden4\n",
        )
        command_log.sent("dest1", ("put", "/etc/zookeeper/zoo.cfg", "aGlkZGVu" * 9))
        command_log.answered(
            "dest1", 0, "aGlkZGVu\n", ("sudo", "-n", "sh", "read", "/etc/password", "0", "9")
        )
        command_log.answered("dest1", 0, "x" * 5000 + "\n" + "line\n" * 90)
    assert "broker1 <- sudo cat /etc/kafka/server.properties (and 7 bytes of input)" in caplog.text
    assert "broker1 -> exit code 0\n    broker.id=1\n    ssl.key.password = (left out)" in caplog.text
    assert "dest1 <- put /etc/zookeeper/zoo.cfg (72 characters)" in caplog.text
    assert "(5000 characters)" in caplog.text
    assert "(51 more lines)" in caplog.text
    assert "hidden" not in caplog.text
    assert "aGlkZGVu" not in caplog.text


def test_a_log_file_is_the_owners_and_is_ended_with_the_verb(tmp_path: Path) -> None:
    place, log = Place(tmp_path), tmp_path / "night.log"
    for _ in range(2):
        assert place.call("preflight", "--log-file", str(log)).exit_code == 0
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert not logging.getLogger("zkmigrate").handlers
    assert place.call("preflight", "--log-file", str(tmp_path / "none" / "x")).exit_code == 2


def test_what_v_prints_goes_through_the_live_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written below the view's own stream it would stand in the middle of the board."""
    below = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    screen = Console(file=io.StringIO(), force_terminal=True, width=200)
    monkeypatch.setattr(sys, "stderr", below)
    with click.Context(click.Command("x")) as context:
        verbose(context, click.Option(["-v"]), True)
        with Live(console=screen, auto_refresh=False):
            assert sys.stderr is not below
            command_log.sent("broker1", ("sudo", "cat", "\x1b[2Jx"))
    assert "broker1 <- sudo cat \\u001b[2Jx" in screen.file.getvalue()  # type: ignore[attr-defined]
    assert below.buffer.getvalue() == b""


def test_a_closed_terminal_does_not_fail_what_v_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sys, "stderr", Closed())
    with click.Context(click.Command("x")) as context:
        verbose(context, click.Option(["-v"]), True)
        command_log.sent("broker1", ("true",))


def test_the_closing_commands_stand_below_all_that_v_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """About nine lines of the log came below them, as the lock was given back and connections closed."""
    close = DiskSite.close

    def closes(site: DiskSite) -> None:
        command_log.sent("broker1", ("closing", "connections"))
        close(site)

    monkeypatch.setattr(DiskSite, "close", closes)
    done = Place(tmp_path).call("run", "--yes", "--until", "install", "-v")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert any("broker1 <- closing connections" in line for line in lines)
    said = [line.strip().partition(":")[0] for line in lines[-4:]]
    assert said == [
        "go on forward",
        "That command runs every remaining stage. Add --until STAGE to stop earlier.",
        "go back to the beginning",
        "look",
    ]


def test_json_has_a_schema_and_an_iso_time_beside_its_keys(tmp_path: Path) -> None:
    place = Place(tmp_path)
    ran = place.call("run", "--yes", "--json").stdout.splitlines()
    shown = place.call("status", "--json").stdout.splitlines()
    refused = place.call("status", "--json", "--run-id", "none").stdout.splitlines()
    looked = place.call("preflight", "--json").stdout.splitlines()
    for line in (*ran, *shown, *refused, *looked):
        body = json.loads(line)
        assert body["schema"] == 1
        when = datetime.fromisoformat(body["time"])
        assert when.tzinfo is not None
        assert "at" not in body or abs(when.timestamp() - body["at"]) < 0.01


def test_a_plan_has_its_own_format_and_the_bytes_of_its_file(tmp_path: Path) -> None:
    place, file = Place(tmp_path), tmp_path / "night.plan"
    printed = place.call("plan", "--json", "--out", str(file))
    assert printed.exit_code == 0, printed.output
    assert printed.stdout == file.read_text()


@pytest.mark.parametrize("verb", ["run", "plan", "status"])
def test_help_has_examples(tmp_path: Path, verb: str) -> None:
    assert f"Examples:\n    zkmigrate {verb}" in Place(tmp_path).call(verb, "--help").output


def test_watch_needs_a_terminal(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert place.call("status", "--watch").exit_code == 2
    assert "--watch needs a terminal" in place.call("status", "--watch").output


@pytest.mark.parametrize("more", [(), ("--no-color",)])
def test_watch_shows_the_run_anew_until_ctrl_c(tmp_path: Path, more: tuple[str, ...]) -> None:
    place = Place(tmp_path)
    assert place.call("run", "--yes").exit_code == 0
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.disk_world", *place.words("status", "--watch", *more)],
        env={**os.environ, **place.environ, "COLUMNS": "200", "TERM": "xterm"},
        cwd=Path(__file__).parents[3],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    read_until(ours, "Reading the state of the run from the hosts.", "")
    seen = read_until(ours, "run lab-1 of", "")
    read_until(ours, "run lab-1 of", "")  # a second time
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    os.close(ours)
    assert ("\x1b[3" in seen) is False, "the state has no colours of its own"
