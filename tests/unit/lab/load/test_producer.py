"""What the load's producer does with records that the Kafka client gives back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from zkmigrate.lab.load import producer
from zkmigrate.lab.load.config import LoadConfig
from zkmigrate.lab.load.json_lines import Recorder, read_recording
from zkmigrate.lab.load.process import Orders

Answer = Callable[[KafkaError | None, "Taken"], None]
GIVEN_BACK = "p-0", "p-9"


@dataclass
class Taken:
    """A record that the client took, as its answers show it."""

    name: str
    part: int
    record: str

    def topic(self) -> str:
        return self.name

    def partition(self) -> int:
        return self.part

    def offset(self) -> int:
        return 0


class Client:
    """A Kafka client whose brokers write every record, but which gives two back as not sent: the answer to
    an earlier try was lost, and then a broker that had just started did not know the topic."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.log: list[Taken] = []
        self.written: set[tuple[str, int]] = set()
        self._waiting: list[tuple[Taken, Answer]] = []

    def produce(self, topic: str, value: bytes, partition: int, on_delivery: Answer) -> None:
        place = (topic, partition)
        beside = [one for one, _ in self._waiting if (one.name, one.part) == place]
        assert place in self.written or not beside, f"{beside} is under way beside a partition's first record"
        taken = Taken(topic, partition, value.decode().rstrip())
        self.log.append(taken)
        self._waiting.append((taken, on_delivery))
        if len(self.log) == 40:
            self.orders.stop()

    def poll(self, timeout: float) -> int:
        """One answer, and only to whoever waits for it: a wait for the pace is shorter."""
        if self._waiting and timeout >= producer._TICK_S:
            taken, answer = self._waiting.pop(0)
            if taken.record in GIVEN_BACK:
                answer(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), taken)
            else:
                self.written.add((taken.name, taken.part))
                answer(None, taken)
        return 0

    def flush(self, timeout: float) -> int:
        while self._waiting:
            self.poll(timeout)
        return 0


def test_a_record_that_was_given_back_is_not_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = Orders()
    client = Client(orders)
    monkeypatch.setattr(producer, "Producer", lambda _settings: client)
    monkeypatch.setattr(producer, "create_topics", lambda _config: None)
    config = LoadConfig(topics=("a", "b"), partitions=3, produce_rate=10_000.0)
    with Recorder(tmp_path, "producer", {}) as record:
        ended: dict[str, Any] = producer.run(config, record, orders)
        record.close("ordered", **ended)

    assert ended == {"sent": 40, "acked": 38, "failed": 0, "unsent": 2, "unflushed": 0}
    assert Counter(one.record for one in client.log) == Counter(f"p-{n}" for n in range(40))
    recording = read_recording("producer", (tmp_path / "producer.jsonl").read_bytes())
    assert recording.problem == ""
    assert [event["id"] for event in recording.of("unsent")] == list(GIVEN_BACK)
    assert client.written == {(topic, part) for topic in ("a", "b") for part in range(3)}


def test_a_plan_changes_the_rate_and_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of its own, one millisecond a look: ten records a second, then a hundred, then again."""
    orders = Orders()
    client = Client(orders)
    clock = iter(range(0, 10**15, 1_000_000))
    monkeypatch.setattr("time.monotonic_ns", lambda: next(clock))
    monkeypatch.setattr(producer, "Producer", lambda _settings: client)
    monkeypatch.setattr(producer, "create_topics", lambda _config: None)
    config = LoadConfig(
        topics=("a",), partitions=1, produce_plan=((1.0, 10.0), (0.2, 100.0)), produce_repeat=True
    )
    with Recorder(tmp_path, "producer", {}) as record:
        ended: dict[str, Any] = producer.run(config, record, orders)
        record.close("ordered", **ended)
    rates = read_recording("producer", (tmp_path / "producer.jsonl").read_bytes()).of("rate")
    assert [(e["step"], e["rate"]) for e in rates[:3]] == [(0, 10.0), (1, 100.0), (0, 10.0)]
    at = [round(e["mono_ns"] / 1e9, 1) for e in rates[:3]]
    assert at == [0.0, 1.0, 1.2]
