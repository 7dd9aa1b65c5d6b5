"""Read the state under Kafka's chroot, and other tools' znodes there, through one dest host.

This takes about ten reads in the operator's session, and one per partition for ``changed``. The paths are
those of ``kafka.zk.ZkData``. Before the join no dest host has them; the znodes directly below ``/`` are then
read from source's disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from zkmigrate.kafka.facts.cluster import Controller, controller
from zkmigrate.kafka.questions import KafkaView
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Teller
from zkmigrate.zookeeper.data.chroot import KAFKA_NAMES, SYSTEM_ROOT, Chroot
from zkmigrate.zookeeper.data.reader import Directory
from zkmigrate.zookeeper.data.snapname import snapshot_files
from zkmigrate.zookeeper.data.tree import load_tree
from zkmigrate.zookeeper.facts.disk import read_disk
from zkmigrate.zookeeper.questions import ReadModified, ReadZnode

AT_MOST = 64 << 20
"""The bytes of the largest snapshot that is read before the join."""

_TOOLS = {"kafka-manager": "CMAK", "CruiseControlBrokerList": "Cruise Control", "burrow": "Burrow"}
"""Znodes of tools that manage Kafka through ZooKeeper, at the root or in the chroot."""


@dataclass(frozen=True)
class ChrootState:
    """The state under Kafka's chroot.

    controller: the registered controller. deleting: topics marked for deletion. electing: whether a
    preferred-leader election was requested and is not finished. strangers: paths in the chroot that are
    neither Kafka's nor ZooKeeper's, and those of known tools elsewhere. groups: consumer groups with offsets
    in ZooKeeper. changed: ``TOPIC-PARTITION`` → the last change of its leader or ISR, as
    ``Znode.modified_ms``.
    """

    controller: Reading[Controller]
    deleting: Reading[tuple[str, ...]]
    electing: Reading[bool]
    strangers: Reading[tuple[str, ...]]
    groups: Reading[tuple[str, ...]]
    changed: Reading[Mapping[str, int]]


def chroot_seen(look: Look, via: str, chroot: Chroot, kafka: Reading[KafkaView] | None) -> ChrootState:
    """Read the state under the chroot through one dest host.

    kafka: the cluster with the partitions to read for ``changed``; None leaves ``changed`` unknown.
    """
    prefix = chroot.prefix
    ordered = look.ask(ReadZnode(via, f"{prefix}/admin/preferred_replica_election"))
    return ChrootState(
        controller(look, via, prefix),
        _children(look, via, f"{prefix}/admin/delete_topics"),
        ordered if isinstance(ordered, Unknown) else Seen(isinstance(ordered, Seen)),
        _strangers(look, via, chroot),
        _children(look, via, f"{prefix}/consumers"),
        Unknown("failed", "not checked at this gate")
        if kafka is None
        else _changed_znodes(look, via, prefix, kafka),
    )


def _children(look: Look, via: str, path: str) -> Reading[tuple[str, ...]]:
    """Return the names below a path; empty if the path does not exist."""
    node = look.ask(ReadZnode(via, path))
    if isinstance(node, Absent):
        return Seen(())
    return Seen(node.value.children) if isinstance(node, Seen) else node


def _strangers(look: Look, via: str, chroot: Chroot) -> Reading[tuple[str, ...]]:
    own, root = look.ask(ReadZnode(via, chroot.path)), look.ask(ReadZnode(via, "/"))
    if not isinstance(own, Seen) or not isinstance(root, Seen):
        unread = own if not isinstance(own, Seen) else root
        return unread if isinstance(unread, Unknown) else Unknown("failed", f"{chroot} does not exist")
    found = [f"/{name}" for name in root.value.children if name in _TOOLS and chroot.prefix]
    return Seen((*_not_kafkas(chroot, own.value.children), *found))


def _not_kafkas(chroot: Chroot, names: Iterable[str]) -> tuple[str, ...]:
    """Return the paths of the znodes directly in the chroot that are neither Kafka's nor ZooKeeper's."""
    own = chroot.names or KAFKA_NAMES
    paths = (f"{chroot.prefix}/{name}" for name in names if name not in own)
    return tuple(path for path in paths if path != SYSTEM_ROOT)


def strangers_on_disk(
    host: str, data: Directory, logs: Directory, chroot: Chroot, tell: Teller
) -> Reading[tuple[str, ...]]:
    """Return the znodes directly below ``/`` that are neither Kafka's nor ZooKeeper's, from source's disk.

    host: the source host. data, logs: its ``version-2`` directories. tell: receives the progress. A snapshot
    of more than ``AT_MOST`` bytes is not read.
    """
    size = next((file.size for file in snapshot_files(data)), 0)
    if size > AT_MOST:
        return Unknown("failed", f"{host}: its newest snapshot has {size >> 20} MB, more than is read now")

    def report(done: int, _total: int | None) -> None:
        tell(f"{host}'s snapshot, to find znodes of others", f"{done} transactions")

    tree = read_disk(lambda: load_tree(data, logs, tell=report))
    if not isinstance(tree, Seen):
        return tree
    names = sorted(path[1:] for path in tree.value.nodes if path.count("/") == 1 and path != "/")
    return Seen(_not_kafkas(chroot, names))


def describe(path: str) -> str:
    """Return a path with the name of the tool that keeps its state there, if it is known."""
    tool = _TOOLS.get(path.rpartition("/")[2])
    return f"{path} ({tool})" if tool else path


def _changed_znodes(
    look: Look, via: str, prefix: str, kafka: Reading[KafkaView]
) -> Reading[Mapping[str, int]]:
    if not isinstance(kafka, Seen):
        return kafka
    paths = {
        f"{prefix}/brokers/topics/{p.topic}/partitions/{p.partition}/state": f"{p.topic}-{p.partition}"
        for p in kafka.value.partitions
    }
    reading = look.ask(ReadModified(via, tuple(paths)))
    if not isinstance(reading, Seen):
        return reading
    return Seen({paths[path]: at for path, at in reading.value.items()})
