"""The live cluster with the peer's metrics, from znodes as Kafka and the peer write them."""

from __future__ import annotations

import gzip
import json
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from zkmigrate.cluster.placement.cluster import Broker, Cluster, Partition
from zkmigrate.cluster.placement.plan import Refused
from zkmigrate.cluster.placing.live import cluster, read
from zkmigrate.errors import UsageError
from zkmigrate.zookeeper.clients.login import OPEN

NOW_MS = 10_000_000
ZNODES: dict[str, tuple[Any, int]] = {
    "/k/brokers/ids/1": ({"rack": "a", "host": "h1", "port": 9092}, 0),
    "/k/brokers/ids/2": ({"rack": None, "host": "h2"}, 0),
    "/k/brokers/topics/t": ({"version": 2, "partitions": {"0": [1, 9], "1": [1]}}, 0),
    "/m/partitionmeta": ({"t": {"0": {"Size": 7}, "1": {"Size": 8}}}, NOW_MS - 60_000),
    "/m/brokermetrics": ({"1": {"StorageFree": 70}, "2": {"StorageFree": 80}}, NOW_MS),
}


class Znodes:
    """A client of znodes in memory."""

    def __init__(
        self, znodes: dict[str, tuple[Any, int]], vanished: dict[str, list[str]] | None = None
    ) -> None:
        """vanished: children that are listed, and gone when they are read."""
        self.znodes, self.vanished = znodes, vanished or {}

    def get_async(self, path: str) -> Any:
        value, mtime = self.znodes.get(path, (None, 0))
        data = gzip.compress(json.dumps(value).encode())
        stat = SimpleNamespace(mtime=mtime)
        plain = json.dumps(value).encode()

        def get(timeout: float) -> Any:
            if path not in self.znodes:
                raise NoNodeError
            return data if path.startswith("/m/") else plain, stat

        return SimpleNamespace(get=get)

    def get_children_async(self, path: str) -> Any:
        found = [name.removeprefix(f"{path}/") for name in self.znodes if name.startswith(f"{path}/")]

        def get(timeout: float) -> list[str]:
            if not found and not path.startswith("/k/brokers/"):
                raise NoNodeError
            return [*found, *self.vanished.get(path, ())][::-1]

        return SimpleNamespace(get=get)


def test_b15_brokers_racks_sets_and_metrics_make_the_cluster() -> None:
    found = Cluster.of(
        [Broker(1, "a", 70, host="h1"), Broker(2, "", 80, new=True, host="h2")],
        [Partition("t", 0, (1, 9), 7), Partition("t", 1, (1,), 8)],
    )
    for sized in (True, False):
        assert cluster(Znodes(ZNODES), "/k", "/m", 60, NOW_MS, sized=sized) == (found, ())


def test_b15_old_metrics_are_refused() -> None:
    assert isinstance(cluster(Znodes(ZNODES), "/k", "/m", 1, NOW_MS, sized=True), tuple)
    assert isinstance(cluster(Znodes(ZNODES), "/k", "/m", 1, NOW_MS + 1, sized=True), Refused)


MOVING = "/k/admin/reassign_partitions"
MOVED = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (
            "/k/brokers/topics/t",
            {"partitions": {"0": [2, 1], "1": [1]}, "adding_replicas": {"0": [2]}, "removing_replicas": {}},
            "1 partitions are being reassigned, the first is t-0. Needed: replicas that do not move",
        ),
        (
            "/k/brokers/topics/t",
            {"partitions": {"0": [2, 1], "1": [1, 2]}, "removing_replicas": {"0": [], "1": [2]}},
            "1 partitions are being reassigned, the first is t-1",
        ),
        (MOVING, MOVED, "1 partitions are being reassigned, the first is t-0"),
        (MOVING, {"version": 1}, "a reassignment is in progress"),
    ],
)
def test_a_running_reassignment_is_refused(path: str, value: Any, told: str) -> None:
    found = cluster(Znodes({**ZNODES, path: (value, 0)}), "/k", "/m", 60, NOW_MS, sized=True)
    assert isinstance(found, Refused)
    assert [one.id for one in found.reasons] == ["placement.reassigning"]
    assert told in found.reasons[0].text


def test_a_topic_that_is_being_deleted_is_left_out() -> None:
    deleted = {
        **ZNODES,
        "/k/brokers/topics/u": ({"partitions": {"0": [2]}, "adding_replicas": {"0": [2]}}, 0),
        "/k/admin/delete_topics/u": (None, 0),
    }
    znodes = Znodes(deleted, {"/k/brokers/topics": ["w"]})
    assert cluster(znodes, "/k", "/m", 60, NOW_MS, sized=True) == cluster(
        Znodes(ZNODES), "/k", "/m", 60, NOW_MS, sized=True
    )


@pytest.mark.parametrize("kind", ["ids", "topics"])
def test_a_prefix_without_kafka_is_told(kind: str) -> None:
    left = {path: value for path, value in ZNODES.items() if f"/{kind}/" not in path}
    with pytest.raises(UsageError, match="check --zk-prefix"):
        cluster(Znodes(left), "/k", "/m", 60, NOW_MS, sized=True)


def test_a_znode_that_is_missing_is_named() -> None:
    left = {path: value for path, value in ZNODES.items() if path != "/m/brokermetrics"}
    with pytest.raises(UsageError, match="no znode /m/brokermetrics"):
        cluster(Znodes(left), "/k", "/m", 60, NOW_MS, sized=True)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("/k/brokers/ids/1", [1], r"broker 1: seen \[1\]; needed: an object, as Kafka writes it"),
        ("/k/brokers/topics/t", {"partitions": [1]}, r"topic t: seen \[1\]; needed: replicas by partition"),
        ("/k/brokers/topics/t", {"partitions": {"0": ["1"]}}, "needed: replicas by partition"),
        ("/k/brokers/topics/t", {"partitions": {"0": []}}, "needed: replicas by partition"),
        ("/k/brokers/topics/t", {}, "topic t: seen null; needed: replicas by partition"),
    ],
)
def test_bad_input_in_kafkas_znodes_is_told(path: str, value: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        cluster(Znodes({**ZNODES, path: (value, 0)}), "/k", "/m", 60, NOW_MS, sized=True)


def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(UsageError, match="'zk1:x' in 'zk1:x' is not a server"):
        read("zk1:x", "", "topicmappr", 60, NOW_MS, OPEN, sized=True)
