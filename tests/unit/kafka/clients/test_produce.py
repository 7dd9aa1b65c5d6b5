"""The produce canary against brokers that answer in Kafka's format as they are told to."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest
from kafka.record import MemoryRecords

from tests.ports import free_port
from tests.unit.loopback import listening
from zkmigrate.kafka.clients.produce import (
    PartitionInfo,
    ProduceCanary,
    parse_metadata,
    preferred_partition,
    produce_request,
)
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.look import Pulse

TOPIC = "canary"
NOT_LEADER, NO_SUCH_TOPIC = 6, 3
Leaders = dict[int, tuple[int, tuple[int, ...]]]


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


class Cluster:
    """Brokers on loopback that know one topic. ``led``: partition → (leader, replicas); a broker acknowledges
    what it leads unless ``refuse`` has an error code for it, and says nothing while it is in ``mute``."""

    def __init__(self, led: Leaders) -> None:
        self.led = led
        self.topic_error = 0
        self.refuse: dict[int, int] = {}
        self.mute: set[int] = set()
        self.taken: list[tuple[int, int]] = []
        self.asked: list[bytes] = []
        self.guard = threading.Lock()

    def answer(self, broker: int, request: bytes) -> bytes | None:
        key, version, correlation, length = struct.unpack(">hhih", request[:10])
        body, head = request[10 + length :], struct.pack(">i", correlation)
        with self.guard:
            if broker in self.mute:
                return None
            if (key, version) == (3, 4):
                self.asked.append(body)
                return head + self.metadata()
            assert (key, version) == (0, 3)
            return head + self.produce(broker, body)

    def metadata(self) -> bytes:
        out = struct.pack(">ii", 0, 1) + struct.pack(">i", 1) + text("b1") + struct.pack(">ih", 9092, -1)
        out += text("cluster") + struct.pack(">iih", 1, 1, self.topic_error) + text(TOPIC) + b"\x00"
        if self.topic_error:
            return out + struct.pack(">i", 0)
        out += struct.pack(">i", len(self.led))
        for partition, (leader, replicas) in self.led.items():
            out += struct.pack(">hii", 0, partition, leader)
            for ids in (replicas, replicas):
                out += struct.pack(f">i{len(ids)}i", len(ids), *ids)
        return out

    def produce(self, broker: int, body: bytes) -> bytes:
        head = struct.pack(">hhi", -1, -1, 1500) + struct.pack(">i", 1) + text(TOPIC)
        assert body.startswith(head), "acks of all, one topic"
        one, partition, size = struct.unpack(">iii", body[len(head) : len(head) + 12])
        batch = MemoryRecords(body[len(head) + 12 :]).next_batch()
        assert (one, size) == (1, len(body) - len(head) - 12)
        assert batch.validate_crc()
        assert [(r.key, r.value) for r in batch] == [(b"zkmigrate", b"canary")]
        error = self.refuse.get(broker, 0 if self.led[partition][0] == broker else NOT_LEADER)
        if not error:
            self.taken.append((partition, broker))
        return struct.pack(">i", 1) + text(TOPIC) + struct.pack(">iihqqi", 1, partition, error, 7, -1, 0)


def served(cluster: Cluster, broker: int) -> AbstractContextManager[int]:
    """One broker of the cluster; its port."""

    def serve(client: socket.socket) -> None:
        while head := client.recv(4, socket.MSG_WAITALL):
            request = client.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
            if (reply := cluster.answer(broker, request)) is not None:
                client.sendall(struct.pack(">i", len(reply)) + reply)

    return listening(serve, beside=True)


@contextmanager
def canary(cluster: Cluster, brokers: tuple[int, ...] = (1, 2), gone: int = 0) -> Iterator[ProduceCanary]:
    """The canary over these brokers; ``gone`` has nobody who listens."""
    with ExitStack() as stack:
        ports = {id: stack.enter_context(served(cluster, id)) for id in brokers if id != gone}
        ports |= {gone: free_port()} if gone else {}
        names = {f"b{id}": (id, "127.0.0.1", ports[id]) for id in brokers}
        made = ProduceCanary(TOPIC, names, every_s=0.01)
        stack.callback(made.close)
        yield made


class Seen:
    """What a canary has told so far."""

    def __init__(self, asked: ProduceCanary) -> None:
        self.asked = asked
        self.by: dict[int, list[str]] = {}
        self.longest: dict[int, float] = {}
        self.late: dict[str, str] = {}

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        def look() -> str | None:
            acks, late = self.asked.results()
            for ack in acks:
                self.by.setdefault(ack.partition, []).append(ack.broker)
                self.longest[ack.partition] = max(self.longest.get(ack.partition, 0.0), ack.took_s)
            self.late = {one.home: one.why for one in late}
            return None if holds() else f"{self.by}, late {self.late}"[-300:]

        wait_until(what, look, 10)


BOTH: Leaders = {0: (1, (1, 2)), 1: (2, (2, 1))}


def test_every_broker_acknowledges_the_records_of_the_partition_it_leads() -> None:
    cluster = Cluster(dict(BOTH))
    with canary(cluster) as asked:
        asked.begin()
        asked.begin()
        seen = Seen(asked)
        seen.until("ten of each", lambda: all(len(seen.by.get(p, ())) >= 10 for p in BOTH))
        assert {p: set(by) for p, by in seen.by.items()} == {0: {"b1"}, 1: {"b2"}}
        assert seen.late == {}
    assert all(body.endswith(text(TOPIC) + b"\x00") for body in cluster.asked), "never to make a topic"
    assert len(cluster.asked) == 2, "the leader is asked for once while it leads"


def test_nothing_is_sent_before_it_begins_nor_while_it_rests() -> None:
    cluster = Cluster(dict(BOTH))
    with canary(cluster) as asked:
        assert asked.results() == ([], [])
        asked.begin()
        seen = Seen(asked)
        seen.until("some of each", lambda: len(seen.by) == 2)
        asked.rest()
        asked.results()
        assert not [t for t in threading.enumerate() if t.name.startswith("produce-")]
        asked.begin()
        seen.by.clear()
        seen.until("some of each again", lambda: len(seen.by) == 2)
        asked.close()
        asked.results()
        sent = len(cluster.taken)
        asked.begin()
        assert asked.results() == ([], []), "closed for good"
        assert len(cluster.taken) == sent


def test_steps_hear_of_each_broker_what_the_report_gets_too() -> None:
    cluster = Cluster(dict(BOTH))
    cluster.refuse = {1: 19}
    with canary(cluster) as asked:
        asked.begin()
        heard: dict[str, list[Pulse]] = {}

        def look() -> str | None:
            for broker, pulses in asked.pulses().items():
                heard.setdefault(broker, []).extend(pulses)
            return (
                None if len(heard.get("b2", ())) >= 10 and len(heard.get("b1", ())) > 3 else str(heard)[-300:]
            )

        wait_until("records of both", look, 10)
        waits = [one.took_s for one in heard["b1"]]
        assert waits == sorted(waits), "the one record waits longer and longer"
        assert len(set(waits)) > 3
        assert all(one.age_s == 0.0 and one.took_s > 0 for one in heard["b2"])
        assert len(asked.results()[0]) >= 10, "the report has lost nothing"
        asked.rest()
        assert asked.pulses() == {}


def test_a_broker_without_a_partition_of_the_canary_is_not_slow() -> None:
    cluster = Cluster({1: (2, (2, 1))})
    with canary(cluster) as asked:
        asked.begin()
        seen = Seen(asked)
        seen.until("b1 has none", lambda: "preferred leader" in seen.late.get("b1", ""))
        seen.until("b2 acknowledges", lambda: "b2" in seen.by.get(1, ()))
        assert set(asked.pulses()) == {"b2"}


def test_a_record_goes_after_its_partition_to_the_new_leader() -> None:
    cluster = Cluster(dict(BOTH))
    with canary(cluster) as asked:
        asked.begin()
        seen = Seen(asked)
        seen.until("b1 acknowledges", lambda: "b1" in seen.by.get(0, ()))
        with cluster.guard:
            cluster.led[0] = (2, (1, 2))
        seen.until("b2 acknowledges what b1 led", lambda: "b2" in seen.by.get(0, ()))
        with cluster.guard:
            cluster.led[0] = (1, (1, 2))
        seen.by.clear()
        seen.until("b1 again", lambda: "b1" in seen.by.get(0, ()))


def test_a_partition_that_nobody_takes_is_late_with_what_was_met_and_its_record_is_as_slow() -> None:
    cluster = Cluster(dict(BOTH))
    cluster.refuse = {1: 19}
    with canary(cluster) as asked:
        asked.begin()
        seen = Seen(asked)
        seen.until("it is late", lambda: "b1" in seen.late and len(seen.by.get(1, ())) >= 30)
        assert seen.late == {"b1": "b1: NOT_ENOUGH_REPLICAS"}
        assert 0 not in seen.by
        with cluster.guard:
            cluster.refuse = {}
        seen.until("it is acknowledged", lambda: 0 in seen.by and not seen.late)
        assert seen.longest[0] > seen.longest[1], "since it was first sent"


def test_a_broker_that_is_gone_is_named_and_the_others_tell_where_its_partition_is_led() -> None:
    cluster = Cluster(dict(BOTH))
    with canary(cluster, gone=1) as asked:
        asked.begin()
        seen = Seen(asked)
        seen.until("its partition is late", lambda: "refused" in seen.late.get("b1", ""))
        with cluster.guard:
            cluster.led[0] = (2, (1, 2))
        seen.until("the other acknowledges it", lambda: "b2" in seen.by.get(0, ()))


def test_a_broker_that_keeps_silent_holds_up_its_own_partition_alone() -> None:
    cluster = Cluster(dict(BOTH))
    cluster.mute = {2}
    with canary(cluster) as asked:
        asked.begin()
        seen = Seen(asked)
        seen.until(
            "b2 is late for its silence, b1 acknowledges on",
            lambda: seen.late.get("b2") == "b2: timed out" and len(seen.by.get(0, ())) >= 20,
        )


def test_a_topic_that_is_not_there_is_said_and_not_made() -> None:
    cluster = Cluster(dict(BOTH))
    cluster.topic_error = NO_SUCH_TOPIC
    with canary(cluster) as asked:
        asked.begin()
        seen = Seen(asked)
        seen.until("both say so", lambda: len(seen.late) == 2)
        assert all("UNKNOWN_TOPIC_OR_PARTITION" in why for why in seen.late.values())
    assert cluster.taken == []
    assert all(body.endswith(b"\x00") for body in cluster.asked)


def test_what_is_kept_between_two_looks_is_bounded() -> None:
    with canary(Cluster(dict(BOTH))) as asked:
        assert asked._acks.maxlen == 1000


def test_a_broker_gets_the_first_partition_that_it_is_the_preferred_leader_of() -> None:
    led = {0: PartitionInfo(2, (1, 2)), 1: PartitionInfo(2, (2, 1)), 2: PartitionInfo(1, (1, 2))}
    assert [preferred_partition(led, id) for id in (1, 2, 3)] == [0, 1, None]


def test_an_answer_that_is_cut_off_is_none() -> None:
    whole = Cluster(dict(BOTH)).metadata()
    assert parse_metadata(whole) == {0: PartitionInfo(1, (1, 2)), 1: PartitionInfo(2, (2, 1))}
    for length in range(len(whole)):
        with pytest.raises(ValueError, match=r"answered|topic"):
            parse_metadata(whole[:length])


def test_a_record_is_small() -> None:
    assert len(produce_request(TOPIC, 0)) < 200
