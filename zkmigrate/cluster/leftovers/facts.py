"""Facts about a cluster besides its topics: znodes, throttles, directories on brokers' disks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from zkmigrate import json_text
from zkmigrate.cluster.leftovers.section import Leftovers, LeftoversInventory
from zkmigrate.cluster.reassign.answers import Flights
from zkmigrate.cluster.reassign.throttle import Values, read, values
from zkmigrate.hosts.facts.properties import properties
from zkmigrate.hosts.facts.status import unit_status
from zkmigrate.inventory.inventory import Broker
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.kafka.facts.broker import log_directory, log_places
from zkmigrate.kafka.facts.cluster import cluster_id, controller
from zkmigrate.kafka.facts.replica_directories import Directory, directories
from zkmigrate.kafka.questions import (
    ClusterTopics,
    DescribeLogDirs,
    DescribePartitions,
    ListReassignments,
    ListTopics,
    LogDir,
    PartitionState,
    TopicPartitions,
)
from zkmigrate.kafka.rules import znodes as rules
from zkmigrate.kafka.rules.identity import Identity, identity
from zkmigrate.kafka.rules.stray import why_stray
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context
from zkmigrate.zookeeper.questions import ReadAcls, ReadZnode, Rights, Znode

WITNESSES = 3
"""The number of brokers that answer each query about partitions."""


@dataclass(frozen=True)
class Kept:
    """A znode and its ACL. path: the znode's path below the chroot."""

    path: str
    znode: Znode
    acl: Rights


@dataclass(frozen=True)
class Tree:
    """Kafka's znodes that may be leftovers.

    cluster_id: the id in ``/cluster/id``.
    steady: whether the same broker was controller, in the same epoch, before and after its znodes were read.
    assigned: the topics that no broker lists, although their znode assigns replicas.
    deleting: the topics that are being deleted.
    found: the possible leftovers by path. Each value has the znodes below that path, children first, and then
    the znode itself.
    """

    cluster_id: str
    steady: bool
    assigned: frozenset[str]
    deleting: frozenset[str]
    found: Mapping[str, tuple[Kept, ...]]


@dataclass(frozen=True)
class Disks:
    """The directories of one broker.

    runs: whether the broker's process runs; if its host was not read, whether the broker answers.
    looked: whether the directories were read over ssh, so that a run can change them.
    mounts: the mount points of the broker's host.
    identity: whether the broker finds its own id and cluster in its directories, so that it could start
    again; None if its config was not read.
    """

    broker: Broker
    runs: bool
    looked: bool
    directories: tuple[Directory, ...]
    mounts: frozenset[str] = frozenset()
    identity: Identity | None = None


@dataclass(frozen=True)
class Scan:
    """Everything that was read to find leftovers.

    tree: Absent if the inventory names no ZooKeeper.
    partitions: the partitions of every topic that a broker, a znode or a directory names.
    throttles: the throttle settings that are set.
    unread: descriptions of sources that could not be read, which does not stop the run.
    wall_s: the time of the reading, in seconds since the epoch.
    """

    cluster: Reading[ClusterTopics]
    in_flight: Reading[Flights]
    tree: Reading[Tree]
    partitions: Reading[TopicPartitions]
    throttles: Reading[Values]
    disks: tuple[Disks, ...]
    unread: tuple[str, ...]
    wall_s: float

    @property
    def missing_answer(self) -> Unknown | None:
        """The reason why the first missing answer is missing; None if every answer arrived."""
        told: tuple[Reading[object], ...] = (
            self.cluster, self.in_flight, self.tree, self.partitions, self.throttles,
        )  # fmt: skip
        return next((one for one in told if isinstance(one, Unknown)), None)

    @property
    def live(self) -> frozenset[str]:
        """The topics that exist according to a broker or ZooKeeper."""
        named = self.cluster.value.names if isinstance(self.cluster, Seen) else ()
        told = self.partitions.value.topics if isinstance(self.partitions, Seen) else {}
        known = [topic for topic, one in told.items() if not isinstance(one, Absent)]
        assigned = self.tree.value.assigned if isinstance(self.tree, Seen) else ()
        return frozenset((*named, *known, *assigned))

    def told(self, topic: str) -> Reading[tuple[PartitionState, ...]]:
        """Return the partitions of a topic; Absent only if neither a broker nor ZooKeeper knows the topic."""
        told = self.partitions.value.topics if isinstance(self.partitions, Seen) else {}
        one = told.get(topic, Unknown("failed", f"topic {topic} was not checked"))
        if isinstance(one, Absent) and topic in self.live:
            return Unknown("failed", f"ZooKeeper has topic {topic}, but the brokers do not")
        return one


def section(c: Context) -> Leftovers:
    """Return the section ``leftovers`` of the inventory. Raises TypeError if there is none."""
    if not isinstance(c.inventory, LeftoversInventory):
        raise TypeError("the inventory of this playbook needs a section leftovers")
    return c.inventory.leftovers


def scan(c: Context, look: Look) -> Scan:
    """Read from the cluster everything that is needed to find leftovers.

    The topics are read last, so that a topic created meanwhile does not count as a leftover.
    """
    wanted = section(c)
    wall_s = look.wall()
    in_flight = look.ask(ListReassignments(KAFKA))
    disks, unread = _disks(c, look)
    before = look.ask(ListTopics(KAFKA))
    tree = _tree(wanted, look, before) if wanted.doors else Absent("zookeeper")
    cluster = look.ask(ListTopics(KAFKA))
    named = set(cluster.value.names) if isinstance(cluster, Seen) else set()
    named |= {one.topic for disk in disks for one in disk.directories}
    named |= {topic for path in _paths(tree) if (topic := rules.topic_of(path))}
    partitions = look.ask(DescribePartitions(KAFKA, tuple(sorted(named)), WITNESSES))
    throttles = _throttles(look, partitions)
    disks = tuple(_with_sizes(look, one, partitions) for one in disks)
    return Scan(cluster, in_flight, tree, partitions, throttles, disks, unread, wall_s)


def _paths(tree: Reading[Tree]) -> Iterable[str]:
    return tree.value.found if isinstance(tree, Seen) else ()


def _throttles(look: Look, partitions: Reading[TopicPartitions]) -> Reading[Values]:
    if not isinstance(partitions, Seen):
        return Seen({})
    topics = [topic for topic, one in partitions.value.topics.items() if isinstance(one, Seen)]
    told = read(look, sorted(partitions.value.brokers), topics)
    return Seen(values(told.value)) if isinstance(told, Seen) else told


# -- znodes


def _tree(wanted: Leftovers, look: Look, topics: Reading[ClusterTopics]) -> Reading[Tree]:
    """Read the znodes through the first server that answers."""
    if not isinstance(topics, Seen):
        return Unknown("failed", "no broker lists its topics")
    told: Reading[Tree] = Unknown("failed", "no ZooKeeper server responds")
    for door in wanted.doors:
        told = _tree_at(_Reader(look, door, wanted.chroot), frozenset(topics.value.names))
        if isinstance(told, Seen):
            break
    return told


class _UnreadError(Exception):
    def __init__(self, why: Unknown) -> None:
        super().__init__(str(why))
        self.why = why


@dataclass(frozen=True)
class _Reader:
    look: Look
    door: str
    chroot: str

    def node(self, path: str) -> Znode | None:
        """Return a znode, or None if it does not exist."""
        told = self.look.ask(ReadZnode(self.door, self.chroot + path))
        if isinstance(told, Unknown):
            raise _UnreadError(told)
        return told.value if isinstance(told, Seen) else None

    def names(self, path: str) -> tuple[str, ...]:
        node = self.node(path)
        return node.children if node is not None else ()

    def below(self, path: str) -> Iterator[tuple[str, Znode]]:
        """Yield all znodes below a path, then the znode itself."""
        node = self.node(path)
        if node is None:
            return
        for name in node.children:
            yield from self.below(f"{path}/{name}")
        yield path, node

    def kept(self, paths: Iterable[str]) -> dict[str, tuple[Kept, ...]]:
        found = {path: tuple(self.below(path)) for path in paths}
        every = [self.chroot + path for nodes in found.values() for path, _ in nodes]
        acls = self.look.ask(ReadAcls(self.door, every)) if every else Seen({})
        if isinstance(acls, Unknown):
            raise _UnreadError(acls)
        rights = acls.value if isinstance(acls, Seen) else {}
        return {
            top: tuple(
                Kept(path, node, rights[self.chroot + path])
                for path, node in nodes
                if self.chroot + path in rights
            )
            for top, nodes in found.items()
            if nodes
        }


def _tree_at(reader: _Reader, named: frozenset[str]) -> Reading[Tree]:
    id = cluster_id(reader.look, reader.door, reader.chroot)
    if isinstance(id, Unknown):
        return id
    if isinstance(id, Absent):
        return Unknown("failed", f"{reader.door} has no {reader.chroot}/cluster/id; check the chroot")
    first = controller(reader.look, reader.door, reader.chroot)
    try:
        others = [topic for topic in reader.names(rules.TOPICS) if topic not in named]
        assigned = frozenset(
            topic for topic in others if _is_assigned(reader.node(f"{rules.TOPICS}/{topic}"))
        )
        deleting = frozenset(reader.names(rules.DELETIONS))
        configs = [topic for topic in reader.names(rules.CONFIGS) if topic not in named]
        paths = [f"{rules.TOPICS}/{topic}" for topic in others if topic not in assigned]
        paths += [f"{rules.DELETIONS}/{topic}" for topic in sorted(deleting)]
        paths += [f"{rules.CONFIGS}/{topic}" for topic in configs]
        paths += [
            f"{folder}/{name}"
            for folder in (rules.ISR, rules.LOG_DIRS, rules.CHANGES)
            for name in reader.names(folder)
        ]
        paths += [rules.REASSIGNMENT, rules.ELECTION]
        found = reader.kept(path for path in paths if rules.removable(path))
    except _UnreadError as error:
        return error.why
    last = controller(reader.look, reader.door, reader.chroot)
    steady = isinstance(first, Seen) and first == last
    return Seen(Tree(id.value, steady, assigned, deleting, found))


def _is_assigned(node: Znode | None) -> bool:
    """Return whether ``/brokers/topics/TOPIC`` names a partition. Invalid JSON names none."""
    try:
        told = json_text.loads(node.data) if node is not None else None
    except ValueError:
        return False
    return isinstance(told, dict) and bool(told.get("partitions"))


# -- directories


_Seens: TypeAlias = tuple[tuple[Disks, ...], tuple[str, ...]]


def _disks(c: Context, look: Look) -> _Seens:
    """Read the directories over ssh if the inventory has a section ``ssh``, else from the brokers."""
    brokers = c.inventory.kafka.brokers
    if c.inventory.has("ssh"):
        by_name = {broker.name: broker for broker in brokers}
        read = look.each(by_name, lambda name: _disk_over_ssh(c, look, by_name[name]))
        found = tuple(one.value for one in read.values() if isinstance(one, Seen))
        return found, tuple(f"{name}: {one}" for name, one in read.items() if not isinstance(one, Seen))
    told = look.ask(DescribeLogDirs(KAFKA, tuple(broker.id for broker in brokers)))
    if not isinstance(told, Seen):
        return (), (str(told),)
    disks, unread = [], []
    for broker in brokers:
        dirs = told.value[broker.id]
        if isinstance(dirs, Seen):
            disks.append(Disks(broker, True, False, tuple(_directory_entries(dirs.value))))
        else:
            unread.append(f"{broker.name}: {dirs}")
    return tuple(disks), tuple(unread)


def _directory_entries(dirs: Mapping[str, Reading[LogDir]]) -> Iterator[Directory]:
    for path, one in dirs.items():
        for log in one.value.replicas if isinstance(one, Seen) else ():
            name = f"{log.topic}-{log.partition}"
            yield Directory(
                f"{path}/{name}", log.topic, log.partition, "future" if log.future else "", log.size, None
            )


def _disk_over_ssh(c: Context, look: Look, broker: Broker) -> Reading[Disks]:
    kafka = c.inventory.kafka
    status = unit_status(look, broker.name, kafka.service.unit, kafka.commands(broker.name))
    given = properties(look, broker.name, kafka.config)
    if not isinstance(status, Seen):
        return status
    if not isinstance(given, Seen):
        return given
    mounted = look.file(broker.name, "/proc/mounts")
    if not isinstance(mounted, Seen):
        return mounted
    mounts = frozenset(line.split(" ")[1] for line in mounted.value.decode("utf-8", "replace").splitlines())
    places = log_places(look, broker.name, kafka, given.value, status.value.unit_pid)
    if not isinstance(places, Seen):
        return places
    owners = {folder: log_directory(look, broker.name, place) for folder, place in places.value.items()}
    same = identity(kafka.config, given.value, owners, broker.id, kafka.cluster_id)
    found = directories(look, broker.name, places.value.values())
    if not isinstance(found, Seen):
        return found
    return Seen(Disks(broker, status.value.unit_pid != 0, True, found.value, mounts, same))


def _with_sizes(look: Look, disks: Disks, partitions: Reading[TopicPartitions]) -> Disks:
    """Add the sizes of stray directories, which need another query over ssh."""
    if not disks.looked or not isinstance(partitions, Seen):
        return disks
    topics = partitions.value.topics

    def sized(one: Directory) -> Directory:
        told = topics.get(one.topic, Unknown("failed", "not checked"))
        if not why_stray(one.topic, one.number, one.mark, disks.broker.id, told):
            return one
        listed = look.listing(disks.broker.name, one.path)
        size = sum(entry.size for entry in listed.value) if isinstance(listed, Seen) else 0
        return replace(one, size=size)

    return replace(disks, directories=tuple(map(sized, disks.directories)))
