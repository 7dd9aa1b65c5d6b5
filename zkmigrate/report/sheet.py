"""Draw rows over one axis of time as an SVG picture.

It uses attributes instead of a style sheet, so that a copied picture looks the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkmigrate.report.render import render
from zkmigrate.report.svg import CHAR_PX, TEXT, Axis
from zkmigrate.runbook.model.report import length

WIDTH, LABELS = 1040, 150
ROW, BAR, HEAD = 22, 16, 30
EDGE = WIDTH - 12

JOINED_S = 3.0
"""Stages, points or samples that are at least this many seconds apart are not joined."""

PLOT = 100
_NAME_CHARS = 23


class Sheet:
    """A picture in the making, with rows from top to bottom over an axis of time.

    Moments are seconds since the epoch, y is in pixels. colours: the colour of each state. In all methods
    ``said`` is the tooltip of an element, which screen readers also read.
    """

    def __init__(self, axis: Axis, colours: Mapping[str, str] | None = None) -> None:
        self.axis = axis
        self.colours = colours or {}
        self.y = float(HEAD)
        self._marks: list[tuple[str, Mapping[str, object], str, str]] = []

    def mark(self, tag: str, said: str = "", words: str = "", /, **attributes: object) -> None:
        """Add an element.

        ``_`` in the name of an attribute becomes ``-``; an attribute that is None is left out.
        """
        shown = {
            name.replace("_", "-"): f"{value:.6g}" if isinstance(value, float) else value
            for name, value in attributes.items()
        }
        self._marks.append((tag, shown, said, words))

    def text(self, x: float, y: float, words: str, /, **attributes: object) -> None:
        """Add a line of text with its baseline at y."""
        self.mark("text", "", words, x=x, y=y, **attributes)

    def faint(self, x: float, y: float, words: str, /, **attributes: object) -> None:
        """Add small, pale text."""
        self.text(x, y, words, **{"font_size": 9, "opacity": 0.75, **attributes})

    def row(self, name: str, height: float = ROW) -> float:
        """Begin a new row and return the y of its top."""
        top = self.y
        if height >= BAR:
            shown = name if len(name) <= _NAME_CHARS else f"{name[: _NAME_CHARS - 1]}…"
            self.text(self.axis.left - 8, top + BAR - 4, shown, text_anchor="end")
        self.y += height
        return top

    def bar(
        self, start: float, end: float, y: float, said: str, words: str = "", height: float = BAR,
        least: float = 1.0, **attributes: object,
    ) -> None:  # fmt: skip
        """Add a bar between two moments, with words inside if they fit.

        least: its smallest width, in pixels.
        """
        x = self.axis.x(start)
        wide = max(self.axis.x(end) - x, least)
        self.mark("rect", said, x=x, y=y, width=wide, height=height, **attributes)
        if words and height >= BAR and len(words) * CHAR_PX + 6 <= wide:
            self.text(x + wide / 2, y + height - 4.5, words, text_anchor="middle", fill=TEXT)

    def dot(self, at: float, y: float, said: str, **attributes: object) -> None:
        self.mark("circle", said, cx=self.axis.x(at), cy=y, **{"r": 2.0, **attributes})

    def cross(self, at: float, y: float, said: str, **attributes: object) -> None:
        d = f"M{self.axis.x(at) - 2.5:.1f} {y:.1f} l5 5 m0 -5 l-5 5"
        self.mark("path", said, d=d, fill="none", **attributes)

    def moment(self, at: float, words: str, colour: str, said: str = "") -> None:
        """Add a dashed line through every row so far, with words above it."""
        x, top = self.axis.x(at), HEAD - 4
        self.mark(
            "line", said or words, x1=x, x2=x, y1=top - 12, y2=self.y, stroke=colour,
            stroke_dasharray="4 3", data_mark=words or said,
        )  # fmt: skip
        if words:
            end = x > self.axis.right - len(words) * CHAR_PX
            self.text(x + (-3 if end else 3), top - 4, words, text_anchor="end" if end else None)

    def rule(self, y: float, words: str) -> None:
        """Add a line across a plot, with its value."""
        self.mark(
            "line", x1=self.axis.left, x2=self.axis.right, y1=y, y2=y, stroke="currentColor", opacity=0.2
        )
        self.faint(self.axis.left - 8, y + 3, words, text_anchor="end")

    def plot(self, name: str, keys: Mapping[str, str]) -> float:
        """Make room for a plot and return the y of its foot. keys: the colour of each name."""
        self.y += 8
        self.text(8, self.y + 2, name)
        for n, (words, colour) in enumerate(keys.items()):
            y = self.y + 20 + n * 13
            self.mark("circle", cx=14, cy=y - 4, r=3.5, fill=colour)
            self.text(22, y, words[:12], opacity=0.75)
        self.y += PLOT
        return self.y

    def drawn(self, title: str, description: str, below: float = 0) -> str:
        """Return the picture as SVG, with the axis behind its rows. below: pixels in use below the axis."""
        marks, self._marks = self._marks, []
        top, bottom = HEAD - 4, self.y
        for x, words in self.axis.ticks():
            self.mark("line", x1=x, x2=x, y1=top, y2=bottom, stroke="currentColor", opacity=0.15)
            self.text(x, bottom + 13, words, text_anchor="middle", opacity=0.75)
        for x, seconds in self.axis.left_out():
            said = f"no record for {length(seconds)}"
            size = {"width": self.axis.gap, "height": bottom - top}
            self.mark("rect", said, x=x, y=top, **size, fill="currentColor", opacity=0.08)
            self.faint(x + self.axis.gap / 2, top - 16, length(seconds), text_anchor="middle")
        return render(
            "report/sheet.svg", title=title, description=description, width=WIDTH,
            height=round(bottom + 22 + below), marks=[*self._marks, *marks],
        )  # fmt: skip
