"""A model Kafka cluster with the hosts of its brokers: takes changes, and copies while it is looked at."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from tests.world.cluster_answers import Answers
from tests.world.cluster_state import Flight, Held
from tests.world.model import program
from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign.throttle import (
    FOLLOWER_LIST,
    FOLLOWER_RATE,
    INSIDE_RATE,
    LEADER_LIST,
    LEADER_RATE,
)
from zkmigrate.cluster.removal.rules import CORDONED
from zkmigrate.errors import HostError
from zkmigrate.kafka.changes import (
    AlterAtController,
    AlterBrokerConfig,
    AlterTopicConfig,
    CancelReassignment,
    CreateTopic,
    DeleteTopic,
    ElectLeaders,
    GrowTopic,
    PlaceReplica,
    ReassignPartition,
    UnregisterBroker,
)
from zkmigrate.kafka.questions import PartitionState
from zkmigrate.kafka.rules.znodes import removable
from zkmigrate.runbook.model.change import ClusterChange, HostChange, MoveAside, Outcome, SetService
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.zookeeper.changes import CreateZnode, DeleteZnode

TICK_S = 1.0
"""Seconds for which a look at the reassignments lets the brokers copy."""
UNLIMITED = 10**12
GONE_AFTER = 5
"""Seconds that a replica stays on the disk of a broker that it left."""


@dataclass
class Cluster(Answers):
    """Make one with :class:`tests.world.build.World`."""

    # --- what happens by itself ------------------------------------------------------------------------

    def measure(self) -> None:
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

    def tick(self) -> None:
        """Brokers copy for a second; what a broker leads that is down is led by another one in sync."""
        if self.hosts:
            for held in self.held.values():
                if held.leader in self.down:
                    held.leader = next((id for id in held.isr if id not in self.down), held.leader)
        self._copy_on()
        for id in self.disk:
            self.least[id] = min(self.least.get(id, self.disk[id]), self.free(id) or 0)
        self.deleting = [[id, size, left - 1] for id, size, left in self.deleting if left > 1]

    def _copy_on(self) -> None:
        """Every broker copies what its limits allow, and moves that have all bytes end."""
        sends: dict[int, int] = {}
        gets: dict[int, int] = {}
        for name, flight in self.flights.items():
            held = self.held[name]
            if held.leader in self.down | self.hung:
                continue
            for broker, have in flight.copied.items():
                if broker in self.down | self.hung or broker not in self.loads:
                    continue
                out = sends.setdefault(held.leader, self._limit(name, held.leader, LEADER_RATE, LEADER_LIST))
                into = gets.setdefault(broker, self._limit(name, broker, FOLLOWER_RATE, FOLLOWER_LIST))
                step = min(out, into, held.size - have)
                if min(out, into) > UNLIMITED // 2:
                    self.unthrottled += step
                flight.copied[broker] += step
                self.loads[held.leader].sent += step
                self.loads[broker].received += step
                sends[held.leader] -= step
                gets[broker] -= step
        for name, bytes_s in self.grows.items():
            self.held[name].size += int(bytes_s * TICK_S)
        for (id, name), future in list(self.futures.items()):
            if id not in self.down | self.hung:
                self._copy_inside(id, name, future)
        for name, flight in list(self.flights.items()):
            if all(have >= self.held[name].size for have in flight.copied.values()):
                self._end(name, flight)

    def _copy_inside(self, id: int, name: Name, future: list[int]) -> None:
        limit = self.rates.get(id, {}).get(INSIDE_RATE)
        step = min(int(limit or UNLIMITED), self.held[name].size - future[1])
        self.unthrottled += 0 if limit else step
        self.twice += step
        future[1] += step
        whole = name not in self.flights or self.flights[name].copied.get(id, 0) >= self.held[name].size
        if whole and future[1] >= self.held[name].size:
            self.places[id, name] = str(future[0])
            del self.futures[id, name]

    def _limit(self, name: Name, broker: int, rate: str, key: str) -> int:
        topic, number = name
        entries = self.topics[topic].get(key, "").split(",")
        limited = "*" in entries or f"{number}:{broker}" in entries
        set_to = self.rates.get(broker, {}).get(rate)
        return int(int(set_to) * TICK_S) if limited and set_to is not None else UNLIMITED

    def _end(self, name: Name, flight: Flight) -> None:
        held = self.held[name]
        isr = tuple(dict.fromkeys((*held.isr, *flight.target)))
        self._late(name, PartitionState(*name, held.leader, flight.replicas, isr))
        self._gone(name, set(flight.replicas) - set(flight.target))
        alive = tuple(broker for broker in flight.target if broker not in self.down)
        held.replicas, held.isr = flight.target, alive
        if held.leader not in alive:
            held.leader = alive[0] if alive else -1
        del self.flights[name]

    def _late(self, name: Name, before: PartitionState | None) -> None:
        if self.lag:
            self.shown[name] = (self.lag, before)

    def _gone(self, name: Name, brokers: Collection[int]) -> None:
        for id in brokers:
            self.deleting.append([id, self.held[name].size, GONE_AFTER])
            self.places.pop((id, name), None)
            self.futures.pop((id, name), None)

    # --- changes of the cluster ------------------------------------------------------------------------

    def alter(self, change: ClusterChange) -> tuple[int, str]:
        """Exit code and output. HostError where no answer comes."""
        with self.turn:
            trouble = self.wrong.pop(0) if self.wrong else ""
            if trouble == "down" or self.silent:
                raise HostError("no broker answers; nothing was sent to Kafka")
            if why := self.answer(change):
                return 1, why
            self.made.append(change)
            if trouble == "lost":
                raise HostError("the connection broke; whether that was done is not known")
            return 0, change.describe()

    def answer(self, change: ClusterChange) -> str:
        """Make one change; why Kafka refuses it, else empty."""
        match change:
            case AlterTopicConfig():
                if change.topic not in self.topics:
                    return "UnknownTopicOrPartitionError"
                _set(self.topics[change.topic], change.key, change.value)
            case AlterBrokerConfig():
                return self._configured(change)
            case AlterAtController():
                assert change.broker in self.down
                assert self.refused_at_controller(change) == Seen("")
                _set(self.rates[change.broker], change.key, change.value)
            case UnregisterBroker():
                assert self.kraft
                assert change.broker in self.down
                self.forgotten.add(change.broker)
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
            case ElectLeaders():
                return self._elected(change)
            case CreateTopic() | DeleteTopic() | GrowTopic():
                return self._counted(change)
            case DeleteZnode() | CreateZnode():
                return self._znode(change)
            case _:
                raise AssertionError(change)
        return ""

    def _configured(self, change: AlterBrokerConfig) -> str:
        if change.key == CORDONED and not self.cordons:
            return "InvalidConfigurationError: unknown config cordoned.log.dirs"
        if change.broker in self.down:
            raise HostError(f"broker {change.broker} does not answer")
        own = self.rates.setdefault(change.broker, {})
        self.rates_shown[change.broker, change.key] = [own.get(change.key)] * self.rates_lag
        _set(own, change.key, change.value)
        return ""

    def _elected(self, change: ElectLeaders) -> str:
        for name in change.partitions:
            held = self.held[name]
            if held.replicas[0] not in held.isr or held.replicas[0] in self.down:
                return f"{name[0]}-{name[1]}: PREFERRED_LEADER_NOT_AVAILABLE"
            held.leader = held.replicas[0]
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
        self.measure()
        if not adding:
            self._end(name, self.flights[name])
        return ""

    def _counted(self, change: CreateTopic | DeleteTopic | GrowTopic) -> str:
        """A topic comes, grows or goes."""
        topic = change.topic
        there = [name for name in self.held if name[0] == topic]
        match change:
            case CreateTopic() if not there:
                self.ids[topic] = self.ids.get(topic, 0) + 1
                self.topics[topic], sets = {}, change.sets
            case GrowTopic() if len(there) == len(change.old):
                sets = change.sets
            case DeleteTopic() if there and change.before in ("", f"id{self.ids.get(topic, 1)}"):
                for name in there:
                    self._late(name, self.partition(name))
                    del self.held[name]
                del self.topics[topic]
                return ""
            case _:
                return "Kafka refuses that"
        for number, replicas in enumerate(sets, len(there)):
            self._late((topic, number), None)
            self.held[topic, number] = Held(replicas, replicas, replicas[0], 0)
        return ""

    def _znode(self, change: DeleteZnode | CreateZnode) -> str:
        assert removable(change.path)
        node = self.tree.get(change.path)
        if isinstance(change, CreateZnode):
            if node is None:
                self.put(change.path, change.data, acl=change.acl)
        elif node is not None:
            if change.mark != f"{node.made:x} {node.changed:x} {node.version}":
                return "changed"
            assert not any(path.startswith(f"{change.path}/") for path in self.tree), "children first"
            del self.tree[change.path]
        return ""

    # --- changes of hosts ------------------------------------------------------------------------------

    def on_host(self, change: HostChange, operation: str, fencing: int) -> Outcome:
        """As zkm-host does it; a broker stops and starts with its service."""
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", operation), "zkm-host takes no other operation id"
        host = self.hosts[change.host]
        if isinstance(change, MoveAside) and self.refuses_aside:
            return Outcome(3, "another file system")
        serves = isinstance(change, SetService) and operation not in host.ops
        if serves and isinstance(change, SetService) and change.action == "stop":
            self._stops(change.host)
        at = self.clock
        outcome = Outcome(*program.run(host, change, operation, fencing, at.now(), at.wall()))
        if serves:
            id, runs = self.id_of(host.name), host.running or host.name in self.deaf
            (self.down.discard if runs else self.down.add)(id)
        return outcome

    def _stops(self, host: str) -> None:
        """Its service is told to stop: no replica but of births may be on it."""
        self.stops.append(host)
        if host in self.deaf:
            return
        id = self.id_of(host)
        left = self.leads(id)
        assert not left or self.outrun, "an empty broker alone stops"
        assert all(name in self.birthplaces for name in left), "nothing but births is on it"
        others = [len({*self.held[name].isr} - {id}) for name in left]
        assert all(n >= self.min_isr for n in others), "and they are in sync elsewhere"
        self.spared += left


def _set(own: dict[str, str], key: str, value: str | None) -> None:
    if value is None:
        own.pop(key, None)
    else:
        own[key] = value
