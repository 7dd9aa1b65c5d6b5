"""Produce or consume with aiokafka, as one process of the client matrix."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener

from zkmigrate.lab.clients.contract import COMMIT_MS, LINGER_MS, TICK_S, Reading, Sending, Task, run, value_of
from zkmigrate.lab.load.json_lines import Recorder
from zkmigrate.lab.load.process import Orders


async def produce(task: Task, record: Recorder, orders: Orders) -> dict[str, Any]:
    sending = Sending(task, record)
    producer = AIOKafkaProducer(
        bootstrap_servers=task.bootstrap, acks="all", enable_idempotence=True, linger_ms=LINGER_MS
    )

    def answered(id: str, sent_ns: int, answer: asyncio.Future[Any]) -> None:
        error = asyncio.CancelledError() if answer.cancelled() else answer.exception()
        if error is not None:
            sending.failed(id, error)
        else:
            sending.acked(id, sent_ns, answer.result().partition, answer.result().offset)

    await producer.start()
    try:
        while not orders.stopping:
            id = sending.due()
            if id is None:
                await asyncio.sleep(sending.wait_s)
                continue
            sent_ns = time.monotonic_ns()
            answer = await producer.send(task.topic, value_of(id), id.encode())
            answer.add_done_callback(partial(answered, id, sent_ns))
        record.write("stopping")
        await producer.flush()
    finally:
        await producer.stop()
    return dict(sending.counts)


class _Changes(ConsumerRebalanceListener):  # type: ignore[misc]  # without types
    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._reading.changed("assigned", [(one.topic, one.partition) for one in assigned])

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._reading.changed("revoked", [(one.topic, one.partition) for one in revoked])


async def consume(task: Task, record: Recorder, orders: Orders) -> dict[str, Any]:
    reading = Reading(record)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=task.bootstrap,
        group_id=task.name,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=COMMIT_MS,
    )
    consumer.subscribe([task.topic], listener=_Changes(reading))
    await consumer.start()
    try:
        while not orders.stopping:
            for found in (await consumer.getmany(timeout_ms=int(TICK_S * 1000))).values():
                for one in found:
                    reading.got(one.topic, one.partition, one.offset, one.value)
    finally:
        await consumer.stop()
    return {"consumed": reading.consumed}


if __name__ == "__main__":
    sys.exit(
        run(
            f"aiokafka {aiokafka.__version__}",
            lambda *given: asyncio.run(produce(*given)),
            lambda *given: asyncio.run(consume(*given)),
        )
    )
