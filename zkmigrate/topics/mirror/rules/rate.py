"""Limits the rate of copying by a token bucket."""

from __future__ import annotations

from dataclasses import dataclass, replace

UNLIMITED = 1e18
"""A rate in bytes per second that no network reaches."""
BURST_S = 1.0
"""The capacity of the bucket, in seconds at its rate."""


@dataclass(frozen=True)
class Bucket:
    """A token bucket for bytes.

    rate: bytes per second. held: the bytes that may be sent now; below 0 after a batch larger than that. at:
    the time of ``held``, in seconds of a monotonic clock.
    """

    rate: float
    held: float
    at: float

    def later(self, now: float) -> Bucket:
        """Return the bucket at a later time."""
        held = self.held + (now - self.at) * self.rate
        return Bucket(self.rate, min(held, self.rate * BURST_S), now)

    def less(self, count: int) -> Bucket:
        """Return the bucket after ``count`` bytes were sent."""
        return replace(self, held=self.held - count)

    @property
    def wait_s(self) -> float:
        """Seconds until something may be sent again, even a batch larger than the bucket; 0 for now."""
        return max(0.0, -self.held / self.rate)


def full(rate: float, now: float) -> Bucket:
    """Return a full bucket."""
    return Bucket(rate, rate * BURST_S, now)
