"""The mirror between stock releases: what the newest does not take of what older ones have, and the way back.

Brokers have Kafka's defaults. Kafka 4.3 then has ``min.insync.replicas`` as a cluster's own setting (eligible
leader replicas), other defaults, fewer settings and narrower limits than its forerunners."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import confluent_kafka
import pytest
from kafka import KafkaProducer
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient

from tests.answers import Mirrored
from tests.servers import kraft
from tests.servers.brokers import ALONE, Broker, serve
from tests.servers.test_mirror import WAIT_S, behind, make, ran, send
from tests.servers.test_versions import zookeeper
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.topics.mirror.clients.cluster import Cluster
from zkmigrate.topics.mirror.questions import ClusterAt, MirrorSurvey
from zkmigrate.topics.mirror.rules.batch import parse
from zkmigrate.topics.mirror.rules.topic import AFTER, BEFORE, MIN_ISR, NO_LIMIT

OLD, NEW = ("2.8.2", "3.9.1"), "4.3.1"
LZ4, DAY_MS = 3, 86_400_000


@dataclass(frozen=True)
class Sites:
    """The addresses of one broker of each release."""

    at: Mapping[str, str]

    def pair(self, source: str, target: str) -> tuple[str, str]:
        return self.at[source], self.at[target]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    folder = tmp_path_factory.mktemp("stock")
    old = [Broker(release, f"{ALONE}log.cleaner.backoff.ms=100\n", chroot=f"v{release}") for release in OLD]
    with ExitStack() as stack:
        port = stack.enter_context(zookeeper("3.5.8", folder))
        stack.enter_context(serve(folder, port, *old))
        new = stack.enter_context(kraft.broker(NEW, folder))
        yield Sites({**{one.release: one.address for one in old}, NEW: new})


def put(address: str, topic: str, **settings: str | None) -> None:
    """Set settings of a topic, or remove those without a value."""
    acts = {
        key.replace("_", "."): (AlterConfigOp.DELETE if value is None else AlterConfigOp.SET, value)
        for key, value in settings.items()
    }
    with closing(KafkaAdminClient(bootstrap_servers=[address])) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, acts)])


def send_one(address: str, topic: str, key: bytes | None, ms: int) -> None:
    with closing(KafkaProducer(bootstrap_servers=[address], enable_idempotence=False)) as sender:
        sender.send(topic, b"value", key, timestamp_ms=ms).get(WAIT_S)


def own(address: str, topic: str) -> dict[str, str]:
    """The settings of the topic itself."""
    with closing(Cluster(address, [address])) as site:
        settings = site.topics([topic])[0][topic].settings
    return {key: settings.values[key] for key in settings.beneath}


def codecs(address: str, topic: str) -> set[int]:
    """The compressions of the topic's batches of records."""
    with closing(Cluster(address, [address])) as site:
        end = site.ends([(topic, 0)])[topic, 0]
        assert not isinstance(end, int)
        found, at = set[int](), end.start
        while at < end.end:
            told = site.fetched(site.begin_fetch(site.leaders([topic])[topic][0], {(topic, 0): at}))
            batches = parse(told[topic, 0].records, at)
            found |= {one.codec for one in batches if not one.control and one.count}
            at = batches[-1].next_offset
    return found


def fill_lz4(address: str, topic: str) -> None:
    """Compaction leaves holes in batches that are compressed with LZ4."""
    make(address, topic, cleanup_policy="compact", segment_bytes="4000", min_cleanable_dirty_ratio="0.01")
    sender = confluent_kafka.Producer(
        {"bootstrap.servers": address, "compression.type": "lz4", "linger.ms": 20, "batch.num.messages": 40}
    )
    for n in range(400):
        sender.produce(topic, b"value %d " % n * 20, b"key %d" % (n % 70))
        sender.poll(0)
        if n % 40 == 39:
            assert sender.flush(WAIT_S) == 0

    def whole() -> str | None:
        return None if (seen := len(read_lz4(address, topic))) < 300 else f"{seen} records"

    wait_until("compaction", whole, WAIT_S)
    put(address, topic, segment_bytes=None)


def read_lz4(address: str, topic: str) -> list[tuple[int | None, bytes | None, bytes | None]]:
    """Offset, key and value of each record, by a client that reads LZ4 as Kafka's does."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "reader"})
    at = confluent_kafka.TopicPartition(topic, 0, 0)
    found: list[tuple[int | None, bytes | None, bytes | None]] = []
    with closing(consumer):
        consumer.assign([at])
        end = consumer.get_watermark_offsets(at, WAIT_S)[1]
        deadline = time.monotonic() + WAIT_S
        while (not found or found[-1][0] != end - 1) and time.monotonic() < deadline:
            for one in consumer.consume(500, 1.0):
                assert one.error() is None
                found.append((one.offset(), one.key(), one.value()))
    return found


def survey(clusters: tuple[str, str], *topics: str) -> MirrorSurvey:
    """What a switch sees of them."""
    with closing(Mirrored(*(ClusterAt((one,)) for one in clusters))) as look:
        told = look.survey(topics, [])
    assert isinstance(told, Seen), told
    return told.value


def told(clusters: tuple[str, str], topics: list[str]) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Exit code, topics and first partitions of a plan."""
    code, output = ran(clusters, "plan", topics, "--json")
    body = json.loads(output)
    partitions = {one["topic"]: one for one in body["partitions"] if one["partition"] == 0}
    return code, {one["topic"]: one for one in body["topics"]}, partitions


@pytest.mark.parametrize("release", OLD)
def test_h22_what_the_newest_release_does_not_take_is_planned_and_ends_no_other_topic(
    sites: Sites, release: str
) -> None:
    source, target = clusters = sites.pair(release, NEW)
    now = int(time.time() * 1000)
    good = [f"{name}{release}" for name in ("plain", "limit", "lz4", "gone")]
    plain, limit, lz4, gone = good
    seg, keyless, early, old = bad = [f"{name}{release}" for name in ("seg", "keyless", "early", "old")]
    make(source, plain)
    send(source, plain, range(20))
    send_one(source, plain, b"key", now + 10 * DAY_MS)
    make(source, limit, message_timestamp_difference_max_ms=str(20 * DAY_MS))
    send(source, limit, range(20))
    make(source, gone, message_downconversion_enable="false")
    send(source, gone, range(20))
    fill_lz4(source, lz4)
    make(source, seg, segment_bytes="100000")
    make(source, keyless)
    send(source, keyless, range(5))
    send_one(source, keyless, None, now)
    put(source, keyless, cleanup_policy="compact")
    make(source, early)
    send_one(source, early, b"key", now - 5 * DAY_MS)
    put(source, early, message_timestamp_difference_max_ms=str(DAY_MS))
    if release == "2.8.2":
        make(source, old, message_format_version="0.10.0")
        send_one(source, old, b"key", now)
    else:
        bad.remove(old)

    code, topics, partitions = told(clusters, [*good, *bad])
    assert code == 3
    least = (
        "INVALID_CONFIG: Invalid value 100000 for configuration segment.bytes: Value must be at least 1048576"
    )
    assert f"segment.bytes=100000: {least}." in topics[seg]["refused"]
    assert {name for name, one in topics.items() if one["refused"]} == {seg}
    assert topics[plain]["settings"] == {AFTER: NO_LIMIT}
    assert topics[limit]["settings"] == {AFTER: str(20 * DAY_MS), BEFORE: str(20 * DAY_MS)}
    assert topics[gone]["not_copied"] == {
        "message.downconversion.enable": "target's Kafka has no such setting"
    }
    failed = {name: one["why"] for name, one in partitions.items() if one["state"] == "failed"}
    assert failed.keys() == set(bad) - {seg}
    assert "the record at offset 5 has no key" in failed[keyless]
    assert f"earlier than {BEFORE}={DAY_MS} allows" in failed[early]
    if old in bad:
        assert "has format 1; needed: 2" in failed[old]

    code, output = ran(clusters, "run", [*good, *bad], "--once")
    assert code == 8, output
    assert f"REFUSED {seg}: target would not create the topic: segment.bytes=100000: {least}" in output
    why = "Compacted topic cannot accept message without key in topic partition"
    assert f"FAILED {keyless}-0: Kafka's error INVALID_RECORD: {why} {keyless}-0" in output
    assert (
        f"FAILED {early}-0: Kafka's error INVALID_TIMESTAMP: Timestamp {now - 5 * DAY_MS} of message"
        in output
    )
    assert "Error(" not in output, "no text of Python"
    assert behind(clusters, good) is None
    code, output = ran(clusters, "compare", good)
    assert code == 0, output
    assert own(target, plain) == {AFTER: NO_LIMIT}
    found = survey(clusters, *good)
    assert (found.refused, found.differ) == ({}, {})
    assert {state for state, _ in found.partitions.values()} == {"equal"}
    assert [name for name in found.left if plain in name] == []
    assert codecs(source, lz4) == codecs(target, lz4) == {LZ4}
    assert read_lz4(source, lz4) == read_lz4(target, lz4)


@pytest.mark.parametrize(("release", "needed"), [("2.8.2", {}), ("3.9.1", {AFTER: "3600000"})])
def test_h17_h22_the_way_back_to_stock_releases_pins_no_default(
    sites: Sites, release: str, needed: dict[str, str]
) -> None:
    """A topic of 4.3 that nobody configured differs from one of 3.9 in the one default that did change."""
    source, target = clusters = sites.pair(NEW, release)
    name = f"back{release}"
    make(source, name)
    send(source, name, range(20))
    code, topics, _ = told(clusters, [name])
    assert (code, topics[name]["settings"], topics[name]["not_copied"]) == (0, needed, {})
    code, output = ran(clusters, "run", [name], "--once")
    assert code == 0, output
    assert own(target, name) == needed
    assert MIN_ISR not in needed
    found = survey(clusters, name)
    assert (found.differ, found.left, found.refused) == ({}, {}, {})
