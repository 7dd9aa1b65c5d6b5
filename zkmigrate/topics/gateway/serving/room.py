"""Limit the memory that clients use, for each address and in total.

The limits apply to the bytes that a connection keeps of unfinished messages. These are requests that are read
whole, and answers that are changed or that the client does not read. A connection with up to ``FREE`` bytes
may always read more. A connection whose address has up to ``LARGE`` bytes may read more until ``SPARE`` is
used up too. Connections whose broker has answered nothing except logins have smaller limits of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from zkmigrate.topics.gateway.rules.layout import FrameError
from zkmigrate.topics.gateway.serving.buffer import FEWEST, LEAST, VIEW

FREE, LARGE = LEAST, 1 << 16
TOTAL, SHARE, SPARE = 64 << 20, 16 << 20, 32 << 20
"""Three limits in bytes: in total, for one address, and beyond the total for addresses with few bytes.

The connection that has held bytes for the longest time may exceed these limits, so that it can finish.
"""
CROWD = 4
"""The factor by which limits are smaller for connections that no broker has served yet."""
CROWDED_S = 5.0
"""Seconds after which a connection that holds bytes is closed, if other connections wait for memory."""
AGAIN_S = 1.0
"""Seconds until a connection that waits for memory checks the limits again."""
ASKED = 16
"""The most connections that check the limits again in one turn of the event loop."""


class Holder(Protocol):
    """A client's connection, which holds bytes in memory.

    share: the block of addresses that has a common limit, as ``crowd.share`` returns it.
    """

    share: str

    def go_on(self) -> None:
        """Check the limits again, and resume reading if they allow more bytes."""

    def stop(self, error: FrameError) -> None:
        """Log and count an error, and close the connection at once."""


class Room:
    """Counts how many bytes of memory each connection holds, and limits them.

    now: a function that returns the time in seconds. later: a function that calls another function after a
    number of seconds. wide: the buffer that connections read into while there is much memory left. part: the
    factor by which all limits are smaller.
    """

    def __init__(
        self,
        now: Callable[[], float],
        later: Callable[[float, Callable[[], None]], object],
        wide: memoryview = VIEW,
        part: int = 1,
    ) -> None:
        self._now, self._later = now, later
        self.view = self._wide = wide
        """The buffer to read into, which is only a small part of ``wide`` once half of all bytes are used."""
        self._part = part
        self.held: dict[Holder, float] = {}
        """The connections with more than ``FREE`` bytes, the oldest first, each with the time when it
        exceeded them."""
        self._of: dict[str, dict[Holder, None]] = {}
        """The connections in ``held`` by address block, the oldest first."""
        self._kept: dict[Holder, int] = {}
        self._bytes: Counter[str] = Counter()
        self._total = 0
        self._waiting: dict[Holder, None] = {}
        self._round, self._timed = 0, False

    @property
    def total(self) -> int:
        """The bytes that all connections hold."""
        return self._total

    def keep(self, one: Holder, count: int) -> None:
        """Record how many bytes a connection holds now."""
        before = self._kept.pop(one, 0)
        if count:
            self._kept[one] = count
        if count == before:
            return
        self._total += count - before
        self.view = FEWEST if self._total * self._part > TOTAL // 2 else self._wide
        self._bytes[one.share] += count - before
        if not self._bytes[one.share]:
            del self._bytes[one.share]
        if count > FREE:
            if one not in self.held:
                self.held[one] = self._now()
                self._of.setdefault(one.share, {})[one] = None
        elif one in self.held:
            del self.held[one], self._of[one.share][one]
            if not self._of[one.share]:
                del self._of[one.share]
            self._wake()

    def _wake(self) -> None:
        """Let all waiting connections check the limits again, a few of them in each turn of the loop."""
        running, self._round = self._round > 0, len(self._waiting)
        if self._round and not running:
            self._later(0.0, self._ask)

    def _ask(self) -> None:
        try:
            for _ in range(min(ASKED, self._round, len(self._waiting))):
                self._round -= 1
                one = next(iter(self._waiting))
                del self._waiting[one]
                one.go_on()
        finally:  # an error in one connection must not keep the others waiting
            self._round = min(self._round, len(self._waiting))
            if self._round:
                self._later(0.0, self._ask)

    def _look(self) -> None:
        self._timed = False
        self._wake()

    def may(self, one: Holder) -> bool:
        """Return True if a connection may read more bytes.

        Otherwise the connection's method :meth:`Holder.go_on` is called later. This closes the connection
        that has held bytes longest, if it has held them for ``CROWDED_S`` seconds.
        """
        first = self._first(one)
        if first is not None and self._now() - self.held[first] >= CROWDED_S:
            first.stop(
                FrameError("memory", "the connection used memory for too long while others waited for memory")
            )
            first = self._first(one)
        if first is None:
            return True
        self._waiting[one] = None
        if not self._timed:
            self._timed = True
            self._later(AGAIN_S, self._look)
        return False

    def _first(self, one: Holder) -> Holder | None:
        """Return the older connection that a connection has to wait for, or None if it need not wait."""
        own, total = self._bytes[one.share] * self._part, self._total * self._part
        full = total > (TOTAL + SPARE if own <= LARGE else TOTAL)
        if self._kept.get(one, 0) <= FREE or not (full or own > SHARE):
            return None
        first = next(iter(self.held if full else self._of.get(one.share, {})), one)
        return None if first is one else first

    def release(self, one: Holder) -> None:
        """Release all bytes of a connection, because the connection has ended."""
        self._waiting.pop(one, None)
        self.keep(one, 0)
