"""Produce or consume with librdkafka, as one process of the client matrix.

The process uses the first wheel of confluent-kafka in its module path.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from zkmigrate.lab.clients.contract import COMMIT_MS, LINGER_MS, TICK_S, Reading, Sending, Task, run, value_of
from zkmigrate.lab.load.json_lines import Recorder
from zkmigrate.lab.load.process import Orders


def produce(task: Task, record: Recorder, orders: Orders) -> dict[str, Any]:
    sending = Sending(task, record)
    producer = Producer(
        {
            "bootstrap.servers": task.bootstrap,
            "enable.idempotence": task.idempotent,
            "acks": "all",
            "linger.ms": LINGER_MS,
            "error_cb": partial(_record_error, record),
        }
    )

    def delivered(id: str, sent_ns: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            sending.failed(id, error)
        else:
            sending.acked(id, sent_ns, message.partition() or 0, message.offset())

    def send(id: str) -> bool:
        """Pass a record to the client. Return False while the client's buffer is full."""
        answer = partial(delivered, id, time.monotonic_ns())
        try:
            producer.produce(task.topic, value_of(id), id.encode(), on_delivery=answer)
        except BufferError:
            return False
        return True

    while not orders.stopping:
        id = sending.due()
        if id is None:
            producer.poll(sending.wait_s)
            continue
        while not send(id):
            producer.poll(TICK_S)
        producer.poll(0)
    record.write("stopping")
    return {"unflushed": producer.flush(), **sending.counts}


def consume(task: Task, record: Recorder, orders: Orders) -> dict[str, Any]:
    reading = Reading(record)
    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": task.name,
            "client.id": task.name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": COMMIT_MS,
            "error_cb": partial(_record_error, record),
        }
    )

    def changed(event: str, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        reading.changed(event, [(one.topic, one.partition) for one in partitions])

    consumer.subscribe(
        [task.topic], on_assign=partial(changed, "assigned"), on_revoke=partial(changed, "revoked")
    )
    while not orders.stopping:
        message = consumer.poll(TICK_S)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            _record_error(record, error)
            continue
        reading.got(message.topic() or "", message.partition() or 0, message.offset() or 0, message.value())
    consumer.close()
    return {"consumed": reading.consumed}


def _record_error(record: Recorder, error: KafkaError) -> None:
    record.write("kafka", error=error.str(), fatal=error.fatal())


if __name__ == "__main__":
    sys.exit(run(f"librdkafka {confluent_kafka.libversion()[0]}", produce, consume))
