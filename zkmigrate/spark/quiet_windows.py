"""Find when a subtree is quiet: the transactions to expect in a window, by the minute of the week.

A window begins with every minute of the log (of a short log: every second), and the transactions in the
window are counted. A minute that is only partly in the window is counted in proportion. The expected number
for an hour of the week is the mean over the windows that begin in this hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

MINUTES_OF_A_WEEK = 7 * 24 * 60
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_THURSDAY = 3 * 24 * 60
"""The minutes from Monday to 1970-01-01, a Thursday."""


@dataclass(frozen=True)
class Hour:
    """An hour of the week, 0 to 167 from Monday 00:00 UTC.

    expected: the mean number of transactions of the windows that begin in this hour. worst: the largest
    number in one window. none: the share of windows without a transaction. seen: the number of windows.
    minute: the minute of the hour with the smallest mean. at_minute: the mean of this minute.
    """

    hour: int
    expected: float
    worst: float
    none: float
    seen: int
    minute: int
    at_minute: float

    @property
    def name(self) -> str:
        """The hour as text, such as ``Mon 03:00``."""
        return f"{_DAYS[self.hour // 24]} {self.hour % 24:02}:00"


def hours(counts: Mapping[int, int], first: int, last: int, window_s: int, step_s: int = 60) -> list[Hour]:
    """Return the hours of a week that the log covers, quietest first; only complete windows are used.

    counts: transactions by the number of the step since 1970, 0 if absent. first, last: the steps that the
    log covers, inclusive. window_s: the seconds of a window. step_s: the seconds of a step, 60 or a divisor
    of 60.
    """
    whole, rest = divmod(window_s, step_s)
    taken = whole + (rest > 0)
    before = list(accumulate((counts.get(step, 0) for step in range(first, last + 1)), initial=0))
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
    every = [_hour(hour, windows) for hour, windows in by_hour.items()]
    return sorted(every, key=lambda hour: (hour.expected, hour.worst, hour.hour))


def _hour(hour: int, windows: Mapping[int, list[float]]) -> Hour:
    every = [value for found in windows.values() for value in found]
    means = {minute: sum(found) / len(found) for minute, found in windows.items()}
    best = min(means, key=lambda minute: (means[minute], max(windows[minute]), minute))
    none = sum(value == 0 for value in every) / len(every)
    return Hour(hour, sum(every) / len(every), max(every), none, len(every), best, means[best])
