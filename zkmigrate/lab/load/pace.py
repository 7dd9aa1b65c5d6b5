"""When the next operation is due, at a rate that may change by plan and does not catch up after a stall."""

from __future__ import annotations

from collections.abc import Sequence
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

    def change(self, rate: float, now_ns: int) -> None:
        """Go on at another rate. An operation that the old one made due late is due by the new one."""
        self.rate = rate
        self.next_ns = min(self.next_ns, now_ns + self._interval_ns)


def planned_step(steps: Sequence[tuple[float, float]], elapsed_s: float, *, repeat: bool) -> int:
    """Which step of a plan holds so long after its beginning, counted from 0.

    steps: (seconds, rate per second), at least one. After the last one: that one holds, or with ``repeat``
    the first one follows.
    """
    whole_s = sum(seconds for seconds, _ in steps)
    left_s = elapsed_s % whole_s if repeat else elapsed_s
    for number, (seconds, _) in enumerate(steps):
        if left_s < seconds:
            return number
        left_s -= seconds
    return len(steps) - 1
