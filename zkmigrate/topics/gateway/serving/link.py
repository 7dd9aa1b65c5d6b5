"""Connect to a broker, and pass its answers on to the client in the order of the requests."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast

from zkmigrate.topics.gateway.rules import producers
from zkmigrate.topics.gateway.rules.apis import (
    API_VERSIONS,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SYNC_GROUP,
)
from zkmigrate.topics.gateway.rules.layout import SLICE, FrameError
from zkmigrate.topics.gateway.rules.messages import Bytes, Head, Messages, ranges, versions
from zkmigrate.topics.gateway.rules.outcomes import Headers
from zkmigrate.topics.gateway.rules.plan import Port
from zkmigrate.topics.gateway.rules.seen import Seen, fit
from zkmigrate.topics.gateway.serving.buffer import LITTLE, VIEW
from zkmigrate.topics.gateway.serving.gateway import Gateway
from zkmigrate.topics.gateway.serving.room import Room
from zkmigrate.topics.gateway.serving.secured import Inner, why_not_the_broker
from zkmigrate.topics.gateway.serving.turns import PASSED, TURN, passing

WHOLE = 64 << 20
"""The size of the largest message that is read whole, in bytes."""
PREFIX = 4
"""The size in bytes of the length field before each message."""
SIZE = struct.Struct(">I")
_NO_ERROR = b"\0\0"
_READ = frozenset({SYNC_GROUP, HEARTBEAT, SASL_HANDSHAKE, SASL_AUTHENTICATE})
"""The requests whose answers are read whole, although they are passed on unchanged."""


@dataclass(slots=True)
class Waiting:
    """A request that was sent and has no answer yet.

    head: the header of the request, or of an earlier request like it.
    correlation: the bytes of the correlation id.
    app, seen: the name and the counts of the request's application.
    kind: the name of the request.
    rewritten: whether the answer is changed.
    ready: the answer, if the gateway itself gives it.
    flips: how many times the application had switched.
    wrote: the part of a PRODUCE that is remembered.
    """

    head: Head
    correlation: bytes | bytearray
    app: str
    seen: Seen
    kind: str
    rewritten: bool
    ready: bytes | None = None
    flips: int = 0
    wrote: bytes | Headers | None = None


class Learner(Protocol):
    def record_answer(self, one: Waiting, frame: Bytes) -> None:
        """Record the answer to a PRODUCE request.

        frame: the first bytes of the answer.
        """


class Client(Protocol):
    """A client's connection, as the link to its broker uses it.

    most: the size of the largest request, in bytes.
    share: the block of addresses that has a common limit, as ``crowd.share`` returns it.
    room: the memory that connections share.
    waiting: the requests that were sent, the oldest first.
    full: whether the client is not reading its answers at present.
    """

    gateway: Gateway
    messages: Messages
    port: Port
    most: int
    peer: str
    share: str
    room: Room
    waiting: deque[Waiting]
    full: bool

    @property
    def learns(self) -> Learner:
        """The tracking of PRODUCE requests whose answer the client missed."""

    def tell(self, data: Bytes) -> None:
        """Write bytes to the client."""

    def answered(self, count: int = 1) -> None:
        """Count the oldest requests as answered, because their answers were written to the client."""

    def accepted(self) -> None:
        """Record that the broker has accepted the client's login."""

    def steer(self) -> None:
        """Pause or resume reading from the client and from the broker."""

    def go_on(self) -> None:
        """Resume reading and sending, unless the connection has to wait for another reason."""

    def close(self) -> None:
        """Close the connection at once."""

    def broker_ended(self, link: Link) -> None:
        """Close the connection, because the broker has closed its side of the link."""


class Link(Inner):
    """A connection to a broker.

    client: the client's connection whose requests the link carries. cluster: the name of the broker's
    cluster. full: whether the broker is not reading requests at present.
    """

    def __init__(self, client: Client, cluster: str) -> None:
        self._client, self.cluster = client, cluster
        self.transport: asyncio.Transport
        self.full = False
        self._in: Bytes = b""
        self._need = self._left = self._walked = 0
        self._queued = False
        self._greeted: asyncio.Future[None] | None = None

    @property
    def bytes_kept(self) -> int:
        """Bytes of answers that were not passed on yet, and of requests that the broker did not take yet."""
        return len(self._in) + self._walked + (self.transport.get_write_buffer_size() if self.full else 0)

    @property
    def reads(self) -> bool:
        """Whether the client can take the next answer."""
        return not (self._client.full or self._walked or self._queued)

    def _turn(self) -> None:
        """Resume reading answers and passing them on, when this link is due in the order of turns."""
        self._queued = False
        self.go_on()
        self._client.steer()

    def _queue(self, size: int = 0) -> None:
        """Wait for a later turn of the event loop.

        size: how many bytes the last read returned.
        """
        if not self._queued:
            self._queued = True
            client = self._client
            client.gateway.turns.later(client.share, self._turn, passing(size))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(0)  # what the broker does not take counts from the first byte

    def connection_lost(self, _error: Exception | None) -> None:
        if self._greeted is not None and not self._greeted.done():
            self._greeted.set_exception(ConnectionResetError("the broker closed the connection"))
        self._client.broker_ended(self)

    def due(self, call: Callable[[], None], cost: int) -> None:
        self._client.gateway.turns.later(self._client.share, call, cost)

    def not_secured(self, error: Exception) -> None:
        why = why_not_the_broker(error, self.cluster, tls=True)
        self._client.gateway.log("BrokerRefused", cluster=self.cluster, why=why)
        self._client.close()

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        self._client.go_on()

    def get_buffer(self, _hint: int) -> memoryview:
        view = self._client.room.view
        return view if self._client.gateway.turns.spent < TURN else view[:LITTLE]

    def buffer_updated(self, count: int) -> None:
        data = VIEW[:count].tobytes()
        if not self._in and count < PASSED:
            at = self._pass_whole_answers(data)
            if at == count:
                return
            data = data[at:]
        if not self._client.gateway.turns.read(self._client.share, count):
            self._queue(count)
        if not self._in:
            self._pass_on(data)
            return
        missing = max(0, self._need - len(self._in)) or count
        self._in += data[:missing]
        if len(self._in) < self._need:
            self._client.steer()
            return
        whole, self._in = self._in, b""
        self._pass_on(whole)  # a large answer ends here, so that it is not copied
        if missing < count and not self.transport.is_closing():
            if self._in:
                self._in += data[missing:]
            else:
                self._pass_on(data[missing:])

    def _pass_whole_answers(self, data: bytes) -> int:
        """Pass on the whole answers at the beginning of the data in a single write, if they need no change.

        Returns how many bytes were used.
        """
        client, at, end, count = self._client, 0, len(data), 0
        if self._left or self._walked or client.full or self._greeted is not None:
            return at
        produced: list[tuple[Waiting, bytes]] = []
        for one in client.waiting:
            if one.rewritten or one.ready is not None or one.head.key in _READ:
                break
            if count and not client.gateway.turns.may(client.share):
                break
            begun = at + PREFIX
            if data[begun : begun + PREFIX] != one.correlation:
                break
            after = begun + SIZE.unpack_from(data, at)[0]
            if not begun + PREFIX <= after <= end:
                break
            if one.head.key == PRODUCE:
                produced.append((one, data[begun:after]))
            count += 1
            at = after
            if at == end:
                break
        if count:
            client.tell(data if at == end else data[:at])
            for one, answer in produced:
                client.learns.record_answer(one, answer)
            client.answered(count)
        return at

    async def greet(self, frame: Bytes) -> None:
        """Send a request whose answer the client has already received, and wait for the broker's answer."""
        self._greeted = asyncio.get_running_loop().create_future()
        self.transport.write(frame)
        await self._greeted
        self._greeted = None

    def go_on(self) -> None:
        """Pass on answers that had to wait, if the client is reading again."""
        if self._in and self.reads and len(self._in) >= self._need:
            data, self._in = self._in, b""
            self._pass_on(data)

    def _pass_on(self, data: Bytes) -> None:
        try:
            at = self._answers(data)
        except FrameError as error:
            self._client.gateway.log("BrokerRefused", cluster=self.cluster, why=str(error))
            self._client.close()
            return
        if at < len(data):
            self._in = data if not at and isinstance(data, bytearray) else bytearray(data[at:])
        if self._in or not self.reads:
            self._client.steer()

    def _answers(self, data: Bytes) -> int:
        """Pass on the answers in these bytes, and return how many bytes were used. Raises FrameError."""
        at, end, client = 0, len(data), self._client
        self._need = 0
        while at < end and not (client.full or self._walked):
            if self._left:
                piece = data[at : at + self._left]
                self._left -= len(piece)
                at += len(piece)
                client.tell(piece)
                if not self._left:
                    client.answered()
                continue
            have = end - at - PREFIX
            if have < PREFIX:
                break
            if self._queued or not client.gateway.turns.may(client.share):
                self._queue()
                break
            size = int.from_bytes(data[at : at + PREFIX], "big", signed=True)
            one = self._request_of(data, at, size)
            if have < size and (one is None or one.rewritten or one.head.key in _READ):
                self._need = PREFIX + size
                break
            piece = data if end == PREFIX + size else data[at : at + PREFIX + size]
            at += len(piece)
            if one is None:
                assert self._greeted is not None
                self._shaken(piece[PREFIX:])
                self._greeted.set_result(None)
            elif one.rewritten:
                frame = piece if isinstance(piece, bytearray) else bytearray(piece)
                del frame[:PREFIX]
                self._rewrite(one, frame)
            else:
                self._left = PREFIX + size - len(piece)
                if one.head.key in _READ:
                    self._read(one, piece[PREFIX:])
                client.tell(piece)
                if one.head.key == PRODUCE:
                    client.learns.record_answer(one, piece[PREFIX:])
                if not self._left:
                    client.answered()
        return at

    def _read(self, one: Waiting, frame: Bytes) -> None:
        """Record facts that an answer shows about the client or about the broker. Raises FrameError."""
        client, head = self._client, one.head
        if head.key in (SYNC_GROUP, HEARTBEAT):
            if client.messages.accepted(head, frame):
                client.gateway.confirmed(one.app, (fit(head.client), client.peer))
        elif head.key == SASL_AUTHENTICATE:
            if client.messages.logged_in(head, frame):
                client.accepted()
        else:
            self._shaken(frame)

    def _shaken(self, frame: Bytes) -> None:
        """Record that the broker demands a login, if it accepts a SASL_HANDSHAKE.

        A broker that demands no login answers ILLEGAL_SASL_STATE.
        """
        if frame[PREFIX : PREFIX + len(_NO_ERROR)] == _NO_ERROR:
            self._client.gateway.demands_login(self.cluster)

    def _request_of(self, data: Bytes, at: int, size: int) -> Waiting | None:
        """Return the request that belongs to the answer at position ``at``.

        Returns None for the answer to a request that :meth:`greet` sent. Raises FrameError.
        """
        client = self._client
        if self._greeted is not None and not self._greeted.done():
            one, most = None, WHOLE
        else:
            if not client.waiting:
                raise FrameError("order", "the broker sent a response without a request")
            one = client.waiting[0]
            most = WHOLE if one.rewritten or one.head.key in _READ else client.most
        if not PREFIX <= size <= most:
            raise FrameError(
                "size", f"the broker sent a response of {size} bytes; needed: {PREFIX} to {most}"
            )
        if one is not None:
            told = data[at + PREFIX : at + 2 * PREFIX]
            if told != one.correlation:
                seen, needed = (int.from_bytes(id, "big", signed=True) for id in (told, one.correlation))
                raise FrameError("order", f"the broker responded to {seen}; needed: a response to {needed}")
        return one

    # -- answers that are changed

    def _rewrite(self, one: Waiting, frame: Bytes) -> None:
        client, head = self._client, one.head
        gateway, port = client.gateway, client.port
        if head.key == INIT_PRODUCER_ID:
            rename = partial(producers.id_for_client, flips=one.flips)
            self._written(client.messages.initiated(head, frame, rename))
        elif head.key == API_VERSIONS:
            error, found = ranges(frame, head.version)
            if not error:
                gateway.ranges[self.cluster] = found
            offered = gateway.offered()
            self._written(versions(head, error, {key: span for key, span in offered.items() if key in found}))
        else:
            gateway.turns.spend(client.share, min(len(frame), SLICE))
            where = partial(gateway.address, port, self.cluster)
            self._walk(client.messages.read_answer(head, frame, where), len(frame))

    def _walk(self, steps: Generator[None, None, Bytes], size: int) -> None:
        """Rewrite the next slice of an answer. If more slices follow, continue in a later turn.

        size: the size of the answer in bytes.
        """
        try:
            next(steps)
        except StopIteration as end:
            walked, self._walked = self._walked, 0
            self._written(end.value)
            if walked:
                self._client.go_on()
        else:
            self._walked = size
            self._client.gateway.turns.later(self._client.share, partial(self._next, steps, size))

    def _next(self, steps: Generator[None, None, Bytes], size: int) -> None:
        if self.transport.is_closing():
            return
        self._client.gateway.turns.spend(self._client.share, SLICE)
        try:
            self._walk(steps, size)
        except FrameError as error:
            self._client.gateway.log("BrokerRefused", cluster=self.cluster, why=str(error))
            self._client.close()

    def _written(self, frame: Bytes) -> None:
        size = len(frame).to_bytes(PREFIX, "big")
        for piece in (size + frame,) if len(frame) < PASSED else (size, frame):
            self._client.tell(piece)
        self._client.answered()
