"""Ports for servers that tests start."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_LEAST, _TRIES = 10_000, 1000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_RANDOM = random.SystemRandom()
"""Hypothesis seeds the other one, so that each worker would choose the same ports."""


def free_port() -> int:
    """A port that nobody listens on, below those that Linux gives to outgoing connections: one of these could
    be taken by any client before the server begins."""
    first = int(_RANGE.read_text().split()[0])
    for _ in range(_TRIES):
        port = _RANDOM.randrange(_LEAST, first)
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
            return port
    raise AssertionError(f"no free port from {_LEAST} to {first}")
