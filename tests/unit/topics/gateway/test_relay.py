"""The relay: what a run's line becomes at the gateway, and what it answers."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.unit.topics.gateway.test_server import Running, config, serve
from zkmigrate.cli.main import cli
from zkmigrate.runbook.engine.apply import FENCED_OFF
from zkmigrate.topics.gateway.order import GatewayOrder
from zkmigrate.topics.gateway.serving.config import load
from zkmigrate.topics.gateway.verbs import ask, relay
from zkmigrate.topics.gateway.verbs.relay import Relay


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a gateway that nobody has started."""
    path = tmp_path / "gateway.yml"
    path.write_text(json.dumps(config(tmp_path / "state").model_dump()))
    return path


def told(relay: Relay, *requests: str) -> list[str]:
    """Its answers to whole lines."""
    answers = io.BytesIO()
    assert relay.serve(io.BytesIO("".join(f"{one}\n" for one in requests).encode()), answers) == 0
    return answers.getvalue().decode().splitlines()


def sent(number: int, operation: str, order: GatewayOrder) -> str:
    return " ".join((str(number), order.verb, operation, *order.arguments()))


def test_orders_of_a_run_reach_the_gateway_under_the_runs_name(tmp_path: Path, file: Path) -> None:
    mine, other, former = Relay(file, "move-1", 2), Relay(file, "move-2", 2), Relay(file, "move-0", 1)

    async def test(at: Running) -> None:
        async def say(run: Relay, operation: str, **order: Any) -> list[str]:
            line = sent(7, operation, GatewayOrder("g1", app="app", **order))
            return await asyncio.to_thread(told, run, line)

        assert await say(mine, "o.1", order="route", to="b") == ["= done: app: open on a", ". 7 0"]
        assert await say(mine, "o.2", order="hold", ttl_ms=60_000) == ["= done: app: held on a", ". 7 0"]
        assert await say(mine, "o.2", order="hold", ttl_ms=60_000) == ["= done: app: held on a", ". 7 0"]
        # Another run has the same id for another operation.
        assert await say(other, "o.2", order="unhold") == ["= done: app: open on a", ". 7 0"]
        assert await say(mine, "o.3", order="hold", ttl_ms=60_000) == ["= done: app: held on a", ". 7 0"]
        status = json.loads((await asyncio.to_thread(told, mine, "8 status"))[0].removeprefix("= "))
        assert status["apps"]["app"]["hold"] == "move-1.o.3"
        assert await say(mine, "o.4", order="go", ttl_ms=1000) == [
            "= refused: app is held; go needs sealed",
            ". 7 6",
        ]
        assert await say(former, "o.5", order="unhold") == [
            "= fenced: fencing number 1 is outdated; the current number of app is 2",
            f". 7 {FENCED_OFF}",
        ]
        assert await say(mine, "o.6", order="seal", hold="move-1.o.3") == [
            "= done: app: sealed on a",
            ". 7 0",
        ]

    serve(load(file), test)


def test_its_status_is_that_of_the_verb_status(file: Path) -> None:
    said = list[str]()

    async def test(_at: Running) -> None:
        [answer, end] = await asyncio.to_thread(told, Relay(file, "r-1", 0), "1 status")
        assert end == ". 1 0"
        assert await asyncio.to_thread(ask.status, file, said.append, as_json=True) == 0
        shown = json.loads(said[0])
        assert (shown.pop("schema"), bool(shown.pop("time"))) == (1, True)
        assert json.loads(answer.removeprefix("= ")) == shown
        assert {one["id"] for one in json.loads(said[0])["findings"]} >= {"gateway.acks", "gateway.lost"}

    serve(load(file), test)


def test_without_a_gateway_the_answer_says_so(file: Path) -> None:
    for request in ("1 status", "1 order o.1 hold app to= hold= ttl_ms=5"):
        [*why, end] = told(Relay(file, "r-1", 1), request)
        assert end == f". 1 {relay.FAILED}"
        assert "No gateway responded" in why[0]


def test_a_file_that_is_wrong_is_an_answer_too(tmp_path: Path) -> None:
    (tmp_path / "gateway.yml").write_text("state: 5\nodd: 1\n")
    [*why, end] = told(Relay(tmp_path / "gateway.yml", "r-1", 1), "1 status")
    assert end == f". 1 {relay.FAILED}"
    assert any("odd: this key is unknown" in line for line in why)
    assert all(line.startswith("= ") for line in why)


@pytest.mark.parametrize(
    ("request_", "end"),
    [
        ("1", ". 1 2"),
        ("1 serve", ". 1 2"),
        ("1 status now", ". 1 2"),
        ("1 order o.1 hold", ". 1 2"),
        ("1 order o.1 hold app ttl_ms=-1", ". 1 2"),
        ("1 order o.1 hold app ttl_ms=" + "9" * 5000, ". 1 2"),
        ("1 order o.1 hold app ttl_ms=600001", ". 1 2"),
        ("1 order o.1 hold app to=a to=b", ". 1 2"),
        ("1 order o.1 hold app to=A", ". 1 2"),
        ("1 order o.1 hold app hold=" + "x" * 300, ". 1 2"),
        ("1 order ;o.1 hold ;app", ". 1 2"),
        ("1 order o.1 hold app ttl_ms=\u0665", ". 1 2"),
        ("1 order o.1 hold app fencing=9", ". 1 2"),
        ("1 order o.1 hold app 5", ". 1 2"),
        ("; help", ". ? 2"),
        ("\u20ac help", ". ? 2"),
        ("1 help " + "x" * (1 << 16), ". ? 2"),
    ],
)
def test_what_is_no_request_is_answered_with_what_is_needed(file: Path, request_: str, end: str) -> None:
    """No gateway runs: a request that had reached for it would have failed otherwise."""
    said = told(Relay(file, "r-1", 1), request_, "2 help")
    assert said.index(end) > 0
    assert said[-1] == ". 2 0"
    assert "needed:" in said[0] or "this is not a valid order: " in said[0]


def test_a_line_that_is_cut_short_is_not_carried_out(file: Path) -> None:
    """The connection may end within a number."""

    async def test(at: Running) -> None:
        answers = io.BytesIO()
        cut = b"1 order o.1 hold app to= hold= ttl_ms=6000"
        await asyncio.to_thread(Relay(file, "r-1", 1).serve, io.BytesIO(cut), answers)
        assert answers.getvalue().endswith(b". ? 2\n")
        assert (await at.asks(b'"status"'))["apps"]["app"]["gate"] == "open"

    serve(load(file), test)


def test_the_command_speaks_on_its_standard_streams(file: Path) -> None:
    words = ["gateway", "relay", "--config", str(file), "--run", "r-1", "--as", "3"]
    done = CliRunner().invoke(cli, words, input="a.1 help\n\n2 help\n")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert [line for line in lines if not line.startswith("= ")] == [". a.1 0", ". 2 0"]
