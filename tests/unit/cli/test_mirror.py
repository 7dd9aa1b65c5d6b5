"""The verbs ``mirror …``: what their options become."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner

from zkmigrate.cli.main import cli
from zkmigrate.mirror.verbs import show
from zkmigrate.mirror.verbs.survey import Request


def test_brokers_and_topics_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def status(request: Request, say: Callable[[str], None]) -> int:
        asked.append(request)
        say("told")
        return 11

    monkeypatch.setattr(show, "status", status)
    words = ["--source", "a:1, b:2", "--target", "c:3", "--topic", "x", "--topic", "y", "--topic", "x"]
    done = CliRunner().invoke(cli, ["mirror", "status", *words, "--json"])
    assert (done.exit_code, done.output) == (11, "told\n")
    assert asked == [Request(["a:1", "b:2"], ["c:3"], ("x", "y"), True)]


@pytest.mark.parametrize("source", ["a", "a:", ":1", "a:0", "a:65536", "a:x", ","])
def test_a_broker_is_host_and_port(source: str) -> None:
    done = CliRunner().invoke(cli, ["mirror", "plan", "--source", source, "--target", "c:3", "--topic", "x"])
    assert done.exit_code == 2
    assert "HOST:PORT" in done.output


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--source", "a:1"],
        ["--source", "a:1", "--target-logs", "x"],
        ["--source-logs", "x"],
        ["--source", "a:1", "--target", "b:1", "--source-logs", "x", "--target-logs", "y"],
    ],
)
def test_compare_reads_brokers_or_log_directories(words: list[str]) -> None:
    done = CliRunner().invoke(cli, ["mirror", "compare", "--topic", "x", *words])
    assert done.exit_code == 2
    assert "--source and --target, or --source-logs and --target-logs" in done.output
