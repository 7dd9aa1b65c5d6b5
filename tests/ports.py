"""Ports for servers that tests start."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

_LEAST, _TRIES = 10_000, 1000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_RANDOM = random.SystemRandom()
"""Hypothesis seeds the other one, so that each worker would choose the same ports."""

_GIVEN: set[int] = set()
"""The ports of this process. None is given twice: a configuration may hold it before a server does."""


def free_port() -> int:
    """Return a port that nobody listens on and no other test process has got.

    It lies below those that Linux gives to outgoing connections: one of these could be taken by any client
    before the server begins.
    """
    first = int(_RANGE.read_text().split()[0])
    for _ in range(_TRIES):
        port = _RANDOM.randrange(_LEAST, first)
        if port in _GIVEN or not _claim(port):
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
            _GIVEN.add(port)
            return port
    raise AssertionError(f"no free port from {_LEAST} to {first}")


def _claim(port: int) -> bool:
    """Lock this port's byte of a file that all test processes share, until this process ends."""
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _claims() -> int:
    """Open the file of claims, once: closing it would end this process's locks."""
    return os.open(Path(tempfile.gettempdir()) / "zkmigrate-test-ports", os.O_RDWR | os.O_CREAT, 0o600)
