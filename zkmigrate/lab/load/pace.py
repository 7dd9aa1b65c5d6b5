"""Compute when the next operation is due, at a rate that may change according to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Pace:
    """A schedule of operations at ``rate`` per second.

    After a stall, one missed operation is made up for and the others are skipped, because a burst would be
    unwanted load at the worst moment. next_ns: when the next operation is due (CLOCK_MONOTONIC).
    """

    rate: float
    next_ns: int

    @property
    def _interval_ns(self) -> int:
        return int(1e9 / self.rate)

    def take(self, now_ns: int) -> bool:
        """Return whether an operation is due at ``now_ns``, and if so schedule the next one."""
        if now_ns < self.next_ns:
            return False
        self.next_ns = max(self.next_ns, now_ns - self._interval_ns) + self._interval_ns
        return True

    def change(self, rate: float, now_ns: int) -> None:
        """Change the rate. The next operation is due at most one new interval after ``now_ns``."""
        self.rate = rate
        self.next_ns = min(self.next_ns, now_ns + self._interval_ns)


def planned_step(steps: Sequence[tuple[float, float]], elapsed_s: float, *, repeat: bool) -> int:
    """Return the number of the plan's step at ``elapsed_s`` seconds after its beginning, counted from 0.

    steps: (seconds, rate per second) of each step, at least one. After the end of the plan the last step
    applies, or with ``repeat`` the plan begins again.
    """
    whole_s = sum(seconds for seconds, _ in steps)
    left_s = elapsed_s % whole_s if repeat else elapsed_s
    for number, (seconds, _) in enumerate(steps):
        if left_s < seconds:
            return number
        left_s -= seconds
    return len(steps) - 1
