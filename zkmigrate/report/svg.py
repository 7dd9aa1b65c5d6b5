"""Map time to pixels on an axis that leaves idle times out, and name the colours of the drawings over it.

The colours are those of Okabe and Ito (Color Universal Design), for people who see fewer colours. Bars and
tooltips also name the state.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from zkmigrate.runbook.model.report import clock

TEXT = "#1a1a1a"
"""The colour of words inside a bar, also on a dark page. Other words have the page's colour."""

SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#808080", "#56b4e9")
BAD = "#d55e00"
CHAR_PX = 6.1
"""The average width of a character in pixels, rather too large than too small."""

_STEPS = (
    0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400,
)  # fmt: skip
_BREAK_PX = 26
_LABEL_PX = 70


class Axis:
    """A mapping from time to x.

    pieces: the times to show, as (start, end) in order; the axis marks what is between.
    """

    def __init__(self, pieces: Sequence[tuple[float, float]], left: float, right: float) -> None:
        self.pieces = [(a, max(b, a + 0.001)) for a, b in pieces]
        self.left, self.right = left, right
        breaks = len(self.pieces) - 1
        room = max(right - left - breaks * _BREAK_PX, (right - left) / 2)
        self.gap = (right - left - room) / breaks if breaks else 0.0
        self.total = sum(b - a for a, b in self.pieces)
        self._scale = room / self.total
        self._starts = [a for a, _ in self.pieces]

    def x(self, at: float) -> float:
        """Return the x of a moment.

        A moment between two pieces has the x of the first one's end. A moment before all pieces has the x of
        the left edge.
        """
        place = max(0, bisect_right(self._starts, at) - 1)
        before = sum(b - a for a, b in self.pieces[:place]) * self._scale + place * self.gap
        a, b = self.pieces[place]
        return self.left + before + (min(max(at, a), b) - a) * self._scale

    def ticks(self) -> list[tuple[float, str]]:
        """Return (x, time of day) of each tick, as many as fit."""
        most = max(2.0, (self.right - self.left) / _LABEL_PX)
        step = next((s for s in _STEPS if self.total / s <= most), 86400 * max(1, self.total // 864000))
        out: list[tuple[float, str]] = []
        for a, b in self.pieces:
            at = -(-a // step) * step
            while at <= b:
                x = self.x(at)
                if x <= self.right - 20 and (not out or x - out[-1][0] >= _LABEL_PX - 8):
                    out.append((x, clock(at, step)))
                at += step
        return out

    def left_out(self) -> list[tuple[float, float]]:
        """Return (x, seconds) of each time that is left out; each is ``gap`` pixels wide."""
        return [(self.x(end), start - end) for (_, end), (start, _) in pairwise(self.pieces)]
