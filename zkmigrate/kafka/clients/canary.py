"""Measure a round trip to each broker, so that the watch knows whether its request handlers answer.

Metadata proves nothing, because it comes from a cache while ZooKeeper is away. A handler thread must answer
ApiVersions, which needs no rights and leaves no trace. Format: Kafka protocol guide, ApiVersions v0.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from zkmigrate.hosts.transport.failure import socket_text
from zkmigrate.kafka.clients.login import Login
from zkmigrate.kafka.clients.wire import BrokerConnection
from zkmigrate.runbook.model.look import Pulse
from zkmigrate.secret import SecretError

_API_VERSIONS = 18


class BrokerCanary:
    """A canary that keeps one connection to each broker open.

    brokers: name → (address, port). A broker answers ApiVersions before the login in another thread, so the
    canary logs in first.
    """

    def __init__(self, brokers: Mapping[str, tuple[str, int]], login: Login = dict) -> None:
        self._connections = {
            name: BrokerConnection(address, port, login) for name, (address, port) in brokers.items()
        }

    def ask(self, broker: str, deadline_s: float) -> Pulse:
        """Measure one round trip to one broker; a broken connection is reopened once, within the deadline."""
        connection = self._connections[broker]
        with connection.lock:
            asked = time.monotonic()
            try:
                apis = _apis(connection.ask(_API_VERSIONS, 0, b"", asked + deadline_s))
            except (OSError, ValueError, SecretError) as error:
                connection.drop()
                why = socket_text(error) if isinstance(error, OSError) else str(error)
                age = None if connection.answered is None else time.monotonic() - connection.answered
                return Pulse(age, f"{connection.address}:{connection.port}: {why}")
            connection.answered = time.monotonic()
            return Pulse(0.0, took_s=connection.answered - asked, apis=apis)

    def ask_all(self, deadline_s: float) -> dict[str, Pulse]:
        """Measure one round trip to every broker, in parallel."""
        names = list(self._connections)
        with ThreadPoolExecutor(max(1, min(16, len(names))), "canary") as pool:
            return dict(zip(names, pool.map(lambda name: self.ask(name, deadline_s), names), strict=True))

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            with connection.lock:
                connection.drop()


def _apis(body: bytes) -> dict[int, tuple[int, int]]:
    """Return the API versions in an answer: API key → (lowest, highest version).

    Format of ApiVersions v0: an error code, an array's length, then key, lowest and highest version of each.
    Raises ValueError for an error code or a malformed answer.
    """
    error, count = struct.unpack(">hi", body[:6]) if len(body) >= 6 else (0, -1)
    if error:
        raise ValueError(f"the broker returned error {error}")
    if count < 0 or len(body) != 6 + 6 * count:
        raise ValueError("the ApiVersions response has a wrong length")
    return {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", body[6:])}
