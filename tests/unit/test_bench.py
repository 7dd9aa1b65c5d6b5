"""What the measurements make of a result and of a journal."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.producer import ProduceResponse

from bench.demo_speed import outcome
from bench.drain import best, data_sets, without
from bench.gateway import DIRECT, OURS, fetched, produced, summary
from bench.journal import MOVES, THROTTLES, delta, plan, write
from bench.roll import last_roll_s
from bench.spread import in_turn, ratios, spread
from bench.subtree import ROOT, paths
from bench.targets import WAVES, measured
from bench.window import PARTS, figures
from tests.unit.gateway.frames import answer
from zkmigrate.engine import journal as journals


def result(**changed: Any) -> dict[str, Any]:
    steps = [{"name": "cutover.fence", "seconds": 9.0}]  # a first visit, walked back
    steps += [{"name": f"cutover.{part}", "seconds": 0.25} for part in PARTS]
    return {"window_s": 3.0, "floor_s": 2.0, "longest_ack_gap_s": 0.5, "steps": steps} | changed


def test_the_parts_of_a_window_add_up_to_it() -> None:
    found = figures(result())
    assert found["window / floor"] == 1.5
    assert found["fence"] == 0.25, "the last visit, not the one that was walked back"
    assert found["clients"] == pytest.approx(3.0 - 0.25 * len(PARTS))
    assert sum(found[part] for part in PARTS) + found["clients"] == pytest.approx(found["window"])


def test_a_result_without_a_window_is_no_figure() -> None:
    with pytest.raises(TypeError):
        figures(result(window_s=None))
    with pytest.raises(KeyError):
        figures(result(steps=[]))


def test_a_spread_is_the_median_and_the_ends() -> None:
    assert spread([3.0, 1.0, 2.0]) == {"n": 3, "median": 2.0, "least": 1.0, "most": 3.0}
    with pytest.raises(ValueError, match="no figures"):
        spread([])


def journal(directory: Path, *lines: tuple[str, dict[str, Any]]) -> Path:
    entries = (json.dumps({"kind": kind, "body": body}) for kind, body in lines)
    (directory / "journal.jsonl").write_text("\n".join(entries) + "\n")
    return directory


def step(event: str, mono: float, name: str = "roll") -> tuple[str, dict[str, Any]]:
    return "step", {"stage": "roll", "step": name, "event": event, "mono": mono}


def intent(mono: float) -> tuple[str, dict[str, Any]]:
    return "intent", {"stage": "roll", "step": "roll", "mono": mono}


def test_a_roll_counts_from_its_first_change_to_its_end(tmp_path: Path) -> None:
    first = (step("begin", 1.0), intent(2.0), step("done", 4.0))
    second = (step("begin", 10.0), intent(13.0), intent(15.0), step("done", 20.0))
    after = (step("begin", 30.0, "preflight"), step("done", 31.0, "preflight"))
    assert last_roll_s(journal(tmp_path, *first, *second, *after)) == 7.0


def test_a_roll_that_did_not_end_is_no_figure(tmp_path: Path) -> None:
    whole = (step("begin", 1.0), intent(2.0), step("done", 4.0))
    with pytest.raises(ValueError, match=r"no whole visit to roll\.roll"):
        last_roll_s(journal(tmp_path, *whole, step("begin", 10.0), intent(13.0)))


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


def demo(**changed: Any) -> dict[str, Any]:
    claims = {"lost": {"held": "yes"}, "window_s": {"held": "yes"}}
    whole = {"claims": claims, "conditions": {"analysed": True}, "held": True, "seconds": 200.0}
    return {**whole, "machine": {"slowness": 4.0}, "window_over_floor": 3.0, "tries": [], **changed}


def test_a_demo_reaches_its_aim_when_it_holds_in_time() -> None:
    assert outcome("alone", 0, 210.0, demo()).reached
    assert not outcome("alone", 0, 260.0, demo(seconds=250.0)).reached
    assert outcome("loops", 0, 260.0, demo(seconds=250.0)).reached
    assert not outcome("quarter", 1, 210.0, None).reached
    lost = outcome("quarter", 1, 210.0, demo(held=False, claims={"lost": {"held": "no"}}))
    assert (lost.reached, lost.broken) == (False, ("lost",))


def test_many_targets_are_all_changed_before_a_wave_has_a_figure() -> None:
    found = measured(WAVES + 5, rounds=2)
    assert {name: len(each) for name, each in found.items()} == {"context": 2, "wave": 2}


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


def test_a_drain_moves_every_set_off_one_broker_and_loads_the_others_alike() -> None:
    home = data_sets(40, (1, 2, 3, 4, 5, 6), 1)
    assert all(1 in replicas and len(set(replicas)) == 2 for replicas in home.values())
    assert sum(replicas[0] == 1 for replicas in home.values()) == 20
    after = without(home, (1, 2, 3, 4, 5, 6), 1)
    assert after.keys() == home.keys()
    for number, replicas in after.items():
        assert len(set(replicas)) == 2
        assert [a == b for a, b in zip(home[number], replicas, strict=True)].count(True) == 1
    copies = [new for n in home for new in set(after[n]) - set(home[n])]
    assert {copies.count(broker) for broker in (2, 3, 4, 5, 6)} == {8}


def test_the_best_fixed_throttle_is_the_highest_that_clients_hardly_feel() -> None:
    tried = {10: 20.0, 20: 30.0, 30: 39.0, 40: 90.0}
    assert best(tried, before_ms=20.0, slow=2.0) == 30
    assert best(tried, before_ms=5.0, slow=2.0) == 10, "none is fine: the one with the smallest p99"


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
