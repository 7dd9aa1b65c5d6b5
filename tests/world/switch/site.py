"""The world of a switch: clusters, gateways, mirror hosts and clients, and what must hold of them.

:class:`Broken` is raised as soon as something does not hold. It is no ``Exception``, so nothing catches it.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.world.model import program
from tests.world.model.host import Host
from tests.world.switch.clients import Client, Consumer, Flight, ModelGateway, Producer
from tests.world.switch.logs import Cluster, Copier, Part, copy_commits
from zkmigrate.kafka.rights import Acl
from zkmigrate.runbook.model.change import HostChange, Outcome, SetService
from zkmigrate.topics.gateway.order import GatewayOrder
from zkmigrate.topics.gateway.rules.hold import Gate
from zkmigrate.topics.mirror.changes import AlterAcls, CopyOffsets, SetDirection
from zkmigrate.topics.mirror.rules.direction import Lead, leaders

TICK_S = 0.05
EPOCH = 1_800_000_000.0
TOPIC = "orders"
NAMES = ("old", "new")
WRITE = Acl("TOPIC", TOPIC, "LITERAL", "User:shop", "*", "WRITE", "ALLOW")


class Broken(BaseException):
    """Something that must hold does not."""


class MirrorHost(Host):
    """A host with zkm-host. units: its copiers, by the cluster that they copy to."""

    units: dict[str, Copier]

    def apply(self, change: HostChange, operation: str, fencing: int) -> Outcome:
        """As zkm-host does it."""
        return Outcome(*program.run(self, change, operation, fencing, 0.0, 0.0))

    def reboot(self) -> None:
        """The machine starts anew."""
        for unit in self.units.values():
            unit.running = False
            if unit.enabled:
                unit.start()

    def serve(self, change: SetService, now: float) -> None:
        unit = self.units[unit_to(change.unit)]
        match change.action:
            case "start":
                unit.start()
            case "stop":
                unit.running = False
            case _:
                assert change.action in ("enable", "disable"), change
                unit.enabled = change.action == "enable"


def mirror_host(name: str, units: dict[str, Copier]) -> MirrorHost:
    """units: its copiers, by the cluster that they copy to."""
    made = MirrorHost(name, "")
    made.units = units
    return made


def unit_name(to: str) -> str:
    """The unit that copies to a cluster."""
    return f"zkmigrate-mirror-{to}.service"


def unit_to(unit: str) -> str:
    """The cluster that a unit copies to."""
    return unit.removeprefix("zkmigrate-mirror-").removesuffix(".service")


@dataclass
class Shape:
    """How large the world is. speed: of a copier, in records per second. took_s: the longest time to a
    broker, or back. open_limit_s: the policy's. commits_s: between two commits of a consumer."""

    gateways: int = 2
    mirrors: int = 2
    apps: tuple[str, ...] = ("orders",)
    partitions: int = 2
    speed: float = 500.0
    took_s: float = 0.15
    open_limit_s: float = 5.0
    commits_s: float = 0.5


class World:
    """All of it. t: seconds. source, target: of the switch that is under way. writer: the cluster that has
    the newest record of an application. unsure: records whose outcome no gateway and no producer knows.
    stray: a request reached a broker after its client had gone. bypass: a producer beside the gateways
    writes on source from then on. on_target: a group has members on target from then on. dark: until then
    no leader of target answers those who look. unreached: until then no gateway reaches target. granted_at:
    when the last broker of a cluster knows that clients may write there, by its name. strangers: copiers that
    are on no mirror host. unit_topics: those that the copiers' units name."""

    first = NAMES[0]

    def __init__(self, seed: int, shape: Shape) -> None:
        self.rng, self.shape, self.t = random.Random(seed), shape, 0.0
        self.apps = shape.apps
        parts = tuple((TOPIC, number) for number in range(shape.partitions))
        self.parts: tuple[Part, ...] = parts
        self.clusters = {name: Cluster(name, {part: [] for part in parts}) for name in NAMES}
        self.source, self.target = (self.clusters[name] for name in NAMES)
        self.writer = self.source
        self.granted_at = {self.source.name: 0.0}
        self.flights: list[Flight] = []
        self.clients: list[Client] = []
        self.gateways = {f"gw{n}": ModelGateway(self, f"gw{n}") for n in range(1, shape.gateways + 1)}
        self.consumers = tuple(self._consumers())
        self.producers = tuple(self._producers())
        self.clients += [*self.consumers, *self.producers]
        self.groups = tuple(one.group for one in self.consumers)
        self.hosts = {
            f"m{n}": mirror_host(f"m{n}", self._copiers(n - 1)) for n in range(1, shape.mirrors + 1)
        }
        for host in self.hosts.values():
            host.units[self.target.name].start()
            host.units[self.target.name].enabled = True
        self.strangers: list[Copier] = []
        self.unit_topics = [TOPIC]
        self.acked: list[tuple[Part, int, str]] = []
        self.unsure: set[str] = set()
        self.stray, self.bypass, self.on_target = False, float("inf"), float("inf")
        self.switched, self.dark, self.unreached = 0, 0.0, 0.0
        self._bypassed = 0
        self._ticked = 0.0
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._number = itertools.count()

    def _consumers(self) -> Iterator[Consumer]:
        gateways = itertools.cycle(self.gateways.values())
        for n, app in zip(range(2), itertools.cycle(self.apps), strict=False):
            yield Consumer(self, f"c{n}", next(gateways), app, self.parts)

    def _producers(self) -> Iterator[Producer]:
        apps = itertools.cycle(self.apps)
        for n, gateway in enumerate(self.gateways.values()):
            for part in self.parts:
                yield Producer(self, f"p{n}{part[1]}", gateway, next(apps), part)

    def _copiers(self, number: int) -> dict[str, Copier]:
        own = [part for part in self.parts if part[1] % self.shape.mirrors == number]
        groups = self.groups if number == 0 else ()
        one, other = self.clusters.values()
        return {
            target.name: Copier(source, target, own, groups, self.shape.speed)
            for source, target in ((one, other), (other, one))
        }

    # -- time

    def now(self) -> float:
        return self.t

    def wall(self) -> float:
        return EPOCH + self.t

    def took(self) -> float:
        """Seconds to a broker, or back."""
        return self.rng.uniform(0.01, self.shape.took_s)

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        """Do it so much later."""
        heapq.heappush(self._later, (self.t + seconds, next(self._number), act))

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        end = self.t + seconds
        while self.t < end:
            self.t = min(end, self._ticked + TICK_S)
            while self._later and self._later[0][0] <= self.t:
                heapq.heappop(self._later)[2]()
            if self.t >= self._ticked + TICK_S:
                self._tick(self.t - self._ticked)
                self._ticked = self.t

    def cut(self) -> int:
        """End the connections on which a producer waits for an answer; how many there were."""
        waiting = [one for one in self.producers if one.flights]
        for one in waiting:
            one.lost()
        return len(waiting)

    def _tick(self, passed: float) -> None:
        now = self.t
        self.flights = [one for one in self.flights if not one.pass_(now)]
        for client in self.clients:
            client.tick()
        for host in self.hosts.values():
            for copier in host.units.values():
                copier.copy(passed, now)
        for copier in self.strangers:
            copier.copy(passed, now)
        if now >= self.bypass:
            self.bypass, self._bypassed = now + 0.1, self._bypassed + 1
            self.source.append(self.rng.choice(self.parts), f"bypass.{self._bypassed}")
        if now >= self.on_target:
            self.target.heard[self.groups[0]] = now
        self.check()

    # -- what must hold

    def broken(self, why: str) -> None:
        raise Broken(f"at {self.t:.2f} s: {why}")

    def check(self) -> None:
        """Clients can write on one cluster at most, and no copier writes there."""
        opened = {name for gateway in self.gateways.values() for name in gateway.open_on()}
        if len(opened) > 1:
            self.broken(f"clients can write on both clusters: {self.standing()}")
        for host, one in self.hosts.items():
            for to, copier in one.units.items():
                if copier.running and to in opened:
                    self.broken(f"{host} copies to {to}, where clients write: {self.standing()}")
        for copier in self.strangers:
            if copier.running and copier.target.name in opened:
                self.broken(f"a copier by hand copies to {copier.target.name}: {self.standing()}")

    def standing(self) -> str:
        """Where every gateway stands."""
        return "; ".join(
            f"{gateway.name} {app}: {told.gate.value} on {told.route}" + ("" if gateway.up else ", down")
            for gateway in self.gateways.values()
            for app in self.apps
            for told in (gateway.real.app(app),)
        )

    def may_write(self, cluster: Cluster) -> bool:
        """Whether every broker of a cluster lets the clients write."""
        return self.t >= self.granted_at.get(cluster.name, float("inf"))

    def writes(self, cluster: Cluster, producer: Producer) -> None:
        """A broker appends a record of a client that is there."""
        if not self.may_write(cluster):
            self.broken(f"{producer.id} may not write on {cluster.name}")
        if cluster is self.writer:
            return
        if cluster is not self.target:
            self.broken(f"{producer.id} writes on {cluster.name}, after others wrote on {self.writer.name}")
        if self._bypassed and self.bypass < float("inf"):
            self.broken("clients were led away while a producer writes beside the gateways")
        self._same(cluster)
        self.writer, self.switched = cluster, self.switched + 1

    def _same(self, cluster: Cluster) -> None:
        """Every acknowledged record stands where it was acknowledged."""
        for part, offset, value in self.acked:
            log = cluster.logs[part]
            if len(log) <= offset or log[offset] != value:
                told = log[offset] if len(log) > offset else f"the end, {len(log)}"
                self.broken(f"{value} was acknowledged at {offset} of {part}; on {cluster.name} is {told}")

    def acknowledged(self, cluster: Cluster, part: Part, offset: int, value: str) -> None:
        """A producer got its answer."""
        if cluster is not self.writer or cluster.logs[part][offset] != value:
            self.broken(f"{value} was acknowledged on {cluster.name}, while {self.writer.name} is written")
        self.acked.append((part, offset, value))

    def commits(self, cluster: Cluster, group: str, what: dict[Part, int], there: bool) -> None:
        """A broker takes a group's offsets."""
        if not there:
            self.stray = True
        for part, offset in what.items():
            if offset > len(cluster.logs[part]):
                self.broken(f"{group} commits {offset} of {part} on {cluster.name}, beyond its end")
        cluster.commits.setdefault(group, {}).update(what)

    def joins(self, cluster: Cluster, consumer: Consumer) -> None:
        """A consumer has its partitions again, and begins at its commits."""
        own = cluster.commits.get(consumer.group, {})
        other = next(one for one in self.clusters.values() if one is not cluster)
        theirs = other.commits.get(consumer.group, {})
        for part in consumer.parts:
            at, before = own.get(part, 0), consumer.position[part]
            if at > len(cluster.logs[part]):
                self.broken(f"{consumer.group} is reset: it begins at {at} of {part} on {cluster.name}")
            if at > before:
                self.broken(f"{consumer.group} skips {before} to {at} of {part} on {cluster.name}")
            if at < theirs.get(part, 0) and not self.stray:
                self.broken(f"{consumer.group} has committed {theirs[part]} of {part}, begins at {at}")
            consumer.position[part] = at

    def at_rest(self, cluster: Cluster) -> None:
        """Long after the last fault: one cluster is open, it has all, and every group got all of it."""
        seen = [gateway.real.app(app) for gateway in self.gateways.values() for app in self.apps]
        if any(app.gate is not Gate.OPEN or app.route != cluster.name for app in seen):
            self.broken(f"needed: open on {cluster.name}; seen: {self.standing()}")
        self._same(cluster)
        for part, log in cluster.logs.items():
            twice = {value for value, count in Counter(log).items() if count > 1} - self.unsure
            if twice:
                self.broken(f"{part} on {cluster.name} holds twice: {sorted(twice)[:3]}")
            for consumer in self.consumers:
                end = len(consumer.read[part])
                if log[:end] != consumer.read[part] or end < len(log) - 50:
                    self.broken(f"{consumer.group} has read {end} of {len(log)} of {part}, or others")

    # -- changes

    def take_lock(self) -> int:
        """A fencing number above those that mirror hosts and gateways tell, as the lock takes it; 0 while no
        mirror host has zkm-host."""
        there = [host for host in self.hosts.values() if host.installed]
        if not there:
            return 0
        told = [gateway.fencing for gateway in self.gateways.values() if gateway.heard]
        number: int = max(0, *(host.fencing for host in there), *told) + 1
        for host in there:
            host.fencing = number
        return number

    def apply(
        self, change: HostChange | CopyOffsets | AlterAcls | SetDirection, operation: str, fencing: int
    ) -> Outcome | None:
        """Carry a change out; None where nobody answers."""
        if isinstance(change, GatewayOrder):
            gateway = self.gateways[change.host]
            return gateway.order(change, operation, fencing) if gateway.heard else None
        if isinstance(change, AlterAcls):
            return self._altered(change)
        if isinstance(change, SetDirection):
            return self._directed(change)
        if not isinstance(change, CopyOffsets):
            return self.hosts[change.host].apply(change, operation, fencing)
        active = [one for one in change.groups if self.target.state(one, self.t) != "Empty"]
        if active:
            return Outcome(1, f"groups with members on target: {', '.join(active)}")
        for group in change.groups:
            copy_commits(group, self.source, self.target, self.parts, self.t)
        return Outcome(0, "committed")

    def _altered(self, change: AlterAcls) -> Outcome:
        if change.action == "grant":
            self.granted_at.setdefault(self.target.name, self.t + self.rng.uniform(0.0, 3.0))
        else:
            self.granted_at.pop(self.target.name, None)
        return Outcome(0, change.action)

    def _directed(self, change: SetDirection) -> Outcome:
        sides = (self.source, self.target)
        if any(one.lead and one.lead.number > change.number for one in sides):
            return Outcome(1, "a newer run")
        for side, leader in leaders(change.copies, (self.source.name, self.target.name)):
            sides[side].lead = Lead(leader, change.number)
        return Outcome(0, change.copies)

    def by_hand(self) -> None:
        """Somebody starts a copier to target on another machine."""
        self.strangers.append(Copier(self.source, self.target, self.parts, self.groups, self.shape.speed))
        self.strangers[-1].start()

    def turn(self) -> None:
        """The next switch goes the other way; its copiers run, as an operator starts them."""
        self.source, self.target = self.target, self.source
        for host in self.hosts.values():
            old, new = host.units[self.source.name], host.units[self.target.name]
            old.running = old.enabled = False
            new.enabled = True
            new.start()
