"""The consumer of kafka-python when its library raises: only a retriable error is got over."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka.errors import KafkaConnectionError, KafkaError, TopicAuthorizationFailedError

from zkmigrate.lab.clients import kafka_python
from zkmigrate.lab.clients.contract import Task
from zkmigrate.lab.load.json_lines import Recorder, load_recording
from zkmigrate.lab.load.process import Orders


class Found(NamedTuple):
    topic: str = "clients"
    partition: int = 0
    offset: int = 7
    value: bytes = b"a/x/0   "


@pytest.fixture
def consumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Consumes from a library that raises once, then gives a record, after which the order to stop comes."""

    def run(error: KafkaError) -> list[str]:
        orders = Orders()

        class Library:
            def __init__(self, **_config: Any) -> None:
                self.raised = False

            def subscribe(self, *_topics: Any, **_listener: Any) -> None: ...

            def close(self) -> None: ...

            def poll(self, _timeout_ms: int) -> dict[str, list[Found]]:
                if not self.raised:
                    self.raised = True
                    raise error
                orders.stop()
                return {"clients": [Found()]}

        monkeypatch.setattr(kafka_python, "KafkaConsumer", Library)
        task = Task("consume", "h:1", "clients", "group", tmp_path / "a-consumer.jsonl", 0)
        with Recorder(tmp_path, "a-consumer", {}) as record:
            assert kafka_python.consume(task, record, orders) == {"consumed": 1}
        return [event["event"] for event in load_recording(tmp_path, "a-consumer").events]

    return run


def test_it_asks_again_after_a_retriable_error(consumed: Any) -> None:
    assert consumed(KafkaConnectionError("reset by peer")) == ["opened", "kafka", "consumed"]


def test_it_ends_with_another_error(consumed: Any) -> None:
    with pytest.raises(TopicAuthorizationFailedError):
        consumed(TopicAuthorizationFailedError("clients"))
