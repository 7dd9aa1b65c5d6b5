"""Read all load topics in one consumer group and record every record that it receives."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from zkmigrate.lab.load.config import LoadConfig
from zkmigrate.lab.load.json_lines import Recorder
from zkmigrate.lab.load.process import Orders
from zkmigrate.lab.load.producer import create_topics, record_client_error

_TICK_S = 0.1
_WATERMARK_LIMIT_S = 10.0


class _Reading:
    """A Kafka consumer with the position that it has reached in each partition."""

    def __init__(self, config: LoadConfig, record: Recorder) -> None:
        self.config = config
        self.record = record
        self.consumed = 0
        self.position: dict[str, int] = {}
        self.consumer = Consumer(
            {
                **config.kafka_login.librdkafka(config.bootstrap),
                "group.id": config.group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1000,
                "session.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 1000,
                "error_cb": partial(record_client_error, record),
            }
        )
        self.consumer.subscribe(
            list(config.topics),
            on_assign=partial(self._rebalanced, "assigned"),
            on_revoke=partial(self._rebalanced, "revoked"),
            on_lost=partial(self._rebalanced, "lost"),
        )

    def _rebalanced(self, event: str, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.record.write(event, partitions=[[item.topic, item.partition] for item in partitions])

    def poll(self) -> None:
        message = self.consumer.poll(_TICK_S)
        if message is None:
            return
        error = message.error()
        if error is not None:
            self.record.write("kafka", error=error.str(), fatal=error.fatal())
            return
        self._keep(message)

    def _keep(self, message: Message) -> None:
        value = message.value() or b""
        self.consumed += 1
        self.record.write(
            "consumed", topic=message.topic(), partition=message.partition(), offset=message.offset(),
            id=value.decode(errors="replace").rstrip(),
        )  # fmt: skip
        key = f"{message.topic()}/{message.partition()}"
        self.position[key] = max(self.position.get(key, 0), (message.offset() or 0) + 1)

    def high_watermarks(self, deadline: float) -> dict[str, int] | None:
        """Return each partition's high watermark, or None if one is still unknown at ``deadline``.

        deadline: in seconds of CLOCK_MONOTONIC.
        """
        high: dict[str, int] = {}
        for topic in self.config.topics:
            for number in range(self.config.partitions):
                answer = self._watermark(TopicPartition(topic, number), deadline)
                if answer is None:
                    return None
                high[f"{topic}/{number}"] = answer
        return high

    def _watermark(self, partition: TopicPartition, deadline: float) -> int | None:
        while (left := deadline - time.monotonic()) > 0:
            try:
                answer = self.consumer.get_watermark_offsets(partition, timeout=min(left, _WATERMARK_LIMIT_S))
            except KafkaException as error:
                self.record.write("kafka", error=str(error), fatal=False)
                self.poll()
                continue
            if answer is not None:
                return int(answer[1])
        return None


def run(config: LoadConfig, record: Recorder, orders: Orders) -> dict[str, Any]:
    """Consume until SIGTERM arrives; on SIGUSR1 read to the high watermarks and end.

    Send SIGUSR1 once the producer has closed and all brokers are up. A record that is still not consumed then
    is lost. Returns the counters of the closing line.
    """
    create_topics(config)
    reading = _Reading(config, record)
    while not orders.stopping and not orders.draining:
        reading.poll()
    drained = _drain(reading, orders) if orders.draining else False
    reading.consumer.close()
    return {"consumed": reading.consumed, "drained": drained}


def _drain(reading: _Reading, orders: Orders) -> bool:
    deadline = time.monotonic() + reading.config.drain_deadline_s
    high = reading.high_watermarks(deadline)
    reading.record.write("drain", high=high)

    def behind() -> bool:
        return high is None or any(reading.position.get(key, 0) < end for key, end in high.items())

    while high is not None and behind() and not orders.stopping and time.monotonic() < deadline:
        reading.poll()
    # Read beyond the high watermark: the log was truncated after the read.
    beyond = any(end > (high or {}).get(key, 0) for key, end in reading.position.items())
    complete = not behind() and not beyond
    reading.record.write("drained", complete=complete, position=reading.position, high=high)
    return complete
