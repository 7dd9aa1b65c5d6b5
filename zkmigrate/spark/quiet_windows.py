"""When a subtree is quiet: the writes to expect in a window, by the minute of the week in which it begins.

Every minute that the log covers, of a short log every second, is taken as the beginning of a window, and the
transactions in it counted; a minute that a window takes only in part counts in proportion. Windows that begin
in the same hour of the week are taken together: what is to be expected is their mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

MINUTES_OF_A_WEEK = 7 * 24 * 60
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_THURSDAY = 3 * 24 * 60
"""1970-01-01 was one; Monday is the first day here."""


@dataclass(frozen=True)
class Hour:
    """An hour of the week, 0 to 167 from Monday 00:00 UTC. expected: transactions in a window that begins in
    it, on average over `seen` windows; worst: in one of them; none: the share of windows without any. minute:
    of the hour, at which windows held fewest, and what is to be expected there."""

    hour: int
    expected: float
    worst: float
    none: float
    seen: int
    minute: int
    at_minute: float

    @property
    def name(self) -> str:
        """Such as ``Mon 03:00``."""
        return f"{_DAYS[self.hour // 24]} {self.hour % 24:02}:00"


def hours(counts: Mapping[int, int], first: int, last: int, window_s: int, step_s: int = 60) -> list[Hour]:
    """The hours of a week that the log covers, quietest first.

    counts: transactions by stretches of `step_s` seconds since the epoch, those without any may be absent;
    first, last: the stretches that the log covers, inclusive. step_s: 60 or a part of it. Only whole windows
    inside of what is covered are taken; none where that is shorter."""
    whole, rest = divmod(window_s, step_s)
    taken = whole + (rest > 0)
    before = list(accumulate((counts.get(stretch, 0) for stretch in range(first, last + 1)), initial=0))
    by_minute: dict[int, list[float]] = {}
    for n in range(last - first + 2 - taken):
        inside = float(before[n + whole] - before[n])
        if rest:
            inside += (before[n + taken] - before[n + whole]) * rest / step_s
        minute = ((first + n) * step_s // 60 + _THURSDAY) % MINUTES_OF_A_WEEK
        by_minute.setdefault(minute, []).append(inside)
    by_hour: dict[int, dict[int, list[float]]] = {}
    for minute, found in by_minute.items():
        by_hour.setdefault(minute // 60, {})[minute % 60] = found
    every = [_hour(hour, of) for hour, of in by_hour.items()]
    return sorted(every, key=lambda hour: (hour.expected, hour.worst, hour.hour))


def _hour(hour: int, of: Mapping[int, list[float]]) -> Hour:
    every = [value for found in of.values() for value in found]
    means = {minute: sum(found) / len(found) for minute, found in of.items()}
    best = min(means, key=lambda minute: (means[minute], max(of[minute]), minute))
    none = sum(value == 0 for value in every) / len(every)
    return Hour(hour, sum(every) / len(every), max(every), none, len(every), best, means[best])
