"""What goes on under the chroot, and who else keeps things there, seen through one dest host.

Costs about ten reads in the operator's session on that host, and one more for each partition where
``changed`` is asked for. Paths: ``kafka.zk.ZkData``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.kafka.facts.cluster import Controller, controller
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.look import KafkaView, Look

_KAFKAS = frozenset(
    {
        *("admin", "brokers", "cluster", "config", "consumers", "controller", "controller_epoch"),
        *("delegation_token", "feature", "isr_change_notification", "latest_producer_id_block"),
        *("kafka-acl", "kafka-acl-changes", "kafka-acl-extended", "kafka-acl-extended-changes"),
        *("log_dir_event_notification", "migration"),
    }
)
"""What Kafka itself has right under its chroot."""

_TOOLS = {"kafka-manager": "CMAK", "CruiseControlBrokerList": "Cruise Control", "burrow": "Burrow"}
"""Where tools that work on Kafka through ZooKeeper keep their own state, at the root or in the chroot."""


@dataclass(frozen=True)
class Chroot:
    """controller: as registered. deleting: topics marked for deletion. electing: whether a preferred-leader
    election has been ordered and not carried out.

    strangers: paths that are not Kafka's own, with the tool's name where it is known. groups: consumer groups
    that keep their place in ZooKeeper. changed: ``TOPIC-PARTITION`` → when its leader or ISR last changed, as
    ``Znode.modified_ms``.
    """

    controller: Reading[Controller]
    deleting: Reading[tuple[str, ...]]
    electing: Reading[bool]
    strangers: Reading[tuple[str, ...]]
    groups: Reading[tuple[str, ...]]
    changed: Reading[Mapping[str, int]]


def chroot_seen(look: Look, via: str, chroot: str, kafka: Reading[KafkaView] | None) -> Chroot:
    """Look through one dest host. kafka: the partitions for ``changed``; None leaves it unknown."""
    ordered = look.znode(via, f"{chroot}/admin/preferred_replica_election")
    return Chroot(
        controller(look, via, chroot),
        _children(look, via, f"{chroot}/admin/delete_topics"),
        ordered if isinstance(ordered, Unknown) else Seen(isinstance(ordered, Seen)),
        _strangers(look, via, chroot),
        _children(look, via, f"{chroot}/consumers"),
        Unknown("failed", "not looked at for this gate")
        if kafka is None
        else _changed(look, via, chroot, kafka),
    )


def _children(look: Look, via: str, path: str) -> Reading[tuple[str, ...]]:
    """The names below a path; none where the path itself is not there."""
    node = look.znode(via, path)
    if isinstance(node, Absent):
        return Seen(())
    return Seen(node.value.children) if isinstance(node, Seen) else node


def _strangers(look: Look, via: str, chroot: str) -> Reading[tuple[str, ...]]:
    own, root = look.znode(via, chroot), look.znode(via, "/")
    if not isinstance(own, Seen) or not isinstance(root, Seen):
        unread = own if not isinstance(own, Seen) else root
        return unread if isinstance(unread, Unknown) else Unknown("failed", f"{chroot} is not there")
    found = [f"{chroot}/{name}" for name in own.value.children if name not in _KAFKAS]
    found += [f"/{name}" for name in root.value.children if name in _TOOLS]
    return Seen(tuple(_named(path) for path in found))


def _named(path: str) -> str:
    tool = _TOOLS.get(path.rpartition("/")[2])
    return f"{path} ({tool})" if tool else path


def _changed(look: Look, via: str, chroot: str, kafka: Reading[KafkaView]) -> Reading[Mapping[str, int]]:
    if not isinstance(kafka, Seen):
        return kafka
    paths = {
        f"{chroot}/brokers/topics/{p.topic}/partitions/{p.partition}/state": f"{p.topic}-{p.partition}"
        for p in kafka.value.partitions
    }
    reading = look.modified(via, tuple(paths))
    if not isinstance(reading, Seen):
        return reading
    return Seen({paths[path]: at for path, at in reading.value.items()})
