"""Keep the state that all connections share: routes, holds, the brokers' versions, and statistics."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from zkmigrate.topics.gateway.rules import orders
from zkmigrate.topics.gateway.rules.apis import APIS, Ranges, offered
from zkmigrate.topics.gateway.rules.clients import Client, Rejoined, Returned, names_of
from zkmigrate.topics.gateway.rules.crowd import Crowd
from zkmigrate.topics.gateway.rules.hold import App, Gate, Order
from zkmigrate.topics.gateway.rules.layout import FrameError
from zkmigrate.topics.gateway.rules.outcomes import Outcomes
from zkmigrate.topics.gateway.rules.plan import OTHERS, Plan, Port
from zkmigrate.topics.gateway.rules.seen import Seen, bounded
from zkmigrate.topics.gateway.serving.buffer import FEW
from zkmigrate.topics.gateway.serving.certificates import Certificates
from zkmigrate.topics.gateway.serving.room import CROWD, TOTAL, Room
from zkmigrate.topics.gateway.serving.turns import Turns

LATE_S = 0.05
"""The most seconds after the end of a lease until a waiting request is served."""
MOST_LINES, LINES_S = 20, 10.0
"""The most log lines of one kind of event that clients can cause, and the period of this limit in seconds."""
_AT_WILL = frozenset({"Refused", "BrokerRefused", "Unreachable", "NotTaken"})
FREE = frozenset(api.name for api in APIS.values() if api.free)


class Writes(Protocol):
    """The writer of the gateway's record, the state file that the gateway reads when it starts."""

    async def write(self, body: Any) -> None:
        """Write the record to disk. Raises OSError if it could not be written."""


class Cut(Protocol):
    """A connection that a switch can close.

    client: the client id and address of its last request.
    """

    port: Port
    client: Client

    def accepted_in(self, name: str) -> bool:
        """Return True if the broker accepts the client, and the client's last request belonged to ``name``.

        name: the name of an application. A broker that demands a login accepts only clients that have logged
        in.
        """

    def close(self) -> None:
        """Close the connection at once."""

    def hurry(self) -> None:
        """Shorten the time limits, because the gate of the connection's application has closed."""


class Guest(Cut, Protocol):
    """A connection that counts towards the limits.

    peer: the address of the client. share: the block of addresses that has a common limit, as ``crowd.share``
    returns it.
    """

    peer: str
    share: str

    def finish(self) -> None:
        """Wait for the answers to all requests that were sent, then close the connection."""

    def go_on(self) -> None:
        """Resume reading, if there is room for more bytes."""

    def stop(self, error: FrameError) -> None:
        """Log and count an error, and close the connection at once."""


class Gateway:
    """The shared state of one gateway process.

    plan: the configuration. state: the applications, as they are in the record. record: the store to which
    the state is written. say: a function that prints a log line. now: a function that returns seconds of a
    monotonic clock, for leases. wall: a function that returns seconds since the epoch. again: whether another
    process served from the same folder before.
    """

    def __init__(
        self,
        plan: Plan,
        state: orders.State,
        record: Writes,
        say: Callable[[str], None],
        now: Callable[[], float],
        wall: Callable[[], float] = time.time,
        *,
        again: bool = False,
    ) -> None:
        self.plan, self._record, self._ordering = plan, record, asyncio.Lock()
        self._readers = {name: App(one.cluster) for name, one in plan.reading.items()}
        self._say, self.now, self._wall = say, now, wall
        self._began = now() if again else None
        self.seen: dict[str, Seen] = defaultdict(Seen)
        self.ranges: dict[str, Ranges] = {}
        self.silent: dict[str, dict[int, str]] = {name: {} for name in plan.clusters}
        """By cluster and node id: why the broker did not answer the last query, or an empty text if it
        answered."""
        self.outcomes: dict[str, Outcomes] = defaultdict(Outcomes)
        self.logins: set[str] = set()
        """The names of the clusters that demand a login, as far as known."""
        self._rejoined: dict[str, Rejoined] = defaultdict(Rejoined)
        self._returned: dict[str, Returned] = defaultdict(Returned)
        self._changed: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._connections: dict[str, set[Cut]] = defaultdict(set)
        self._unlisted: set[tuple[str, int]] = set()
        self._set(state)
        self.room, self.crowd = Room(now, _later), Room(now, _later, FEW, CROWD)
        self.turns = Turns(_soon, now)
        self.certificates = Certificates()
        self.certificates_kept = ""
        """Why the newest files of certificates are not used, or an empty text."""
        self.shaking = Crowd[Guest]()
        """Connections that have not finished the handshake of TLS, the oldest first."""
        self.unknown = Crowd[Guest]()
        """Connections whose broker has answered nothing except logins yet, the oldest first."""
        self._lines: dict[str, tuple[float, int]] = {}
        self.most = 0
        """The most connections, or 0 if the number is not known."""
        self.everyone: set[Guest] = set()
        self.clients: Counter[str] = Counter()
        """The number of connections by address block."""

    def log(self, event: str, **body: object) -> None:
        """Print an event as a log line.

        An event that clients can cause at will is printed only a few times in each period of time.
        """
        if event in _AT_WILL:
            begun, lines = self._lines.get(event, (-math.inf, 0))
            now = self.now()
            if now - begun < LINES_S:
                self._lines[event] = begun, lines + 1
                if lines >= MOST_LINES:
                    return
            else:
                self._lines[event] = now, 1
                if lines > MOST_LINES:
                    body["unsaid"] = lines - MOST_LINES
        self._say(json.dumps({"at": round(self._wall(), 3), "event": event, **body}))

    # -- routes and holds

    def app(self, name: str) -> App:
        """Return the current state of an application.

        name: the name of an application, or of a read-only listener. The state of a read-only listener never
        changes.
        """
        if self._until < math.inf and self.now() >= self._until:
            self._lapse()
        return self._apps[name]

    def _lapse(self) -> None:
        """Open the gates of all applications whose leases have ended."""
        before = self._state.apps
        self._set(orders.at(self._state, self.now()))
        for one, app in before.items():
            if self._state.apps[one] != app:
                self.log("Lapsed", app=one, gate=app.gate.value, route=app.route)
                self._wake(one)

    def _set(self, state: orders.State) -> None:
        self._state = state
        self._apps = {**state.apps, **self._readers}
        for name, app in state.apps.items():
            closed = app.gate not in (Gate.OPEN, Gate.SETTLING)
            self._rejoined[name].state(self.now(), app.flipped, closed=closed)
        leases = [app.until for app in state.apps.values() if app.until is not None]
        self._until = min(leases, default=math.inf)

    def may_fetch(self, name: str, client: Client) -> bool:
        """Return True if a FETCH of this client need not wait until its group has confirmed the client.

        name: the client's application. The wait begins when the gate opens.
        """
        app = self.app(name)
        if app.gate is not Gate.OPEN:
            return True
        return self._rejoined[name].may_fetch(client, app.flipped, self._wall(), self.now())

    def member(self, name: str, client: Client) -> None:
        """Remember that this client is a member of a consumer group."""
        self._rejoined[name].member(client)

    def confirmed(self, name: str, client: Client) -> None:
        """Remember that the group of this client has confirmed it."""
        self._rejoined[name].confirmed(client)

    async def change(self, name: str, seen: App, most_s: float) -> None:
        """Wait until the state of an application differs from ``seen``, but at most ``most_s`` seconds."""
        if self.app(name) != seen:
            return
        if seen.until is not None:
            most_s = min(most_s, max(LATE_S, seen.until - self.now()))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed[name].wait(), most_s)

    @contextmanager
    def parked(self, name: str, one: Cut, kind: str, since: float) -> Iterator[None]:
        """Count a request of a connection as waiting at the gate inside the ``with`` block.

        name: the application. kind: the name of the request. since: when its wait began, in seconds of the
        clock ``now``.
        """
        self.seen[name].parked[one] = kind, since
        try:
            yield
        finally:
            self.seen[name].goes_on(one, self.now())

    def _wake(self, name: str) -> None:
        self._changed.pop(name, asyncio.Event()).set()

    async def order(self, order: Order) -> orders.Answer:
        """Carry out an order after all earlier orders, and return the answer.

        The changes are on disk before they take effect. While they are written, connections are served as
        before, and no lease ends.
        """
        async with self._ordering:
            answer = await self._carry_out(order)
        self.app(OTHERS)  # leases that ended meanwhile
        return answer

    async def _carry_out(self, order: Order) -> orders.Answer:
        self.app(OTHERS)  # leases that have ended
        before = self._state.apps.get(order.app)
        unsure = self.outcomes[order.app].names(self.now()) if order.app in self._state.apps else []
        state, answer = orders.take(
            self._state,
            order,
            self.plan.clusters,
            self.now(),
            self._wall(),
            self.in_flight(order.app),
            unsure,
        )
        record = orders.durable(state)
        if record != orders.durable(self._state):
            self._until = math.inf  # a decision about a hold must still be true once it is written
            try:
                await self._record.write(record)
            except OSError as error:
                answer = orders.Answer(
                    "failed", f"the record could not be written, so nothing has changed: {error}"
                )
                state = self._state
        self._set(state)
        told = {"fencing": order.fencing, "id": order.id, "verb": order.verb, "app": order.app}
        self.log("Order", **told, outcome=answer.outcome, text=answer.text)
        after = state.apps.get(order.app)
        if before is not None and after is not None and after != before:
            if before.gate is Gate.OPEN and after.gate is not Gate.OPEN:
                self.seen[order.app].longest_wait_ms.clear()
            if after.gate not in (Gate.OPEN, Gate.SETTLING):
                for one in list(self._connections[order.app]):
                    one.hurry()
            if after.route != before.route:
                clients = [one.client for one in self._connections[order.app] if one.accepted_in(order.app)]
                self._returned[order.app].flipped(clients, self.now())
                self.outcomes[order.app].clear()
                self._cut(order.app)
            self._wake(order.app)
        return answer

    def in_flight(self, name: str) -> int:
        """Return how many requests of an application have no answer yet.

        Requests that are served while an application is held are not counted.
        """
        return sum(n for kind, n in self.seen[name].in_flight.items() if kind not in FREE)

    def _cut(self, name: str) -> None:
        cut = list(self._connections[name])
        for one in cut:
            one.close()
        self.log("Cut", app=name, connections=len(cut))

    # -- connections

    def connected(self, name: str, one: Cut) -> None:
        """Add a connection that has sent a request of this application."""
        self._connections[name].add(one)
        if one.accepted_in(name):
            self._returned[name].connected(one.client, self.now())

    def accepts(self, name: str) -> bool:
        """Return True if an application's brokers are not known to demand a login."""
        return self.app(name).route not in self.logins

    def joined(self, one: Guest) -> None:
        """Add a new connection to the counts that limits depend on."""
        if one in self.everyone:
            return
        self.unknown.add(one, one.peer)
        self.everyone.add(one)
        self.clients[one.share] += 1

    def served(self, one: Guest) -> None:
        """Record that a broker has answered a request of this connection that is not a login."""
        self.unknown.discard(one)

    def lends_certificate(self, listener: str, cluster: str) -> str:
        """Return why a listener's clients must not reach a cluster, or an empty text if they may.

        Brokers that demand no login take everybody who shows the gateway's certificate for the gateway.
        """
        own = self.certificates
        if cluster not in own.shown or cluster in self.logins or listener in own.asking:
            return ""
        return (
            f"cluster {cluster} sees the gateway's own certificate and is not known to demand a login. It "
            f"would take every client of listener {listener} for the gateway; needed: listeners.{listener}."
            f"tls.ca, so that clients show a certificate too, or no certificate in tls.{cluster}"
        )

    def demands_login(self, cluster: str) -> None:
        """Record that the brokers of a cluster demand a login, and forget the open outcomes there.

        This happens when the first client begins a login. Until then no client had logged in, so the brokers
        wrote nothing that clients sent.
        """
        if cluster in self.logins:
            return
        self.logins.add(cluster)
        for name, app in self._state.apps.items():
            if app.route == cluster:
                self.outcomes[name].clear()

    def remove(self, one: Guest) -> None:
        """Remove a connection that has ended."""
        if one not in self.everyone:
            return
        self.everyone.remove(one)
        self.clients[one.share] -= 1
        if not self.clients[one.share]:
            del self.clients[one.share]
        self.unknown.discard(one)
        self.shaking.discard(one)
        self.room.release(one)
        self.crowd.release(one)
        for connections in self._connections.values():
            connections.discard(one)

    def address(self, port: Port, route: str, node: int) -> tuple[str, int]:
        """Return the host and port where clients of a port's listener reach a broker.

        route: the cluster that serves the client. node: the node id of the broker.
        """
        if node not in self.plan.clusters[route] and (route, node) not in self._unlisted:
            self._unlisted.add((route, node))
            self.log(
                "Unlisted", cluster=route, node=node, needed="needed: a broker and ports in the configuration"
            )
        return self.plan.address(port.listener, route, node)

    def offered(self) -> Ranges:
        """Return the versions of each request that every cluster supports, as far as these are known."""
        return offered([self.ranges[name] for name in self.plan.clusters if name in self.ranges])

    def refused(self, name: str, what: str) -> None:
        """Count a request or connection of an application that was refused."""
        self.seen[name].refused.add(what, "")

    # -- status

    def status(self) -> dict[str, Any]:
        """Return the status of the gateway as a dict for JSON."""
        apps, now = {}, self.now()
        tables = bounded(
            {name: self.seen[name].body(now) for name in (*self._state.apps, *self.plan.reading)}
        )
        for name in self._state.apps:
            app = self.app(name)
            connections = self._connections[name]
            left = [one for one in connections if one.port.cluster != app.route and one.accepted_in(name)]
            apps[name] = {
                "route": app.route,
                "staged": app.staged,
                "gate": app.gate.value,
                "hold": app.hold,
                "lease_ms": None if app.until is None else max(0, round((app.until - now) * 1000)),
                "lapsed": app.lapsed,
                "fencing": app.fencing,
                "requests_in_flight": self.in_flight(name),
                "outcomes": self.outcomes[name].body(now),
                "connections": len(connections),
                "connections_on_left_ports": len(left),
                "left_clients": names_of(sorted({one.client for one in left})),
                "returned": self._returned[name].body(),
                **tables[name],
            }
        return {
            "fencing": self._state.fencing,
            "restarted_s": None if self._began is None else round(self.now() - self._began, 3),
            "clusters": {
                name: {
                    "versions": "known" if name in self.ranges else "unknown",
                    "brokers": {str(node): self.silent[name].get(node, "not checked yet") for node in nodes},
                }
                for name, nodes in self.plan.clusters.items()
            },
            "load": {
                "connections": len(self.everyone),
                "connections_at_most": self.most,
                "not_served_yet": len(self.unknown),
                "addresses": len(self.clients),
                "bytes_kept": self.room.total + self.crowd.total,
                "bytes_at_most": TOTAL + TOTAL // CROWD,
            },
            "certificates": {
                "left_s": {key: round(end - self._wall(), 3) for key, end in self.certificates.ends.items()},
                "kept": self.certificates_kept,
            },
            "unlisted": [{"cluster": cluster, "node": node} for cluster, node in sorted(self._unlisted)],
            "apps": apps,
            "readers": {
                name: {
                    "cluster": reading.cluster,
                    "connections": len(self._connections[name]),
                    **tables[name],
                }
                for name, reading in self.plan.reading.items()
            },
        }


def sealed_or_open(state: orders.State) -> dict[str, str]:
    """Return for each application its route and gate as text, for the first log line."""
    return {
        name: f"{app.route}, {Gate.SEALED.value}" if app.gate is Gate.SEALED else app.route
        for name, app in state.apps.items()
    }


def _soon(call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(call)


def _later(seconds: float, call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, call)
