"""Read the state under Kafka's chroot, and other tools' znodes there, through one dest host.

This takes about ten reads in the operator's session, and one per partition for ``changed``. The paths are
those of ``kafka.zk.ZkData``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.kafka.facts.cluster import Controller, controller
from zkmigrate.kafka.questions import KafkaView
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.data.chroot import KAFKA_NAMES, SYSTEM_ROOT, Chroot
from zkmigrate.zookeeper.questions import ReadModified, ReadZnode

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
    names = chroot.names or KAFKA_NAMES
    found = [f"{chroot.prefix}/{name}" for name in own.value.children if name not in names]
    found += [f"/{name}" for name in root.value.children if name in _TOOLS and chroot.prefix]
    return Seen(tuple(path for path in found if path != SYSTEM_ROOT))


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
