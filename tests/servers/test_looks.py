"""Looks asked of a real broker: partitions of named topics, log directories, the cluster of a placement.

One broker of each shape of answer: 2.8.2 tells nothing of its volumes, 3.9.1 does.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from tests.answers import Answering
from tests.servers.brokers import Broker, serve
from tests.servers.process import ADDRESS, RELEASES, START_SECONDS
from tests.servers.test_versions import zookeeper
from zkmigrate.cluster.placed import read as read_placed
from zkmigrate.cluster.placement.cluster import Cluster
from zkmigrate.cluster.placement.plan import Refused
from zkmigrate.hosts.facts import volumes
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.clients import cluster_view, log_dirs, topics
from zkmigrate.kafka.questions import KafkaView, LogDir, LogDirs, PartitionState
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.look import Volume

T = TypeVar("T")

ID = 7
SIZE = 200_000


@pytest.mark.parametrize(("version", "tells"), zip(RELEASES, (False, True), strict=True))
def test_a_real_broker_tells_of_named_topics_and_of_its_disks(
    version: str, tells: bool, tmp_path: Path
) -> None:
    dirs = [str(tmp_path / name) for name in ("one", "two")]
    asked = Broker(version, id=ID, log_dirs=",".join(dirs))
    at = asked.address
    with zookeeper("3.5.8", tmp_path) as port, serve(tmp_path, port, asked):
        client = KafkaAdminClient(bootstrap_servers=[at])
        client.create_topics([NewTopic("a", 3, 1), NewTopic("b", 1, 1)])
        client.close()
        producer = KafkaProducer(bootstrap_servers=[at], acks="all")
        producer.send("a", bytes(SIZE), partition=1).get(START_SECONDS)
        producer.close()

        def wrong() -> str | None:
            return None if isinstance(topics.partitions([at], ("a", "b"), 2), Seen) else "not told yet"

        wait_until("the topics", wrong, START_SECONDS)
        told = topics.partitions([at], ("a", "gone"), 2)
        assert isinstance(told, Seen), told
        assert (told.value.brokers, told.value.witnesses) == (frozenset({ID}), (ID,))
        assert told.value.topics == {
            "a": Seen(tuple(PartitionState("a", n, ID, (ID,), (ID,)) for n in range(3))),
            "gone": Absent("gone"),
        }

        everything = log_dirs.log_dirs([at], (ID, 8), None)
        assert isinstance(everything, Seen), everything
        disks = everything.value[ID]
        assert isinstance(disks, Seen), disks
        assert sorted(disks.value) == dirs
        assert not isinstance(everything.value[8], Seen)
        held = [(r.topic, r.partition, r.size) for d in found(disks.value.values()) for r in d.replicas]
        assert sorted((t, p) for t, p, _ in held) == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]
        sizes = {(topic, partition): size for topic, partition, size in held}
        assert sizes["a", 0] == 0
        assert SIZE < sizes["a", 1] < SIZE + 1_000
        for directory in found(disks.value.values()):
            assert (directory.total is not None, directory.usable is not None) == (tells, tells)

        site = OneHost(at)
        without = site.inventory.model_copy(update={"ssh": None})
        refused = read_placed(without, site, lambda line: None)
        assert isinstance(refused, Refused), refused
        assert "the inventory has no section ssh" in refused.reasons[0].text
        assert site.hosts == []
        cluster = read_placed(site.inventory, site, lambda line: None)
        assert isinstance(cluster, Cluster), cluster
        # Both directories are on one volume: it counts once.
        [broker] = cluster.brokers.values()
        assert (broker.id, broker.new, broker.dirs, broker.host) == (ID, False, (), ADDRESS)
        assert 0 < broker.free <= shutil.disk_usage(tmp_path).total
        assert site.hosts == ["b1"]
        assert {one.name: (one.replicas, one.size) for one in cluster.partitions} == {
            name: ((ID,), size) for name, size in sizes.items()
        }
        placed = {(one.topic, one.number, *one.dirs) for one in cluster.partitions}
        assert placed == {
            (replica.topic, replica.partition, path)
            for path, directory in disks.value.items()
            for replica in seen(directory).replicas
        }

        some = log_dirs.log_dirs([at], (ID,), {"a": (1,)})
        assert isinstance(some, Seen), some
        disks = some.value[ID]
        assert isinstance(disks, Seen), disks
        named = [(r.topic, r.partition) for d in found(disks.value.values()) for r in d.replicas]
        assert named == [("a", 1)]


class OneHost(Answering):
    """A look at the broker, whose host is this machine. hosts: those that were asked for volumes."""

    def __init__(self, at: str) -> None:
        told = {"name": "b1", "address": ADDRESS, "id": ID, "port": int(at.rpartition(":")[2])}
        kafka = {"cluster_id": seen(topics.names([at])).cluster_id, "brokers": [told]}
        ssh = {"user": "root", "key": "key", "known_hosts": "known_hosts"}
        raw = {"version": 1, "name": "x", "kafka": kafka, "ssh": ssh}
        self.inventory = Inventory.model_validate(raw, strict=False)
        self.at = at
        self.hosts: list[str] = []

    def kafka(self, witnesses: int | None = None) -> Reading[KafkaView]:
        return cluster_view.view([self.at], lambda: None, witnesses=witnesses)

    def log_dirs(
        self, cluster: str, brokers: Sequence[int], partitions: Mapping[str, Sequence[int]] | None = None
    ) -> Reading[Mapping[int, LogDirs]]:
        return log_dirs.log_dirs([self.at], brokers, partitions)

    def volumes(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, Volume]]:
        self.hosts.append(host)
        return volumes.parse(subprocess.check_output([*volumes.DF, *paths], text=True), paths)

    def each(self, hosts: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        return {host: ask(host) for host in hosts}


def seen(reading: Reading[T]) -> T:
    assert isinstance(reading, Seen), reading
    return reading.value


def found(readings: object) -> list[LogDir]:
    told = [one.value for one in readings if isinstance(one, Seen)]  # type: ignore[attr-defined]
    assert len(told) == 2
    return told
