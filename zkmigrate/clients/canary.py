"""A round trip to each broker, for the watch: does its request handler still answer, and if not, since when.

Metadata that brokers give while ZooKeeper is away cannot change and proves nothing (it comes from a cache); a
request that a handler thread has to answer does. ApiVersions is such a request, needs no rights and leaves no
trace. Format: Kafka protocol guide, request header v1 and ApiVersions v0.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

from zkmigrate.transport.failure import socket_text

_API_VERSIONS = 18
_CLIENT_ID = b"zkmigrate-canary"
_ANSWER_LIMIT = 1 << 20


@dataclass(frozen=True)
class Pulse:
    """One broker's answer.

    age_s: how many seconds ago the broker last answered, 0 when it did now, None when it never did. why: what
    went wrong this time, empty when nothing did. took_s: how long this answer took, with a new connection if
    one was needed. apis: the API keys that the broker offered this time, with the smallest and the largest
    version of each.
    """

    age_s: float | None
    why: str = ""
    took_s: float = 0.0
    apis: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def wrong(self) -> str:
        """What went wrong and since when, for a finding; empty when nothing did."""
        if not self.why:
            return ""
        since = "it has not answered yet" if self.age_s is None else f"last answer {self.age_s:.1f} s ago"
        return f"{self.why}; {since}"


class BrokerCanary:
    """Holds one connection to each broker open; ``brokers`` maps names to address and port."""

    def __init__(self, brokers: Mapping[str, tuple[str, int]]) -> None:
        self._held = {name: _Held(address, port) for name, (address, port) in brokers.items()}

    def ask(self, broker: str, deadline_s: float) -> Pulse:
        """One round trip to one broker; a broken connection is opened again once, within the deadline."""
        held = self._held[broker]
        with held.turn:
            asked = time.monotonic()
            try:
                apis = held.exchange(asked + deadline_s)
            except (OSError, ValueError) as error:
                held.drop()
                why = socket_text(error) if isinstance(error, OSError) else str(error)
                age = None if held.answered is None else time.monotonic() - held.answered
                return Pulse(age, f"{held.address}:{held.port}: {why}")
            held.answered = time.monotonic()
            return Pulse(0.0, took_s=held.answered - asked, apis=apis)

    def ask_all(self, deadline_s: float) -> dict[str, Pulse]:
        """One round trip to every broker, all at once."""
        names = list(self._held)
        with ThreadPoolExecutor(max(1, min(16, len(names))), "canary") as pool:
            return dict(zip(names, pool.map(lambda name: self.ask(name, deadline_s), names), strict=True))

    def close(self) -> None:
        """Close every connection."""
        for held in self._held.values():
            with held.turn:
                held.drop()


@dataclass
class _Held:
    """One broker's connection; used by one thread at a time."""

    address: str
    port: int
    turn: threading.Lock = field(default_factory=threading.Lock)
    answered: float | None = None
    _socket: socket.socket | None = None
    _correlation: int = 0

    def exchange(self, end: float) -> dict[int, tuple[int, int]]:
        """Send a request; the APIs in its answer. OSError, or ValueError for an answer that is not one."""
        if self._socket is not None:
            try:
                return self._round_trip(self._socket, end)
            except TimeoutError:
                raise
            except OSError:
                self.drop()  # the broker closes idle connections; only a fresh one tells
        self._socket = socket.create_connection((self.address, self.port), timeout=_left(end))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._round_trip(self._socket, end)

    def drop(self) -> None:
        if self._socket is not None:
            with closing(self._socket):
                self._socket = None

    def _round_trip(self, sock: socket.socket, end: float) -> dict[int, tuple[int, int]]:
        self._correlation += 1
        header = struct.pack(">hhih", _API_VERSIONS, 0, self._correlation, len(_CLIENT_ID)) + _CLIENT_ID
        sock.settimeout(_left(end))
        sock.sendall(struct.pack(">i", len(header)) + header)
        (size,) = struct.unpack(">i", _receive(sock, 4, end))
        if not 6 <= size <= _ANSWER_LIMIT:
            raise ValueError(f"answered {size} bytes, which is no ApiVersions response: is this a broker?")
        body = _receive(sock, size, end)
        correlation, error = struct.unpack(">ih", body[:6])
        if correlation != self._correlation or error != 0:
            raise ValueError(
                f"answered request {correlation} with error {error}, asked was {self._correlation}"
            )
        return _apis(body[6:])


def _apis(body: bytes) -> dict[int, tuple[int, int]]:
    """The array of ApiVersions v0: its length, then key, smallest and largest version of each. ValueError."""
    count = struct.unpack(">i", body[:4])[0] if len(body) >= 4 else -1
    if count < 0 or len(body) != 4 + 6 * count:
        raise ValueError("answered an ApiVersions response of another length than it tells")
    return {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", body[4:])}


def _receive(sock: socket.socket, length: int, end: float) -> bytes:
    data = bytearray()
    while len(data) < length:
        sock.settimeout(_left(end))
        part = sock.recv(length - len(data))
        if not part:
            raise ConnectionResetError("connection closed without an answer")
        data += part
    return bytes(data)


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
