"""The memory that clients may fill: by address, and all together.

Counted is what a connection keeps of messages that are not over: of a request that is read whole, and of an
answer that is changed or that its client does not take. Up to ``LARGE`` bytes a connection has for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from zkmigrate.gateway.rules.layout import FrameError

LARGE = 1 << 16
TOTAL, SHARE = 64 << 20, 16 << 20
"""The most bytes of all, and of one address. The one that came first may fill more, so that it ends."""
CROWDED_S = 5.0
"""Whoever holds bytes for so long, while others wait for room, loses its connection."""
AGAIN_S = 1.0
"""Between two looks for room."""


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
        self._of: Counter[str] = Counter()
        self._total = 0
        self._waiting: dict[Holder, None] = {}

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
        self._of[one.peer] += count - before
        if count:
            self.held[one] = count, since if before else self._now()
            return
        del self.held[one]
        if not self._of[one.peer]:
            del self._of[one.peer]
        self._ask()

    def _ask(self) -> None:
        """Let all that wait ask again."""
        waiting, self._waiting = self._waiting, {}
        for one in waiting:
            one.go_on()

    def may(self, one: Holder) -> bool:
        """Whether a connection may read on; else it waits for :meth:`Holder.go_on`."""
        if self._total <= TOTAL and self._of[one.peer] <= SHARE:
            return True
        own = [other for other in self.held if other.peer == one.peer]
        first = next(iter(self.held), one) if self._total > TOTAL else next(iter(own), one)
        if first is one:
            return True
        if self._now() - self.held[first][1] >= CROWDED_S:
            first.stop(FrameError("memory", "it held bytes for too long while others waited for room"))
            return self.may(one)
        if not self._waiting:
            self._later(AGAIN_S, self._ask)
        self._waiting[one] = None
        return False

    def left(self, one: Holder) -> None:
        """A connection has ended."""
        self._waiting.pop(one, None)
        self.keep(one, 0)
