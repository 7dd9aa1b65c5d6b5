"""Limit a rate with a token bucket."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """A bucket that gains ``rate`` tokens per second and is full at first.

    In any T seconds at most burst + rate * T tokens are taken, plus one call of ``take``. A call may take
    more than the bucket holds; the next call then waits until all of those tokens are gained.

    rate: tokens per second; 0 for no limit. burst: the most tokens that the bucket holds. now: returns the
    time in seconds. pause: sleeps for some seconds.
    """

    def __init__(
        self,
        rate: float,
        burst: float,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._now = now
        self._pause = pause
        self._tokens = burst
        self._at = now()

    @property
    def wait_s(self) -> float:
        """The seconds until tokens may be taken again, however many; 0 if they may be taken now."""
        self._earn()
        return max(0.0, -self._tokens / self._rate) if self._rate > 0 else 0.0

    def spend(self, count: float) -> None:
        """Take tokens without waiting."""
        self._earn()
        self._tokens -= count

    def take(self, count: float) -> None:
        """Take tokens, and wait until they are gained. If the pause returns early, the next one is longer."""
        self.spend(count)
        if wait_s := self.wait_s:
            self._pause(wait_s)

    def give_back(self, count: float) -> None:
        """Return tokens that were not used."""
        self._tokens += count

    def _earn(self) -> None:
        now = self._now()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
