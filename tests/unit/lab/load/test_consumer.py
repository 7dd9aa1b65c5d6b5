"""The group consumer of the load: it says that it has drained only where it read each partition to its end.

Against a client that goes by a script: what it is given, in order, and the end that each leader tells.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.unit.lab.load.kafka_doubles import Message, ScriptedConsumer
from zkmigrate.lab.load import consumer
from zkmigrate.lab.load.config import LoadConfig
from zkmigrate.lab.load.json_lines import Recorder, Recording, load_recording
from zkmigrate.lab.load.process import Orders

CONFIG = LoadConfig(topics=("a", "b"), partitions=2, drain_deadline_s=100.0)
TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))
End: TypeAlias = int | KafkaException | None


class Ordered(Orders):
    def drain(self) -> None:
        self._drain.set()


Line: TypeAlias = Message | str | None


def record(offset: int, failed: KafkaError | None = None) -> Message:
    return Message(0, offset, f"p-{offset} \n", failed)


class Scripted(ScriptedConsumer):
    """Each poll gives the next line: a record, nothing, or an order to the process."""

    def __init__(self, script: Iterable[Line], ends: Iterator[End], other: int) -> None:
        super().__init__()
        self.script, self.ends, self.other = iter(script), ends, other
        self.orders = Ordered()

    def subscribe(self, topics: list[str], **_calls: Any) -> None:
        assert topics == ["a", "b"]

    def poll(self, _limit_s: float) -> Message | None:
        self.take_a_second()
        line = next(self.script, None)
        if line == "drain":
            self.orders.drain()
        elif line == "stop":
            self.orders.stop()
        return line if isinstance(line, Message) else None

    def get_watermark_offsets(self, asked: TopicPartition, timeout: float) -> tuple[int, int] | None:
        self.take_a_second()
        end = next(self.ends) if (asked.topic, asked.partition) == ("a", 0) else 0
        if (asked.topic, asked.partition) == ("b", 1):
            end = self.other
        if isinstance(end, KafkaException):
            raise end
        return None if end is None else (0, end)


def load(client: Scripted, out: Path, patch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Recording]:
    """What the process tells at its end, and what it wrote down."""
    patch.setattr(consumer, "Consumer", client)
    patch.setattr(consumer, "create_topics", lambda _config: None)
    patch.setattr(consumer, "time", client)
    with Recorder(out, "consumer", {}) as record:
        told = consumer.run(CONFIG, record, client.orders)
        record.close("ordered", **told)
    return told, load_recording(out, "consumer")


ONE, TWO = record(0), record(1)
BROKEN = record(1, KafkaError(KafkaError._TRANSPORT))

# name: what it is given, the end of a/0 each time it is asked, that of b/1, records read, has it drained
DRAINS: dict[str, tuple[list[Line], Iterable[End], int, int, bool]] = {
    "all was read before": ([ONE, TWO, "drain"], [2], 0, 2, True),
    "the rest is read then": ([ONE, "drain", None, TWO], [2], 0, 2, True),
    "one record is behind": ([ONE, "drain"], [2], 0, 1, False),
    "one was read again": ([ONE, TWO, ONE, "drain"], [2], 0, 3, True),
    "read beyond the end": ([ONE, TWO, "drain"], [1], 0, 2, False),
    "an error is no record": ([ONE, BROKEN, "drain"], [2], 0, 1, False),
    "another partition is behind": ([ONE, TWO, "drain"], [2], 1, 2, False),
    "an end is not told": ([ONE, TWO, "drain"], itertools.repeat(None), 0, 2, False),
    "nothing was read and no end is told": (["drain"], itertools.repeat(None), 0, 0, False),
    "an end is told at last": ([ONE, TWO, "drain"], [TIMED_OUT, None, 2], 0, 2, True),
    "a leader never answers": ([ONE, TWO, "drain"], itertools.repeat(TIMED_OUT), 0, 2, False),
    "it is ended meanwhile": ([ONE, "drain", "stop", TWO], [2], 0, 1, False),
    "it takes too long": ([ONE, "drain", *[None] * 100, TWO], [2], 0, 1, False),
}


@pytest.mark.parametrize("name", DRAINS)
def test_it_has_drained_where_every_partition_was_read_to_its_end_and_no_further(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, ends, other, records, complete = DRAINS[name]
    client = Scripted(script, iter(ends), other)
    told, recording = load(client, tmp_path, monkeypatch)
    assert told == {"consumed": records, "drained": complete}
    assert client.closed
    (drained,) = recording.of("drained")
    assert drained["complete"] is complete
    read = [(e["topic"], e["partition"], e["offset"], e["id"]) for e in recording.of("consumed")]
    assert len(read) == records
    assert set(read) <= {("a", 0, 0, "p-0"), ("a", 0, 1, "p-1")}


def test_ended_without_the_order_to_drain_it_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Scripted([ONE, TWO, "stop"], iter([2]), 0)
    told, recording = load(client, tmp_path, monkeypatch)
    assert told == {"consumed": 2, "drained": False}
    assert recording.of("drained") == []
    assert client.closed
    assert client.settings["auto.offset.reset"] == "earliest", "what was written before it came counts"
