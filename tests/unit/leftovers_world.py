"""A model world of a Kafka cluster with ZooKeeper and disks, where things were left, and its operator."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from playbooks.kafka_clean_leftovers import PLAYBOOK
from tests.unit.engine_world import PointDisk, Points, TinyClock, TinyConfirm, TinyLock
from tests.unit.reassign_world import ID, Held, ReassignLook, ReassignWorld
from zkmigrate.cluster.leftovers.section import Leftovers, LeftoversInventory
from zkmigrate.cluster.reassign.throttle import FOLLOWER_LIST, LEADER_RATE
from zkmigrate.errors import HostError
from zkmigrate.hosts import zkm_host
from zkmigrate.inventory.inventory import Broker, Kafka, Ssh
from zkmigrate.kafka.questions import ClusterTopics, LogDir, LogDirs, ReplicaLog
from zkmigrate.kafka.rules.znodes import removable
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.engine.clock import Interrupt
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.engine.journal import NAME, Journal
from zkmigrate.runbook.engine.ports import Ports
from zkmigrate.runbook.engine.run import Walk
from zkmigrate.runbook.model.change import (
    Change,
    InstallProgram,
    MoveAside,
    Outcome,
    Restore,
    UninstallProgram,
)
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import DirEntry, Look
from zkmigrate.zookeeper.changes import CreateZnode, DeleteZnode
from zkmigrate.zookeeper.questions import Rights, Znode

T = TypeVar("T")

RECORDED = Path(__file__).parent.parent / "recorded" / "zkm-host" / "status-armed.txt"
CHROOT = "/kafka"
DISK = "/var/lib/kafka"
ANYBODY: Rights = ((31, "world", "anyone"),)
DAY_S = 86_400.0
MARK = "0" * 32
FACTS = re.sub("unit.*\n", "", (RECORDED.parent / "facts.txt").read_text()) + (
    "unit.WorkingDirectory=/var\n"
    "unit.ExecStart={ path=/k/bin/kafka-server-start.sh ; argv[]=/k/bin/kafka-server-start.sh /k.conf "
    "; ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }\n"
)
"""What zkm-host tells of a host whose unit starts the broker in /var."""


@dataclass
class Node:
    """A znode. made: its czxid."""

    data: bytes
    made: int
    changed: int
    version: int
    changed_s: float
    acl: Rights = ANYBODY


@dataclass
class LeftoversWorld:
    """kafka: the brokers. tree: znodes by path below the chroot. disks: by broker's name the directories of
    partitions, with bytes and the time of their last change. running: brokers that run. aside: what was moved
    aside, by host and operation. installed: hosts with zkm-host. elected: looks at the controller that find
    another one each time. unnamed: topics that the list of all topics lacks, as by a broker that has just
    started. lost: so many changes of znodes are made without an answer. before_delete: called
    before a znode goes. mounts: mount points of every host.
    refuses_moves: of directories. ids: in configs that were changed. made: the changes that were made."""

    kafka: ReassignWorld
    now: Callable[[], float]
    tree: dict[str, Node] = field(default_factory=dict)
    disks: dict[str, dict[str, tuple[int, float]]] = field(default_factory=dict)
    running: set[str] = field(default_factory=lambda: {"broker1", "broker2"})
    aside: dict[tuple[str, str], tuple[str, tuple[int, float]]] = field(default_factory=dict)
    installed: set[str] = field(default_factory=set)
    elected: int = 0
    lost: int = 0
    unnamed: set[str] = field(default_factory=set)
    mounts: tuple[str, ...] = ("/", "/var/lib")
    refuses_moves: bool = False
    ids: dict[str, str] = field(default_factory=dict)
    log_dirs: str = DISK
    zxid: int = 100
    made: list[Change] = field(default_factory=list)

    def put(self, path: str, data: bytes = b"", age_s: float = DAY_S, acl: Rights = ANYBODY) -> None:
        """Make or change a znode."""
        self.zxid += 1
        old = self.tree.get(path)
        made, version = (old.made, old.version + 1) if old is not None else (self.zxid, 0)
        self.tree[path] = Node(data, made, self.zxid, version, self.now() - age_s, acl)

    def create_topic(self, topic: str) -> None:
        """As a controller does it."""
        self.kafka.topics[topic] = {}
        self.kafka.held[topic, 0] = Held((1, 2), (1, 2), 1, 1)
        self.put(f"/config/topics/{topic}", b"{}", 0)
        self.put(f"/brokers/topics/{topic}", json.dumps({"partitions": {"0": [1, 2]}}).encode(), 0)

    @property
    def state(self) -> object:
        """All that a run may change, whenever it was made."""
        znodes = {path: (node.data, node.acl) for path, node in self.tree.items()}
        rates = {id: own for id, own in self.kafka.rates.items() if own}
        return copy.deepcopy((znodes, self.kafka.topics, rates, self.disks))

    def apply(self, change: Change, operation: str) -> Outcome:
        self.made.append(change)
        match change:
            case DeleteZnode() | CreateZnode():
                assert change.chroot == CHROOT
                assert removable(change.path)
                outcome = self._znode(change)
                if self.lost:
                    self.lost -= 1
                    raise HostError("the connection broke")
                return outcome
            case MoveAside():
                if self.refuses_moves:
                    return Outcome(3, "another file system")
                assert change.folder == f"{DISK}.zkm-r-1"
                found = self.disks[change.host].pop(change.path.rpartition("/")[2], None)
                if found is not None:
                    self.aside[change.host, operation] = change.path, found
                return Outcome(0)
            case Restore():
                path, found = self.aside.pop((change.host, change.operation), ("", (0, 0.0)))
                if path:
                    self.disks[change.host][path.rpartition("/")[2]] = found
                return Outcome(0)
            case InstallProgram():
                self.installed.add(change.host)
                return Outcome(0)
            case UninstallProgram():
                self.installed.discard(change.host)
                return Outcome(0)
            case _:
                return Outcome(*self.kafka.alter(cast(Any, change)))

    def _znode(self, change: DeleteZnode | CreateZnode) -> Outcome:
        node = self.tree.get(change.path)
        if isinstance(change, CreateZnode):
            if node is None:
                self.put(change.path, change.data, acl=change.acl)
            return Outcome(0)
        if node is None:
            return Outcome(0)
        if change.mark != f"{node.made:x} {node.changed:x} {node.version}":
            return Outcome(1, "changed")
        assert not any(path.startswith(f"{change.path}/") for path in self.tree), "children first"
        del self.tree[change.path]
        return Outcome(0)


@dataclass(frozen=True)
class LeftoversLook(ReassignLook):
    """A look at the cluster, its znodes and its disks."""

    all: LeftoversWorld = field(kw_only=True)

    def each(self, hosts: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        return {host: ask(host) for host in hosts}

    def topics(self, cluster: str) -> Reading[ClusterTopics]:
        told = super().topics(cluster)
        if not isinstance(told, Seen):
            return told
        names = tuple(name for name in told.value.names if name not in self.all.unnamed)
        return Seen(ClusterTopics(told.value.cluster_id, names))

    def znode(self, _host: str, path: str) -> Reading[Znode]:
        tree, below = self.all.tree, path.removeprefix(CHROOT)
        if below == "/controller" and self.all.elected:
            self.all.elected -= 1
            del self.all.tree["/controller"]
            self.all.put("/controller", b'{"brokerid": 1}', 0)
        above = f"{below}/"
        children = {rest[len(above) :].partition("/")[0] for rest in tree if rest.startswith(above)}
        node = tree.get(below)
        if node is None and not children:
            return Absent(path)
        node = node or Node(b"", 1, 1, 0, 0.0)
        ms = int(node.changed_s * 1000)
        return Seen(
            Znode(
                node.data, node.made, node.changed, 0, 0, node.version, tuple(sorted(children)), ms
            )
        )  # fmt: skip

    def acls(self, _host: str, paths: Sequence[str]) -> Reading[Mapping[str, Rights]]:
        below = {path: path.removeprefix(CHROOT) for path in paths}
        return Seen({path: self.all.tree[at].acl for path, at in below.items() if at in self.all.tree})

    def zkm(self, host: str, *words: str) -> Reading[str]:
        if words[0] == "facts":
            return Seen(FACTS)
        assert words[0] == "status"
        pid = 46 if host in self.all.running else 0
        return Seen(RECORDED.read_text().replace("unit_pid=46", f"unit_pid={pid}"))

    def file(self, host: str, path: str) -> Reading[bytes]:
        if path == zkm_host.INSTALLED_PATH:
            return Seen(zkm_host.program()) if host in self.all.installed else Absent(path)
        if path == "/proc/mounts":
            return Seen("".join(f"/dev/vda {at} ext4 rw 0 0\n" for at in self.all.mounts).encode())
        id = host.removeprefix("broker")
        if path.endswith("meta.properties"):
            return Seen(f"broker.id={id}\ncluster.id={ID}\n".encode())
        return Seen(f"broker.id={self.all.ids.get(host, id)}\nlog.dirs={self.all.log_dirs}\n".encode())

    def log_dirs(
        self, _cluster: str, brokers: Sequence[int], partitions: Mapping[str, Sequence[int]] | None = None
    ) -> Reading[Mapping[int, LogDirs]]:
        assert partitions is None, "of topics that nobody knows, too"
        told: dict[int, LogDirs] = {}
        for id in brokers:
            logs = [
                ReplicaLog(name.rpartition("-")[0], int(name.rpartition("-")[2]), size, 0, future=False)
                for name, (size, _) in self.all.disks[f"broker{id}"].items()
                if "." not in name
            ]
            told[id] = Seen({DISK: Seen(LogDir(tuple(logs)))})
        return Seen(told)

    def listing(self, host: str, path: str) -> Reading[tuple[DirEntry, ...]]:
        if host not in self.all.disks:
            return Unknown("unreachable", f"{host} does not answer")
        if path == zkm_host.STATE_DIR:
            return Absent(path)
        entries = self.all.disks[host]
        if path == DISK:
            return Seen(
                (
                    *(DirEntry(name, "d", 4096, int(at * 1e9)) for name, (_, at) in entries.items()),
                    DirEntry("meta.properties", "f", 88, 0),
                )
            )
        size, _ = entries[path.rpartition("/")[2]]
        return Seen((DirEntry("00000000000000000000.log", "f", size, 0),))


def world(now: Callable[[], float]) -> LeftoversWorld:
    """Two topics that live, and one leftover of each kind."""
    kafka = ReassignWorld(ID, {}, rates={2: {LEADER_RATE: "77"}})
    made = LeftoversWorld(kafka, now)
    for topic in ("live", "live2"):
        made.create_topic(topic)
    kafka.topics["live"][FOLLOWER_LIST] = "0:2"
    made.put("/cluster/id", json.dumps({"version": "1", "id": ID}).encode())
    made.put("/controller", b'{"brokerid": 1}')
    made.put("/controller_epoch", b"3")
    made.put("/admin/delete_topics/gone")
    made.put("/brokers/topics/empty", b"not json")
    made.put("/brokers/topics/empty/partitions/0/state", b"{}")
    made.put("/brokers/topics/empty/partitions/0")
    made.put("/brokers/topics/empty/partitions")
    made.put("/config/topics/old", b'{"config":{"retention.ms":"1"}}', acl=((31, "digest", "a:b"),))
    made.put("/isr_change_notification/isr_change_0000000001", b"{}")
    made.put("/log_dir_event_notification/log_dir_event_0000000000", b"{}")
    for n in range(3):
        made.put(f"/config/changes/config_change_{n:010}", b"{}")
    made.put("/admin/reassign_partitions", b"garbage")
    made.put("/admin/preferred_replica_election", b"garbage")
    old = now() - DAY_S
    made.disks = {
        "broker1": {"live-0": (10, old), "gone-0": (1000, old), f"live2-0.{MARK}-delete": (20, old)},
        "broker2": {"live-0": (10, old), "live2-7": (30, old)},
    }
    return made


ALL = (
    "/admin/delete_topics/gone",
    "/brokers/topics/empty",
    "/config/topics/old",
    "/isr_change_notification/isr_change_0000000001",
    "/log_dir_event_notification/log_dir_event_0000000000",
    "/config/changes/config_change_0000000000",
    "/config/changes/config_change_0000000001",
    "/config/changes/config_change_0000000002",
    "/admin/reassign_partitions",
    "/admin/preferred_replica_election",
    "broker/2/leader.replication.throttled.rate",
    "topic/live/follower.replication.throttled.replicas",
    f"broker1:{DISK}/gone-0",
    f"broker1:{DISK}/live2-0.{MARK}-delete",
    f"broker2:{DISK}/live2-7",
)
"""Every leftover of that world, in the order in which they are listed."""

ZNODES_AND_SETTINGS = ALL[:12]


def inventory(*remove: str, ssh: bool = True, older_than_s: int = 3600) -> LeftoversInventory:
    brokers = tuple(Broker(name=f"broker{n}", address=f"10.0.0.2{n}", id=n) for n in (1, 2))
    given: dict[str, Any] = {"ssh": Ssh(user="a", key="k", known_hosts="h")} if ssh else {}
    return LeftoversInventory(
        version=1,
        name="leftovers",
        kafka=Kafka(cluster_id=ID, brokers=brokers),
        leftovers=Leftovers(
            zookeeper=f"10.0.0.1:2181,10.0.0.2:2181{CHROOT}", remove=remove, older_than_s=older_than_s
        ),
        **given,
    )


@dataclass
class Desk:
    """One run over one cluster."""

    run_dir: Path
    inventory: LeftoversInventory
    clock: TinyClock = field(default_factory=TinyClock)
    confirm: TinyConfirm = field(default_factory=TinyConfirm)
    seen: list[events.Event] = field(default_factory=list)
    before_change: Callable[[Change], None] = lambda _change: None

    def __post_init__(self) -> None:
        self.points = Points()
        self.world = world(self.clock.wall)
        self.first = self.world.state

    @property
    def look(self) -> Look:
        return cast(Look, LeftoversLook(self.world.kafka, self.clock, all=self.world))

    @property
    def left(self) -> tuple[str, ...]:
        """The leftovers that are there, of those the world began with."""
        tree, kafka = self.world.tree, self.world.kafka
        settings = [f"broker/{id}/{key}" for id, own in kafka.rates.items() for key in own]
        settings += [f"topic/{name}/{key}" for name, own in kafka.topics.items() for key in own]
        dirs = [f"{host}:{DISK}/{name}" for host, names in self.world.disks.items() for name in names]
        return tuple(name for name in ALL if name in (*tree, *settings, *dirs))

    def process(self, act: Callable[[Walk], RunEnded], points: Points | None = None) -> RunEnded:
        """One process's life."""
        self.points = points or Points()
        disk = PointDisk(self.points)
        there = (self.run_dir / NAME).exists()
        journal = (Journal.open if there else Journal.create)(self.run_dir, self.clock.wall, disk)
        if not journal.history.run:
            body = {"run": "r-1", "name": "", "playbook": PLAYBOOK.id, "inventory": "0", "plan": "0"}
            journal.append("begin", body)
        ports = Ports(
            look=self.look,
            apply=self._apply,
            clock=self.clock,
            confirm=self.confirm,
            lock=TinyLock(),
            interrupt=Interrupt(),
            emit=self.seen.append,
        )
        try:
            return act(Walk(PLAYBOOK, self.inventory, journal, ports))
        finally:
            journal.close()

    @property
    def history(self) -> History:
        """What the journal means now."""
        from zkmigrate.runbook.engine import journal

        return journal.read(self.run_dir)

    def _apply(self, change: Change, operation: str, fencing: int) -> Outcome:
        self.before_change(change)
        self.points.hit("apply")
        outcome = self.world.apply(change, operation)
        self.points.hit("applied")
        return outcome
