"""One client's connection: its requests go to a broker, the answers back, in order.

Records are passed on in pieces, unread. Requests without records are read whole.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from zkmigrate.gateway.rules import outcomes, producers
from zkmigrate.gateway.rules.apis import (
    API_VERSIONS,
    FETCH,
    INIT_PRODUCER_ID,
    MEMBERS,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SYNC_GROUP,
    named,
)
from zkmigrate.gateway.rules.hold import Act, App, Verdict, decide
from zkmigrate.gateway.rules.layout import FrameError, T
from zkmigrate.gateway.rules.messages import (
    LEAST,
    MECHANISMS,
    Head,
    Messages,
    correlation,
    other_mechanism,
    principal,
    ranges,
    too_new,
    versions,
)
from zkmigrate.gateway.rules.plan import Port
from zkmigrate.gateway.rules.seen import count, fit
from zkmigrate.gateway.serving.gateway import Gateway

FIRST = 4096
"""The header, and the fields that are read of a streamed request, stand in so many bytes."""
WHOLE, LARGE = 64 << 20, 1 << 18
"""The largest message that is read whole, and the size above which only some are in memory at once."""
PIECE, BUFFER = 1 << 17, 1 << 16
MOST_WAITING, MOST_KEPT = 1000, 16
"""Requests of one connection without an answer, and how many of them are kept to be known again."""
FRAME_S = 60.0
"""The longest time from a frame's first byte to its last."""
CONNECT_S, DRAIN_S = 5.0, 60.0
_FREE = frozenset({API_VERSIONS, SASL_HANDSHAKE})
"""Requests after which another cluster may still take the connection."""
_NUMBERED = frozenset({PRODUCE, INIT_PRODUCER_ID})
"""Requests that carry or get a producer id."""
_LED = frozenset({PRODUCE, FETCH})
"""Requests that only the leader of a partition answers."""
_ESTABLISHED = 1


class Ended(Exception):
    """The connection is over, without a fault of the client."""


@dataclass(frozen=True)
class Waiting:
    """A request without an answer yet. ready: the gateway's own answer. flips: how often its application had
    switched. wrote: what is kept of a PRODUCE."""

    head: Head
    app: str
    rewritten: bool
    ready: bytes | None = None
    flips: int = 0
    wrote: bytes | outcomes.Headers | None = None


class Reader(asyncio.StreamReader):
    """Tells at once when the other side closes."""

    def __init__(self, ended: Callable[[], None]) -> None:
        super().__init__(BUFFER)
        self._ended = ended

    def feed_eof(self) -> None:
        super().feed_eof()
        self._ended()


class Connection:
    """A client's connection to a port. most: the largest frame, in bytes."""

    def __init__(
        self,
        gateway: Gateway,
        messages: Messages,
        port: Port,
        most: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.port = port
        self._gateway, self._messages, self._most = gateway, messages, most
        self._reading = gateway.plan.reading.get(port.listener)
        self._reader, self._writer = reader, writer
        writer.transport.set_write_buffer_limits(0)  # an answer counts once the kernel has all of it
        self._peer = str((writer.get_extra_info("peername") or ("unknown",))[0])
        self.client = ("", self._peer)
        self._cluster = self._app = self._mechanism = self._principal = ""
        self._broker: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._bound = self._deaf = self._gone = self._missed = self._waited = False
        self._handshake = b""
        self._software: Mapping[str, Any] = {}
        self._waiting: deque[Waiting] = deque()
        self._arrived, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._room = asyncio.Semaphore(MOST_WAITING)
        self._answering: asyncio.Task[None] | None = None

    def close(self) -> None:
        """End it at once. A parked request is not sent any more."""
        self._deaf = True
        self._writer.transport.abort()
        if self._broker is not None:
            self._broker[1].transport.abort()

    async def serve(self) -> None:
        """Until either side ends it."""
        try:
            while True:
                await self._request()
        except FrameError as error:
            self._refused(error)
        except TimeoutError:
            self._refused(FrameError("time", f"a frame took longer than {FRAME_S:g} s"))
        except (Ended, OSError, asyncio.IncompleteReadError):
            pass
        finally:
            await self._end()

    def _refused(self, error: FrameError) -> None:
        app = self._app or self._gateway.plan.app(self.port.listener, "", "")
        self._gateway.refused(app, str(error) if error.what == "api" else error.what)
        at = {"listener": self.port.listener, "cluster": self.port.cluster, "node": self.port.node}
        self._gateway.log("Refused", peer=self._peer, app=app, **at, why=str(error))

    async def _end(self) -> None:
        """See the answers to what was sent, so that nothing is in flight unseen; then close both sides. The
        client has gone: it will not learn the outcome of what it waits for, and sends it again."""
        for one in self._waiting:
            self._lose(one)
        self._gone = True
        try:
            if self._answering is not None and not self._deaf:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._idle.wait(), DRAIN_S)
        finally:
            if self._answering is not None:
                self._answering.cancel()
            for one in self._waiting:
                if one.ready is None:
                    self._gateway.seen[one.app].lost[named(one.head.key)] += 1
                    self._gateway.seen[one.app].in_flight[named(one.head.key)] -= 1
            self._waiting.clear()
            self._gateway.left(self)
            self.close()

    # -- requests

    async def _request(self) -> None:
        await self._room.acquire()
        size = int.from_bytes(await self._reader.readexactly(4), "big", signed=True)
        if not LEAST <= size <= self._most:
            raise FrameError("size", f"a request of {size} bytes, needed: {LEAST} to {self._most}")
        async with asyncio.timeout(FRAME_S):
            frame = await self._reader.readexactly(min(size, FIRST))
            head = self._messages.head(frame)
            flips = self._flips(head)
            if head.api is None or self._whole(head, flips):
                if size > WHOLE:
                    raise FrameError("size", f"{named(head.key)} of {size} bytes, needed: at most {WHOLE}")
                async with self._gateway.memory(size > LARGE):
                    frame += await self._reader.readexactly(size - len(frame))
        left = size - len(frame)
        fields: Mapping[str, Any] = {}
        if head.api is not None:
            asked, fields = await _slices(self._messages.asked(head, frame))
            frame = bytes(asked)
        app = self._see(head, fields)
        if self._reading and head.api and (error := self._reading.error(head.api, fields)):
            self._deny(app, head, frame, error, fields)
            return
        verdict = await self._judged(app, head)
        if verdict.act is Act.REFUSE:
            raise FrameError("api", verdict.why)
        if verdict.act is Act.ANSWER:
            own = too_new(head) if head.key == API_VERSIONS else other_mechanism(head)
            self._expect(Waiting(head, app, False, own))
            return
        if flips != self._flips(head):
            raise Ended  # its application switched while the frame came
        answered, wrote = fields.get("Acks") != 0, None
        if head.key == PRODUCE and answered and len(self._waiting) < MOST_KEPT:
            wrote = outcomes.kept(head.version, frame[head.body :], left)
        if flips and head.key == PRODUCE:
            data = bytearray(frame)
            rename = lambda id: producers.sent(id, flips)  # noqa: E731
            for _ in producers.produced(head.version, data, head.body, rename):
                pass
            frame = bytes(data)
        rewritten = verdict.act is Act.REWRITE or (flips > 0 and head.key == INIT_PRODUCER_ID)
        await self._send(Waiting(head, app, rewritten, flips=flips, wrote=wrote), frame, left, answered)

    def _flips(self, head: Head) -> int:
        """How often the application of a request has switched; 0 where that does not matter."""
        if head.key not in _NUMBERED:
            return 0
        app = self._gateway.plan.app(self.port.listener, head.client, self._principal)
        return self._gateway.app(app).flips

    def _whole(self, head: Head, flips: int) -> bool:
        """Whether a request is read whole before anything is done with it."""
        api = head.api
        assert api is not None
        denied = bool(self._reading and api.denied)
        return not api.streamed or denied or (flips > 0 and head.key == PRODUCE)

    def _deny(self, app: str, head: Head, frame: bytes, error: int, fields: Mapping[str, Any]) -> None:
        """Answer a request with Kafka's error, since this listener only reads."""
        why = f"{named(head.key)}: listener {self.port.listener} only reads"
        if fields.get("Acks") == 0:
            raise FrameError("api", f"{why}, and acks=0 takes no answer")
        self._gateway.refused(app, why)
        self._expect(Waiting(head, app, False, self._messages.denied(head, frame, error, why)))

    def _see(self, head: Head, fields: Mapping[str, Any]) -> str:
        """The application of a request. Takes notes of what it shows."""
        if head.key == SASL_HANDSHAKE and head.api is not None:
            self._mechanism = fields["Mechanism"] or ""
        if head.key == SASL_AUTHENTICATE and not self._principal:
            self._principal = principal(self._mechanism, fields["AuthBytes"]) or ""
            if self._principal:
                app = self._gateway.plan.app(self.port.listener, head.client, self._principal)
                count(self._gateway.seen[app].principals, self._principal)
        app = self._gateway.plan.app(self.port.listener, head.client, self._principal)
        seen = self._gateway.seen[app]
        self.client = fit(head.client), self._peer
        if app != self._app:
            self._app = app
            self._gateway.connected(app, self)
            seen.request(self._software)  # told before the principal was known
        if head.key in MEMBERS:
            self._gateway.member(app, self.client)
        if head.key == API_VERSIONS:
            self._software = fields
        count(seen.clients, head.client)
        seen.request(fields)
        return app

    async def _judged(self, app: str, head: Head) -> Verdict:
        """What is done with a request, after all waits. For one that goes to a broker, its connection is
        there. Nothing else runs between the last look at the gate and what the caller does."""
        kind, client = named(head.key), self.client
        since: float | None = None
        while True:
            now = self._gateway.app(app)
            synced = head.key != FETCH or self._gateway.may_fetch(app, client)
            verdict = decide(now.gate, head, synced=synced)
            if head.key == SASL_HANDSHAKE and self._mechanism not in MECHANISMS and head.api is not None:
                return Verdict(Act.ANSWER)
            if verdict.act is Act.CUT or (head.key in _LED and self._left(now)):
                raise Ended
            if verdict.act is Act.PARK:
                since = self._gateway.now() if since is None else since
                self._waited = True
                with self._gateway.parked(app, self, kind, since):
                    await self._gateway.change(app, now, DRAIN_S)
                continue
            if verdict.act in (Act.REFUSE, Act.ANSWER):
                return verdict
            if self._deaf or (since is not None and not self._still_there()):
                raise Ended
            if self._broker is not None and self._cluster == now.route:
                return verdict
            await self._reach(now.route)

    def _left(self, app: App) -> bool:
        """Whether this port's cluster is one that the application has left. No broker there leads what its
        clients ask for. If a PRODUCE waited, the next one could overtake it on the way to the leader, and be
        the first that this broker sees of its producer. A Java consumer would go on with FETCH for as long as
        the leader has the same node id."""
        return app.flips > 0 and app.route != self.port.cluster

    def _still_there(self) -> bool:
        """Whether the client has not closed its side: what it gave up must not reach a broker any more."""
        own: socket.socket = self._writer.get_extra_info("socket")
        return own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED

    async def _send(self, one: Waiting, frame: bytes, left: int, answered: bool) -> None:
        """Send a request on, with the ``left`` bytes that were not read yet."""
        assert self._broker is not None
        kind, seen, writer = named(one.head.key), self._gateway.seen[one.app], self._broker[1]
        self._bound = self._bound or one.head.key not in _FREE
        if one.head.key == SASL_HANDSHAKE:
            self._handshake = frame
        seen.in_flight[kind] += 1
        try:
            writer.write((len(frame) + left).to_bytes(4, "big") + frame)
            while left:
                async with asyncio.timeout(FRAME_S):
                    await writer.drain()
                    piece = await self._reader.read(min(left, PIECE))
                if not piece:
                    raise Ended
                left -= len(piece)
                writer.write(piece)
                if isinstance(one.wrote, outcomes.Headers):
                    one.wrote.feed(piece)
        except BaseException:
            seen.in_flight[kind] -= 1  # the broker does nothing with a part of a frame
            raise
        if answered:
            self._expect(one)
        else:
            seen.in_flight[kind] -= 1
            seen.answered[kind] += 1
            self._room.release()
        await writer.drain()

    def _expect(self, one: Waiting) -> None:
        self._waiting.append(one)
        self._idle.clear()
        self._arrived.set()
        if self._answering is None:
            self._answering = asyncio.create_task(self._answer_all())

    # -- the broker

    async def _reach(self, route: str) -> None:
        """Connect to the cluster of a route. Ended if none of its brokers takes the connection."""
        if self._bound:
            raise Ended  # it began on the other cluster
        await self._idle.wait()
        if self._broker is not None:
            former, self._broker = self._broker[1], None
            former.transport.abort()
        for address in self._gateway.plan.brokers(self.port, route):
            try:
                self._broker = await self._opened(address)
            except (OSError, TimeoutError) as error:
                why = f"{type(error).__name__}: {error}"
                self._gateway.log("Unreachable", cluster=route, broker=address, why=why)
                continue
            self._cluster = route
            if self._handshake:
                await self._shake_again(*self._broker)
            return
        raise Ended

    async def _opened(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, number = address.rpartition(":")
        loop = asyncio.get_running_loop()
        reader = Reader(lambda: self._broker_ended(reader))
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        async with asyncio.timeout(CONNECT_S):
            transport, _ = await loop.create_connection(lambda: protocol, host, int(number))
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _shake_again(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The client's SASL_HANDSHAKE for a broker that has not seen it; the client has its answer."""
        writer.write(len(self._handshake).to_bytes(4, "big") + self._handshake)
        async with asyncio.timeout(CONNECT_S):
            await reader.readexactly(self._size(await reader.readexactly(4), WHOLE))

    def _broker_ended(self, reader: asyncio.StreamReader) -> None:
        """A broker that closes an idle connection: the client must not send into it."""
        if self._broker is not None and self._broker[0] is reader and self._idle.is_set():
            self.close()

    # -- answers

    async def _answer_all(self) -> None:
        try:
            while True:
                while not self._waiting:
                    self._idle.set()
                    self._arrived.clear()
                    await self._arrived.wait()
                await self._answer(self._waiting[0])
                one = self._waiting.popleft()
                if one.ready is None:
                    seen, kind = self._gateway.seen[one.app], named(one.head.key)
                    seen.in_flight[kind] -= 1
                    seen.answered[kind] += 1
                self._room.release()
        except FrameError as error:
            self._gateway.log("BrokerRefused", cluster=self._cluster, why=str(error))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._idle.set()
            self.close()

    async def _answer(self, one: Waiting) -> None:
        """Pass the next answer on."""
        if one.ready is not None:
            await self._tell(len(one.ready).to_bytes(4, "big"), one.ready)
            return
        assert self._broker is not None
        reader, head = self._broker[0], one.head
        prefix = await reader.readexactly(4)
        size = self._size(prefix, WHOLE if one.rewritten else self._most)
        if one.rewritten:
            async with self._gateway.memory(size > LARGE), asyncio.timeout(FRAME_S):
                frame = await reader.readexactly(size)
                _to(head, frame)
                frame = await self._changed(one, frame)
                await self._tell(len(frame).to_bytes(4, "big"), frame)
            return
        frame = await reader.readexactly(size if head.key == SYNC_GROUP else min(size, FIRST))
        _to(head, frame)
        await self._tell(prefix, frame)
        if head.key == PRODUCE:
            self._told(one, frame)
        if head.key == SYNC_GROUP and self._messages.synced(head, frame):
            self._gateway.rejoined(one.app, (fit(head.client), self._peer))
        left = size - len(frame)
        while left:
            piece = await reader.read(min(left, PIECE))
            if not piece:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(piece)
            await self._tell(piece)

    def _told(self, one: Waiting, frame: bytes) -> None:
        """A PRODUCE was answered, if its client was there. One that leaves while its next request waits at
        the gate is not noticed at once."""
        version, gateway = one.head.version, self._gateway
        if self._gone:
            return
        if self._missed or (self._waited and not self._still_there()):
            self._lose(one, outcomes.errors(version, frame))
        elif gateway.outcomes[one.app] or outcomes.unsure(version, frame):
            told = outcomes.errors(version, frame)
            gateway.outcomes[one.app].answered(self._name(one), self._wrote(one), told, gateway.now())

    def _lose(self, one: Waiting, told: outcomes.Errors | None = None) -> None:
        """The client does not learn what became of a request."""
        if one.head.key == PRODUCE and one.ready is None:
            own = self._gateway.outcomes[one.app]
            own.lost(self._name(one), self._wrote(one), self._gateway.now(), told)

    def _wrote(self, one: Waiting) -> outcomes.Headers | None:
        return None if one.wrote is None else outcomes.headers(one.head.version, one.wrote)

    def _name(self, one: Waiting) -> str:
        return f"{fit(one.head.client)} at {self._peer}"

    def _size(self, prefix: bytes, most: int) -> int:
        size = int.from_bytes(prefix, "big", signed=True)
        if not 4 <= size <= most:
            raise FrameError("size", f"an answer of {size} bytes, needed: 4 to {most}")
        return size

    async def _changed(self, one: Waiting, frame: bytes) -> bytes:
        head = one.head
        if head.key == INIT_PRODUCER_ID:
            return self._messages.initiated(head, frame, lambda id: producers.given(id, one.flips))
        if head.key == API_VERSIONS:
            error, found = ranges(frame, head.version)
            if not error:
                self._gateway.ranges[self._cluster] = found
            offered = self._gateway.offered()
            return versions(head, error, {key: span for key, span in offered.items() if key in found})
        port, cluster = self.port, self._cluster
        where = lambda node: self._gateway.address(port, cluster, node)  # noqa: E731
        return bytes(await _slices(self._messages.answered(head, frame, where)))

    async def _tell(self, *pieces: bytes) -> None:
        """Write to the client. One that has gone misses it; the broker's answer still counts."""
        if self._writer.transport.is_closing():
            self._missed = True
            return
        self._writer.write(b"".join(pieces))
        try:
            await self._writer.drain()
        except ConnectionError:
            self._missed = True


async def _slices(steps: Generator[None, None, T]) -> T:
    """What reading a message returns; others go on between its slices."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            told: T = end.value
            return told
        await asyncio.sleep(0)


def _to(head: Head, frame: bytes) -> None:
    """FrameError if an answer is to another request."""
    if correlation(frame) != head.correlation:
        raise FrameError("order", f"an answer to {correlation(frame)}, needed: to {head.correlation}")
