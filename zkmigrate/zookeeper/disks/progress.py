"""Progress lines for long reads, one every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

from zkmigrate.zookeeper.data.sums import ReportProgress


class Interval:
    """A limit of one progress line in `every_s` seconds. clock: returns a time in seconds."""

    def __init__(self, every_s: float = 3.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._began = self._last = clock()

    def due(self) -> bool:
        """Return whether the next line is due. If it is, the interval starts again."""
        now = self._clock()
        if now - self._last < self._every_s:
            return False
        self._last = now
        return True

    @property
    def elapsed_s(self) -> float:
        """The seconds since this object was created."""
        return self._clock() - self._began


class ProgressLines:
    """Progress lines for reading disks. say: receives the lines."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._interval = Interval()

    def of(self, name: str = "") -> ReportProgress:
        """Return the function that reports progress on one disk.

        name: the disk's name for the lines; "" if there is only one disk.
        """

        def tell(what: str, done: int, total: int | None) -> None:
            if self._interval.due():
                of = "" if total is None else f" of {total}"
                server = f"{name}: " if name else ""
                self._say(f"{server}{done}{of} {what} read, {self._interval.elapsed_s:.0f} s")

        return tell
