"""Send a client's requests to its broker, and count the answers.

A request that repeats an earlier one is sent without being read again, as long as nothing has changed.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from weakref import proxy

from zkmigrate.topics.gateway.rules.apis import (
    API_VERSIONS,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Api,
    name_of,
)
from zkmigrate.topics.gateway.rules.hold import App
from zkmigrate.topics.gateway.rules.layout import FrameError
from zkmigrate.topics.gateway.rules.messages import Bytes, Head, Messages, without_epochs
from zkmigrate.topics.gateway.rules.outcomes import Headers
from zkmigrate.topics.gateway.rules.plan import Port
from zkmigrate.topics.gateway.rules.seen import LONGEST, Names, Seen, count, fit
from zkmigrate.topics.gateway.serving.gateway import Gateway
from zkmigrate.topics.gateway.serving.learns import Learns
from zkmigrate.topics.gateway.serving.link import PREFIX, Link, Waiting
from zkmigrate.topics.gateway.serving.secured import connect, why_not_the_broker
from zkmigrate.topics.gateway.serving.times import Times
from zkmigrate.topics.gateway.serving.turns import COST

MOST_WAITING, FIRST_WAITING = 1000, 32
"""The most unanswered requests of a connection, once its broker has served it and before that."""
MOST_ALIKE = 1024
"""The most bytes of a request that are remembered for comparison with later requests."""
CONNECT_S = 5.0
LOGIN = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})
"""Requests that a broker answers even without a login."""
_FREE = frozenset({API_VERSIONS, SASL_HANDSHAKE})
"""Requests after which the connection may still be moved to another cluster."""
_ESTABLISHED = 1


class Ended(Exception):
    """Raised when a connection has to end for a reason that is not the client's fault."""


@dataclass(slots=True)
class Request:
    """A request that is not sent yet.

    api: the kind of request, or None if the gateway does not offer it.
    app: the name of the application.
    frame: the bytes read so far, with the four bytes of the length field.
    size: the bytes of the whole frame.
    flips: how many times the application had switched, or 0 if the request does not depend on it.
    fields: the values of the fields that were read, or None before that.
    wrote: the part of a PRODUCE that is remembered.
    early: whether it is a FETCH of a client that its group has not confirmed yet.
    """

    head: Head
    api: Api | None
    app: str
    frame: Bytes
    size: int
    flips: int
    fields: Mapping[str, Any] | None = None
    wrote: bytes | Headers | None = None
    early: bool = False


class Alike(NamedTuple):
    """A request that was sent, for comparison with later requests.

    tail: the bytes of the request from the client id to the last field that was read.
    now, link: the application's state and the link to the broker when the request was sent.
    notes: the counters that each further request increases, as pairs of table and name.
    answered: whether the broker sends an answer.
    """

    tail: bytes
    now: App
    link: Link
    head: Head
    app: str
    seen: Seen
    kind: str
    notes: list[tuple[Names, str]]
    answered: bool


class Sending(ABC):
    """The part of a connection that sends requests.

    most: the size of the largest request, in bytes. known: whether the broker has answered more than logins.
    waiting: the requests that were sent, the oldest first. full: whether the client is not reading its
    answers at present.
    """

    _transport: asyncio.Transport
    _times: Times

    def __init__(self, gateway: Gateway, messages: Messages, port: Port, most: int) -> None:
        self.gateway, self.messages, self.port, self.most = gateway, messages, port, most
        self._reading = gateway.plan.reading.get(port.listener)
        self.peer = self.share = ""
        self.client = "", ""
        self.waiting: deque[Waiting] = deque()
        self.known = self.full = False
        self.room, self._most_waiting = gateway.crowd, FIRST_WAITING
        self._app = self._mechanism = self._principal = ""
        self._link: Link | None = None
        self._handshake: Bytes = b""
        self._alike: dict[bytes, Alike] = {}
        self._software: Mapping[str, Any] = {}
        self._early: list[tuple[str, str, Mapping[str, Any]]] = []
        """For each request before the login: the application, the client id, and the fields that describe the
        client."""
        self._bound = self._finishing = self._over = self._gone = self._walking = False
        self._pending = 0
        self.learns = Learns(gateway, partial(Sending._still_there, proxy(self)))
        self._left = 0
        self._request: Request | None = None
        self._sending: Waiting | None = None
        self._answered = True
        self._since: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.Future[None] | None = None

    @abstractmethod
    def go_on(self) -> None:
        """Resume reading and sending, unless the connection has to wait for another reason."""

    @abstractmethod
    def steer(self) -> None:
        """Pause or resume reading from the client and from the broker."""

    @abstractmethod
    def _queue(self, size: int = 0) -> None:
        """Wait for a later turn of the event loop.

        size: how many bytes the last read returned.
        """

    @abstractmethod
    def stop(self, error: FrameError) -> None:
        """Log and count an error, and close the connection at once."""

    @abstractmethod
    def hurry(self) -> None:
        """Shorten the time limits, because the gate of the application has closed."""

    @abstractmethod
    def accepted_in(self, name: str) -> bool:
        """Return True if the broker accepts the client, and the client's last request belonged to ``name``.

        name: the name of an application. A broker that demands a login accepts only clients that have logged
        in.
        """

    @abstractmethod
    def accepted(self) -> None:
        """Record that the broker has accepted the client's login."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection at once."""

    @abstractmethod
    def broker_ended(self, link: Link) -> None:
        """Close the connection, because the broker has closed its side of the link."""

    @abstractmethod
    def finish(self) -> None:
        """Wait for the answers to all requests that were sent, then close the connection."""

    def _remember(self, one: Request, now: App, fields: Mapping[str, Any]) -> None:
        """Remember a request, so that repetitions of it are sent at once while nothing changes.

        now: the state of the application. fields: the values of the fields that were read.
        """
        assert self._link is not None
        head, seen = one.head, self.gateway.seen[one.app]
        end = self.messages.acks_end(head, one.frame) if head.key == PRODUCE else head.body
        if end > MOST_ALIKE:
            return
        self._alike[bytes(one.frame[4:8])] = Alike(
            bytes(one.frame[12:end]),
            now,
            self._link,
            head,
            one.app,
            seen,
            name_of(head.key),
            seen.counters_of(head.client, fields),
            fields.get("Acks") != 0,
        )

    def send_alike(self, frame: bytes, size: int) -> bool:
        """Count a request as sent if it repeats an earlier request and is served in this turn.

        Returns False otherwise. The caller then writes the request to the link without reading it. frame: the
        whole request, or the first bytes of a PRODUCE of ``size`` bytes, whose rest is sent as it arrives.
        """
        like = self._alike.get(frame[PREFIX : 2 * PREFIX])
        if (
            like is None
            or self._link is not like.link
            or not frame.startswith(like.tail, 12)
            or self.gateway.app(like.app) is not like.now
        ):
            return False
        head, seen, kind, whole = like.head, like.seen, like.kind, len(frame) == size
        produces = head.key == PRODUCE
        if not (produces or (whole and without_epochs(head, frame))) or not self._may():
            return False
        count(like.notes)
        wrote = None
        if produces:
            if like.answered:
                wrote = self.learns.part_to_remember(head, frame, size, self.waiting)
        elif size >= COST:
            self.gateway.turns.spend(self.share, size)
        if whole and not like.answered:
            seen.answered[kind] += 1
            return True
        seen.in_flight[kind] += 1
        one = Waiting(head, frame[8:12], like.app, seen, kind, False, None, 0, wrote)
        if whole:
            self.waiting.append(one)
        else:
            self._left, self._sending, self._answered = size - len(frame), one, like.answered
        return True

    def _may(self) -> bool:
        """Return True if the next request is served in this turn, and False if it has to wait."""
        if self.gateway.turns.may(self.share):
            return True
        self._queue()
        return False

    def _still_there(self) -> bool:
        """Return True if the client has not closed its side.

        The requests of a client that has closed its side must not be sent any more.
        """
        own: socket.socket = self._transport.get_extra_info("socket")
        return own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED

    # -- to the broker

    def _answer(self, one: Request, told: bytes) -> None:
        """Answer a request in the gateway itself, after the answers to all earlier requests.

        told: the bytes of the answer.
        """
        self._request, self._since = None, None
        ready = len(told).to_bytes(PREFIX, "big") + told
        seen = self.gateway.seen[one.app]
        own = one.frame[8:12]
        head = one.head._replace(client="")
        self.waiting.append(Waiting(head, own, one.app, seen, name_of(one.head.key), False, ready))
        if len(self.waiting) == 1:
            self._tell_own()

    def _send(self, one: Request, rewritten: bool, answered: bool) -> None:
        """Send a request, or the bytes read so far of a streamed request, whose rest is sent as it arrives.

        rewritten: whether the answer is changed. answered: whether the broker sends an answer.
        """
        assert self._link is not None
        kind, seen = name_of(one.head.key), self.gateway.seen[one.app]
        self._bound = self._bound or one.head.key not in _FREE
        if one.head.key == SASL_HANDSHAKE:
            self._handshake = _without_client(one.head, one.frame)
        self._request, self._since = None, None
        correlation = one.frame[8:12]
        head = one.head if len(one.head.client) <= LONGEST else one.head._replace(client=fit(one.head.client))
        waiting = Waiting(head, correlation, one.app, seen, kind, rewritten, None, one.flips, one.wrote)
        seen.in_flight[kind] += 1
        self._link.transport.write(one.frame)
        self._left = one.size - len(one.frame)
        if self._left:
            self._sending, self._answered = waiting, answered
        else:
            self._count_sent(waiting, answered)

    def _count_sent(self, one: Waiting, answered: bool) -> None:
        """Count a request as sent, because its last byte was written.

        answered: whether the broker sends an answer.
        """
        self._sending = None
        if answered:
            self.waiting.append(one)
        else:
            one.seen.in_flight[one.kind] -= 1
            one.seen.answered[one.kind] += 1

    async def _reach(self, route: str) -> None:
        """Connect to a broker of a cluster. Raises Ended if no broker accepts the connection, and FrameError.

        route: the name of the cluster.
        """
        if self._bound:
            raise Ended  # it began on the other cluster
        if why := self.gateway.lends_certificate(self.port.listener, route):
            raise FrameError("tls", why)
        loop = asyncio.get_running_loop()
        while self.waiting:
            self._idle = loop.create_future()
            await self._idle
        former, self._link = self._link, None
        if former is not None:
            former.transport.abort()
        for address in self.gateway.plan.brokers(self.port, route):
            link, context = Link(self, route), self.gateway.certificates.clusters.get(route)
            try:
                async with asyncio.timeout(CONNECT_S):
                    await connect(link, address, context)
            except (OSError, TimeoutError) as error:
                why = why_not_the_broker(error, route, tls=context is not None)
                self.gateway.log("Unreachable", cluster=route, broker=address, why=why)
                continue
            self._link = link
            self.learns.cluster = route
            if self._handshake:
                await self._shake_again(link)
            return
        raise Ended

    async def _shake_again(self, link: Link) -> None:
        """Repeat the client's SASL_HANDSHAKE on the link to a new broker.

        The client has received the answer from the former broker already. Raises Ended.
        """
        try:
            async with asyncio.timeout(CONNECT_S):
                await link.greet(self._handshake)
        except (OSError, TimeoutError):
            raise Ended from None

    # -- answers

    def tell(self, data: Bytes) -> None:
        """Write bytes to the client. If the client has left, record that it missed an answer.

        The answer still counts.
        """
        if self._gone or self._transport.is_closing():
            self.learns.missed = True
        else:
            self._transport.write(data)

    def answered(self, count: int = 1) -> None:
        """Count the oldest requests as answered, once the system has taken all bytes of the answers.

        count: how many more answers were written.
        """
        self._pending += count
        waiting = self.waiting
        while self._pending and not self.full:
            self._pending -= 1
            one = waiting.popleft()
            if one.ready is None:
                one.seen.in_flight[one.kind] -= 1
                one.seen.answered[one.kind] += 1
                if not self.known and one.head.key not in LOGIN:
                    self._served_first()
            if not waiting:
                self._none_waits()
            else:
                if len(waiting) == self._most_waiting - 1:
                    asyncio.get_running_loop().call_soon(self.go_on)
                if waiting[0].ready is not None:
                    self._tell_own()

    def _none_waits(self) -> None:
        if self._finishing:
            asyncio.get_running_loop().call_soon(self.close)
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _served_first(self) -> None:
        """Raise the limits of the connection, because its broker has answered more than logins."""
        self.known, self._most_waiting = True, MOST_WAITING
        self.room.release(self)
        self.room = self.gateway.room
        self.gateway.served(self)
        asyncio.get_running_loop().call_soon(self.go_on)

    def _tell_own(self) -> None:
        """Write the gateway's own answer to the oldest request, if that request has such an answer."""
        ready = self.waiting[0].ready
        assert ready is not None
        self.tell(ready)
        self.answered()


def _without_client(head: Head, frame: Bytes) -> bytes:
    """Return a request without its client id, which may be long."""
    own = bytes(frame[PREFIX:12]) + b"\xff\xff" + bytes(frame[head.body :])
    return len(own).to_bytes(PREFIX, "big") + own
