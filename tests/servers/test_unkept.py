"""What a switch cannot keep, as real brokers tell it: groups of newer types, commits behind the log's end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, ShareConsumer
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import NoError
from kafka.structs import OffsetAndMetadata

from tests.answers import Mirrored
from tests.servers.kraft import broker
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.topics.mirror.questions import ClusterAt, MirrorSurvey

SOURCE, TARGET = "4.3.1", "3.9.1"
WAIT_S = 60


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker(SOURCE, tmp_path_factory.mktemp("source")) as address:
        yield address


@pytest.fixture(scope="module")
def look(source: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirrored]:
    with (
        broker(TARGET, tmp_path_factory.mktemp("target"), 2) as target,
        closing(Mirrored(ClusterAt((source,)), ClusterAt((target,)))) as one,
    ):
        yield one


def made(address: str, topic: str, records: int) -> str:
    with closing(KafkaAdminClient(bootstrap_servers=[address])) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
    fill(address, topic, records)
    return topic


def fill(address: str, topic: str, records: int) -> None:
    with closing(KafkaProducer(bootstrap_servers=[address])) as producer:
        for number in range(records):
            producer.send(topic, b"%d" % number)
        producer.flush()


def commit(address: str, group: str, topic: str, offset: int) -> None:
    at = TopicPartition(topic, 0)
    with closing(KafkaAdminClient(bootstrap_servers=[address])) as admin:
        assert admin.alter_group_offsets(group, {at: OffsetAndMetadata(offset, "", -1)}) == {at: NoError}


@contextmanager
def polling(consumer: Any) -> Iterator[None]:
    """Let a consumer go on polling."""
    over = threading.Event()

    def poll() -> None:
        while not over.is_set():
            consumer.poll(0.2)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        consumer.close()


def seen(reading: Reading[MirrorSurvey]) -> MirrorSurvey:
    assert isinstance(reading, Seen), reading
    return reading.value


def test_live_groups_of_newer_types_are_refused_by_name(source: str, look: Mirrored) -> None:
    topic = made(source, "orders", 5)
    common = {"bootstrap.servers": source, "enable.auto.commit": False}
    newer = Consumer({**common, "group.id": "newer", "group.protocol": "consumer"})
    shares = ShareConsumer({"bootstrap.servers": source, "group.id": "shares"})
    for consumer in (newer, shares):
        consumer.subscribe([topic])

    def refused() -> dict[str, str]:
        told = seen(look.survey([topic], [])).groups
        return {name: one.why.split(". ")[0] for name, one in told.items() if one.state == "refused"}

    needed = {
        "newer": "a group of KIP-848 (group.protocol=consumer), Stable: the group reads orders",
        "shares": "a share group (KIP-932), Stable: the group reads orders",
    }
    with polling(newer), polling(shares):
        wait_until("both groups are refused", lambda: str(refused()) if refused() != needed else None, WAIT_S)
        others = seen(look.survey([topic], ["mail"])).others
        assert sorted(others) == ["newer", "shares"]

    def rests() -> str | None:
        told = seen(look.survey([topic], ["newer"])).groups["newer"]
        return str(told) if told.state == "refused" else None

    wait_until("the consumer has left", rests, WAIT_S)
    # A group of KIP-848 without members is no more than its commits, and takes those of a mirror.
    commit(source, "newer", topic, 3)
    assert seen(look.survey([topic], ["newer"])).groups["newer"].state == "behind"


def test_a_commit_behind_the_end_is_refused_by_name(source: str, look: Mirrored) -> None:
    topic = made(source, "bills", 5)
    commit(source, "late", topic, 9)
    late = seen(look.survey([topic], ["late"])).groups["late"]
    assert (late.state, late.why.split(":")[0]) == (
        "refused",
        "the group committed on bills-0 at 9, where source's log ends at 5",
    )


def test_transactional_producers_are_named_by_what_brokers_know(source: str, look: Mirrored) -> None:
    topic, other = made(source, "payments", 5), made(source, "invoices", 0)
    assert seen(look.survey([topic], [])).transactional == {}, (
        "idempotent producers are no transactional ones"
    )
    with transaction(source, "pay", topic) as pay, transaction(source, "away", other):
        [(name, why)] = seen(look.survey([topic], [])).transactional.items()
        assert (name, why.split(",")[0], why.split(", ")[-1]) == (
            "pay",
            "the producer wrote to payments-0",
            "state Ongoing",
        )
        pay.commit_transaction()

        def ended() -> str | None:
            [why] = seen(look.survey([topic], [])).transactional.values()
            return None if why.endswith(", state CompleteCommit") else why

        wait_until("the transaction has ended", ended, WAIT_S)
    found = seen(look.survey([topic], []))
    assert (list(found.transactional), found.transactional_dark) == (["pay"], "")


@contextmanager
def transaction(address: str, id: str, topic: str) -> Iterator[KafkaProducer]:
    """A producer with an open transaction that has written to a topic."""
    with closing(KafkaProducer(bootstrap_servers=[address], transactional_id=id)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"in a transaction")
        producer.flush()
        yield producer
