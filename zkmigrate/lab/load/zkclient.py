"""Connect to ZooKeeper with a small pipelined client for the recorded load.

Unlike kazoo, this client returns the zxid of each reply header (for a create: the czxid). It also reports
exactly which requests were in flight when a connection broke, and connects to no other server than its own.
Nothing here blocks: one thread drives any number of clients with ``zkloop.turn``.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from zkmigrate.lab.load.zkmessages import CLOSE_SESSION, CONNECTION_LOSS, PING, Reply, buffer, hex_id, take

_PING_XID = -2
_NO_PASSWORD = bytes(16)
_CONNECT_LIMIT_NS = 4_000_000_000
_RETRY_NS = 100_000_000
_NEVER_NS = 1 << 62

EventSink = Callable[[str, dict[str, Any]], None]


@dataclass
class _Pending:
    xid: int
    sent_ns: int
    answer: Callable[[Reply], None]


@dataclass
class Client:
    """A pipelined ZooKeeper client with one session on one of ``servers``; ``zkloop.turn`` drives it.

    It calls ``sink(event, fields)`` for connected, disconnected, connect_failed and expired; the package's
    docstring lists the fields. Requests are answered in the order of sending. When the connection breaks,
    every unanswered request gets CONNECTION_LOSS. The client then offers the session to the next server,
    until one answers that the session has expired.
    """

    servers: Sequence[tuple[str, int]]
    timeout_ms: int
    sink: EventSink
    session: int = 0
    negotiated_ms: int = 0
    last_zxid: int = 0
    _password: bytes = _NO_PASSWORD
    _state: str = "idle"
    _sock: socket.socket | None = None
    _out: bytearray = field(default_factory=bytearray)
    _in: bytearray = field(default_factory=bytearray)
    _pending: deque[_Pending] = field(default_factory=deque)
    _xid: int = 0
    _server: int = 0
    _retry_ns: int = 0
    _deadline_ns: int = 0
    _heard_ns: int = 0
    _sent_ns: int = 0
    _asked_ns: int | None = None
    _failure: tuple[str, int] = ("", 0)

    @property
    def connected(self) -> bool:
        return self._state == "connected"

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    @property
    def server(self) -> str:
        host, port = self.servers[self._server]
        return f"{host}:{port}"

    def submit(self, op: int, body: bytes, answer: Callable[[Reply], None]) -> None:
        """Send one request; ``answer`` is called once with the reply.

        Raises ConnectionError unless connected.
        """
        if not self.connected:
            raise ConnectionError(f"no session with {self.server} to send a request on")
        self._xid += 1
        now = time.monotonic_ns()
        self._pending.append(_Pending(self._xid, now, answer))
        self._send(struct.pack(">ii", self._xid, op) + body, now)

    def close_session(self, answer: Callable[[Reply], None]) -> None:
        """Send the request that ends the session. The client does not reconnect after it."""
        self.submit(CLOSE_SESSION, b"", answer)
        self._state = "closing"

    def shut(self) -> None:
        """Close the socket permanently. Requests in flight get CONNECTION_LOSS."""
        self._tell_failures()
        self._state = "shut"
        self._drop_socket()
        self._fail_pending(time.monotonic_ns())

    # --- driven by turn -------------------------------------------------------------------------------------

    def socket_to_poll(self) -> socket.socket | None:
        return self._sock

    @property
    def wants_write(self) -> bool:
        return self._state == "connecting" or bool(self._out)

    def next_timer_ns(self) -> int | None:
        if self._state == "idle":
            return self._retry_ns
        if self._state in ("connecting", "handshake"):
            return self._deadline_ns
        if self._state in ("connected", "closing"):
            return min(self._sent_ns + self._ping_ns, self._silent_ns)
        return None

    def advance(self, now: int) -> None:
        """Connect or ping if it is due, and disconnect from a server that is silent for too long."""
        if self._state == "idle" and now >= self._retry_ns:
            self._connect(now)
        elif self._state in ("connecting", "handshake") and now >= self._deadline_ns:
            self._lose(f"no answer while {self._state}", now)
        elif self._state in ("connected", "closing"):
            if now >= self._silent_ns:
                self._lose("server silent", now)
            elif now >= self._sent_ns + self._ping_ns:
                self._send(struct.pack(">ii", _PING_XID, PING), now)

    def on_writable(self, now: int) -> None:
        assert self._sock is not None
        if self._state == "connecting":
            code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._lose(_os_error(code), now)
                return
            self._greet(now)
        try:
            sent = self._sock.send(self._out)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(_os_error(error.errno), now)
            return
        del self._out[:sent]

    def on_readable(self, now: int) -> None:
        assert self._sock is not None
        try:
            data = self._sock.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(_os_error(error.errno), now)
            return
        if not data:
            self._lose("server closed the connection", now)
            return
        self._heard_ns, self._asked_ns = now, None
        self._in += data
        while self._sock is not None and len(self._in) >= 4:
            (length,) = struct.unpack_from(">i", self._in)
            if len(self._in) < 4 + length:
                break
            frame = bytes(self._in[4 : 4 + length])
            del self._in[: 4 + length]
            if self._state == "handshake":
                self._welcome(frame, now)
            else:
                self._reply(frame, now)

    # --- connection life ------------------------------------------------------------------------------------

    @property
    def _ping_ns(self) -> int:
        return self.negotiated_ms * 1_000_000 // 3

    @property
    def _silent_ns(self) -> int:
        """When the server counts as silent, CLOCK_MONOTONIC.

        After a pause of this process, in which it has sent nothing, the client first sends a request. It then
        waits for one ping interval.
        """
        if self._asked_ns is None:
            return self._sent_ns + _NEVER_NS
        return max(self._heard_ns + 2 * self._ping_ns, self._asked_ns + self._ping_ns)

    def _connect(self, now: int) -> None:
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._sock.setblocking(False)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._state = "connecting"
        self._deadline_ns = now + _CONNECT_LIMIT_NS
        code = self._sock.connect_ex(self.servers[self._server])
        if code not in (0, errno.EINPROGRESS):
            self._lose(_os_error(code), now)

    def _greet(self, now: int) -> None:
        self._state = "handshake"
        request = struct.pack(">iqiq", 0, self.last_zxid, self.timeout_ms, self.session)
        self._send(request + buffer(self._password) + b"\0", now)

    def _welcome(self, frame: bytes, now: int) -> None:
        _, timeout_ms, session = struct.unpack_from(">iiq", frame)
        if timeout_ms <= 0:
            self.sink("expired", {"session": hex_id(self.session)})
            self.session, self._password, self.last_zxid = 0, _NO_PASSWORD, 0
            self._drop_socket()
            self._state, self._retry_ns = "idle", now
            return
        self._tell_failures()
        renewed = session == self.session
        self.session, self._password, self.negotiated_ms = session, take(frame, 16)[0], timeout_ms
        self._state = "connected"
        self.sink("connected", {"session": hex_id(session), "timeout_ms": timeout_ms, "renewed": renewed})

    def _reply(self, frame: bytes, now: int) -> None:
        xid, zxid, error = struct.unpack_from(">iqi", frame)
        if zxid > 0:
            self.last_zxid = max(self.last_zxid, zxid)
        if xid < 0:
            return  # a ping's answer; no watch is ever set
        if not self._pending or self._pending[0].xid != xid:
            expected = self._pending[0].xid if self._pending else None
            self._lose(f"reply {xid} out of order, expected {expected}", now)
            return
        request = self._pending.popleft()
        request.answer(Reply(error, zxid, frame[16:], request.sent_ns, now))

    def _send(self, payload: bytes, now: int) -> None:
        self._out += buffer(payload)
        self._sent_ns = now
        if self._asked_ns is None:
            self._asked_ns = now

    def _lose(self, reason: str, now: int) -> None:
        state = self._state
        self._drop_socket()
        if state in ("connected", "closing"):
            self.sink("disconnected", {"session": hex_id(self.session), "reason": reason})
        else:
            self._count_failure(reason)
        self._state = "shut" if state == "closing" else "idle"
        self._retry_ns = now + (0 if state == "connected" else _RETRY_NS)
        self._server = (self._server + 1) % len(self.servers)
        self._fail_pending(now)

    def _fail_pending(self, now: int) -> None:
        lost, self._pending = self._pending, deque()
        for request in lost:
            request.answer(Reply(CONNECTION_LOSS, 0, b"", request.sent_ns, now))

    def _count_failure(self, reason: str) -> None:
        if self._failure[0] == reason:
            self._failure = (reason, self._failure[1] + 1)
            return
        self._tell_failures()
        self._failure = (reason, 1)
        self.sink("connect_failed", {"session": hex_id(self.session), "reason": reason, "attempts": 1})

    def _tell_failures(self) -> None:
        reason, attempts = self._failure
        self._failure = ("", 0)
        if attempts > 1:
            fields = {"session": hex_id(self.session), "reason": reason, "attempts": attempts}
            self.sink("connect_failed", fields)

    def _drop_socket(self) -> None:
        if self._sock is not None:
            self._sock.close()
        self._sock = None
        self._out.clear()
        self._in.clear()


def _os_error(code: int | None) -> str:
    return os.strerror(code or 0)
