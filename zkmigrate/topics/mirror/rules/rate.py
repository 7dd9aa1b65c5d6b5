"""The rate limit: a bucket that bytes run into, as many a second as may be sent."""

from __future__ import annotations

from dataclasses import dataclass, replace

UNLIMITED = 1e18
"""Bytes per second, more than any network has."""
BURST_S = 1.0
"""The bucket holds what runs into it in so many seconds."""


@dataclass(frozen=True)
class Bucket:
    """rate: bytes per second. held: bytes that may be sent now; below 0 after a batch larger than that. at:
    when that was, in seconds of a clock that only goes forward."""

    rate: float
    held: float
    at: float

    def later(self, now: float) -> Bucket:
        """The same at another time."""
        held = self.held + (now - self.at) * self.rate
        return Bucket(self.rate, min(held, self.rate * BURST_S), now)

    def less(self, count: int) -> Bucket:
        """The same after so many bytes were sent."""
        return replace(self, held=self.held - count)

    @property
    def wait_s(self) -> float:
        """Seconds until something may be sent again; 0: now. Also a batch larger than the bucket."""
        return max(0.0, -self.held / self.rate)


def full(rate: float, now: float) -> Bucket:
    """A full bucket."""
    return Bucket(rate, rate * BURST_S, now)
