"""A round trip to each broker, for the watch: does its request handler still answer, and if not, since when.

Metadata that brokers give while ZooKeeper is away cannot change and proves nothing (it comes from a cache); a
request that a handler thread has to answer does. ApiVersions is such a request, needs no rights and leaves no
trace. Format: Kafka protocol guide, ApiVersions v0.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from zkmigrate.hosts.transport.failure import socket_text
from zkmigrate.kafka.clients.wire import Wire
from zkmigrate.model.look import Pulse

_API_VERSIONS = 18


class BrokerCanary:
    """Holds one connection to each broker open; ``brokers`` maps names to address and port."""

    def __init__(self, brokers: Mapping[str, tuple[str, int]]) -> None:
        self._held = {name: Wire(address, port) for name, (address, port) in brokers.items()}

    def ask(self, broker: str, deadline_s: float) -> Pulse:
        """One round trip to one broker; a broken connection is opened again once, within the deadline."""
        held = self._held[broker]
        with held.turn:
            asked = time.monotonic()
            try:
                apis = _apis(held.ask(_API_VERSIONS, 0, b"", asked + deadline_s))
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


def _apis(body: bytes) -> dict[int, tuple[int, int]]:
    """ApiVersions v0: an error code, an array's length, then key, smallest and largest version of each.

    ValueError for an error, or what is no such answer.
    """
    error, count = struct.unpack(">hi", body[:6]) if len(body) >= 6 else (0, -1)
    if error:
        raise ValueError(f"answered with error {error}")
    if count < 0 or len(body) != 6 + 6 * count:
        raise ValueError("answered an ApiVersions response of another length than it tells")
    return {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", body[6:])}
