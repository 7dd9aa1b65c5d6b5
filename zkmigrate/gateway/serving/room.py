"""The memory that clients may fill: by address, and all together.

Counted is what a connection keeps of messages that are not over: of a request that is read whole, and of an
answer that is changed or that its client does not take. Up to ``LARGE`` bytes a connection has for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from zkmigrate.gateway.rules.layout import FrameError

LARGE = 1 << 16
TOTAL, SHARE = 64 << 20, 16 << 20
"""The most bytes of all, and of one address. The one that came first may fill more, so that it ends."""
CROWDED_S = 5.0
"""Whoever holds bytes for so long, while others wait for room, loses its connection."""
AGAIN_S = 1.0
"""Between two looks for room."""
ASKED = 16
"""So many of those that wait ask again in a turn of the loop."""


class Holder(Protocol):
    """A client's connection."""

    peer: str

    def go_on(self) -> None:
        """There may be room: ask again."""

    def stop(self, error: FrameError) -> None:
        """End it at once, and tell why."""


class Room:
    """Who holds how many bytes. now: a clock, in seconds. later: calls a function after so many seconds."""

    def __init__(
        self, now: Callable[[], float], later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        self._now, self._later = now, later
        self.held: dict[Holder, tuple[int, float]] = {}
        """Bytes, and since when, of each connection, the first one first."""
        self._of: dict[str, dict[Holder, None]] = {}
        """The same connections by address."""
        self._bytes: Counter[str] = Counter()
        self._total = 0
        self._waiting: dict[Holder, None] = {}
        self._round, self._timed = 0, False

    @property
    def total(self) -> int:
        """The bytes of all."""
        return self._total

    @property
    def narrow(self) -> bool:
        """Whether connections are to read little at a time."""
        return self._total > TOTAL // 2

    def keep(self, one: Holder, count: int) -> None:
        """A connection keeps so many bytes now."""
        before, since = self.held.get(one, (0, 0.0))
        count = count if count > LARGE else 0
        if count == before:
            return
        self._total += count - before
        self._bytes[one.peer] += count - before
        if count:
            self.held[one] = count, since if before else self._now()
            self._of.setdefault(one.peer, {})[one] = None
            return
        del self.held[one], self._of[one.peer][one]
        if not self._of[one.peer]:
            del self._of[one.peer], self._bytes[one.peer]
        self._wake()

    def _wake(self) -> None:
        """Let each connection that waits now ask again, a few in a turn of the loop."""
        running, self._round = self._round > 0, len(self._waiting)
        if self._round and not running:
            self._later(0.0, self._ask)

    def _ask(self) -> None:
        for one in list(islice(self._waiting, min(ASKED, self._round))):
            self._waiting.pop(one, None)
            one.go_on()
        self._round = min(max(0, self._round - ASKED), len(self._waiting))
        if self._round:
            self._later(0.0, self._ask)

    def _look(self) -> None:
        self._timed = False
        self._wake()

    def may(self, one: Holder) -> bool:
        """Whether a connection may read on; else it waits for :meth:`Holder.go_on`."""
        first = self._first(one)
        if first is not None and self._now() - self.held[first][1] >= CROWDED_S:
            first.stop(FrameError("memory", "it held bytes for too long while others waited for room"))
            first = self._first(one)
        if first is None:
            return True
        self._waiting[one] = None
        if not self._timed:
            self._timed = True
            self._later(AGAIN_S, self._look)
        return False

    def _first(self, one: Holder) -> Holder | None:
        """Return the connection that may fill more before this one; None if this one may."""
        if self._total <= TOTAL and self._bytes[one.peer] <= SHARE:
            return None
        first = next(iter(self.held if self._total > TOTAL else self._of.get(one.peer, {})), one)
        return None if first is one else first

    def left(self, one: Holder) -> None:
        """A connection has ended."""
        self._waiting.pop(one, None)
        self.keep(one, 0)
