"""Produce or consume with kafka-python, as one process of the client matrix."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from typing import Any

import kafka
from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, RetriableError

from zkmigrate.lab.clients.contract import COMMIT_MS, LINGER_MS, TICK_S, Reading, Sending, Task, run, value_of
from zkmigrate.lab.load.json_lines import Recorder
from zkmigrate.lab.load.process import Orders


def produce(task: Task, record: Recorder, orders: Orders) -> dict[str, Any]:
    sending = Sending(task, record)
    servers = task.bootstrap.split(",")

    def acked(id: str, sent_ns: int, metadata: Any) -> None:
        sending.acked(id, sent_ns, metadata.partition, metadata.offset)

    with closing(
        KafkaProducer(
            bootstrap_servers=servers,
            acks="all",
            enable_idempotence=task.idempotent,
            linger_ms=LINGER_MS,
        )
    ) as producer:
        while not orders.stopping:
            id = sending.due()
            if id is None:
                orders.wait(sending.wait_s)
                continue
            sent_ns = time.monotonic_ns()
            try:
                answer = producer.send(task.topic, value_of(id), id.encode())
            except KafkaError as error:
                sending.failed(id, error)
                continue
            answer.add_callback(partial(acked, id, sent_ns)).add_errback(partial(sending.failed, id))
        record.write("stopping")
        producer.flush()
    return dict(sending.counts)


class _Changes(ConsumerRebalanceListener):  # type: ignore[misc]  # without types
    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._reading.changed("assigned", [(one.topic, one.partition) for one in assigned])

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._reading.changed("revoked", [(one.topic, one.partition) for one in revoked])


def consume(task: Task, record: Recorder, orders: Orders) -> dict[str, Any]:
    reading = Reading(record)
    with closing(
        KafkaConsumer(
            bootstrap_servers=task.bootstrap.split(","),
            group_id=task.name,
            client_id=task.name,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=COMMIT_MS,
        )
    ) as consumer:
        consumer.subscribe([task.topic], listener=_Changes(reading))
        while not orders.stopping:
            try:
                polled = consumer.poll(int(TICK_S * 1000))
            except RetriableError as error:
                # This library raises errors that others handle themselves, such as a broken connection.
                # An application has to poll again.
                record.write("kafka", error=f"{type(error).__name__}: {error}", fatal=False)
                orders.wait(TICK_S)
                continue
            for found in polled.values():
                for one in found:
                    reading.got(one.topic, one.partition, one.offset, one.value)
    return {"consumed": reading.consumed}


if __name__ == "__main__":
    sys.exit(run(f"kafka-python {kafka.__version__}", produce, consume))
