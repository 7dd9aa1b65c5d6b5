"""A model world of one Kafka cluster that loses brokers while topics are born, and its operator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, TypeVar, cast

from playbooks.kafka_remove_brokers import PLAYBOOK
from tests.unit.reassign_world import BROKERS, ID, RATE, Desk, Held, ReassignLook, ReassignWorld
from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign.throttle import LEADER_LIST, LEADER_RATE
from zkmigrate.cluster.removal.rules import CORDON_ALL, CORDONED, POLICY
from zkmigrate.cluster.removal.section import Removal, RemovalInventory
from zkmigrate.hosts import zkm_host
from zkmigrate.inventory.inventory import Broker, Kafka, Ssh
from zkmigrate.kafka.changes import AlterBrokerConfig, UnregisterBroker
from zkmigrate.kafka.questions import ClusterTopics, KafkaView, LogDir, LogDirs, ReplicaLog, TopicSetting
from zkmigrate.runbook.model.change import (
    Change,
    ClusterChange,
    HostChange,
    InstallProgram,
    Outcome,
    PutFile,
    Restore,
    SetService,
    UninstallProgram,
)
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import DirEntry, Look, Pulse, Volume
from zkmigrate.runbook.model.playbook import Playbook

T = TypeVar("T")

GONE = (4, 5)
STATUS = (Path(__file__).parents[1] / "recorded/zkm-host/status-started.txt").read_text()
FACTS = re.sub("unit.*\n", "", (Path(__file__).parents[1] / "recorded/zkm-host/facts.txt").read_text()) + (
    "unit.ExecStart={ path=/k/bin/kafka-server-start.sh ; argv[]=/k/bin/kafka-server-start.sh /k.conf "
    "; ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }\n"
)
"""What zkm-host tells of a host whose unit starts the broker in /."""
RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b"}
FREE = 10**9
POLICY_FILE = "/etc/kafka/excluded-brokers"


def nothing(_world: RemovalWorld) -> None:
    """For a world in which no topic is born."""


@dataclass
class RemovalWorld(ReassignWorld):
    """The cluster. cordons: its brokers know cordoned.log.dirs. policy: the class that all have loaded, empty
    for none. min_isr: of every topic. born: called at each look at the topics' names. strays: replicas on
    disks that no set names, by broker. unsized: partitions whose size no broker tells. birthplaces: the first
    set of each partition that was born. racks: by broker. installed: hosts with zkm-host. operations: what
    hosts were sent. stops: hosts in the
    order of their stops. outrun: topics come all the time. spared: what named a broker that stopped. deaf:
    hosts whose service does not stop. aside: directories on disks that Kafka has set aside, by broker.
    owners: ids in meta.properties, where they are not the broker's. files: what our policy reads, by host.
    found: the same before each operation. disk_named: the brokers' log.dirs."""

    cordons: bool = False
    policy: str = ""
    controller: int = 0
    min_isr: int = 1
    born: Callable[[RemovalWorld], None] = nothing
    strays: dict[int, list[Name]] = field(default_factory=dict)
    unsized: set[Name] = field(default_factory=set)
    racks: dict[int, str] = field(default_factory=lambda: dict(RACKS))
    birthplaces: dict[Name, tuple[int, ...]] = field(default_factory=dict)
    installed: set[str] = field(default_factory=set)
    operations: dict[str, Change] = field(default_factory=dict)
    stops: list[str] = field(default_factory=list)
    outrun: bool = False
    spared: list[Name] = field(default_factory=list)
    deaf: set[str] = field(default_factory=set)
    aside: dict[int, tuple[str, ...]] = field(default_factory=dict)
    owners: dict[int, int] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    found: dict[str, bytes | None] = field(default_factory=dict)
    disk_named: str = "/d"

    def copy(self) -> RemovalWorld:
        made = cast(RemovalWorld, super().copy())
        made.birthplaces, made.installed = dict(self.birthplaces), set(self.installed)
        made.operations, made.stops = dict(self.operations), list(self.stops)
        made.spared = list(self.spared)
        made.files, made.found = dict(self.files), dict(self.found)
        return made

    def on_host(self, change: HostChange, operation: str) -> None:
        """One change of a host, once for each operation, as zkm-host does it."""
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", operation), "zkm-host takes no other operation id"
        if operation in self.operations:
            return
        self.operations[operation] = change
        match change:
            case InstallProgram():
                self.installed.add(change.host)
            case UninstallProgram():
                self.installed.discard(change.host)
            case PutFile():
                assert change.host in self.installed
                self.found[operation] = self.files.get(change.host)
                self.files[change.host] = change.content
            case Restore() if change.operation in self.found:
                assert change.host in self.installed
                if (found := self.found[change.operation]) is not None:
                    self.files[change.host] = found
                else:
                    self.files.pop(change.host, None)
            case Restore():
                return  # the put never came
            case SetService(action="stop"):
                assert change.host in self.installed
                self.stops.append(change.host)
                if change.host in self.deaf:
                    return
                id = int(change.host.removeprefix("broker"))
                left = self.leads(id)
                assert not left or self.outrun, "an empty broker alone stops"
                assert all(name in self.birthplaces for name in left), "nothing but births is on it"
                others = [len({*self.held[name].isr} - {id}) for name in left]
                assert all(n >= self.min_isr for n in others), "and they are in sync elsewhere"
                self.spared += left
                self.down.add(id)
            case SetService(action="start"):
                self.down.discard(int(change.host.removeprefix("broker")))
            case _:
                raise AssertionError(change)

    def _tick(self) -> None:
        """A partition whose leader is down is led by another one in sync."""
        for held in self.held.values():
            if held.leader in self.down:
                held.leader = next((id for id in held.isr if id not in self.down), held.leader)
        super()._tick()

    def leads(self, id: int) -> list[Name]:
        """The partitions that a broker has a replica of."""
        return [name for name, held in self.held.items() if id in held.replicas]

    def bear(self, *replicas: int, size: int = 1000) -> None:
        """A topic of one partition is created, there by explicit assignment."""
        topic = f"born{len(self.birthplaces)}"
        self.topics[topic] = {}
        self.birthplaces[topic, 0] = replicas
        self.held[topic, 0] = Held(replicas, replicas, replicas[0], size)

    def names(self) -> Reading[ClusterTopics]:
        self.born(self)
        return super().names()

    def view(self) -> Reading[KafkaView]:
        if self.silent:
            return Unknown("timeout", "no broker answers")
        up = {id: (f"10.0.0.2{id}", 9092, self.racks[id]) for id in BROKERS if id not in self.down}
        topics = dict.fromkeys(self.topics, self.min_isr)
        moving = tuple(sorted(self.flights))
        return Seen(
            KafkaView(self.cluster_id, self.controller or min(up), up, tuple(self._states()), topics, moving)
        )

    def log_dirs(
        self, brokers: Sequence[int], partitions: Mapping[str, Sequence[int]] | None
    ) -> Reading[Mapping[int, LogDirs]]:
        told = super().log_dirs(brokers, partitions)
        if not isinstance(told, Seen) or partitions is not None:
            return told
        more = {
            id: tuple(ReplicaLog(*name, 1, 0, future=False) for name in of) for id, of in self.strays.items()
        }
        return Seen(
            {
                id: Seen({**dirs.value, "/e": Seen(LogDir(more[id], 1, 1))})
                if id in more and isinstance(dirs, Seen)
                else dirs
                for id, dirs in told.value.items()
            }
        )

    def _size(self, topic: str, number: int, held: Held, id: int) -> int | None:
        return None if (topic, number) in self.unsized else super()._size(topic, number, held, id)

    def broker_settings(
        self, key: str, brokers: Sequence[int]
    ) -> Reading[Mapping[int, Reading[TopicSetting]]]:
        told = super().broker_settings(key, brokers)
        if not isinstance(told, Seen) or key not in (CORDONED, POLICY):
            return told
        listed = {CORDONED: "" if self.cordons else None, POLICY: self.policy or None}[key]
        return Seen(
            {
                id: Seen(replace(one.value, value=one.value.own if one.value.own is not None else listed))
                if isinstance(one, Seen)
                else one
                for id, one in told.value.items()
            }
        )

    def _made(self, change: ClusterChange) -> str:
        if isinstance(change, UnregisterBroker):
            assert self.kraft
            assert change.broker in self.down
            self.forgotten.add(change.broker)
            return ""
        if isinstance(change, AlterBrokerConfig) and change.key == CORDONED and not self.cordons:
            return "InvalidConfigurationError: unknown config cordoned.log.dirs"
        return super()._made(change)

    def cordoned(self, id: int) -> bool:
        return self.rates.get(id, {}).get(CORDONED) == CORDON_ALL

    def is_shut(self, id: int, path: str) -> bool:
        return self.cordoned(id) or super().is_shut(id, path)


@dataclass(frozen=True)
class RemovalLook(ReassignLook):
    """The same with the questions about the whole cluster."""

    world: RemovalWorld

    def kafka(self, witnesses: int | None = None) -> Reading[KafkaView]:
        return self.world.view()

    def volumes(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, Volume]]:
        return Unknown("unreachable", f"{host} does not answer")

    def pulses(self, within_s: float) -> Mapping[str, Pulse]:
        up = (id for id in BROKERS if id not in self.world.down)
        return {f"broker{id}": Pulse(0.0, apis={64: (0, 0)} if self.world.kraft else {}) for id in up}

    def zkm(self, host: str, *words: str) -> Reading[str]:
        """A recorded answer of zkm-host, with the state of the broker's unit."""
        if words[0] == "facts":
            return Seen(FACTS)
        assert words[0] == "status"
        state = "inactive" if int(host.removeprefix("broker")) in self.world.down else "active"
        return Seen(re.sub("unit_state=.*", f"unit_state={state}", STATUS))

    def file(self, host: str, path: str) -> Reading[bytes]:
        id = int(host.removeprefix("broker"))
        if path == POLICY_FILE:
            files = self.world.files
            return Seen(files[host]) if host in files else Absent(path)
        if path == zkm_host.INSTALLED_PATH:
            return Seen(zkm_host.program()) if host in self.world.installed else Absent(path)
        if path == "/d/meta.properties":
            return Seen(f"broker.id={self.world.owners.get(id, id)}\ncluster.id={ID}\n".encode())
        assert path == "/etc/kafka/server.properties"
        return Seen(f"broker.id={id}\nlog.dirs={self.world.disk_named}\n".encode())

    def listing(self, host: str, path: str) -> Reading[tuple[DirEntry, ...]]:
        if path == zkm_host.STATE_DIR:
            return Absent(path)
        assert path == "/d"
        names = self.world.aside.get(int(host.removeprefix("broker")), ())
        return Seen(tuple(DirEntry(name, "d", 0, None) for name in names))

    def each(self, hosts: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        return {host: ask(host) for host in hosts}


def world(partitions: int = 12, size: int = 3_000_000) -> RemovalWorld:
    """Topics of four partitions each, on brokers 1 to 5 in turn, each set in two racks. Every third partition
    is led by its second replica. Topic t1 and broker 1 have throttles of another hand."""
    held: dict[Name, Held] = {}
    for n in range(partitions):
        replicas = (1 + n % 5, 1 + (n + 1 + n % 2 * 2 * (n % 5 != 0)) % 5)
        if RACKS[replicas[0]] == RACKS[replicas[1]]:
            replicas = (replicas[0], 1 + replicas[0] % 5)
        name = "__consumer_offsets" if n < 4 else f"t{n // 4}"
        held[name, n % 4] = Held(replicas, replicas, replicas[1 if n % 3 == 2 else 0], size + n * 1000)
    topics: dict[str, dict[str, str]] = {topic: {"cleanup.policy": "delete"} for topic, _ in held}
    topics["t1"] |= {LEADER_LIST: "3:1,0:1"}
    rates = {1: {LEADER_RATE: "77"}}
    return RemovalWorld(ID, topics, held=held, rates=rates, usable=dict.fromkeys(BROKERS, FREE))


def inventory(**section: object) -> RemovalInventory:
    paced = {"throttle_bytes_s": RATE, "in_flight": 3, "per_broker": 2}
    given = {"brokers": GONE, "shutdown": False, **paced, **section}
    brokers = tuple(Broker(name=f"broker{n}", address=f"10.0.0.2{n}", id=n) for n in BROKERS)
    return RemovalInventory(
        version=1,
        name="remove",
        ssh=Ssh(user="ops", key="k", known_hosts="h"),
        kafka=Kafka(cluster_id=ID, brokers=brokers),
        removal=Removal.model_validate(given),
    )


@dataclass
class RemovalDesk(Desk):
    """One run that removes brokers."""

    cluster: RemovalWorld
    inventory: RemovalInventory  # type: ignore[assignment]
    playbook: ClassVar[Playbook] = PLAYBOOK

    def look(self) -> Look:
        return cast(Look, RemovalLook(self.cluster, self.clock))

    def _apply(self, change: Change, operation: str, fencing: int) -> Outcome:
        if isinstance(change, ClusterChange):
            return super()._apply(change, operation, fencing)
        self.before_change(change)
        self.points.hit("apply")
        self.cluster.on_host(change, operation)
        self.after_change(change)
        self.points.hit("applied")
        return Outcome(0)

    @property
    def there(self) -> bool:
        """Nothing is on the removed brokers, every set is whole and in sync, and no other set was touched."""
        gone = self.inventory.removal.brokers
        return not self.cluster.flights and all(
            not set(gone) & set(held.replicas)
            and len(held.replicas) == len(before.replicas)
            and set(held.isr) == set(held.replicas)
            and (set(before.replicas) & set(gone) or held.replicas == before.replicas)
            for name, held in self.cluster.held.items()
            if (before := self.first.held.get(name, held))
        )  # fmt: skip

    @property
    def home(self) -> bool:
        """As before the run, and what was born meanwhile stands where it was born."""
        born = {
            name: held.replicas for name, held in self.cluster.held.items() if name not in self.first.held
        }
        old = {name: held for name, held in self.cluster.held.items() if name in self.first.held}
        sets = {name: held.replicas for name, held in old.items()}
        leaders = all(
            old[name].leader == held.leader
            for name, held in self.first.held.items()
            if held.leader == held.replicas[0]
        )
        return (
            sets == {name: held.replicas for name, held in self.first.held.items()}
            and leaders
            and self.settings_kept
            and not self.cluster.flights
            and not self.cluster.down
            and not self.cluster.installed
            and not self.cluster.files
            and born == self.cluster.birthplaces
        )

    @property
    def settings_kept(self) -> bool:
        rates = {id: own for id, own in self.cluster.rates.items() if own}
        topics = {topic: own for topic, own in self.cluster.topics.items() if not topic.startswith("born")}
        mine = [own for topic, own in self.cluster.topics.items() if topic.startswith("born") and own]
        return topics == self.first.topics and rates == self.first.rates and not mine


def desk(tmp_path: Path, partitions: int = 12, **section: object) -> RemovalDesk:
    return RemovalDesk(tmp_path / "r", world(partitions), inventory(**section))
