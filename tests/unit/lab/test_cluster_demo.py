"""The demo of playbooks that move partitions: its lab, its own claims, and its options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.judge_fixtures import Event, closed, event, opened
from zkmigrate.lab import demo
from zkmigrate.lab.cluster_demo import (
    Moved,
    born_within,
    gone_claim,
    p99_claim,
    planned_claim,
    version_claim,
)
from zkmigrate.lab.cluster_site import not_as, sets_of, wait_for_records
from zkmigrate.lab.failure import NotReady
from zkmigrate.lab.load.json_lines import Recording
from zkmigrate.lab.load.samples import Partition
from zkmigrate.runbook.model.finding import Held

MS = 1_000_000


def test_what_is_not_as_planned_is_told(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    rows = [{"topic": "a-b", "partition": n, "replicas": [2, 1]} for n in range(4)]
    file.write_text(json.dumps({"version": 1, "partitions": rows}))
    there = {
        "a-b-0": Partition((2, 1), (1, 2), 2),
        "a-b-1": Partition((1, 2), (1, 2), 1),
        "a-b-2": Partition((2, 1), (2,), 2),
    }
    assert not_as(there, sets_of(file)) == [
        "a-b-1: [1, 2], in sync [1, 2], not [2, 1]",
        "a-b-2: [2, 1], in sync [2], not [2, 1]",
        "a-b-3: missing, not [2, 1]",
    ]


def test_the_load_is_there_once_enough_records_are_acknowledged(tmp_path: Path) -> None:
    """A busy machine writes fewer in the same time, and a plan that finds the brokers even moves nothing."""
    rows: list[dict[str, object]] = [{"event": "rate", "step": 1}, {"event": "ack"}, {"event": "ack"}]
    lines = (json.dumps({"mono_ns": 1, **row}) for row in rows)
    (tmp_path / "producer.jsonl").write_text("".join(f"{line}\n" for line in lines))
    wait_for_records(tmp_path, 2, 0)
    with pytest.raises(NotReady, match="1 records"):
        wait_for_records(tmp_path, 3, 0)


def moved(name: str, began_ms: int, ended_ms: int, partitions: int = 2, *wrong: str) -> Moved:
    return Moved(name, began_ms * MS, ended_ms * MS, partitions, wrong)


@pytest.mark.parametrize(
    ("runs", "held"),
    [
        ([moved("scale", 0, 1), moved("rebalance", 1, 2)], Held.YES),
        ([moved("scale", 0, 1)], Held.NO),
        ([moved("scale", 0, 1), moved("rebalance", 1, 2, 0)], Held.NO),
        ([moved("scale", 0, 1), moved("rebalance", 1, 2, 2, "a-0: missing")], Held.NO),
    ],
    ids=["all", "one not run", "an empty plan", "a wrong set"],
)
def test_each_plan_was_run_and_came_true(runs: list[Moved], held: Held) -> None:
    assert planned_claim(runs, ("scale", "rebalance")).held is held


def ack(sent_ms: int, took_ms: int) -> Event:
    return event("ack", (sent_ms + took_ms) * MS, sent_mono_ns=sent_ms * MS)


def test_the_p99_within_a_run_and_outside() -> None:
    told = [opened("producer"), ack(5, 1), ack(15, 7), ack(25, 2), closed(99 * MS)]
    claim = p99_claim(Recording("producer", told), [moved("scale", 10, 20)])
    assert (claim.value, claim.held) == ({"scale": 7.0, "outside": 2.0}, Held.YES)
    empty = p99_claim(Recording("producer", told), [moved("scale", 50, 60)])
    assert empty.held is Held.NO, "a run without load shows nothing"


def test_an_option_of_the_move_is_refused_with_another_playbook() -> None:
    done = CliRunner().invoke(demo.main, ["--playbook", "kafka_reassign", "--dest-count", "5"])
    assert done.exit_code == 2
    assert "Options only for kafka_zookeeper_move: dest-count" in done.output


@pytest.mark.parametrize(
    ("running", "named", "left", "said"),
    [
        ((5,), (), (), "broker 5 runs"),
        ((), ("a-0",), (), "a-0 has a replica on a removed broker"),
        ((), (), ("kf6: a-0",), "a directory is left on kf6: a-0"),
    ],
)
def test_a_removed_broker_must_be_gone_everywhere(
    running: tuple[int, ...], named: tuple[str, ...], left: tuple[str, ...], said: str
) -> None:
    assert gone_claim((), (), ()).held is Held.YES
    claim = gone_claim(running, named, left)
    assert (claim.held, claim.detail) == (Held.NO, said)


def test_the_brokers_tell_the_version_that_was_asked_for() -> None:
    assert version_claim("3.9.1", "3.9.1").held is Held.YES
    assert version_claim("2.8.2, 3.9.1", "3.9.1").held is Held.NO


def test_a_topic_is_born_late_by_when_it_was_asked_for() -> None:
    told = [
        event("op", 9 * MS, op=op, topic=topic, started_mono_ns=began)
        for op, topic, began in (
            ("create_topic", "a", 9), ("create_topic", "b", 10), ("alter_config", "c", 15),
            ("create_topic", "d", 20), ("create_topic", "e", 21),
        )
    ]  # fmt: skip
    span = {"start_mono_ns": 10, "end_mono_ns": 20}
    assert list(born_within(Recording("metadata", told), span)) == ["b-0", "d-0"]
