"""The verbs ``mirror …``: what their options become."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from zkmigrate.cli.main import cli
from zkmigrate.topics.mirror.rules.share import Share
from zkmigrate.topics.mirror.verbs import compare, run, show
from zkmigrate.topics.mirror.verbs.request import Request


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


def test_groups_and_refresh_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def copied(request: Request, *_: object, once: bool, refresh_s: float, **_limits: object) -> int:
        asked.append((request.groups, once, refresh_s))
        return 0

    monkeypatch.setattr(run, "run", copied)
    words = ["mirror", "run", "--source", "a:1", "--target", "c:3", "--topic", "x"]
    for more in ([], ["--group", "g", "--group", "h", "--refresh", "2.5", "--once"]):
        assert CliRunner().invoke(cli, [*words, *more]).exit_code == 0
    assert asked == [((), False, 10.0), (("g", "h"), True, 2.5)]
    assert CliRunner().invoke(cli, [*words, "--refresh", "0.5"]).exit_code == 2


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


@pytest.mark.parametrize("verb", ["plan", "status", "compare"])
def test_every_verb_takes_files_of_client_properties(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Request]()

    def told(request: Request, _say: Callable[[str], None]) -> int:
        asked.append(request)
        return 0

    monkeypatch.setattr(compare if verb == "compare" else show, verb, told)
    files = ["--source-config", "here", "--target-config", "there"]
    done = CliRunner().invoke(cli, ["mirror", verb, *WORDS, *files])
    assert done.exit_code == 0, done.output
    assert asked == [Request(["a:1"], ["c:3"], ("x",), False, (), Path("here"), Path("there"))]


WORDS = ["--source", "a:1", "--target", "c:3", "--topic", "x"]


@pytest.mark.parametrize(
    ("words", "rate", "share"),
    [([], 0.0, Share(1, 1)), (["--rate", "2.5", "--share", "2/3"], 2_500_000, Share(2, 3))],
)
def test_rate_and_share_of_a_run(
    words: Sequence[str], rate: float, share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    def copied(request: Request, *_: object, **more: Any) -> int:
        told.append((request, more))
        return 0

    monkeypatch.setattr(run, "run", copied)
    files = ["--source-config", "here", "--target-config", "there"]
    done = CliRunner().invoke(cli, ["mirror", "run", *WORDS, *files, *words])
    assert done.exit_code == 0, done.output
    [(request, more)] = told
    assert (request.source_config, request.target_config) == (Path("here"), Path("there"))
    assert more == {"once": False, "refresh_s": 10.0, "rate": rate, "share": share}


@pytest.mark.parametrize("words", ["--share 0/3", "--share 4/3", "--share 1", "--share a/b", "--rate 0"])
def test_a_share_or_a_rate_that_cannot_be_is_refused(words: str) -> None:
    done = CliRunner().invoke(cli, ["mirror", "run", *WORDS, *words.split()])
    assert done.exit_code == 2
    assert words.split()[0] in done.output
