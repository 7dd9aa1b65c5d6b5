"""When the next operation is due, at a steady rate that does not try to catch up after a stall."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Pace:
    """Yields due times at ``rate`` per second.

    After a stall the lost operations are not sent in a burst: that would be unwanted load at the worst
    moment.
    """

    rate: float
    next_ns: int

    @property
    def _interval_ns(self) -> int:
        return int(1e9 / self.rate)

    def take(self, now_ns: int) -> bool:
        """True when one operation is due at ``now_ns``; counts it as taken."""
        if now_ns < self.next_ns:
            return False
        self.next_ns = max(self.next_ns, now_ns - self._interval_ns) + self._interval_ns
        return True
