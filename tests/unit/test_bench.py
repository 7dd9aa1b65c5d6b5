"""What the measurements make of figures, answers and processes."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import click
import pytest
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.producer import ProduceResponse

from bench.gateway import DIRECT, OURS, fetched, produced, summary
from bench.journal import MOVES, THROTTLES, delta, plan, write
from bench.spread import in_turn, ratios, spread
from bench.subtree import ROOT, paths
from bench.usage import TICK_S, cpu_s
from tests.unit.topics.gateway.frames import answer
from zkmigrate.runbook.engine import journal as journals


def test_a_spread_is_the_median_and_the_ends() -> None:
    assert spread([3.0, 1.0, 2.0]) == {"n": 3, "median": 2.0, "least": 1.0, "most": 3.0}
    with pytest.raises(ValueError, match="no figures"):
        spread([])


@pytest.mark.parametrize("znodes", [1, 2, 101, 102, 1000])
def test_a_tree_to_walk_has_as_many_znodes_as_asked_for_parents_first(znodes: int) -> None:
    made = list(paths(znodes))
    assert len(set(made)) == len(made) == znodes
    assert made[0] == ROOT
    for n, path in enumerate(made[1:], start=1):
        assert path.rpartition("/")[0] in made[:n]


def test_a_round_without_the_peer_is_held_against_its_last_figure() -> None:
    assert ratios([100.0, 80.0], [10.0, 10.0, 20.0]) == [10.0, 8.0, 4.0]


def test_ways_take_turns_and_must_agree() -> None:
    calls: list[str] = []

    def way(name: str) -> int:
        calls.append(name)
        return 7

    ways = {name: partial(way, name) for name in ("peer", "often", "once")}
    seconds, answer = in_turn(ways, 2, repeat={"often": 3}, limited={"once": 1})
    assert calls == ["peer", *["often"] * 3, "once", "peer", *["often"] * 3]
    assert ({name: len(found) for name, found in seconds.items()}, answer) == (
        {"peer": 2, "often": 2, "once": 1},
        7,
    )
    with pytest.raises(click.ClickException, match="different answers: \\[1, 2\\]"):
        in_turn({"one": lambda: 1, "other": lambda: 2}, 1)


def test_ten_thousand_moves_and_a_day_of_throttles_fit_into_20_mb(tmp_path: Path) -> None:
    book = write(tmp_path / "r")
    content = book.content()
    assert content.count(b'"kind":"intent"') == content.count(b'"kind":"outcome"') == MOVES + THROTTLES
    assert len(content) <= 20_000_000
    assert delta(content, b"a step's end") < 200
    book.close()
    history = journals.read(tmp_path / "r")
    assert len(history.unconfirmed()) == 0
    assert history.records()["roll.roll"] == plan()


def test_an_answers_error_and_bytes_are_read_where_they_stand() -> None:
    topic, part = ProduceResponse.TopicProduceResponse, "orders"
    for error in (0, 29):
        one = topic.PartitionProduceResponse(index=0, error_code=error, base_offset=5, log_append_time_ms=-1)
        body = ProduceResponse(responses=[topic(name=part, partition_responses=[one])], throttle_time_ms=0)
        if error:
            with pytest.raises(click.ClickException, match="error 29 to PRODUCE"):
                produced(answer(body, 8), part)
        else:
            produced(answer(body, 8), part)
    kind = FetchResponse.FetchableTopicResponse
    for error, records in ((0, b"r" * 777), (0, b""), (3, b"r" * 777)):
        own = kind.PartitionData(
            partition_index=0,
            error_code=error,
            high_watermark=9,
            last_stable_offset=9,
            log_start_offset=0,
            aborted_transactions=None,
            preferred_read_replica=-1,
            records=records,
        )
        told = FetchResponse(
            throttle_time_ms=0, error_code=0, session_id=0, responses=[kind(topic=part, partitions=[own])]
        )
        if error or not records:
            with pytest.raises(click.ClickException, match=f"error {error} to FETCH"):
                fetched(answer(told, 11), part)
        else:
            assert fetched(answer(told, 11), part) == len(records)


def test_a_way_is_held_against_its_peer_round_by_round() -> None:
    found = summary({"p50 ms": {DIRECT: [1.0, 2.0], OURS: [2.0, 6.0]}, "MB": {OURS: [5.0]}}, DIRECT)
    assert found["p50 ms"][f"{OURS} / {DIRECT}"] == {"n": 2, "median": 2.5, "least": 2.0, "most": 3.0}
    assert found["MB"] == {OURS: spread([5.0])}


def test_processes_that_have_ended_count() -> None:
    before = cpu_s(os.getpid())
    spin = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", spin], check=True)
    assert cpu_s(os.getpid()) - before >= 0.3 - TICK_S
