"""Split the bytes of one client into requests, and pause and resume reading."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast
from weakref import proxy

from zkmigrate.topics.gateway.rules.crowd import share
from zkmigrate.topics.gateway.rules.hold import Gate
from zkmigrate.topics.gateway.rules.layout import FrameError
from zkmigrate.topics.gateway.rules.messages import LEAST, Bytes, Messages
from zkmigrate.topics.gateway.rules.outcomes import Headers
from zkmigrate.topics.gateway.rules.plan import Port
from zkmigrate.topics.gateway.serving.buffer import LITTLE, VIEW
from zkmigrate.topics.gateway.serving.gateway import FREE, Gateway
from zkmigrate.topics.gateway.serving.learns import FIRST
from zkmigrate.topics.gateway.serving.link import PREFIX, SIZE, Link
from zkmigrate.topics.gateway.serving.requests import Requests
from zkmigrate.topics.gateway.serving.secured import Inner, Secured, why_not_the_client
from zkmigrate.topics.gateway.serving.sending import Ended
from zkmigrate.topics.gateway.serving.times import Times, limit
from zkmigrate.topics.gateway.serving.turns import PASSED, TURN, passing

_LATE = {
    "tls": "the client did not finish the handshake of TLS",
    "login": "the client sent nothing but logins",
    "frame": "the client did not finish a request",
    "take": "the client did not read its responses",
    "held": "the client did not read its responses while its application was held",
}

_RECORD, _IDLE = 16, 8
"""The cost of reading TLS, in bytes that are read field by field.

Each record costs ``_RECORD``. Records without content also cost one for each ``_IDLE`` bytes.
"""
_TLS = b"\x16\x03"
"""The first bytes of a client that begins TLS. As the size of a request they would be 369 MB."""


class Connection(Requests, Inner):
    """The connection of a client to one of the gateway's ports.

    most: the size of the largest request, in bytes.
    """

    def __init__(self, gateway: Gateway, messages: Messages, port: Port, most: int) -> None:
        super().__init__(gateway, messages, port, most)
        self._in: Bytes = b""
        self._need = 0
        self._made = self._ending = self._queued = False
        self._times = Times(asyncio.get_running_loop(), partial(Connection._close_late, proxy(self)))

    # -- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._made = cast(asyncio.Transport, transport), True
        if self._over:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(0)  # an answer counts once the kernel has all of it
        if not self.peer:  # the system no longer knows the address of a client that has left
            self.comes_from(str((transport.get_extra_info("peername") or ("unknown",))[0]))
        self._times.begin("login")
        if isinstance(transport, Secured):
            self._times.begin("tls")
        self.gateway.joined(self)

    def comes_from(self, address: str) -> None:
        """Set the address of the client, which limits depend on."""
        self.peer, self.share = address, share(address)
        self.client = "", address
        self.learns.peer = address

    def connection_lost(self, _error: Exception | None) -> None:
        self._gone, self.full = True, False
        self.answered(0)
        self.finish()

    def due(self, call: Callable[[], None], cost: int) -> None:
        self.gateway.turns.later(self.share, call, cost)

    def read_records(self, records: int, idle: int) -> None:
        self.gateway.turns.spend(self.share, records * _RECORD + idle // _IDLE)
        if idle and self.gateway.turns.spent >= TURN and not self._queued:
            self._queue()
            self.steer()

    def secured(self) -> None:
        self._times.over("tls")
        self.gateway.shaking.discard(self)

    def not_secured(self, error: Exception) -> None:
        self.stop(FrameError("tls", why_not_the_client(error, self.port.listener)))

    def get_buffer(self, _hint: int) -> memoryview:
        view = self.room.view
        return view if self.gateway.turns.spent < TURN else view[:LITTLE]

    def buffer_updated(self, count: int) -> None:
        data = VIEW[:count].tobytes()
        if not self._in and count < PASSED and (self.gateway.turns.spent < TURN or _single(data)):
            at = self._like(data, 0)
            if at == count and not self._left:
                return
            data = data[at:]
        more = self.gateway.turns.read(self.share, count)
        if not more and not self._queued:
            self._queue(count)
            if not self._left and self._request is None:
                self._in = self._in + data if self._in else data
                self.steer()
                return
        if self._in:
            self._in += data
            if len(self._in) < self._need:
                return
            data, self._in = bytes(self._in), b""
        self._pass_on(data)

    def _queue(self, size: int = 0) -> None:
        self._queued = True
        self.gateway.turns.later(self.share, self._turn, passing(size))

    def _like(self, data: bytes, at: int) -> int:
        """Send requests that repeat earlier ones in a single write, beginning at position ``at``.

        The last of these requests need not be complete. Returns the position where these requests end.
        """
        begun, end, link = at, len(data), self._link
        if link is None or self._left or self._request is not None or self._over or self._busy:
            return at
        while at + PREFIX <= end and len(self.waiting) < self._most_waiting:
            size = PREFIX + SIZE.unpack_from(data, at)[0]
            if size > PREFIX + self.most or end - at < min(size, PREFIX + FIRST):
                break
            if not self.send_alike(data if size == end else data[at : at + size], size):
                break
            at = min(at + size, end)
        if at > begun:
            if self._times.by:
                self._times.over("frame")
            link.transport.write(data if at - begun == end else data[begun:at])
        return at

    def eof_received(self) -> bool:
        self._ending = True
        self.go_on()
        return True

    def pause_writing(self) -> None:
        self.full = True
        self._times.begin("take")
        if self._keeps_seal():
            self._times.begin("held")

    def _keeps_seal(self) -> bool:
        """Return True if the next answer is counted as in flight while its application's gate is closed."""
        if not self.waiting or self.waiting[0].kind in FREE:
            return False
        return self.gateway.app(self.waiting[0].app).gate not in (Gate.OPEN, Gate.SETTLING)

    def resume_writing(self) -> None:
        self.full = False
        self._times.over("take")
        self.answered(0)
        self.go_on()

    # -- what stops and goes on

    def close(self) -> None:
        """Close the connection at once.

        A request that waits at the gate is not sent any more. All references from the connection to its parts
        are removed, because a search for cycles of objects would stop the event loop.
        """
        if self._over:
            return
        self._over = self._gone = True
        self._in, self._request = b"", None
        self.learns.record_all_lost(self.waiting)
        self._times.end()
        if self._task is not None:
            self._task.cancel()
        self._unsent()
        for one in self.waiting:
            if one.ready is None:
                one.seen.lost[one.kind] += 1
                one.seen.in_flight[one.kind] -= 1
        self.waiting.clear()
        self.gateway.remove(self)
        if self._made:
            self._transport.abort()
        if self._link is not None:
            self._link.transport.abort()
            self._link = None
        self._alike.clear()

    def finish(self) -> None:
        """Wait for the answers to all requests that were sent, then close the connection.

        Requests that were not sent yet are dropped.
        """
        self._ending = self._finishing = True
        self._in, self._request = b"", None
        self.learns.record_all_lost(self.waiting)
        self._unsent()
        if self._task is not None:
            self._task.cancel()
        if not self.waiting:
            self.close()
        elif not self._over:
            self._times.end()
            self._times.begin("drain")
            self.steer()

    def _unsent(self) -> None:
        """Stop counting a request that was sent only in part, because brokers ignore incomplete requests."""
        if self._left and self._sending is not None:
            self._sending.seen.in_flight[self._sending.kind] -= 1
        self._left, self._sending = 0, None

    def broker_ended(self, link: Link) -> None:
        if link is self._link:
            self.close()

    @property
    def _busy(self) -> bool:
        """Whether the next request has to wait for an earlier one, for its turn, or for the broker."""
        return (
            self._task is not None
            or self._walking
            or self._queued
            or len(self.waiting) >= self._most_waiting
            or (self._link is not None and self._link.full)
        )

    def go_on(self) -> None:
        if self._link is not None:
            self._link.go_on()
        if not self._over and not self._busy:
            data, self._in = bytes(self._in), b""
            self._pass_on(data)
        self.steer()

    def steer(self) -> None:
        """Pause or resume reading from the client and from the broker.

        Both depend on whether bytes can be passed on, and on the room in memory for more bytes.
        """
        if self._over:
            return
        link, room = self._link, self.room
        kept = len(self._in) + (0 if self._request is None else len(self._request.frame))
        kept += self._transport.get_write_buffer_size() if self.full else 0
        kept += 0 if link is None else link.bytes_kept
        room.keep(self, kept)
        may = not kept or room.may(self)
        if self._over:
            return
        if not may:
            self._times.over("frame")  # it is not the client that takes so long
        if not self._gone:
            _read(self._transport, may and not (self._busy or self._ending))
        if link is not None:
            _read(link.transport, may and link.reads)

    def stop(self, error: FrameError) -> None:
        if not self._over:
            self.refused(error)
            self.close()

    def hurry(self) -> None:
        """Shorten the time limits of incomplete requests and answers, because a gate has closed."""
        if self._left:
            self._times.hurry("frame")
        if self.full and self._keeps_seal():
            self._times.begin("held")

    def _close_late(self, what: str) -> None:
        if what == "held" and not (self.full and self._keeps_seal()):
            return
        if what != "drain":
            self.refused(FrameError("time", f"{_LATE[what]} within {limit(what):g} s"))
        if what == "frame":
            self.finish()
        else:
            self.close()

    # -- frames

    def _pass_on(self, data: bytes) -> None:
        """Serve the requests in these bytes, and keep the bytes of a last request that is not complete."""
        try:
            at = self._requests(data)
        except (Ended, FrameError) as error:
            self.failed(error)
            return
        if self._over:
            return
        if at < len(data):
            self._in = bytearray(data[at:])
        if self._in or self._left or self._request is not None or self._busy:
            if not self._busy:
                self._times.begin("frame")
            self.steer()
        if self._ending and not self._busy:
            self.finish()

    def _requests(self, data: bytes) -> int:
        """Serve the requests in these bytes, and return how many bytes were used.

        Raises Ended and FrameError.
        """
        at, end, self._need = 0, len(data), 0
        while at < end and not self._over and not self._busy:
            if self._left and self._sending is not None and self._link is not None:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                self._link.transport.write(piece)
                if isinstance(self._sending.wrote, Headers):
                    self._sending.wrote.feed(piece)
                if not self._left:
                    self._times.over("frame")
                    self._count_sent(self._sending, answered=self._answered)
                continue
            if (one := self._request) is not None:
                piece = data[at : at + one.size - len(one.frame)]
                at += len(piece)
                one.frame += piece
                if len(one.frame) == one.size:
                    self._times.over("frame")
                    self.look(one)
                continue
            after = self._like(data, at)
            if after > at or self._queued:
                at = after
                continue
            have = end - at
            size = PREFIX if have < PREFIX else self._size(data, at)
            if have < min(size, PREFIX + FIRST):
                self._need = min(size, PREFIX + FIRST)
                break
            if not self._may():
                break
            frame = data if have == size == end else data[at : at + size]
            at += len(frame)
            self.begin(frame, size)
        return at

    def _size(self, data: bytes, at: int) -> int:
        """Return the size in bytes of the request that begins at position ``at``.

        The size includes the four bytes of the length field. Raises FrameError.
        """
        size = int.from_bytes(data[at : at + PREFIX], "big", signed=True)
        if self._link is None and data[at : at + PREFIX].startswith(_TLS):
            raise FrameError(
                "tls",
                f"the client began TLS, and listener {self.port.listener} speaks plain text; needed: "
                f"listeners.{self.port.listener}.tls in the gateway's file, or security.protocol PLAINTEXT "
                "or SASL_PLAINTEXT at the client",
            )
        if not LEAST <= size <= self.most:
            raise FrameError("size", f"the request has {size} bytes; needed: {LEAST} to {self.most}")
        return PREFIX + size

    def _turn(self) -> None:
        """Resume reading and serving requests, when this connection is due in the order of turns."""
        self._queued = False
        self.go_on()


def _single(data: bytes) -> bool:
    """Return True if the bytes are exactly one whole request."""
    return PREFIX + int.from_bytes(data[:PREFIX], "big") == len(data)


def _read(transport: asyncio.Transport, wanted: bool) -> None:
    if transport.is_reading() != wanted:
        if wanted:
            transport.resume_reading()
        else:
            transport.pause_reading()
