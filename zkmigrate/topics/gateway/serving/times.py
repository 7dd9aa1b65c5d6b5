"""Limit the time in which a client has to finish a login, a request or the reading of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LOGIN_S, FRAME_S, TAKE_S, DRAIN_S = 30.0, 60.0, 60.0, 60.0
"""Time limits in seconds.

LOGIN_S: from connecting to the first request that is not a login. FRAME_S: from a request's first byte to its
last. TAKE_S: for a client to read an answer. DRAIN_S: for the answers to requests of a client that left.
"""
HELD_S = 1.0
"""Seconds for the rest of a request, and for all answers together, once the application's gate has closed."""


def limit(what: str) -> float:
    """Return the time limit in seconds of login, frame, take, drain or held."""
    return {"login": LOGIN_S, "frame": FRAME_S, "take": TAKE_S, "drain": DRAIN_S, "held": HELD_S}[what]


class Times:
    """The time limits of one connection. late: is called with the name of a limit that has passed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, late: Callable[[str], None]) -> None:
        self._loop, self._late = loop, late
        self.by: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, what: str) -> None:
        """Start a time limit, unless it runs already."""
        if what not in self.by:
            self._set(what, self._loop.time() + limit(what))

    def hurry(self, what: str) -> None:
        """Shorten a time limit that runs to ``HELD_S`` seconds from now."""
        if what in self.by:
            self._set(what, min(self.by[what], self._loop.time() + HELD_S))

    def over(self, what: str) -> None:
        """Stop a time limit, because its work is done."""
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
