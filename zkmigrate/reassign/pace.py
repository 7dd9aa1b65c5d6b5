"""How long the rest takes at the pace of the last minutes. Pure: a time is seconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass

SPAN_S, APART_S, LEAST_S = 1800.0, 10.0, 60.0
"""The minutes that count, the time between two looks that are kept, and how long a pace must have lasted."""


@dataclass(frozen=True)
class Pace:
    """looks: when it was, and how many bytes were left then, oldest first."""

    looks: tuple[tuple[float, int], ...] = ()

    def seen(self, at: float, left: int) -> Pace:
        """With one more look. Bytes that became more, as after a cancelled move, begin a pace anew."""
        kept = tuple(look for look in self.looks if at - SPAN_S <= look[0] <= at and look[1] >= left)
        if kept and at - kept[-1][0] < APART_S:
            return Pace(kept)
        return Pace((*kept, (at, left)))

    def seconds(self, at: float, left: int) -> float | None:
        """Seconds for so many bytes; None while the pace is not known."""
        if not self.looks:
            return None
        took, copied = at - self.looks[0][0], self.looks[0][1] - left
        return left * took / copied if took >= LEAST_S and copied > 0 else None
