"""Hold one connection to a broker that carries one request at a time, each within a deadline.

Format: Kafka protocol guide, request header v1: size, API key, version, correlation id, client id. The answer
begins with its size and the correlation id.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field

from zkmigrate.kafka.clients.login import Login, authenticate, secure

_CLIENT_ID = b"zkmigrate-canary"
_ANSWER_LIMIT = 1 << 20


@dataclass
class BrokerConnection:
    """A connection to one broker that is opened on demand.

    login: how to log in when it is opened. lock: the caller must hold it, because only one thread at a time
    may use the connection. answered: the time of the last good answer on the monotonic clock, or None before
    the first; the caller sets it.
    """

    address: str
    port: int
    login: Login = dict
    lock: threading.Lock = field(default_factory=threading.Lock)
    answered: float | None = None
    _socket: socket.socket | None = None
    _correlation: int = 0

    def ask(self, key: int, version: int, body: bytes, end: float) -> bytes:
        """Send a request and return its answer after the correlation id.

        end: deadline on the monotonic clock. A connection that the broker has closed is reopened once. Raises
        OSError, SecretError, or ValueError for a malformed answer or a refused login. The caller must then
        call ``drop``, because later data on the connection answers another request.
        """
        if self._socket is not None:
            try:
                return self._round_trip(self._socket, key, version, body, end)
            except TimeoutError:
                raise
            except OSError:
                self.drop()  # brokers close idle connections: try a new one
        return self._round_trip(self._connect(end), key, version, body, end)

    def _connect(self, end: float) -> socket.socket:
        settings = self.login()
        self._socket = socket.create_connection((self.address, self.port), timeout=_left(end))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock = secure(self._socket, self.address, settings)
        authenticate(lambda key, version, body: self._round_trip(sock, key, version, body, end), settings)
        return sock

    def drop(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            with closing(self._socket):
                self._socket = None

    def _round_trip(self, sock: socket.socket, key: int, version: int, body: bytes, end: float) -> bytes:
        self._correlation += 1
        header = struct.pack(">hhih", key, version, self._correlation, len(_CLIENT_ID)) + _CLIENT_ID
        sock.settimeout(_left(end))
        sock.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        (size,) = struct.unpack(">i", _receive(sock, 4, end))
        if not 4 <= size <= _ANSWER_LIMIT:
            raise ValueError(
                f"the answer claims {size} bytes, which no answer to this request has. Check that this is "
                "a broker"
            )
        answer = _receive(sock, size, end)
        (correlation,) = struct.unpack(">i", answer[:4])
        if correlation != self._correlation:
            raise ValueError(f"received the answer to request {correlation}, expected {self._correlation}")
        return answer[4:]


def _receive(sock: socket.socket, length: int, end: float) -> bytes:
    data = bytearray()
    while len(data) < length:
        sock.settimeout(_left(end))
        part = sock.recv(length - len(data))
        if not part:
            raise ConnectionResetError("the connection was closed without an answer")
        data += part
    return bytes(data)


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
