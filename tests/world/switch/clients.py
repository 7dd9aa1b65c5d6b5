"""Gateways without sockets, and the clients behind them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.unit.topics.gateway.loop import at_once
from tests.world.switch.logs import Cluster, Part
from zkmigrate.runbook.engine.codec import encode_finding
from zkmigrate.runbook.model.change import Outcome
from zkmigrate.topics.gateway.order import GatewayOrder
from zkmigrate.topics.gateway.rules import orders
from zkmigrate.topics.gateway.rules.apis import FETCH, PRODUCE, SYNC_GROUP
from zkmigrate.topics.gateway.rules.hold import Act, Gate, Order, Verdict, decide
from zkmigrate.topics.gateway.rules.messages import Head
from zkmigrate.topics.gateway.rules.outcomes import Headers, Outcomes, Written
from zkmigrate.topics.gateway.rules.plan import Plan, Port, Who
from zkmigrate.topics.gateway.serving.gateway import Gateway
from zkmigrate.topics.gateway.usage import usage

if TYPE_CHECKING:
    from tests.world.switch.site import World

OFFSET_COMMIT = 8
CODES = {"done": 0, "refused": 6, "fenced": 9, "failed": 8}
AGAIN_S = 0.3
"""A client tries again after so long."""
BEATS_S = 0.5
_KINDS = {PRODUCE: "PRODUCE", FETCH: "FETCH", OFFSET_COMMIT: "OFFSET_COMMIT", SYNC_GROUP: "SYNC_GROUP"}
_SOFTWARE = {"ClientSoftwareName": "apache-kafka-java", "ClientSoftwareVersion": "3.9.1", "Acks": -1}


class ModelGateway:
    """The real gateway on a host, without its sockets. body: its record on disk. silent: its host answers no
    operator, while clients go on."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self.name = world, name
        self.body, self.up, self.silent = "", True, False
        self.real = self._made()

    def _made(self) -> Gateway:
        world = self._world
        routes = dict.fromkeys((*world.apps, "others"), world.first)
        plan = Plan(
            clusters={name: {1: f"{name}1:9092"} for name in world.clusters},
            ports={},
            advertise={},
            apps={app: Who(client_ids=(f"{app}-*",)) for app in world.apps},
        )
        state = (
            orders.restored(json.loads(self.body), routes, plan.clusters)
            if self.body
            else orders.fresh(routes)
        )
        again = bool(self.body)
        return Gateway(plan, state, self, lambda _line: None, world.now, world.wall, again=again)

    async def write(self, body: Any) -> None:
        self.body = json.dumps(body)

    def kill(self) -> None:
        """Its process is gone, and every connection with it."""
        if self.up:
            self.up = False
            for client in self._world.clients:
                if client.gateway is self:
                    client.lost()

    def start(self) -> None:
        """Up again, with what the record tells."""
        if not self.up:
            self.real, self.up = self._made(), True

    def order(self, change: GatewayOrder, operation: str, fencing: int) -> Outcome:
        """Carry an order out, as its relay does."""
        asked = Order(fencing, operation, change.order, change.app, change.to, change.hold, change.ttl_ms)
        answer = at_once(self.real.order(asked))
        return Outcome(CODES[answer.outcome], f"{answer.outcome}: {answer.text}")

    def status(self) -> str:
        """The JSON of ``zkmigrate gateway status``."""
        for name, brokers in self.real.silent.items():
            dark = self._world.t < self._world.unreached and name == self._world.target.name
            brokers[1] = "no route" if dark else ""
        told = self.real.status()
        found = [one for name, app in told["apps"].items() for one in usage(name, app)]
        return json.dumps({**told, "findings": [encode_finding(one) for one in found]})

    @property
    def heard(self) -> bool:
        """Whether an operator gets answers."""
        return self.up and not self.silent

    @property
    def fencing(self) -> int:
        """The highest fencing number that it has seen."""
        return int(self.real.status()["fencing"])

    def open_on(self) -> set[str]:
        """The clusters on which clients of the set can write now."""
        if not self.up:
            return set()
        seen = [self.real.app(app) for app in self._world.apps]
        return {app.route for app in seen if app.gate in (Gate.OPEN, Gate.SETTLING)}


@dataclass
class Flight:
    """A request that was sent to a broker. real: the gateway that counts it. arrives, answered: when the
    broker carries it out, and when its answer is there. effect: what the broker does, given whether the
    client is still there. answer: what the client does."""

    kind: str
    app: str
    real: Gateway
    arrives: float
    answered: float
    effect: Callable[[bool], None]
    answer: Callable[[], None]
    there: bool = True

    def pass_(self, now: float) -> bool:
        """What happens of it until now; whether it is over."""
        if self.arrives and now >= self.arrives:
            self.arrives = 0.0
            self.effect(self.there)
        if not self.there:
            return not self.arrives
        if self.arrives or now < self.answered:
            return False
        self.real.seen[self.app].in_flight[self.kind] -= 1
        self.real.seen[self.app].answered[self.kind] += 1
        self.answer()
        return True


class Client:
    """A client of an application behind a gateway."""

    port = Port("shop", "old", 1)

    def __init__(self, world: World, name: str, gateway: ModelGateway, app: str) -> None:
        self.world, self.name, self.gateway, self.app = world, name, gateway, app
        self.id = f"{app}-{name}"
        self.client = (self.id, "peer")
        self.flights: dict[int, Flight] = {}
        self._connected: Gateway | None = None

    def accepted_in(self, name: str) -> bool:
        """The brokers of this world accept everybody."""
        return name == self.app

    def hurry(self) -> None:
        """What it has begun is over at once in this world."""

    def close(self) -> None:
        """The gateway ends the connection after a flip; nothing may be under way by then."""
        for flight in self.flights.values():
            self.world.broken(f"{self.id}: a {flight.kind} was in flight when its application was led away")
        self.lost()

    def lost(self) -> None:
        """The connection has ended. What was sent reaches its broker nevertheless."""
        for flight in self.flights.values():
            flight.there = False
            flight.real.seen[flight.app].in_flight[flight.kind] -= 1
        self.flights.clear()
        self._connected = None
        for key in _KINDS:
            self._waits(key, False)

    def judged(self, key: int) -> Verdict | None:
        """What the gateway does with a request; None where it does not answer."""
        if not self.gateway.up:
            return None
        real = self.gateway.real
        if self._connected is not real:
            self._connected = real
            real.connected(self.app, self)
            real.seen[self.app].clients[self.id] += 1
            topics = {topic for topic, _ in self.world.parts}
            real.seen[self.app].request({**_SOFTWARE, "Topics": topics}, self.app)
        synced = key != FETCH or real.may_fetch(self.app, self.client)
        verdict = decide(real.app(self.app).gate, Head(key, 5, 0, self.id, 0), synced=synced)
        self._waits(key, verdict.act is Act.PARK)
        return verdict

    def _waits(self, key: int, now: bool) -> None:
        """Whether its request of this kind waits at the gateway now."""
        seen, one = self.gateway.real.seen[self.app], (self.id, key)
        if now:
            seen.parked.setdefault(one, (_KINDS[key], self.world.t))
        elif one in seen.parked:
            seen.goes_on(one, self.world.t)

    def send(
        self, key: int, effect: Callable[[Cluster, bool], None], answer: Callable[[Cluster], None]
    ) -> None:
        """Send a request to the cluster of the route."""
        world, real = self.world, self.gateway.real
        cluster = world.clusters[real.app(self.app).route]
        arrives = world.t + world.took()
        real.seen[self.app].in_flight[_KINDS[key]] += 1

        def answered() -> None:
            self.flights.pop(key, None)
            answer(cluster)

        flight = Flight(
            _KINDS[key], self.app, real, arrives, arrives + world.took(),
            lambda there: effect(cluster, there), answered,
        )  # fmt: skip
        self.flights[key] = flight
        world.flights.append(flight)

    def tick(self) -> None:
        """What it does now."""
        raise NotImplementedError


class Producer(Client):
    """An idempotent producer with one record at a time, for one partition. Its gateway knows whose answer was
    lost, unless it was killed: on another cluster a retry would be a second record."""

    def __init__(self, world: World, name: str, gateway: ModelGateway, app: str, part: Part) -> None:
        super().__init__(world, name, gateway, app)
        self.part, self.value, self.number, self._next = part, "", 0, 0.0

    def lost(self) -> None:
        if self.flights:
            self._open().record_lost(self.id, self._wrote(), self.world.t)
            if not self.gateway.up:
                self.world.unsure.add(self.value)
        super().lost()
        self._next = self.world.t + AGAIN_S

    def _open(self) -> Outcomes:
        return self.gateway.real.outcomes[self.app]

    def _wrote(self) -> Headers:
        """The request that it has sent."""
        made, id = Headers(9), int.from_bytes(self.name.encode(), "big")
        made.found, made.whole = [Written(*self.part, id, 0, self.number, self.number, 0)], True
        return made

    def tick(self) -> None:
        world = self.world
        if self.flights or world.t < self._next:
            return
        if not self.value:
            self.value, self.number = f"{self.name}.{self.number}", self.number + 1
        verdict = self.judged(PRODUCE)
        if verdict is None:
            self._next = world.t + AGAIN_S
        elif verdict.act is not Act.PARK:
            self._send()

    def _send(self) -> None:
        world, part, value = self.world, self.part, self.value
        at: list[int] = []

        def effect(cluster: Cluster, there: bool) -> None:
            if there:
                world.writes(cluster, self)
            at.append(cluster.append(part, value))

        def answer(cluster: Cluster) -> None:
            self._open().record_answer(self.id, self._wrote(), {part: 0}, world.t)
            world.acknowledged(cluster, part, at[0], value)
            self.value, self._next = "", world.t + world.rng.uniform(0.05, 0.5)

        self.send(PRODUCE, effect, answer)


class Consumer(Client):
    """The only member of a group, which reads all partitions. position: of its next FETCH. read: what it was
    delivered, by offset. repeats: how often it was delivered something again. steady: it commits."""

    def __init__(
        self, world: World, name: str, gateway: ModelGateway, app: str, parts: tuple[Part, ...]
    ) -> None:
        super().__init__(world, name, gateway, app)
        self.group, self.parts = f"group-{name}", parts
        self.position = dict.fromkeys(parts, 0)
        self.read: dict[Part, list[str]] = {part: [] for part in parts}
        self.repeats, self.steady, self._member = 0, True, False
        self._joined: Cluster | None = None
        self._fetches = self._commits = self._beats = 0.0
        self._sent: dict[Part, int] = {}

    def lost(self) -> None:
        super().lost()
        self._sent = {}
        self._fetches = self._commits = self.world.t + AGAIN_S

    def tick(self) -> None:
        now = self.world.t
        if now >= self._beats and SYNC_GROUP not in self.flights:
            self._beat()
        if self._member and now >= self._fetches and FETCH not in self.flights:
            self._fetch()
        due = self.steady and self._joined is not None and self.position != self._sent
        if due and now >= self._commits and not {OFFSET_COMMIT, SYNC_GROUP} & self.flights.keys():
            self._commit()

    def _beat(self) -> None:
        """A cluster that does not know the member lets it join anew."""
        self._beats = self.world.t + BEATS_S
        verdict = self.judged(SYNC_GROUP)
        if verdict is None or verdict.act is Act.PARK:
            return
        real = self.gateway.real
        if self._joined is self.world.clusters[real.app(self.app).route]:
            self._joined.heard[self.group] = self.world.t
            return
        self._joined = None

        def effect(cluster: Cluster, _there: bool) -> None:
            cluster.heard[self.group] = self.world.t

        def answer(cluster: Cluster) -> None:
            real.confirmed(self.app, self.client)
            self.world.joins(cluster, self)
            self._joined, self._member, self._sent = cluster, True, dict(self.position)

        self.send(SYNC_GROUP, effect, answer)

    def _fetch(self) -> None:
        verdict = self.judged(FETCH)
        if verdict is None or verdict.act is Act.EMPTY:
            self._fetches = self.world.t + AGAIN_S
        elif verdict.act is not Act.PARK:
            got: dict[Part, list[str]] = {}
            began = dict(self.position)

            def effect(cluster: Cluster, _there: bool) -> None:
                for part, begin in began.items():
                    got[part] = cluster.logs[part][begin : begin + 20]

            def answer(_cluster: Cluster) -> None:
                self._fetches = self.world.t + self.world.rng.uniform(0.05, 0.3)
                if began == self.position:
                    self._delivered(got)

            self.send(FETCH, effect, answer)

    def _delivered(self, got: dict[Part, list[str]]) -> None:
        for part, values in got.items():
            for value in values:
                at, read = self.position[part], self.read[part]
                if at < len(read):
                    self.repeats += 1
                    if read[at] != value:
                        self.world.broken(f"{self.group}: offset {at} of {part} was {read[at]}, is {value}")
                elif at > len(read):
                    self.world.broken(f"{self.group}: {part} was skipped from {len(read)} to {at}")
                else:
                    read.append(value)
                self.position[part] = at + 1

    def _commit(self) -> None:
        """A cluster that does not know the member refuses its commit."""
        verdict = self.judged(OFFSET_COMMIT)
        if verdict is None or verdict.act is Act.PARK:
            self._commits = self.world.t + 0.1
            return
        what, joined = dict(self.position), self._joined
        self._sent = what

        def effect(cluster: Cluster, there: bool) -> None:
            if cluster is joined:
                cluster.heard[self.group] = self.world.t
                self.world.commits(cluster, self.group, what, there)

        def answer(_cluster: Cluster) -> None:
            self._commits = self.world.t + self.world.shape.commits_s

        self.send(OFFSET_COMMIT, effect, answer)
