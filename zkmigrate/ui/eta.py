"""How long a wait may still take, from the numbers in its progress."""

from __future__ import annotations

import re

_OF = re.compile(r"(\d+(?:\.\d+)?) of (\d+(?:\.\d+)?)")
_COUNT = re.compile(r"(\d+) ")
_LEAST_S = 3.0


class Pace:
    """Follows one wait: progress that says ``3 of 5``, or begins with a count of what is left."""

    def __init__(self) -> None:
        self._what = ""
        self._first: tuple[float, float] | None = None
        self._last: tuple[float, float] | None = None
        self.since = 0.0

    def note(self, what: str, progress: str, now: float) -> None:
        """One more look at the wait."""
        if what != self._what:
            self._what, self._first, self._last, self.since = what, None, None, now
        left = _left(progress)
        if left is None:
            return
        if self._first is None or left > self._first[1]:
            self._first = (now, left)  # it has grown: what went before says nothing
        self._last = (now, left)

    def eta_s(self, now: float) -> float | None:
        """Seconds that are left at the pace so far; None while that cannot be said."""
        if self._first is None or self._last is None:
            return None
        (began, most), (at, left) = self._first, self._last
        if at - began < _LEAST_S or left >= most:
            return None
        return max(0.0, left * (at - began) / (most - left) - (now - at))


def _left(progress: str) -> float | None:
    if found := _OF.search(progress):
        return max(0.0, float(found[2]) - float(found[1]))
    if counted := _COUNT.match(progress):
        return float(counted[1])
    return None
