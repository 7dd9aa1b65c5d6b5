"""Limit the time that a client has to finish a login, a request or the reading of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TLS_S, LOGIN_S, FRAME_S, TAKE_S, DRAIN_S = 10.0, 30.0, 60.0, 60.0, 60.0
"""Time limits in seconds.

TLS_S: from the connection to the end of the handshake of TLS. LOGIN_S: from the connection to the first
request that is not a login. FRAME_S: from the first byte of a request to its last byte. TAKE_S: for a client
to read an answer. DRAIN_S: for the answers to the requests of a client that has left.
"""
HELD_S = 1.0
"""After the gate of the application closed: seconds for the rest of a request, and for all its answers."""


def limit(what: str) -> float:
    """Return a time limit in seconds by its name: tls, login, frame, take, drain or held."""
    limits = {
        "tls": TLS_S,
        "login": LOGIN_S,
        "frame": FRAME_S,
        "take": TAKE_S,
        "drain": DRAIN_S,
        "held": HELD_S,
    }
    return limits[what]


class Times:
    """The time limits of one connection.

    late: a function that is called with the name of a time limit when that limit has passed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, late: Callable[[str], None]) -> None:
        self._loop, self._late = loop, late
        self.by: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, what: str) -> None:
        """Start a time limit by its name, unless it runs already."""
        if what not in self.by:
            self._set(what, self._loop.time() + limit(what))

    def hurry(self, what: str) -> None:
        """If a time limit runs, let it end ``HELD_S`` seconds from now at the latest."""
        if what in self.by:
            self._set(what, min(self.by[what], self._loop.time() + HELD_S))

    def over(self, what: str) -> None:
        """Stop a time limit, because the client was in time."""
        self.by.pop(what, None)

    def end(self) -> None:
        """Stop all time limits."""
        self.by.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, what: str, when: float) -> None:
        self.by[what] = when
        if self._timer is None or when < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(when, self._due)

    def _due(self) -> None:
        self._timer = None
        now = self._loop.time() + 0.001  # a loop's clock may go in steps
        for what, when in list(self.by.items()):
            if when <= now:
                del self.by[what]
                self._late(what)
        if self.by:
            self._timer = self._loop.call_at(min(self.by.values()), self._due)
