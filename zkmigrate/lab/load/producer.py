"""Produce with an idempotent ``acks=all`` producer that records every acknowledgement."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from zkmigrate.lab.kafka_metadata import wait_for_metadata
from zkmigrate.lab.load.config import LoadConfig
from zkmigrate.lab.load.json_lines import Recorder
from zkmigrate.lab.load.pace import Pace, planned_step
from zkmigrate.lab.load.process import Orders

_CREATE_LIMIT_S = 60.0
_TICK_S = 0.05
# A broker that has just started knows no topic, and a new leader may not know the partition yet.
# Then this client returns the record as failed; other clients keep it and try again.
_NOT_SENT = frozenset(
    {KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART}
)


def run(config: LoadConfig, record: Recorder, orders: Orders) -> dict[str, Any]:
    """Create the topics, produce at the configured rate until the stop signal, then flush.

    With a ``produce_plan`` the rate follows the plan. Records go to all partitions in turn, so that a
    partition without a leader shows as a gap of that partition. The client keeps a record until the flush
    deadline: an interruption shows as late acknowledgements, not as failures.

    No id is sent twice. A record that the client returns as not sent may still be in the log, because the
    client forgets an earlier attempt without an answer. So the next record has a new id.

    The first record of each partition is sent alone. As long as a producer has written nothing to a
    partition, brokers before Kafka 4.5 accept any sequence number (KAFKA-15591). We saw a failure with two
    records in flight while a partition got its leader: the first record was refused and the second was
    written. The client then acknowledged both, the first without an offset.

    Returns the counters of the closing line.
    """
    create_topics(config)
    counts = {"sent": 0, "acked": 0, "failed": 0, "unsent": 0}
    producer = Producer(
        {
            **config.kafka_login.librdkafka(config.bootstrap),
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "delivery.timeout.ms": int(config.flush_deadline_s * 1000),
            "reconnect.backoff.max.ms": 1000,
            # For this long the client does not believe a broker that reports a known topic as deleted. After
            # the default of 30 s it does. When the topic returns with the same id, the client refuses it for
            # 30 s more. It has stopped requesting metadata by then, so this lasts until its next refresh,
            # minutes later.
            "topic.metadata.propagation.max.ms": 3_600_000,
            "error_cb": partial(record_client_error, record),
        }
    )
    targets = [(topic, number) for number in range(config.partitions) for topic in config.topics]
    begun: set[tuple[str, int]] = set()
    began_ns = time.monotonic_ns()
    pace = Pace(config.produce_rate, began_ns)
    step = -1

    def follow_plan(now_ns: int) -> None:
        """Apply the rate of the plan's current step, and record when the step changes."""
        nonlocal step
        elapsed_s = (now_ns - began_ns) / 1e9
        now_step = planned_step(config.produce_plan, elapsed_s, repeat=config.produce_repeat)
        if now_step != step:
            step, rate = now_step, config.produce_plan[now_step][1]
            pace.change(rate, now_ns)
            record.write("rate", rate=rate, step=step)

    def delivered(record_id: str, sent_ns: int, error: KafkaError | None, message: Message) -> None:
        if error is not None and error.code() in _NOT_SENT:
            counts["unsent"] += 1
            record.write("unsent", id=record_id, error=error.str())
            return
        if error is not None:
            counts["failed"] += 1
            record.write(
                "failed", topic=message.topic(), partition=message.partition(), id=record_id,
                error=error.str(),
            )  # fmt: skip
            return
        counts["acked"] += 1
        begun.add((str(message.topic()), message.partition() or 0))
        record.write(
            "ack", topic=message.topic(), partition=message.partition(), offset=message.offset(),
            id=record_id, sent_mono_ns=sent_ns,
        )  # fmt: skip

    def send(record_id: str, topic: str, partition: int) -> bool:
        """Pass a record to the client. Return False when the client cannot accept it now."""
        value = record_id.encode().ljust(config.record_bytes)
        answer = partial(delivered, record_id, time.monotonic_ns())
        try:
            producer.produce(topic, value=value, partition=partition, on_delivery=answer)
        except BufferError:
            return False  # the client's buffer is full: wait for acknowledgements, send later
        except KafkaException as error:
            if error.args[0].code() in _NOT_SENT:
                return False
            raise
        return True

    while not orders.stopping:
        if config.produce_plan:
            follow_plan(time.monotonic_ns())
        unanswered = counts["sent"] - counts["acked"] - counts["failed"] - counts["unsent"]
        to_begin = next((target for target in targets if target not in begun), None)
        if to_begin and unanswered:
            producer.poll(_TICK_S)
            continue
        if not pace.take(time.monotonic_ns()):
            left_s = (pace.next_ns - time.monotonic_ns()) / 1e9
            producer.poll(min(_TICK_S, max(0.0, left_s)))
            continue
        if not send(f"p-{counts['sent']}", *(to_begin or targets[counts["sent"] % len(targets)])):
            producer.poll(_TICK_S)
            continue
        counts["sent"] += 1
        producer.poll(0)
    record.write("stopping")
    unflushed = producer.flush(config.flush_deadline_s)
    return {**counts, "unflushed": unflushed}


def record_client_error(record: Recorder, error: KafkaError) -> None:
    """Record an error of the client as a whole, such as a broker that is down or a fenced producer."""
    record.write("kafka", error=error.str(), fatal=error.fatal())


def create_topics(config: LoadConfig) -> None:
    """Create the load topics that do not exist yet. Raises KafkaException or NotReady."""
    wait_for_metadata(config.bootstrap, config.replication_factor, _CREATE_LIMIT_S, config.kafka_login)
    admin = AdminClient(config.kafka_login.librdkafka(config.bootstrap))
    settings = {"min.insync.replicas": str(config.min_insync)} if config.min_insync > 1 else {}
    topics = [
        NewTopic(name, config.partitions, config.replication_factor, config=settings)
        for name in config.topics
    ]
    created = admin.create_topics(topics, operation_timeout=_CREATE_LIMIT_S, request_timeout=_CREATE_LIMIT_S)
    for future in created.values():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
