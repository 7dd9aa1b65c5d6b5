"""What a sample of a cluster says, and that a source that does not answer is recorded."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]
from kafka.errors import KafkaConnectionError

from zkmigrate.lab.load import samples
from zkmigrate.lab.load.config import LoadConfig
from zkmigrate.lab.load.json_lines import Recorder, read_recording
from zkmigrate.lab.load.process import Orders
from zkmigrate.lab.load.samples import Brokers, Partition, Sample, Settings, sample


@pytest.mark.parametrize(
    ("replicas", "isr", "adding", "under"),
    [
        ((1, 2, 3), (1, 2, 3), (), False),
        ((1, 2, 3), (3, 1), (), True),
        ((1, 2, 3), (1, 2), (3,), False),
        ((1, 2, 3), (1,), (3,), True),
        ((1, 2, 3), (2, 3), (3,), False),
        ((1, 2, 3), (1,), (), True),
    ],
    ids=[
        "whole",
        "one behind",
        "one to come",
        "one to come, one behind",
        "one come, one to go",
        "two behind",
    ],
)
def test_a_replica_that_is_being_added_is_not_missed(
    replicas: tuple[int, ...], isr: tuple[int, ...], adding: tuple[int, ...], under: bool
) -> None:
    seen = sample({"a-0": Partition(replicas, isr, 1)}, ["a-0"], {"a-0": adding}, None)
    short, two = ["a-0"] if under else [], ["a-0"] if len(isr) == 1 and not adding else []
    assert seen == Sample(1, ["a-0"], short, two, [], dict.fromkeys("123", 1), None)


def test_a_partition_without_a_leader_is_offline() -> None:
    seen = sample({"a-0": Partition((1,), (1,), -1), "a-1": Partition((1,), (1,), 1)}, (), {}, {})
    assert (seen.offline, seen.under_replicated, seen.held) == (["a-0"], [], {"1": 2})


@dataclass
class Told:
    """A source that answers every second look, and ends the load after four."""

    orders: Orders
    name: str = "brokers"
    looks: int = 0
    closed: bool = False

    def look(self) -> Sample:
        self.looks += 1
        if self.looks == 4:
            self.orders.stop()
        if self.looks % 2:
            raise KafkaConnectionError("away")
        return Sample(0, [], [], [], [], {}, {})

    def settings(self) -> Settings:
        return {"broker-1": {"a": str(self.looks)}}

    def close(self) -> None:
        self.closed = True


def test_a_source_that_is_away_is_recorded_and_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = Orders()
    told = Told(orders)
    monkeypatch.setattr(samples, "Brokers", lambda *_: told)
    monkeypatch.setattr(samples, "Pace", lambda _rate, _now: At())
    with Recorder(tmp_path, "samples", {}) as record:
        counts = samples.run(LoadConfig(), record, orders)
        record.close("ordered", **counts)
    recording = read_recording("samples", (tmp_path / "samples.jsonl").read_bytes())
    assert counts == {"brokers": 2}
    assert [event["event"] for event in recording.events[1:-1]] == [
        "settings", "unseen", "sample", "unseen", "sample", "stopping", "settings"
    ]  # fmt: skip
    assert [e["throttles"]["broker-1"]["a"] for e in recording.of("settings")] == ["0", "4"]
    assert told.closed


class At:
    """A pace by which every moment is due."""

    next_ns = 0

    def take(self, _now_ns: int) -> bool:
        return True


class Scripted(Brokers):
    """Brokers that tell a set of one partition a look, and no move."""

    def __init__(self, *told: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
        super().__init__("127.0.0.1:1")
        self.told = list(told)

    def partitions(self) -> dict[str, Partition]:
        replicas, isr = self.told.pop(0) if len(self.told) > 1 else self.told[0]
        return {"a-0": Partition(replicas, isr, isr[0])}

    def in_flight(self) -> dict[str, tuple[int, ...]]:
        return {}

    def _throttle_settings(self, kind: object, names: object) -> Settings:
        return {}

    def _ids(self) -> list[str]:
        return []


def test_a_move_between_two_lists_of_moves_is_no_missing_replica() -> None:
    """A broker tells its set with the added replica, and no list names it any more."""
    brokers = Scripted(((1, 2), (1, 2)), ((3, 1, 2), (1, 2)), ((3, 1, 2), (1,)))
    assert [brokers.look().under_replicated for _ in range(3)] == [[], [], ["a-0"]]


def test_what_is_missing_at_one_look_alone_is_a_short_move() -> None:
    brokers = Scripted(((3, 1, 2), (1, 2)), ((3, 1), (1, 3)), ((3, 1), (1,)))
    assert [brokers.look().under_replicated for _ in range(2)] == [[], ["a-0"]]


class Admin:
    """An admin client that refuses a request about two brokers, as librdkafka does."""

    def describe_configs(self, asked: list[Any], request_timeout: float) -> dict[Any, Future[Any]]:
        answers = {}
        for one in asked:
            answers[one] = Future[Any]()
            if len(asked) > 1:
                answers[one].set_exception(KafkaException("one broker a request"))
            else:
                rate = SimpleNamespace(value=f"{one.name}000", source=2)
                answers[one].set_result({"leader.replication.throttled.rate": rate})
        return answers


def test_each_broker_tells_its_own_rates() -> None:
    brokers = Brokers("127.0.0.1:1")
    brokers._admin = Admin()  # type: ignore[assignment]
    assert brokers._throttle_settings(ResourceType.BROKER, ["1", "2"]) == {
        f"broker-{id}": {"leader.replication.throttled.rate": f"{id}000"} for id in (1, 2)
    }
