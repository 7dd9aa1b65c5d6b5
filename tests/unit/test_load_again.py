"""Reading the log again, against the brokers that the Kafka client itself can play."""

from __future__ import annotations

import json
from pathlib import Path

from confluent_kafka import Producer

from zkmigrate.lab.judge.history import parse_log
from zkmigrate.lab.load.again import NAME, read_again, write_log
from zkmigrate.lab.load.config import LoadConfig


def test_every_partition_is_read_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    producer = Producer({"test.mock.num.brokers": 3, "bootstrap.servers": ""})
    known = producer.list_topics(timeout=30).brokers.values()
    config = LoadConfig(
        ",".join(f"{broker.host}:{broker.port}" for broker in known), topics=("a", "b"), partitions=4,
        drain_deadline_s=60.0,
    )  # fmt: skip
    for n in range(1000):
        producer.produce("a", f"p-{n}".encode(), partition=n % 2)
    producer.produce("b", b"p-1000 \n", partition=3)
    assert producer.flush(30) == 0
    assert write_log(tmp_path, config)
    log = parse_log((tmp_path / NAME).read_text())
    assert log.problem == ""
    assert log.high == {("a", 0): 500, ("a", 1): 500, ("a", 2): 0, ("a", 3): 0} | {
        ("b", part): int(part == 3) for part in range(4)
    }
    assert log.records[("a", 1)] == {n: f"p-{2 * n + 1}" for n in range(500)}
    assert log.records[("b", 3)] == {0: "p-1000"}


def test_a_cluster_that_does_not_answer_leaves_the_log_unread() -> None:
    found = read_again(LoadConfig("127.0.0.1:1", drain_deadline_s=0.1))
    assert not found["complete"]
    assert found["error"]
    assert parse_log(json.dumps(found)).problem.startswith("incomplete: ")
