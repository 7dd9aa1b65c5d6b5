"""The produce canary against brokers that speak Kafka's wire format."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse
from kafka.record import MemoryRecords

from tests.unit.kafka.clients.wire_brokers import WireBrokers
from zkmigrate.kafka.clients import cluster_view, produce
from zkmigrate.kafka.clients.produce import ProduceCanary, preferred_partitions
from zkmigrate.kafka.questions import PartitionState
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.fact import Unknown
from zkmigrate.runbook.model.look import Pulse

TOPIC = "canary"
NOT_LEADER, NO_SUCH_TOPIC, TOO_FEW_REPLICAS = 6, 3, 19
Leaders = dict[int, tuple[int, tuple[int, ...]]]
BOTH: Leaders = {0: (1, (1, 2)), 1: (2, (2, 1))}


class Cluster(WireBrokers):
    """Brokers that know one topic.

    led: partition → (leader, replicas). refuse: broker → the error code of its answers to a record. mute:
    brokers that never answer a record. accepted: (partition, broker) of each accepted record. produced: how
    many Produce requests arrived.
    """

    def __init__(self, led: Leaders | None = None) -> None:
        super().__init__({ProduceRequest: self.produce})
        self.led = dict(BOTH) if led is None else led
        self.topic_error = 0
        self.refuse: dict[int, int] = {}
        self.mute: set[int] = set()
        self.accepted: list[tuple[int, int]] = []
        self.would_create = False
        self.produced = 0

    def metadata(self, id: int, request: Any) -> Mapping[str, Any]:
        self.would_create |= bool(request.topics) and request.allow_auto_topic_creation
        topic = MetadataResponse.MetadataResponseTopic
        partitions = [
            topic.MetadataResponsePartition(
                error_code=0, partition_index=partition, leader_id=leader, leader_epoch=0,
                replica_nodes=list(replicas), isr_nodes=list(replicas), offline_replicas=[],
            )
            for partition, (leader, replicas) in self.led.items()
        ]  # fmt: skip
        known = topic(
            error_code=self.topic_error, name=TOPIC, topic_id=None, is_internal=False,
            partitions=[] if self.topic_error else partitions,
        )  # fmt: skip
        return {**super().metadata(id, request), "topics": [known]}

    def produce(self, broker: int, request: Any) -> Mapping[str, Any] | None:
        assert request.acks == -1, "acknowledged by all"
        self.produced += 1
        [topic] = request.topic_data
        answer = ProduceResponse.TopicProduceResponse
        answers = []
        for data in topic.partition_data:
            batch = MemoryRecords(bytes(data.records)).next_batch()
            assert batch.validate_crc()
            assert batch.producer_id == -1, "no producer id, which brokers would take from ZooKeeper"
            assert [(r.key, r.value) for r in batch] == [(b"zkmigrate", b"canary")]
            error = self.refuse.get(broker, 0 if self.led[data.index][0] == broker else NOT_LEADER)
            if not error:
                self.accepted.append((data.index, broker))
            answers.append(
                answer.PartitionProduceResponse(
                    index=data.index,
                    error_code=error,
                    base_offset=7,
                    log_append_time_ms=-1,
                    log_start_offset=0,
                )
            )
        if broker in self.mute:
            return None
        return {"responses": [answer(name=TOPIC, partition_responses=answers)]}


def canary_of(cluster: Cluster) -> ProduceCanary:
    names = {f"b{id}": (id, at.split(":")[0], int(at.split(":")[1])) for id, at in cluster.at.items()}
    return ProduceCanary(TOPIC, names, every_s=0.01)


@contextmanager
def sending(cluster: Cluster, dead: int = 0) -> Iterator[ProduceCanary]:
    """The canary over brokers 1 and 2; nobody listens at the address of ``dead``."""
    with cluster.running([id for id in (1, 2) if id != dead]):
        if dead:
            cluster.at[dead] = "127.0.0.1:1"
        canary = canary_of(cluster)
        canary.begin()
        try:
            yield canary
        finally:
            canary.close()


class Results:
    """What a canary has reported so far: by partition the brokers and the longest time, and the late."""

    def __init__(self, canary: ProduceCanary) -> None:
        self.canary = canary
        self.by: dict[int, list[str]] = {}
        self.longest: dict[int, float] = {}
        self.late: dict[str, str] = {}

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        def look() -> str | None:
            acks, late = self.canary.results()
            for ack in acks:
                self.by.setdefault(ack.partition, []).append(ack.broker)
                self.longest[ack.partition] = max(self.longest.get(ack.partition, 0.0), ack.took_s)
            self.late = {one.home: one.why for one in late}
            return None if holds() else f"{self.by}, late {self.late}"[-300:]

        wait_until(what, look, 30)


def test_every_broker_acknowledges_the_records_of_the_partition_it_leads() -> None:
    cluster = Cluster()
    with sending(cluster) as canary:
        canary.begin()
        seen = Results(canary)
        seen.until("ten of each", lambda: all(len(seen.by.get(p, ())) >= 10 for p in BOTH))
        assert {p: set(by) for p, by in seen.by.items()} == {0: {"b1"}, 1: {"b2"}}
        assert seen.late == {}
    assert not cluster.would_create


def test_nothing_is_sent_while_it_rests_nor_after_it_was_closed() -> None:
    cluster = Cluster()
    with sending(cluster) as canary:
        seen = Results(canary)
        seen.until("some of each", lambda: len(seen.by) == 2)
        canary.rest()
        canary.results()
        canary.begin()
        seen.by.clear()
        seen.until("some of each again", lambda: len(seen.by) == 2)
        canary.close()
        canary.results()
        sent = len(cluster.accepted)
        canary.begin()
        assert canary.results() == ([], [])
        assert len(cluster.accepted) == sent


@pytest.mark.parametrize("mute", [set(), {1, 2}], ids=["answered", "silent"])
def test_no_thread_and_no_connection_is_left_after_it_was_closed(mute: set[int]) -> None:
    cluster = Cluster()
    cluster.mute = mute
    with cluster.running([1, 2]):
        canary = canary_of(cluster)
        canary.begin()
        wait_until("records sent", lambda: None if cluster.produced >= 2 else "none yet", 30)
        canary.close()

        def left() -> str | None:
            threads = [t.name for t in threading.enumerate() if "kafka" in f"{t.name} {type(t)}".lower()]
            return f"{threads}, {cluster.open} connections" if threads or cluster.open else None

        wait_until("everything closed", left, 30)


def test_steps_get_the_latency_of_each_broker_and_the_report_gets_it_too() -> None:
    cluster = Cluster()
    cluster.refuse = {1: TOO_FEW_REPLICAS}
    with sending(cluster) as canary:
        pulses: dict[str, list[Pulse]] = {}

        def look() -> str | None:
            for broker, more in canary.pulses().items():
                pulses.setdefault(broker, []).extend(more)
            enough = len(pulses.get("b2", ())) >= 10 and len(pulses.get("b1", ())) > 3
            return None if enough else str(pulses)[-300:]

        wait_until("records of both", look, 30)
        waits = [one.took_s for one in pulses["b1"]]
        assert waits == sorted(waits), "the one record waits longer and longer"
        assert len(set(waits)) > 3
        assert all(one.age_s == 0.0 and one.took_s > 0 for one in pulses["b2"])
        assert len(canary.results()[0]) >= 10
        canary.rest()
        assert canary.pulses() == {}


def test_a_broker_without_a_partition_of_the_canary_is_not_slow() -> None:
    with sending(Cluster({1: (2, (2, 1))})) as canary:
        seen = Results(canary)
        seen.until("b1 has none", lambda: "preferred leader" in seen.late.get("b1", ""))
        seen.until("b2 acknowledges", lambda: "b2" in seen.by.get(1, ()))
        assert set(canary.pulses()) == {"b2"}


def acknowledged(seen: Results, leader: int) -> bool:
    return f"b{leader}" in seen.by.get(0, ())


def test_a_record_follows_its_partition_to_the_new_leader_and_back() -> None:
    cluster = Cluster()
    with sending(cluster) as canary:
        seen = Results(canary)
        for leader in (1, 2, 1):
            cluster.led[0] = (leader, (1, 2))
            seen.by.clear()
            seen.until(f"b{leader} acknowledges", partial(acknowledged, seen, leader))


def test_a_record_that_no_broker_accepts_is_late_with_the_reason() -> None:
    cluster = Cluster()
    cluster.refuse = {1: TOO_FEW_REPLICAS}
    with sending(cluster) as canary:
        seen = Results(canary)
        seen.until("it is late", lambda: "b1" in seen.late and len(seen.by.get(1, ())) >= 30)
        assert "b1: NOT_ENOUGH_REPLICAS" in seen.late["b1"]
        assert "b2" not in seen.late
        assert 0 not in seen.by
        cluster.refuse = {}
        seen.until("it is acknowledged", lambda: 0 in seen.by and not seen.late)
        assert seen.longest[0] > seen.longest[1], "since it was first sent"


def test_a_dead_broker_is_named_and_its_partition_is_followed_to_another_broker() -> None:
    cluster = Cluster()
    with sending(cluster, dead=1) as canary:
        seen = Results(canary)
        seen.until("its partition is late", lambda: seen.late.get("b1") == "b1: no answer within 2 s")
        cluster.led[0] = (2, (1, 2))
        seen.until("the other acknowledges it", lambda: "b2" in seen.by.get(0, ()))


def test_a_silent_broker_holds_up_its_own_partition_alone() -> None:
    cluster = Cluster()
    cluster.mute = {2}
    with sending(cluster) as canary:
        seen = Results(canary)
        seen.until(
            "b2 is late, b1 acknowledges",
            lambda: seen.late.get("b2") == "b2: no answer within 2 s" and len(seen.by.get(0, ())) >= 20,
        )


def test_a_missing_topic_is_reported_and_not_created() -> None:
    cluster = Cluster()
    cluster.topic_error = NO_SUCH_TOPIC
    with sending(cluster) as canary:
        seen = Results(canary)
        seen.until("both are late", lambda: len(seen.late) == 2)
        assert all("UNKNOWN_TOPIC_OR_PARTITION" in why for why in seen.late.values())
    assert cluster.accepted == []
    assert not cluster.would_create


def test_a_broker_gets_the_first_partition_that_it_is_the_preferred_leader_of() -> None:
    led = {0: (1, 2), 1: (2, 1), 2: (1, 2), 3: (2, 1)}
    partitions = [PartitionState(TOPIC, number, 2, replicas, replicas) for number, replicas in led.items()]
    assert preferred_partitions(partitions) == {1: 0, 2: 1}


def test_a_partition_that_is_created_meanwhile_gets_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "_LOOK_S", 0.1)
    cluster = Cluster({1: (2, (2, 1))})
    with sending(cluster) as canary:
        seen = Results(canary)
        seen.until("b1 has none, b2 acknowledges", lambda: "b1" in seen.late and "b2" in seen.by.get(1, ()))
        cluster.led[0] = (1, (1, 2))
        seen.until("b1 acknowledges", lambda: "b1" in seen.by.get(0, ()))


def test_an_attempt_that_ends_after_the_canary_rests_is_no_late_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, answer = threading.Event(), threading.Event()

    def partitions_of(_brokers: object, _topic: str) -> Unknown:
        asked.set()
        assert answer.wait(60)
        return Unknown("timeout", "no broker answered")

    monkeypatch.setattr(cluster_view, "partitions_of", partitions_of)
    monkeypatch.setattr(produce, "_ANSWER_S", 0.0)
    monkeypatch.setattr(produce, "_METADATA_S", 0.1)
    canary = ProduceCanary(TOPIC, {"b1": (1, "127.0.0.1", 1)})
    canary.begin()
    assert asked.wait(60)
    thread = canary._thread
    canary.rest()
    answer.set()
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive()
    assert canary.results() == ([], [])


def test_a_lookup_that_failed_is_not_repeated_at_once_for_each_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lookups: list[str] = []

    def partitions_of(_brokers: object, topic: str) -> Unknown:
        lookups.append(topic)
        return Unknown("timeout", "no broker answered")

    monkeypatch.setattr(cluster_view, "partitions_of", partitions_of)
    monkeypatch.setattr(produce, "_LOOK_S", 600.0)
    canary = ProduceCanary(TOPIC, {f"b{id}": (id, "127.0.0.1", 1) for id in (1, 2, 3)})
    canary.begin()
    try:
        seen = Results(canary)
        seen.until("all are late", lambda: len(seen.late) == 3)
    finally:
        canary.close()
    assert set(seen.late.values()) == {"unknown (timeout): no broker answered"}
    assert lookups == [TOPIC]
