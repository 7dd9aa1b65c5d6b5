"""Read every load topic from its beginning, to record its final content once all clients have stopped."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from zkmigrate.lab.load.config import LoadConfig

NAME = "log.json"
_AT_ONCE = 1000
_TICK_S = 0.2
_ANSWER_S = 10.0


def read_again(config: LoadConfig) -> dict[str, Any]:
    """Read all partitions to their high watermarks and return the content of ``log.json``.

    ``complete`` is False if a partition could not be read to its high watermark; ``error`` says why.
    """
    consumer = Consumer(
        {
            **config.kafka_login.librdkafka(config.bootstrap),
            "group.id": f"{config.group}-again",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    records: dict[str, list[tuple[int, str]]] = {}
    high: dict[str, int] = {}
    error = ""
    try:
        _read(consumer, config, records, high)
    except (KafkaException, TimeoutError) as failed:
        error = str(failed)
    finally:
        consumer.close()
    return {"complete": not error, "error": error, "high": high, "records": records}


def _read(
    consumer: Consumer, config: LoadConfig, records: dict[str, list[tuple[int, str]]], high: dict[str, int]
) -> None:
    wanted = [(topic, number) for topic in config.topics for number in range(config.partitions)]
    for topic, number in wanted:
        answer = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_ANSWER_S)
        if answer is None:
            raise TimeoutError(f"no high watermark of {topic}/{number} within {_ANSWER_S:g} s")
        high[f"{topic}/{number}"], records[f"{topic}/{number}"] = int(answer[1]), []
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in wanted])
    left = set(high)
    end = time.monotonic() + config.drain_deadline_s
    while left:
        if time.monotonic() >= end:
            raise TimeoutError(f"not read to the end: {', '.join(sorted(left))}")
        for message in consumer.consume(_AT_ONCE, _TICK_S):
            key, failed = f"{message.topic()}/{message.partition()}", message.error()
            if failed is None:
                value = (message.value() or b"").decode(errors="replace").rstrip()
                records[key].append((message.offset() or 0, value))
            elif failed.code() == KafkaError._PARTITION_EOF:
                left.discard(key)
            elif failed.fatal():
                raise KafkaException(failed)


def write_log(out: Path, config: LoadConfig) -> bool:
    """Write ``log.json`` into ``out``. Return whether every partition was read to its end."""
    found = read_again(config)
    (out / NAME).write_text(json.dumps(found, separators=(",", ":")) + "\n")
    return bool(found["complete"])
