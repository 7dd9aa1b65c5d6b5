"""Reading the log again: against the brokers that the Kafka client itself can play, and by a script."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition

from tests.unit.lab.load.kafka_doubles import Message, ScriptedConsumer
from zkmigrate.lab.judge.history import parse_log
from zkmigrate.lab.load import reread
from zkmigrate.lab.load.config import LoadConfig
from zkmigrate.lab.load.reread import NAME, read_again, write_log


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


def record(partition: int, offset: int, error: KafkaError | None = None) -> Message:
    return Message(partition, offset, f"p-{partition}-{offset}", error)


class Scripted(ScriptedConsumer):
    """Each answer is the next of the script, then nothing more comes."""

    def __init__(self, script: Iterable[Message], ends: dict[int, int | None]) -> None:
        super().__init__()
        self.script, self.ends = iter(script), ends

    def get_watermark_offsets(self, asked: TopicPartition, timeout: float) -> tuple[int, int] | None:
        end = self.ends[asked.partition]
        return None if end is None else (0, end)

    def assign(self, partitions: list[TopicPartition]) -> None:
        assert [p.partition for p in partitions] == [0, 1]

    def consume(self, _most: int, _limit_s: float) -> list[Message]:
        self.take_a_second()
        return list(itertools.islice(self.script, 1))


def eof(partition: int) -> Message:
    return record(partition, 0, KafkaError(KafkaError._PARTITION_EOF))


FATAL = record(0, 0, KafkaError(KafkaError._FATAL, "the end", fatal=True))
PASSING = record(0, 0, KafkaError(KafkaError._TRANSPORT))
ENDS: dict[int, int | None] = {0: 3, 1: 1}
WHOLE = [record(0, 0), record(0, 2), eof(0), record(1, 0)]

# what comes, the ends that are told, why it is not whole; "" where it is
SCRIPTS: dict[str, tuple[list[Message], dict[int, int | None], str]] = {
    "all of it": ([*WHOLE, eof(1)], ENDS, ""),
    "an error that passes": ([WHOLE[0], PASSING, *WHOLE[1:], eof(1)], ENDS, ""),
    "an error for good": ([WHOLE[0], FATAL, *WHOLE[1:], eof(1)], ENDS, "the end"),
    "one partition does not end": (WHOLE, ENDS, "not read to the end: a/1"),
    "an end that is not told": ([*WHOLE, eof(1)], {0: 3, 1: None}, "no high watermark of a/1"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_is_whole_once_each_partition_has_told_its_end(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, ends, why = SCRIPTS[name]
    client = Scripted(script, ends)
    monkeypatch.setattr(reread, "Consumer", client)
    monkeypatch.setattr(reread, "time", client)
    config = LoadConfig(topics=("a",), partitions=2, drain_deadline_s=100.0)
    assert write_log(tmp_path, config) is not bool(why)
    assert client.closed
    found = json.loads((tmp_path / NAME).read_text())
    assert found["complete"] is not bool(why)
    assert why in found["error"]
    if not why:
        assert found["records"] == {"a/0": [[0, "p-0-0"], [2, "p-0-2"]], "a/1": [[0, "p-1-0"]]}
        assert found["high"] == {"a/0": 3, "a/1": 1}
