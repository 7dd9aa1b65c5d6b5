"""A lab without a move: a KRaft cluster on racks and disks, and beside it small ones, with ZooKeeper and new.

One lab for all of it: what the shape says is what clients see, a playbook goes there and back on KRaft, a
disk is really full, and nothing stays of the lab."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from tests.lab import no_trace
from tests.lab.tool import asked
from zkmigrate.cluster.removal.rules import CORDON_ALL, CORDONED
from zkmigrate.kafka.changes import KAFKA, AlterAtController
from zkmigrate.kafka.clients import cluster_view, reassignments
from zkmigrate.lab import control_groups, fault
from zkmigrate.lab.cluster_site import not_as
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.inventory import write_cluster_inventory
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.samples import Brokers
from zkmigrate.lab.shape import Shape
from zkmigrate.lab.spec import KAFKA_PORT, LabSpec, Role
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.fact import Seen

pytestmark = pytest.mark.lab

DISKS = {"disks_mb": [128, 256]}
SETS, MOVED = {0: (1, 2), 1: (2, 1)}, {0: (3, 2), 1: (1, 2)}
"""One partition that copies to another broker, and one that only changes its order."""
LEAVING = {0: (3, 1), 1: (1, 3)}
"""Partitions with a replica on the broker that leaves."""


def partitions_move_on_kraft(lab: Lab, directory: Path) -> None:
    """Two partitions moved by a plan, and back; no throttle stays."""
    with lab.operator(), client(lab, "new") as asking:
        asking.create_topics([NewTopic("moved", replica_assignments=SETS)], timeout_ms=60_000)
    wait_for_sets(lab, "moved", SETS)
    rows = [{"topic": "moved", "partition": n, "replicas": list(ids)} for n, ids in MOVED.items()]
    (directory / "plan.json").write_text(json.dumps({"version": 1, "partitions": rows}))
    wanted = {"plan": "plan.json", "throttle_bytes_s": 5_000_000}
    path = write_cluster_inventory(lab, directory / "moves.yml", "new", {"reassign": wanted})
    book = ("--playbook", "kafka_reassign", "--run-id", "moves", "--yes")
    assert asked(lab, path, "run", *book, timeout_s=300).returncode == 0
    wait_for_sets(lab, "moved", MOVED)
    back = asked(lab, path, "rollback", *book, timeout_s=300)
    assert back.returncode == 0
    assert "[ok] reassign.back: " in back.stdout
    wait_for_sets(lab, "moved", SETS)
    with lab.operator(), closing(Brokers(",".join(addresses(lab, "new")))) as brokers:
        assert (brokers.in_flight(), brokers.settings()) == ({}, {})


def a_broker_leaves_and_comes_back_on_kraft(lab: Lab, directory: Path) -> None:
    """Broker 3 is cordoned, emptied and stops, and Kafka forgets both; on the way back it runs again without
    a cordon, and is refilled."""
    with lab.operator(), client(lab, "new") as asking:
        asking.delete_topics(["both"], timeout_ms=60_000)  # two brokers hold no three replicas
        asking.create_topics([NewTopic("leaving", replica_assignments=LEAVING)], timeout_ms=60_000)
    wait_for_sets(lab, "leaving", LEAVING)
    wanted = {"brokers": [3], "throttle_bytes_s": 5_000_000}
    path = write_cluster_inventory(lab, directory / "leaving.yml", "new", {"removal": wanted})
    book = ("--playbook", "kafka_remove_brokers", "--run-id", "leaving", "--yes")
    went = asked(lab, path, "run", *book, timeout_s=300)
    assert went.returncode == 0
    for told in (
        f"[ok] remove.excluded: new replicas are kept away; {CORDONED}={CORDON_ALL} on brokers 3",
        f"[ok] remove.cordon-stays: {CORDONED} of the run is unset; unset at the controller for brokers 3",
        "[ok] remove.forgotten: the cluster has forgotten the brokers that stopped; 3",
    ):
        assert told in went.stdout
    assert lab.status()["hosts"]["new3"]["unit_state"] != "active"
    with lab.operator():
        now = Brokers(",".join(addresses(lab, "new"))).partitions()
        cordon = AlterAtController(KAFKA, 3, CORDONED, None, CORDON_ALL)
        forgotten = reassignments.refused_at_controller(addresses(lab, "new")[:2], cordon)
    assert forgotten == Seen("BROKER_ID_NOT_REGISTERED: No node with id 3 found.")
    assert sorted(now) == ["leaving-0", "leaving-1", "moved-0", "moved-1"]
    assert {tuple(sorted(one.replicas)) for one in now.values()} == {(1, 2)}
    assert asked(lab, path, "rollback", *book, timeout_s=300).returncode == 0
    wait_for_sets(lab, "leaving", LEAVING)
    with lab.operator(), closing(Brokers(",".join(addresses(lab, "new")))) as brokers:
        assert (brokers.in_flight(), brokers.settings()) == ({}, {})
        own = reassignments.broker_settings(addresses(lab, "new"), CORDONED, (1, 2, 3))
    assert isinstance(own, Seen)
    assert [one.value.own for one in own.value.values() if isinstance(one, Seen)] == [None] * 3


def wait_for_sets(lab: Lab, topic: str, wanted: Mapping[int, Sequence[int]]) -> None:
    """In order and in sync, as a client sees them."""

    def missing() -> str | None:
        with lab.operator():
            seen = Brokers(",".join(addresses(lab, "new"))).partitions()
        odd = not_as(seen, {f"{topic}-{number}": ids for number, ids in wanted.items()})
        return "; ".join(odd) or None

    wait_until(f"the sets of topic {topic}", missing, 60)


WRITEBACK = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
"""The limits of what the kernel writes back by itself; only cgroup v1 has them."""
LIMIT = {"disk_mb_s": 8} if WRITEBACK.exists() else {}

SHAPE = {
    "ensembles": [{"name": "zk", "count": 1}],
    "clusters": [
        {
            "name": "new",
            "version": "4.3.1",
            "controllers": 1,
            "brokers": [
                {"rack": "a", "controller": True, **DISKS},
                {"rack": "b", "controller": True, **DISKS},
                {"rack": "b", **DISKS},
            ],
        },
        {
            "name": "old",
            "ensemble": "zk",
            "chroot": "/old",
            "brokers": [{"rack": "z", **LIMIT, **DISKS}],
        },
        {"name": "next", "version": "3.9.1", "brokers": [{"controller": True}]},
    ],
}
RACKS = {"new": {1: "a", 2: "b", 3: "b"}, "old": {1: "z"}, "next": {1: ""}}
ON_DISKS = ["/var/lib/kafka/disk1", "/var/lib/kafka/disk2"]
LOG_DIRS = {"new": ON_DISKS, "old": ON_DISKS, "next": ["/var/lib/kafka"]}


def addresses(lab: Lab, cluster: str) -> list[str]:
    plans = lab.members(cluster)
    return [f"{plan.address}:{KAFKA_PORT}" for plan in plans if plan.role is Role.BROKER]


def client(lab: Lab, cluster: str) -> Any:
    """An admin client; it connects from where it is made, so make and use it in the operator's place."""
    return closing(KafkaAdminClient(bootstrap_servers=addresses(lab, cluster), request_timeout_ms=60_000))


def cluster_is_as_its_shape_says(lab: Lab, cluster: str, replicas: int) -> str:
    """Racks, log directories and a record that all replicas have; the id of the cluster."""
    with lab.operator():
        seen = cluster_view.view(addresses(lab, cluster), lambda: None)
        assert isinstance(seen, Seen), seen
        racks = {id: rack for id, (_host, _port, rack) in seen.value.brokers.items()}
        assert racks == RACKS[cluster]
        with client(lab, cluster) as asking:
            for broker in asking.describe_log_dirs():
                assert sorted(found["log_dir"] for found in broker["log_dirs"]) == LOG_DIRS[cluster]
            asking.create_topics([NewTopic("both", 4, replicas)], timeout_ms=60_000)
        with closing(KafkaProducer(bootstrap_servers=addresses(lab, cluster), acks="all")) as producer:
            for partition in range(4):
                sent = producer.send("both", b"x", partition=partition).get(timeout=60)
                assert (sent.partition, sent.offset) == (partition, 0)
    return seen.value.cluster_id


def test_x9_clusters_of_three_kinds_in_one_lab(tmp_path: Path) -> None:
    with Lab.up(LabSpec(shape=Shape.from_json(SHAPE)), print) as lab:
        ids = {
            cluster: cluster_is_as_its_shape_says(lab, cluster, replicas)
            for cluster, replicas in (("new", 3), ("old", 1), ("next", 1))
        }
        assert len(set(ids.values())) == 3
        for cluster in ids:
            text = write_cluster_inventory(lab, tmp_path / f"{cluster}.yml", cluster).read_text()
            assert f"cluster_id: {ids[cluster]}\n" in text
        with lab.zookeeper("zk") as zookeeper:
            assert zookeeper.get_children("/old/brokers/ids") == ["1"]

        partitions_move_on_kraft(lab, tmp_path)
        a_broker_leaves_and_comes_back_on_kraft(lab, tmp_path)

        for name, disk, megabytes in (("new1", 1, 128), ("new3", 2, 256), ("old1", 2, 256)):
            there = lab.host(name).root / f"var/lib/kafka/disk{disk}"
            size = lab.exec(name, ["df", "-m", "--output=size", f"/var/lib/kafka/disk{disk}"]).stdout
            assert megabytes / 2 < int(size.split()[1]) < megabytes
            assert (there / "meta.properties").exists()
        write = ["dd", "if=/dev/zero", "of=/var/lib/kafka/disk2/one", "bs=1k", "count=1", "conv=fsync"]
        fault.disk_full(lab, "new3", 2)
        assert "No space left on device" in lab.exec("new3", write, check=False).stderr
        lab.exec("new3", [word.replace("disk2", "disk1") for word in write])
        fault.disk_free(lab, "new3", 2)
        limited = a_limited_disk(lab, "old1") if LIMIT else no_limited_disk(lab, "old1")
        lab.exec("new3", write)

        states = lab.status()["hosts"]
        assert {host["unit_state"] for host in states.values() if "unit" in host} == {"active"}
        assert [states[name]["role"] for name in ("new-ctl1", "zk1")] == ["controller", "source"]
        lab_id = lab.id
    assert no_trace.traces(lab_id) == []
    assert not LIMIT or limited not in WRITEBACK.read_text()


def no_limited_disk(lab: Lab, host: str) -> str:
    """Where the machine cannot limit disks, the lab says so and makes none without the limit."""
    with pytest.raises(LabError, match="no cgroup v1 hierarchy blkio"):
        control_groups.limit_disks(lab.id, host, [lab.host(host).root / "var/lib/kafka/disk2"], 8)
    return ""


def a_limited_disk(lab: Lab, host: str) -> str:
    """16 MiB at 8 MB/s take two seconds, and no machine makes them faster: written by a process of the host,
    and written back by the kernel. The disk's number."""
    number = (lab.host(host).root / "var/lib/kafka/disk2").stat().st_dev
    write = ["dd", "if=/dev/zero", "of=/var/lib/kafka/disk2/sixteen", "bs=1M", "count=16"]
    write_back = ["sync", "-f", "/var/lib/kafka/disk2"]
    began = time.monotonic()
    lab.exec(host, ["systemd-run", "--quiet", "--wait", "--pipe", *write, "oflag=direct"])
    assert time.monotonic() - began > 1.5
    began = time.monotonic()
    lab.exec(host, write)
    lab.exec(host, write_back)  # by a process outside the host's group, as the kernel's are
    assert time.monotonic() - began > 1.5
    lab.exec(host, ["rm", "/var/lib/kafka/disk2/sixteen"])
    return f"{os.major(number)}:{os.minor(number)}"
