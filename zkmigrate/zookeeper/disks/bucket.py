"""A token bucket: no more than so many bytes a second, however many files and hosts they come from."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """``now`` in monotonic seconds; ``pause`` may return early."""

    def now(self) -> float: ...
    def pause(self, seconds: float) -> None: ...


class Bucket:
    """In any stretch of T seconds no more than burst + rate * T bytes begin to be read.

    rate: bytes a second; 0: no limit. burst: bytes that may come at once after a rest. A read larger than
    that is let through when all of it has been earned.
    """

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._at = clock.now()

    def take(self, count: int) -> None:
        """Wait for the turn of a read of so many bytes. Where the pause returns early, the next one waits for
        the rest."""
        if self._rate <= 0:
            return
        now = self._clock.now()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate) - count
        self._at = now
        if self._tokens < 0:
            self._clock.pause(-self._tokens / self._rate)

    def give_back(self, count: int) -> None:
        """Bytes that were taken and not read, since the file ended."""
        self._tokens = min(float(self._burst), self._tokens + count)
