"""A model world of one Kafka cluster that moves partitions, and its operator, process after process."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar, Self, TypeVar, cast

from playbooks.kafka_reassign import PLAYBOOK
from tests.unit.engine_world import PointDisk, Points, TinyClock, TinyConfirm, TinyLock
from tests.world.model.topics import TopicQuestions, TopicWorld
from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign.section import Dirs, Phases, Reassign, ReassignInventory, Sets
from zkmigrate.cluster.reassign.throttle import (
    FOLLOWER_LIST,
    FOLLOWER_RATE,
    INSIDE_RATE,
    LEADER_LIST,
    LEADER_RATE,
)
from zkmigrate.errors import HostError
from zkmigrate.inventory.inventory import Broker, Kafka
from zkmigrate.kafka.changes import (
    AlterAtController,
    AlterBrokerConfig,
    AlterTopicConfig,
    CancelReassignment,
    ElectPreferred,
    PlaceReplica,
    ReassignPartition,
)
from zkmigrate.kafka.questions import (
    ClusterTopics,
    InFlight,
    LogDir,
    LogDirs,
    LogEnd,
    PartitionState,
    ReplicaLog,
    Settings,
    TopicPartitions,
    TopicSetting,
)
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.engine.clock import Interrupt
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.engine.hold_file import HoldPort
from zkmigrate.runbook.engine.journal import NAME, Journal
from zkmigrate.runbook.engine.ports import Ports
from zkmigrate.runbook.engine.run import Walk
from zkmigrate.runbook.engine.throttle_file import ThrottleFile
from zkmigrate.runbook.model.change import Change, ClusterChange, Outcome
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look, Pulse
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.sampling import Body
from zkmigrate.runbook.site.exporter import metrics_text
from zkmigrate.zookeeper.questions import Znode

T = TypeVar("T")

ID = "A" * 22
BROKERS = (1, 2, 3, 4, 5)
RATE = 1_000_000
TICK_S = 1.0
"""Seconds for which a look at the reassignments lets the brokers copy."""
UNLIMITED = 10**12


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


def _nothing(_at: float) -> float:
    return 0.0


@dataclass
class Machine:
    """A broker's host. clients: bytes per second that clients send, and that they receive, at a time. busy:
    the share of the time that its disk works. blind: it answers no command. device: of its log directories'
    volume, MAJOR:MINOR; its only disk is 8:0. canary_ms: how long the canary's records take; None without
    one. at: when its counters were last moved on; sent, received, busy_ms: they.
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
class ReassignWorld(TopicWorld):
    """The cluster. It remembers no change: what came of one is told by a look alone.

    held: its partitions. rates: dynamic configs by broker and key. flights: what is in flight. hung: brokers
    that copy nothing. wrong: what befalls the next changes: the cluster is ``down``, or its answer is
    ``lost`` after the change was made. refuses_moves: why Kafka would not take a set. lag: so many looks at
    partitions tell what was there when the last move ended. made: the changes that were made. peak: the most
    in flight at once. to, of: the most copies to one broker, and from one leader. unthrottled: bytes copied
    without a limit. rates_lag: so many looks at a broker's rate tell the one before. replaced:
    partitions whose target in flight was replaced. old: they are older than Kafka 2.4. usable: free bytes by
    broker. brokers: their ids. before_look: called before each look at what is in flight. dirs: the log
    directories of brokers with more than one. places: where replicas are, if not in the first one.
    remembered: where a replica that is still to come is to be. futures: what is being copied from directory
    to directory: where to, and how many bytes are there. twice: bytes that were copied so. hosts: of the
    brokers, by id. grows: bytes that clients write to a partition in a second. bounds: other settings of
    brokers, by id. zookeeper: what it tells of partitions, whatever is there. keeper: why it does not answer.
    disk: bytes of a broker's disk, where ``usable`` does not say what is free. deleting: bytes of replicas
    that left a broker, and for how many seconds they stay. least: the fewest free bytes of a broker so far.
    endless: brokers that do not tell where logs end. epoch: of every leader. kraft: it has no ZooKeeper.
    walled: its controller does not answer the operator. forgotten: ids that were unregistered.
    """

    held: dict[Name, Held] = field(default_factory=dict)
    rates: dict[int, dict[str, str]] = field(default_factory=dict)
    flights: dict[Name, Flight] = field(default_factory=dict)
    hung: set[int] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    lag: int = 0
    made: list[ClusterChange] = field(default_factory=list)
    peak: int = 0
    to: int = 0
    of: int = 0
    unthrottled: int = 0
    rates_lag: int = 0
    rates_shown: dict[tuple[int, str], list[str | None]] = field(default_factory=dict)
    replaced: list[Name] = field(default_factory=list)
    refuses_moves: Callable[[ReassignPartition], str] = lambda _change: ""
    old: bool = False
    bounds: dict[int, dict[str, TopicSetting]] = field(default_factory=dict)
    usable: dict[int, int] = field(default_factory=dict)
    hosts: dict[int, Machine] = field(default_factory=lambda: {id: Machine() for id in BROKERS})
    grows: dict[Name, int] = field(default_factory=dict)
    shown: dict[Name, tuple[int, PartitionState]] = field(default_factory=dict)
    dirs: dict[int, tuple[str, ...]] = field(default_factory=dict)
    shut: dict[int, set[str]] = field(default_factory=dict)
    places: dict[tuple[int, Name], str] = field(default_factory=dict)
    remembered: dict[tuple[int, Name], str] = field(default_factory=dict)
    futures: dict[tuple[int, Name], list[Any]] = field(default_factory=dict)
    twice: int = 0
    zookeeper: dict[Name, dict[str, list[int]]] = field(default_factory=dict)
    keeper: Unknown | None = None
    disk: dict[int, int] = field(default_factory=dict)
    deleting: list[list[int]] = field(default_factory=list)
    least: dict[int, int] = field(default_factory=dict)
    endless: frozenset[int] = frozenset()
    epoch: int = 7
    brokers: tuple[int, ...] = BROKERS
    kraft: bool = False
    walled: bool = False
    forgotten: set[int] = field(default_factory=set)
    before_look: Callable[[], object] = lambda: None
    _turn: RLock = field(default_factory=RLock, repr=False)

    def copy(self) -> ReassignWorld:
        """A cluster of its own in the same state."""
        mutable = (
            "topics",
            "down",
            "held",
            "rates",
            "flights",
            "hung",
            "made",
            "replaced",
            "shown",
            "rates_shown",
            "hosts",
            "places",
            "remembered",
            "futures",
            "deleting",
            "least",
        )
        with self._turn:
            return replace(self, **{name: copy.deepcopy(getattr(self, name)) for name in mutable})

    @property
    def state(self) -> object:
        """All that a run may change, for comparisons."""
        sets = {name: (held.replicas, held.leader) for name, held in self.held.items()}
        rates = {id: own for id, own in self.rates.items() if own}
        return sets, self.topics, rates, self.flights, self.paths, self.futures

    @property
    def paths(self) -> dict[tuple[int, Name], str]:
        """Where each replica is."""
        return {(id, name): self.place(id, name) for name, held in self.held.items() for id in held.replicas}

    def place(self, id: int, name: Name) -> str:
        """The log directory of a replica."""
        return self.places.get((id, name), self.dirs_of(id)[0])

    def dirs_of(self, id: int) -> tuple[str, ...]:
        """The log directories of a broker."""
        return self.dirs.get(id, ("/d",))

    def is_shut(self, id: int, path: str) -> bool:
        """Whether a log directory is cordoned."""
        return path in self.shut.get(id, ())

    def free(self, id: int) -> int | None:
        """Free bytes of a broker whose disk is known."""
        if id not in self.disk:
            return None
        held = (self._size(*name, one, id) or 0 for name, one in self.held.items())
        gone = sum(size for broker, size, _ in self.deleting if broker == id)
        return self.disk[id] - sum(held) - gone

    def forget(self, id: int) -> None:
        """A broker stops and starts, and forgets the directories of replicas that are still to come."""
        self.remembered = {at: path for at, path in self.remembered.items() if at[0] != id}

    # --- looks ---------------------------------------------------------------------------------------------

    def names(self) -> Reading[ClusterTopics]:
        if self.silent:
            return Unknown("timeout", "no broker answers")
        return Seen(ClusterTopics(self.cluster_id, tuple(sorted(self.topics))))

    def reassignments(self) -> Reading[Mapping[Name, InFlight]]:
        self.before_look()
        if self.silent:
            return Unknown("timeout", "no broker answers")
        if self.old:
            return Absent("ListPartitionReassignments")
        self._measure()
        told = {
            name: InFlight(
                flight.replicas,
                tuple(b for b in flight.target if b not in flight.before),
                tuple(b for b in flight.before if b not in flight.target),
            )
            for name, flight in self.flights.items()
        }
        self._tick()
        return Seen(told)

    def partitions(self, topics: Sequence[str], witnesses: int) -> Reading[TopicPartitions]:
        if self.silent:
            return Unknown("timeout", "no broker answers")
        up = [id for id in self.brokers if id not in self.down]
        by_topic: dict[str, list[PartitionState]] = {}
        for state in self._states(frozenset(topics)):
            by_topic.setdefault(state.topic, []).append(state)
        told: dict[str, Reading[tuple[PartitionState, ...]]] = {}
        for topic in topics:
            if topic in self.denied:
                told[topic] = Unknown("denied", f"metadata of topic {topic}")
            else:
                told[topic] = Seen(tuple(by_topic[topic])) if topic in by_topic else Absent(topic)
        for name, (left, state) in list(self.shown.items()):
            self.shown[name] = (left - 1, state)
            if left <= 1:
                del self.shown[name]
        return Seen(TopicPartitions(self.cluster_id, frozenset(up), tuple(up[:witnesses]), told))

    def _states(self, topics: Collection[str] | None = None) -> Iterator[PartitionState]:
        for (topic, number), held in self.held.items():
            if topics is not None and topic not in topics:
                continue
            if (topic, number) in self.shown:
                yield self.shown[topic, number][1]
                continue
            flight = self.flights.get((topic, number))
            replicas = held.replicas if flight is None else flight.replicas
            isr = tuple(id for id in held.isr if id not in self.down)
            leader = held.leader if held.leader in isr else isr[0] if isr else -1
            yield PartitionState(topic, number, leader, replicas, isr)

    def log_dirs(
        self, brokers: Sequence[int], partitions: Mapping[str, Sequence[int]] | None
    ) -> Reading[Mapping[int, LogDirs]]:
        told: dict[int, LogDirs] = {}
        names = self.held if partitions is None else [(t, n) for t, ns in partitions.items() for n in ns]
        held = {name: self.held[name] for name in names if name in self.held}
        for id in brokers:
            if id in self.down:
                told[id] = Unknown("timeout", f"broker {id} does not answer")
                continue
            logs: dict[str, list[ReplicaLog]] = {path: [] for path in self.dirs_of(id)}
            for (topic, number), one in held.items():
                size = self._size(topic, number, one, id)
                if size is None:
                    continue
                logs[self.place(id, (topic, number))].append(ReplicaLog(topic, number, size, 0, future=False))
                if (id, (topic, number)) in self.futures:
                    path, have = self.futures[id, (topic, number)]
                    logs[path].append(ReplicaLog(topic, number, have, size - have, future=True))
            told[id] = Seen(
                {
                    path: Seen(
                        LogDir(
                            tuple(own),
                            10**12 + place,
                            self.usable.get(id, self.free(id)),
                            self.is_shut(id, path),
                        )
                    )
                    for place, (path, own) in enumerate(logs.items())
                }
            )
        return Seen(told)

    def _size(self, topic: str, number: int, held: Held, id: int) -> int | None:
        flight = self.flights.get((topic, number))
        if flight is not None and id in flight.copied:
            return flight.copied[id]
        return held.size if id in held.replicas else None

    def log_ends(
        self, replicas: Mapping[int, Mapping[str, Sequence[int]]]
    ) -> Reading[Mapping[int, Reading[Mapping[Name, Reading[LogEnd]]]]]:
        """Records have a thousand bytes; one is not in sync yet."""
        told: dict[int, Reading[Mapping[Name, Reading[LogEnd]]]] = {}
        for id, asked in replicas.items():
            names = [(topic, number) for topic, numbers in asked.items() for number in numbers]
            if id in self.down | self.endless:
                told[id] = Unknown("timeout", f"broker {id} does not answer")
            else:
                told[id] = Seen({name: self._log_end(id, name) for name in names})
        return Seen(told)

    def _log_end(self, id: int, name: Name) -> Reading[LogEnd]:
        held = self.held[name]
        size = self._size(*name, held, id)
        if size is None:
            return Unknown("failed", "NotLeaderForPartitionError")
        return Seen(LogEnd(size // 1000, size // 1000 - 1 if id == held.leader else None, self.epoch))

    def settings(self, key: str, topics: Sequence[str]) -> Settings:
        if self.silent:
            return Unknown("timeout", "no broker answers")
        return Seen(
            {
                topic: Seen(TopicSetting(self.topics[topic].get(key)))
                if topic in self.topics
                else Absent(topic)
                for topic in topics
            }
        )

    def broker_settings(
        self, key: str, brokers: Sequence[int]
    ) -> Reading[Mapping[int, Reading[TopicSetting]]]:
        if self.silent:
            return Unknown("timeout", "no broker answers")
        return Seen(
            {
                id: Unknown("timeout", f"broker {id} does not answer")
                if id in self.down
                else Seen(self.bounds.get(id, {}).get(key) or TopicSetting(self._rate_shown(id, key)))
                for id in brokers
            }
        )

    def _rate_shown(self, id: int, key: str) -> str | None:
        late = self.rates_shown.get((id, key))
        return late.pop() if late else self.rates.get(id, {}).get(key)

    def znode(self, path: str) -> Reading[Znode]:
        """``/brokers/topics/T`` and ``/brokers/topics/T/partitions/N/state``, as Kafka 2.8 writes them."""
        if self.keeper is not None:
            return self.keeper
        _, _, _, topic, *rest = path.split("/")
        told: dict[str, Any] = {"partitions": {}, "adding_replicas": {}, "removing_replicas": {}}
        for name, held in self.held.items():
            if name[0] != topic:
                continue
            own = {"set": list(held.replicas), "isr": list(held.isr), **self.zookeeper.get(name, {})}
            told["partitions"][str(name[1])] = own["set"]
            for act in ("adding", "removing"):
                told[f"{act}_replicas"] |= {str(name[1]): own[act]} if act in own else {}
            if rest == ["partitions", str(name[1]), "state"]:
                told = {"leader": held.leader, "isr": own["isr"]}
                break
        return Seen(Znode(json.dumps(told).encode(), 0, 0, 0, 0, 0, ()))

    # --- what happens by itself ----------------------------------------------------------------------------

    def _measure(self) -> None:
        to: dict[int, int] = {}
        of: dict[int, int] = {}
        for name, flight in self.flights.items():
            for broker in {*flight.copied, *(id for id, moving in self.futures if moving == name)}:
                to[broker] = to.get(broker, 0) + 1
            if flight.copied:
                leader = self.held[name].leader
                of[leader] = of.get(leader, 0) + 1
        self.peak = max(self.peak, len(self.flights))
        self.to, self.of = max((self.to, *to.values())), max((self.of, *of.values()))

    def _tick(self) -> None:
        self._copy_on()
        for id in self.disk:
            self.least[id] = min(self.least.get(id, self.disk[id]), self.free(id) or 0)
        self.deleting = [[id, size, left - 1] for id, size, left in self.deleting if left > 1]

    def _copy_on(self) -> None:
        """Every broker copies for a second what its limits allow, and moves that have all bytes end."""
        sends: dict[int, int] = {}
        gets: dict[int, int] = {}
        for name, flight in self.flights.items():
            held = self.held[name]
            if held.leader in self.down | self.hung:
                continue
            for broker, have in flight.copied.items():
                if broker in self.down | self.hung:
                    continue
                out = sends.setdefault(held.leader, self._limit(name, held.leader, LEADER_RATE, LEADER_LIST))
                into = gets.setdefault(broker, self._limit(name, broker, FOLLOWER_RATE, FOLLOWER_LIST))
                step = min(out, into, held.size - have)
                if min(out, into) > UNLIMITED // 2:
                    self.unthrottled += step
                flight.copied[broker] += step
                self.hosts[held.leader].sent += step
                self.hosts[broker].received += step
                sends[held.leader] -= step
                gets[broker] -= step
        for name, bytes_s in self.grows.items():
            self.held[name].size += int(bytes_s * TICK_S)
        for (id, name), future in list(self.futures.items()):
            if id in self.down | self.hung:
                continue
            limit = self.rates.get(id, {}).get(INSIDE_RATE)
            step = min(int(limit or UNLIMITED), self.held[name].size - future[1])
            self.unthrottled += 0 if limit else step
            self.twice += step
            future[1] += step
            whole = name not in self.flights or self.flights[name].copied.get(id, 0) >= self.held[name].size
            if whole and future[1] >= self.held[name].size:
                self.places[id, name] = future[0]
                del self.futures[id, name]
        for name, flight in list(self.flights.items()):
            if all(have >= self.held[name].size for have in flight.copied.values()):
                self._end(name, flight)

    def _limit(self, name: Name, broker: int, rate: str, key: str) -> int:
        topic, number = name
        entries = self.topics[topic].get(key, "").split(",")
        limited = "*" in entries or f"{number}:{broker}" in entries
        set_to = self.rates.get(broker, {}).get(rate)
        return int(int(set_to) * TICK_S) if limited and set_to is not None else UNLIMITED

    def _end(self, name: Name, flight: Flight) -> None:
        held = self.held[name]
        if self.lag:
            isr = tuple(dict.fromkeys((*held.isr, *flight.target)))
            state = PartitionState(*name, held.leader, flight.replicas, isr)
            self.shown[name] = (self.lag, state)
        self._gone(name, set(flight.replicas) - set(flight.target))
        alive = tuple(broker for broker in flight.target if broker not in self.down)
        held.replicas, held.isr = flight.target, alive
        if held.leader not in alive:
            held.leader = alive[0] if alive else -1
        del self.flights[name]

    def _gone(self, name: Name, brokers: Collection[int]) -> None:
        for id in brokers:
            self.deleting.append([id, self.held[name].size, 5])
            self.places.pop((id, name), None)
            self.futures.pop((id, name), None)

    def refused_at_controller(self, change: AlterAtController) -> Reading[str]:
        """As the controller answers."""
        if not self.kraft:
            return Absent("DescribeQuorum")
        if self.walled:
            return Unknown("failed", "the controller did not answer")
        return Seen("BROKER_ID_NOT_REGISTERED" if change.broker in self.forgotten else "")

    # --- changes -------------------------------------------------------------------------------------------

    def alter(self, change: ClusterChange) -> tuple[int, str]:
        with self._turn:
            trouble = self.wrong.pop(0) if self.wrong else ""
            if trouble == "down" or self.silent:
                raise HostError("no broker answers; nothing was sent to Kafka")
            if why := self._made(change):
                return 1, why
            self.made.append(change)
            if trouble == "lost":
                raise HostError("the connection broke; whether that was done is not known")
            return 0, change.describe()

    def _made(self, change: ClusterChange) -> str:
        """Make one change; why Kafka refuses it, else empty."""
        match change:
            case AlterTopicConfig():
                if change.topic not in self.topics:
                    return "UnknownTopicOrPartitionError"
                _set(self.topics[change.topic], change.key, change.value)
            case AlterBrokerConfig():
                if change.broker in self.down:
                    raise HostError(f"broker {change.broker} does not answer")
                own = self.rates.setdefault(change.broker, {})
                self.rates_shown[change.broker, change.key] = [own.get(change.key)] * self.rates_lag
                _set(own, change.key, change.value)
            case AlterAtController():
                assert change.broker in self.down
                assert self.refused_at_controller(change) == Seen("")
                _set(self.rates[change.broker], change.key, change.value)
            case ReassignPartition():
                return self._submitted(change)
            case CancelReassignment():
                name = change.topic, change.partition
                flight = self.flights.pop(name, None)
                if flight is not None:  # those that stay keep the order of the target
                    self._gone(name, set(flight.target) - set(flight.before))
                    stay = tuple(broker for broker in flight.replicas if broker in flight.before)
                    self.held[name].replicas = stay
            case PlaceReplica():
                return self._put(change)
            case ElectPreferred():
                for name in change.partitions:
                    held = self.held[name]
                    if held.replicas[0] not in held.isr or held.replicas[0] in self.down:
                        return f"{name[0]}-{name[1]}: PREFERRED_LEADER_NOT_AVAILABLE"
                    held.leader = held.replicas[0]
            case _:
                raise AssertionError(change)
        return ""

    def _put(self, change: PlaceReplica) -> str:
        name, id = (change.topic, change.partition), change.broker
        if id in self.down:
            raise HostError(f"broker {id} does not answer")
        if change.path not in self.dirs_of(id):
            return f"{change.topic}-{change.partition} on broker {id}: KAFKA_STORAGE_ERROR"
        if self.is_shut(id, change.path):
            return f"{change.topic}-{change.partition} on broker {id}: INVALID_REPLICATION_ASSIGNMENT"
        there = {*self.held[name].replicas, *(self.flights[name].copied if name in self.flights else ())}
        if id not in there:
            self.remembered[id, name] = change.path
            return ""
        if self.futures.get((id, name), [change.path])[0] != change.path:
            del self.futures[id, name]
        if self.place(id, name) != change.path:
            self.futures.setdefault((id, name), [change.path, 0])
        return ""

    def _chosen(self, id: int, name: Name) -> str:
        """Where Kafka makes a new replica: where it was told, else where the fewest are."""
        counts = dict.fromkeys(self.dirs_of(id), 0)
        for (broker, other), path in self.paths.items():
            if broker == id and other != name:
                counts[path] += 1
        return self.remembered.pop((id, name), min(counts, key=lambda path: (counts[path], path)))

    def _submitted(self, change: ReassignPartition) -> str:
        name = change.topic, change.partition
        if why := self.refuses_moves(change):
            return why
        if dead := [broker for broker in change.replicas if broker in self.down]:
            return f"{change.topic}-{change.partition}: InvalidReplicaAssignmentError {dead}"
        if name not in self.held:
            return "UnknownTopicOrPartitionError"
        held = self.held[name]
        if name in self.flights:  # silently
            self.replaced.append(name)
            held.replicas = tuple(b for b in self.flights.pop(name).replicas if b in held.replicas)
        adding = [broker for broker in change.replicas if broker not in held.replicas]
        self.places |= {(id, name): self._chosen(id, name) for id in adding}
        self.flights[name] = Flight(change.replicas, held.replicas, dict.fromkeys(adding, 0))
        self._measure()
        if not adding:
            self._end(name, self.flights[name])
        return ""


def _set(own: dict[str, str], key: str, value: str | None) -> None:
    if value is None:
        own.pop(key, None)
    else:
        own[key] = value


def world(partitions: int = 8, size: int = 3_000_000) -> ReassignWorld:
    """Topics of four partitions each, on brokers 1 to 3; brokers 4 and 5 hold nothing. Every third partition
    is led by its second replica. Topic t1 has throttles of another hand, and broker 1 has a rate."""
    held: dict[Name, Held] = {}
    for n in range(partitions):
        replicas = (1 + n % 3, 1 + (n + 1) % 3)
        held[f"t{n // 4}", n % 4] = Held(replicas, replicas, replicas[1 if n % 3 == 2 else 0], size)
    topics: dict[str, dict[str, str]] = {topic: {"cleanup.policy": "delete"} for topic, _ in held}
    if "t1" in topics:
        topics["t1"] |= {LEADER_LIST: "3:1,0:1", FOLLOWER_LIST: "*"}
    return ReassignWorld(ID, topics, held=held, rates={1: {LEADER_RATE: "77"}})


def plan(cluster: ReassignWorld) -> dict[Name, tuple[int, ...]]:
    """A plan: move to brokers 4 and 5, change the order only, grow, shrink; one has its set already."""
    made: dict[Name, tuple[int, ...]] = {}
    for n, (name, held) in enumerate(cluster.held.items()):
        first, second = held.replicas
        made[name] = (
            (4, second), (second, first), (4, 5), (first, second, 5), (second,), (first, 4), (first, second),
            (5, second),
        )[n % 8]  # fmt: skip
    return made


def inventory(
    sets: Sets, back: Sets | None = None, dirs: Dirs | None = None, phases: Phases = (), **section: object
) -> ReassignInventory:
    given = {"plan": "plan.json", "throttle_bytes_s": RATE, "in_flight": 3, "per_broker": 2, **section}
    brokers = tuple(Broker(name=f"broker{n}", address=f"10.0.0.2{n}", id=n) for n in BROKERS)
    made = ReassignInventory(
        version=1,
        name="reassign",
        kafka=Kafka(cluster_id=ID, brokers=brokers),
        reassign=Reassign.model_validate(given),
    )
    return made.with_sets(sets, back or {}, dirs, phases)


@dataclass(frozen=True)
class ReassignLook(TopicQuestions):
    """A look at a cluster, and at the load of its brokers' hosts."""

    world: ReassignWorld
    clock: TinyClock

    @property
    def cluster(self) -> TopicWorld:
        return self.world

    def refused_at_controller(self, change: AlterAtController) -> Reading[str]:
        return self.world.refused_at_controller(change)

    def znode(self, host: str, path: str) -> Reading[Znode]:
        assert host in ("zk1:2181", "zk2:2181")
        return self.world.znode(path) if host == "zk2:2181" else Unknown("timeout", "zk1 is down")

    def now(self) -> float:
        return self.clock.now()

    def wall(self) -> float:
        return self.clock.wall()

    def load_counters(self, host: str) -> Reading[str]:
        one = self.world.hosts[int(host.removeprefix("broker"))]
        if one.blind(self.now()):
            return Unknown("unreachable", f"{host} does not answer")
        return Seen(one.text(self.now()))

    def metrics(self, url: str) -> Reading[str]:
        return metrics_text(url, 20.0)

    def each(self, hosts: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        return {host: ask(host) for host in hosts}

    def produced(self) -> Mapping[str, Sequence[Pulse]]:
        return {
            f"broker{id}": (Pulse(0.0, took_s=one.canary_ms(self.now()) / 1000),)
            for id, one in self.world.hosts.items()
            if one.canary_ms is not None
        }


@dataclass
class Desk:
    """One run over one cluster."""

    run_dir: Path
    cluster: ReassignWorld
    inventory: ReassignInventory
    clock: TinyClock = field(default_factory=TinyClock)
    confirm: TinyConfirm = field(default_factory=TinyConfirm)
    seen: list[events.Event] = field(default_factory=list)
    before_change: Callable[[Change], None] = lambda _change: None
    after_change: Callable[[Change], None] = lambda _change: None
    holds: HoldPort = field(default_factory=HoldPort)
    noted: list[tuple[float, Body]] = field(default_factory=list)
    playbook: ClassVar[Playbook] = PLAYBOOK

    def __post_init__(self) -> None:
        self.points = Points()
        self.first = self.cluster.copy()

    def copy(self, run_dir: Path) -> Self:
        """As :class:`tests.unit.engine_world.Desk`."""
        shutil.copytree(self.run_dir, run_dir)
        made = type(self)(run_dir, self.cluster.copy(), self.inventory, copy.copy(self.clock))
        made.first = self.first
        return made

    def look(self) -> Look:
        """What a process sees."""
        return cast(Look, ReassignLook(self.cluster, self.clock))

    @property
    def home(self) -> bool:
        """The cluster is as it was: sets in order, leaders that were preferred, every setting."""
        now, first = self.cluster, self.first
        same_leaders = all(
            now.held[name].leader == held.leader
            for name, held in first.held.items()
            if held.leader == held.replicas[0]
        )
        sets = {name: held.replicas for name, held in now.held.items()}
        return (
            same_leaders
            and sets == {name: held.replicas for name, held in first.held.items()}
            and self.settings_kept
            and not now.flights
            and now.paths == first.paths
            and not now.futures
        )

    @property
    def settings_kept(self) -> bool:
        """Every setting is as it was."""
        rates = {id: own for id, own in self.cluster.rates.items() if own}
        return self.cluster.topics == self.first.topics and rates == self.first.rates

    @property
    def there(self) -> bool:
        """Every partition has the plan's set in order, all in sync, and every setting is as it was."""
        sets = self.inventory.sets
        return (
            self.settings_kept
            and not self.cluster.flights
            and not self.cluster.futures
            and all(
                path in ("any", self.cluster.place(id, name))
                for name, dirs in self.inventory.dirs.items()
                for id, path in zip(sets[name], dirs, strict=True)
            )
            and all(
                held.replicas == sets.get(name, self.first.held[name].replicas)
                and set(held.isr) == set(held.replicas)
                for name, held in self.cluster.held.items()
            )
        )

    def process(self, act: Callable[[Walk], RunEnded], points: Points | None = None) -> RunEnded:
        """One process's life."""
        self.points = points or Points()
        disk = PointDisk(self.points)
        there = (self.run_dir / NAME).exists()
        journal = (Journal.open if there else Journal.create)(self.run_dir, self.clock.wall, disk)
        if not journal.history.run:
            body = {"run": "r-1", "name": "", "playbook": self.playbook.id, "inventory": "0", "plan": "0"}
            journal.append("begin", body)
        ports = Ports(
            look=self.look(),
            apply=self._apply,
            clock=self.clock,
            confirm=self.confirm,
            lock=TinyLock(),
            interrupt=Interrupt(),
            emit=self.seen.append,
            holds=self.holds,
            overrides=ThrottleFile(self.run_dir).read,
            note=lambda _kind, body: self.noted.append((self.clock.now(), body)),
        )
        try:
            return act(Walk(self.playbook, self.inventory, journal, ports))
        finally:
            journal.close()

    @property
    def history(self) -> History:
        """What the journal means now."""
        from zkmigrate.runbook.engine import journal

        return journal.read(self.run_dir)

    def _apply(self, change: Change, operation: str, fencing: int) -> Outcome:
        assert isinstance(change, ClusterChange), "no host takes part"
        self.before_change(change)
        self.points.hit("apply")
        outcome = Outcome(*self.cluster.alter(change))
        self.after_change(change)
        self.points.hit("applied")
        return outcome
