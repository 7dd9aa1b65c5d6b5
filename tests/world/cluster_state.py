"""What a model Kafka cluster consists of, and what can be worked out from that."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from threading import RLock
from typing import Any, Self, TypeVar

from tests.unit.engine_world import TinyClock
from tests.world.model.host import File, Host, KernelSet
from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.kafka.changes import ReassignPartition
from zkmigrate.kafka.questions import PartitionState, TopicSetting
from zkmigrate.runbook.model.change import Change
from zkmigrate.runbook.model.fact import Unknown
from zkmigrate.zookeeper.questions import Rights

T = TypeVar("T")

ID = "A" * 22
"""The id of every model cluster, unless a test says otherwise."""
DISK = "/var/lib/kafka"
"""The log directory of a broker that has one."""
SEGMENT = "00000000000000000000.log"
PROPERTIES = "/etc/kafka/server.properties"
ANYBODY: Rights = ((31, "world", "anyone"),)
DAY_S = 86_400.0


@dataclass
class Flight:
    """A reassignment in flight. target: its set. before: that of the partition. copied: bytes by broker."""

    target: tuple[int, ...]
    before: tuple[int, ...]
    copied: dict[int, int]

    @property
    def replicas(self) -> tuple[int, ...]:
        return (*self.target, *(broker for broker in self.before if broker not in self.target))


@dataclass
class Held:
    """One partition. leader: -1 for none."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    size: int


@dataclass
class Node:
    """A znode. made: its czxid."""

    data: bytes
    made: int
    changed: int
    version: int
    changed_s: float
    acl: Rights = ANYBODY


def _nothing(_at: float) -> float:
    return 0.0


@dataclass
class Load:
    """What a broker's host counts. clients: bytes per second that clients send, and that they receive, at a
    time. busy: the share of the time that its disk works. blind: it answers no command. device: of its log
    directories' volume, MAJOR:MINOR; its only disk is 8:0. canary_ms: how long the canary's records take;
    None without one. at: when its counters were last moved on; sent, received, busy_ms: they.
    """

    clients: Callable[[float], float] = _nothing
    busy: Callable[[float], float] = _nothing
    blind: Callable[[float], float] = _nothing
    device: str = "8:0"
    canary_ms: Callable[[float], float] | None = None
    at: float = 0.0
    sent: int = 0
    received: int = 0
    busy_ms: float = 0.0

    def text(self, now: float) -> str:
        """Its /proc."""
        self.move_on(now)
        return (
            f"==> /proc/uptime <==\n{now:.2f} 0.00\n"
            f"==> /proc/diskstats <==\n 8 0 sda 0 0 0 0 0 0 0 0 0 {round(self.busy_ms)} 0\n"
            f"==> /proc/self/mountinfo <==\n1 0 {self.device} / / rw - ext4 /dev/sda rw\n"
            f"==> /proc/net/dev <==\n eth0: {self.received} 0 0 0 0 0 0 0 {self.sent} 0 0 0 0 0 0 0\n"
            "==> /proc/net/route <==\nIface\neth0 00000000 0 1 0 0 0 00000000 0 0 0\n"
        )

    def move_on(self, now: float) -> None:
        """Count the load until now."""
        for moment in range(round(self.at) + 1, round(now) + 1) if self.at else ():
            self.sent += round(self.clients(moment))
            self.received += round(self.clients(moment))
            self.busy_ms += self.busy(moment) * 1000
        self.at = now


@dataclass
class State:
    """A cluster. It remembers no change: what came of one is told by a look alone.

    Topics: topics: what each sets, by name. held: the partitions. ids: how often a topic was created.
    unnamed: those that the list of all topics lacks. denied: those that may not be described. born: called at
    each look at that list. birthplaces: the first set of each partition that was born. min_isr: of every
    topic.

    Brokers: down: those that are. silent: none answers. racks: by broker; None where it has none. rates:
    dynamic configs by broker and key. bounds: other settings. policy: the class of the policy that all have
    loaded. cordons: they know cordoned.log.dirs. kraft: there is no ZooKeeper. walled: the controller does
    not answer the operator. forgotten: ids that were unregistered. old: they are older than Kafka 2.4.

    Moves: flights: what is in flight. hung: brokers that copy nothing. futures: what is being copied from
    directory to directory: where to, and how many bytes are there. places: where replicas are, if not in the
    first directory. remembered: where a replica that is still to come is to be. grows: bytes that clients
    write to a partition in a second. refuses_moves: why Kafka would not take a set.

    Disks: dirs: log directories of brokers. shut: those that are cordoned. usable: free bytes by broker.
    disk: bytes of a broker's disk, where ``usable`` does not say what is free. deleting: bytes of replicas
    that left a broker, and for how many seconds they stay. unsized: partitions whose size no broker tells.
    endless: brokers that do not tell where logs end. epoch: of every leader.

    Hosts: hosts: files, service and zkm-host. loads: what they count. deaf: those whose service does not
    stop. stops: in the order of their stops. outrun: topics come all the time. spared: what named a broker
    that stopped. mounts: mount points. refuses_aside: nothing can be moved aside.

    ZooKeeper: tree: znodes by path below the chroot. zookeeper: what it tells of partitions, whatever is
    there. keeper: why it does not answer. elected: looks at the controller that find another one each time.

    Faults: wrong: what befalls the next changes: the cluster is ``down``, or its answer is ``lost`` after the
    change was made. lag: so many looks at partitions tell what was there before the last change. rates_lag:
    likewise of a broker's rate. refuses: why Kafka would not create a topic. before_look: called before each
    look at what is in flight.

    Counted: made: the changes that were made. peak: the most in flight at once. to, of: the most copies to
    one broker, and from one leader. unthrottled: bytes copied without a limit. twice: bytes copied inside a
    broker. replaced: partitions whose target in flight was replaced. least: the fewest free bytes of a
    broker.
    """

    cluster_id: str = ID
    topics: dict[str, dict[str, str]] = field(default_factory=dict)
    held: dict[Name, Held] = field(default_factory=dict)
    brokers: tuple[int, ...] = (1, 2, 3)
    clock: TinyClock = field(default_factory=TinyClock)
    ids: dict[str, int] = field(default_factory=dict)
    unnamed: set[str] = field(default_factory=set)
    denied: frozenset[str] = frozenset()
    born: Callable[[Any], object] = lambda _cluster: None
    birthplaces: dict[Name, tuple[int, ...]] = field(default_factory=dict)
    min_isr: int = 1
    down: set[int] = field(default_factory=set)
    silent: bool = False
    controller: int = 0
    racks: dict[int, str] = field(default_factory=dict)
    rates: dict[int, dict[str, str]] = field(default_factory=dict)
    bounds: dict[int, dict[str, TopicSetting]] = field(default_factory=dict)
    policy: str = ""
    cordons: bool = False
    kraft: bool = False
    walled: bool = False
    forgotten: set[int] = field(default_factory=set)
    old: bool = False
    flights: dict[Name, Flight] = field(default_factory=dict)
    hung: set[int] = field(default_factory=set)
    futures: dict[tuple[int, Name], list[Any]] = field(default_factory=dict)
    places: dict[tuple[int, Name], str] = field(default_factory=dict)
    remembered: dict[tuple[int, Name], str] = field(default_factory=dict)
    grows: dict[Name, int] = field(default_factory=dict)
    refuses_moves: Callable[[ReassignPartition], str] = lambda _change: ""
    dirs: dict[int, tuple[str, ...]] = field(default_factory=dict)
    shut: dict[int, set[str]] = field(default_factory=dict)
    usable: dict[int, int] = field(default_factory=dict)
    disk: dict[int, int] = field(default_factory=dict)
    deleting: list[list[int]] = field(default_factory=list)
    unsized: set[Name] = field(default_factory=set)
    endless: frozenset[int] = frozenset()
    epoch: int = 7
    hosts: dict[str, Host] = field(default_factory=dict)
    loads: dict[int, Load] = field(default_factory=dict)
    deaf: set[str] = field(default_factory=set)
    stops: list[str] = field(default_factory=list)
    outrun: bool = False
    spared: list[Name] = field(default_factory=list)
    mounts: tuple[str, ...] = ("/", "/var/lib")
    refuses_aside: bool = False
    tree: dict[str, Node] = field(default_factory=dict)
    zxid: int = 100
    zookeeper: dict[Name, dict[str, list[int]]] = field(default_factory=dict)
    keeper: Unknown | None = None
    elected: int = 0
    wrong: list[str] = field(default_factory=list)
    lag: int = 0
    shown: dict[Name, tuple[int, PartitionState | None]] = field(default_factory=dict)
    rates_lag: int = 0
    rates_shown: dict[tuple[int, str], list[str | None]] = field(default_factory=dict)
    refuses: str = ""
    before_look: Callable[[], object] = lambda: None
    made: list[Change] = field(default_factory=list)
    peak: int = 0
    to: int = 0
    of: int = 0
    unthrottled: int = 0
    twice: int = 0
    replaced: list[Name] = field(default_factory=list)
    least: dict[int, int] = field(default_factory=dict)
    turn: RLock = field(default_factory=RLock, repr=False)

    def copy(self) -> Self:
        """A cluster of its own in the same state."""
        with self.turn:
            made = copy.copy(self)
            for name, value in vars(self).items():
                setattr(made, name, _copied(value))
            made.turn = RLock()
            return made

    @property
    def state(self) -> object:
        """All that moves may change, for comparisons."""
        sets = {name: (held.replicas, held.leader) for name, held in self.held.items()}
        return sets, self.topics, self.own_rates, self.flights, self.paths, self.futures

    @property
    def left(self) -> object:
        """All that may lie about, for comparisons."""
        tree = {path: (node.data, node.acl) for path, node in self.tree.items()}
        return tree, self.topics, self.own_rates, {name: self.laid(name) for name in self.hosts}

    @property
    def own_rates(self) -> dict[int, dict[str, str]]:
        """Dynamic configs of the brokers that have any."""
        return {id: own for id, own in self.rates.items() if own}

    @property
    def sets(self) -> dict[Name, tuple[int, ...]]:
        """The replicas of every partition."""
        return {name: held.replicas for name, held in self.held.items()}

    @property
    def up(self) -> list[int]:
        """The brokers that run."""
        return [id for id in self.brokers if id not in self.down]

    # --- topics ----------------------------------------------------------------------------------------

    def bear(self, *replicas: int, size: int = 1000) -> None:
        """A topic of one partition is created, there by explicit assignment."""
        topic = f"born{len(self.birthplaces)}"
        self.topics[topic] = {}
        self.birthplaces[topic, 0] = replicas
        self.held[topic, 0] = Held(replicas, replicas, replicas[0], size)

    def create_topic(self, topic: str) -> None:
        """As a controller with ZooKeeper does it, on brokers 1 and 2."""
        self.topics[topic] = {}
        self.held[topic, 0] = Held((1, 2), (1, 2), 1, 1)
        self.put(f"/config/topics/{topic}", b"{}", 0)
        self.put(f"/brokers/topics/{topic}", json.dumps({"partitions": {"0": [1, 2]}}).encode(), 0)

    def put(self, path: str, data: bytes = b"", age_s: float = DAY_S, acl: Rights = ANYBODY) -> None:
        """Make or change a znode."""
        self.zxid += 1
        old = self.tree.get(path)
        made, version = (old.made, old.version + 1) if old is not None else (self.zxid, 0)
        self.tree[path] = Node(data, made, self.zxid, version, self.clock.wall() - age_s, acl)

    def leads(self, id: int) -> list[Name]:
        """The partitions that a broker has a replica of."""
        return [name for name, held in self.held.items() if id in held.replicas]

    def states(self, topics: Collection[str] | None = None) -> Iterator[PartitionState]:
        """What brokers tell of partitions; late ones tell what was there before."""
        for name in dict.fromkeys((*self.held, *self.shown)):
            if topics is not None and name[0] not in topics:
                continue
            state = self.shown[name][1] if name in self.shown else self.partition(name)
            if state is not None:
                yield state

    def partition(self, name: Name) -> PartitionState:
        """What there is of a partition."""
        held, flight = self.held[name], self.flights.get(name)
        replicas = held.replicas if flight is None else flight.replicas
        isr = tuple(id for id in held.isr if id not in self.down)
        leader = held.leader if held.leader in isr else isr[0] if isr else -1
        return PartitionState(*name, leader, replicas, isr)

    # --- disks -----------------------------------------------------------------------------------------

    def size(self, name: Name, id: int) -> int | None:
        """Bytes of a replica; None where there is none, or nobody tells them."""
        held, flight = self.held.get(name), self.flights.get(name)
        if held is None or name in self.unsized:
            return None
        if flight is not None and id in flight.copied:
            return flight.copied[id]
        return held.size if id in held.replicas else None

    @property
    def paths(self) -> dict[tuple[int, Name], str]:
        """Where each replica is."""
        return {(id, name): self.place(id, name) for name, held in self.held.items() for id in held.replicas}

    def place(self, id: int, name: Name) -> str:
        """The log directory of a replica."""
        return self.places.get((id, name), self.dirs_of(id)[0])

    def dirs_of(self, id: int) -> tuple[str, ...]:
        """The log directories of a broker."""
        return self.dirs.get(id, (DISK,))

    def free(self, id: int) -> int | None:
        """Free bytes of a broker whose disk is known."""
        if id not in self.disk:
            return None
        held = sum(self.size(name, id) or 0 for name in self.held)
        return self.disk[id] - held - sum(size for broker, size, _ in self.deleting if broker == id)

    def forget(self, id: int) -> None:
        """A broker stops and starts, and forgets the directories of replicas that are still to come."""
        self.remembered = {at: path for at, path in self.remembered.items() if at[0] != id}

    # --- hosts -----------------------------------------------------------------------------------------

    def id_of(self, host: str) -> int:
        """The broker on a host."""
        return int(host.removeprefix("broker"))

    def lay(self, host: str, name: str, size: int = 1, changed: float = 0.0) -> None:
        """A directory lies in a host's log directory that is of no replica."""
        path = f"{DISK}/{name}/{SEGMENT}"
        self.hosts[host].files[path] = File(bytes(size), "0644", "kafka:kafka", changed)

    def laid(self, host: str) -> dict[str, int]:
        """Such directories, with their bytes."""
        files = self.hosts[host].files
        under = {path: file for path, file in files.items() if path.endswith(SEGMENT)}
        return {path.split("/")[-2]: len(file.content) for path, file in under.items()}

    def unlay(self, host: str, name: str) -> None:
        """Such a directory goes."""
        del self.hosts[host].files[f"{DISK}/{name}/{SEGMENT}"]

    def configure(self, host: str, **values: str) -> None:
        """Change lines of a broker's file; ``_`` stands for a dot."""
        file = self.hosts[host].files[PROPERTIES]
        for key, value in values.items():
            line = rf"(?m)^{key.replace('_', '[.]')}=.*$"
            told = f"{key.replace('_', '.')}={value}"
            file.content = re.sub(line, told, file.content.decode()).encode()

    def own(self, host: str, id: int) -> None:
        """The disk of a host is that of this broker."""
        meta = f"broker.id={id}\ncluster.id={self.cluster_id}\n".encode()
        for path in self.dirs_of(self.id_of(host)):
            self.hosts[host].files[f"{path}/meta.properties"] = File(meta, "0644", "kafka:kafka")

    @property
    def installed(self) -> set[str]:
        """The hosts with zkm-host."""
        return {name for name, host in self.hosts.items() if host.installed}


def _copied(value: T) -> T:
    """The same once more, with everything in it that may change."""
    made: Any = value
    match value:
        case dict():
            made = {key: _copied(one) for key, one in value.items()}
        case list():
            made = [_copied(one) for one in value]
        case set():
            made = set(value)
        case TinyClock():
            made = copy.copy(value)
        case Flight() | Held() | Node() | Load() | Host() | File() | KernelSet():
            made = replace(value, **{one.name: _copied(getattr(value, one.name)) for one in fields(value)})
    return made  # type: ignore[no-any-return]


def spread(topics: Sequence[str], brokers: Sequence[int]) -> dict[Name, Held]:
    """One empty partition of each topic, with a replica on two of the brokers, in turn."""
    held: dict[Name, Held] = {}
    for number, topic in enumerate(topics):
        replicas = tuple(brokers[(number + n) % len(brokers)] for n in range(2))
        held[topic, 0] = Held(replicas, replicas, replicas[0], 0)
    return held
