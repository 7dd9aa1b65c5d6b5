"""The cluster from its brokers: answers of Kafka 2.8 and 3.9 in kafka-python's own types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from kafka.protocol.admin import DescribeLogDirsResponse

from tests.answers import Answering
from tests.unit.kafka.clients.test_looks import answer, directory, held
from zkmigrate.cluster.placed import read
from zkmigrate.cluster.placement.cluster import Broker, Cluster, LogDir, Partition
from zkmigrate.cluster.placement.plan import Refused
from zkmigrate.errors import HostError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.clients.log_dirs import _directories
from zkmigrate.kafka.questions import KafkaView, LogDirs, PartitionState
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Volume

T = TypeVar("T")
GB = 1 << 30
ID = "abcdefghijklmnopqrstuv"
VIEW = KafkaView(
    ID,
    1,
    {1: ("k1", 9092, "a"), 2: ("k2", 9092, "")},
    (PartitionState("t", 0, 1, (1, 2), (1, 2)), PartitionState("u", 0, 2, (2,), (2,))),
)
OLD, NEW = 2, 4
"""Versions of DescribeLogDirs that a 2.8 and a 3.9 broker offers."""


SSH = {"ssh": {"user": "op", "key": "key", "known_hosts": "known"}}


def inventory(*brokers: int, also: Mapping[str, object] = SSH) -> Inventory:
    told = [{"name": f"b{id}", "address": f"10.0.0.{id}", "id": id} for id in brokers or (1, 2)]
    return Inventory.model_validate(
        {"version": 1, "name": "x", "kafka": {"cluster_id": ID, "brokers": told}, **also}, strict=False
    )


class Site(Answering):
    """A look over answers. asked: the hosts that were asked for volumes, with the paths."""

    def __init__(self, disks: Mapping[int, DescribeLogDirsResponse]) -> None:
        self.view: Reading[KafkaView] = Seen(VIEW)
        self.disks: dict[int, LogDirs] = {id: _directories(id, one.to_dict()) for id, one in disks.items()}
        self.df: dict[str, Reading[Mapping[str, Volume]]] = {}
        self.asked: dict[str, Sequence[str]] = {}
        self.batches: list[int] = []
        self.witnesses: int | None = None

    def kafka(self, witnesses: int | None = None) -> Reading[KafkaView]:
        self.witnesses = witnesses
        return self.view

    def log_dirs(
        self, cluster: str, brokers: Sequence[int], partitions: Any = None
    ) -> Reading[Mapping[int, LogDirs]]:
        assert (cluster, partitions) == ("kafka", None)
        self.batches.append(len(brokers))
        return Seen({id: self.disks[id] for id in brokers})

    def volumes(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, Volume]]:
        self.asked[host] = paths
        return self.df[host]

    def each(self, hosts: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        return {host: ask(host) for host in hosts}


def made(site: Site, *brokers: int) -> Cluster:
    found = read(inventory(*brokers), site, lambda line: None)
    assert isinstance(found, Cluster), found
    return found


def why(site: Site, *brokers: int) -> tuple[str, str]:
    found = read(inventory(*brokers), site, lambda line: None)
    assert isinstance(found, Refused), found
    (reason,) = found.reasons
    return reason.id, reason.text


def new() -> Site:
    return Site(
        {
            1: answer(directory("/a", held("t", 7), total=9 * GB, usable=5 * GB), version=NEW),
            2: answer(
                directory("/a", held("t", 6), total=9 * GB, usable=4 * GB),
                directory("/b", held("u", 3), total=8 * GB, usable=2 * GB),
                version=NEW,
            ),
        }
    )


def old() -> Site:
    site = Site(
        {
            1: answer(directory("/a", held("t", 7)), version=OLD),
            2: answer(directory("/a", held("t", 6)), directory("/b", held("u", 3)), version=OLD),
        }
    )
    site.df["b1"] = Seen({"/a": Volume("/a", 9 * GB, 5 * GB)})
    site.df["b2"] = Seen({"/a": Volume("/a", 9 * GB, 4 * GB), "/b": Volume("/b", 8 * GB, 2 * GB)})
    return site


EXPECTED = Cluster.of(
    [
        Broker(1, "a", 5 * GB, dirs=(LogDir("/a", 5 * GB, 9 * GB),), host="k1"),
        Broker(2, "", 6 * GB, dirs=(LogDir("/a", 4 * GB, 9 * GB), LogDir("/b", 2 * GB, 8 * GB)), host="k2"),
    ],
    [Partition("t", 0, (1, 2), 7, dirs=("/a", "/a")), Partition("u", 0, (2,), 3, dirs=("/b",))],
)


def test_a_cordoned_directory_has_no_room() -> None:
    site = new()
    shut = directory("/b", held("u", 3), total=8 * GB, usable=2 * GB)
    shut.is_cordoned = True
    told = answer(directory("/a", held("t", 6), total=9 * GB, usable=4 * GB), shut, version=5)
    site.disks[2] = _directories(2, told.to_dict())
    found = made(site, 1, 2).brokers[2]
    assert (found.free, found.dirs) == (4 * GB, (LogDir("/a", 4 * GB, 9 * GB), LogDir("/b", 0, 8 * GB)))


def test_brokers_of_3_9_tell_everything_themselves() -> None:
    site = new()
    assert made(site) == EXPECTED
    assert site.asked == {}
    assert site.witnesses == 3


def test_hosts_tell_the_free_bytes_that_brokers_of_2_8_do_not() -> None:
    site = old()
    assert made(site) == EXPECTED
    assert site.asked == {"b1": ["/a"], "b2": ["/a", "/b"]}


def test_without_ssh_only_brokers_that_tell_their_free_bytes_can_be_planned() -> None:
    alone = inventory(also={})
    assert read(alone, new(), lambda line: None) == EXPECTED
    site = old()
    found = read(alone, site, lambda line: None)
    assert isinstance(found, Refused)
    assert "only its host can report its free bytes, and the inventory has no section ssh" in str(
        found.reasons
    )
    assert site.asked == {}


def test_directories_of_one_total_are_asked_for_their_volume() -> None:
    site = new()
    same = [directory(path, total=9 * GB, usable=4 * GB) for path in ("/a", "/b")]
    site.disks[2] = _directories(2, answer(*same, version=NEW).to_dict())
    site.df["b2"] = Seen({path: Volume("/", 9 * GB, 4 * GB) for path in ("/a", "/b")})
    assert made(site).brokers[2].free == 4 * GB
    assert list(site.asked) == ["b2"]


def test_what_brokers_and_hosts_do_not_tell_is_refused_by_name() -> None:
    site = old()
    site.df["b1"] = Unknown("unreachable", "b1: no route to host")
    site.disks[2] = Unknown("denied", "log directories of broker 2: CLUSTER_AUTHORIZATION_FAILED")
    kind, text = why(site)
    assert kind == "placement.disk-unseen"
    assert "broker 1: b1: no route to host; " in text
    assert "broker 2: log directories of broker 2: CLUSTER_AUTHORIZATION_FAILED. Needed" in text
    assert list(site.asked) == ["b1"]


def test_a_directory_that_a_broker_cannot_use_is_refused() -> None:
    site = new()
    broken = answer(directory("/a", total=9, usable=5), directory("/b", error=56), version=NEW)
    site.disks[1] = _directories(1, broken.to_dict())
    assert "broker 1: broker 1, /b: KAFKA_STORAGE_ERROR" in why(site)[1]
    assert site.asked == {}


def test_a_broker_outside_the_inventory_has_no_host_to_ask() -> None:
    site = old()
    assert (
        "broker 2: its free bytes are unknown, because the inventory does not have this broker. Needed"
        in why(site, 1)[1]
    )
    assert list(site.asked) == ["b1"]
    assert made(new(), 1) == EXPECTED


@pytest.mark.parametrize(
    ("moving", "told"),
    [
        ((("t", 0), ("u", 0)), "2 partitions are being reassigned, the first is t-0"),
        (None, "older than 2.4"),
    ],
)
def test_sets_that_change_by_themselves_are_refused(
    moving: tuple[tuple[str, int], ...] | None, told: str
) -> None:
    site = new()
    site.view = Seen(replace(VIEW, reassigning=moving))
    kind, text = why(site)
    assert kind == "placement.reassigning"
    assert told in text


def test_a_replica_that_changes_its_directory_is_refused() -> None:
    site = new()
    both = [directory("/a", held("t", 7), total=9), directory("/b", held("t", 2, 5, future=True), total=8)]
    site.disks[1] = _directories(1, answer(*both, version=NEW).to_dict())
    kind, text = why(site)
    assert kind == "placement.reassigning"
    assert "1 replicas are moving to another directory, the first is t-0 on broker 1" in text


def test_another_cluster_is_refused() -> None:
    site = new()
    site.view = Seen(replace(VIEW, cluster_id="Z" * 22))
    assert why(site)[0] == "placement.other-cluster"
    assert site.batches == []


@pytest.mark.parametrize("reading", [Unknown("timeout", "no broker answered"), Absent("no broker answered")])
def test_without_an_answer_there_is_no_cluster(reading: Reading[KafkaView]) -> None:
    site = new()
    site.view = reading
    with pytest.raises(HostError, match="no broker answered"):
        read(inventory(), site, lambda line: None)


def test_large_clusters_tell_their_progress() -> None:
    ids = range(1, 46)
    one = answer(directory("/a", total=9, usable=5), version=NEW)
    site = Site(dict.fromkeys(ids, one))
    partitions = tuple(PartitionState("t", n, 1, (1 + n % 45,), (1,)) for n in range(10_000))
    site.view = Seen(replace(VIEW, brokers=dict.fromkeys(ids, ("k", 9092, "")), partitions=partitions))
    lines: list[str] = []
    assert isinstance(read(inventory(), site, lines.append), Cluster)
    assert site.batches == [20, 20, 5]
    assert lines == [
        "reading partitions and racks from the brokers",
        "10000 partitions, 45 brokers",
        "log directories of 20 of 45 brokers",
        "log directories of 40 of 45 brokers",
        "log directories of 45 of 45 brokers",
    ]
