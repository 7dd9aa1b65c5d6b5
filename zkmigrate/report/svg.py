"""Small SVG: elements with everything escaped, and an axis of time that leaves idle stretches out.

Attributes instead of style sheets, so that a picture looks the same in a mail and on paper.
"""

from __future__ import annotations

import html
from bisect import bisect_right
from collections.abc import Sequence

from zkmigrate.clean import clean
from zkmigrate.model.report import clock, length

TEXT, FAINT, RULE = "#1a1a1a", "#595959", "#d9d9d9"
FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
CHAR_PX = 6.1
"""Width of a character of the small font, on average; a little too much rather than too little."""

_STEPS = (
    0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400,
)  # fmt: skip
_BREAK_PX = 26
_LABEL_PX = 70


def esc(text: object) -> str:
    """Text for HTML and SVG, in elements and in quoted attributes."""
    return html.escape(clean(text), quote=True)


def tag(name: str, *children: str, **attributes: object) -> str:
    """An element; children are markup already, attribute values are text. ``_`` in a name is ``-``."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{pairs}>{''.join(children)}</{name}>" if children else f"<{name}{pairs}/>"


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return esc(value)


def text(x: float, y: float, words: object, **attributes: object) -> str:
    """A line of text, its baseline at y."""
    merged: dict[str, object] = {"font_size": 11, "fill": TEXT, **attributes}
    return tag("text", esc(words), x=float(x), y=float(y), **merged)


def hover(words: object) -> str:
    """What a pointer, or a reader of screens, is told of the element that this is a child of."""
    return tag("title", esc(words))


def figure(name: str, title: str, description: str, width: int, height: float, body: Sequence[str]) -> str:
    """A whole picture. name: unique in its page."""
    return tag(
        "svg",
        tag("title", esc(title), id=f"{name}-title"),
        tag("desc", esc(description), id=f"{name}-desc"),
        *body,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height:.0f}",
        width="100%",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        id=name,
        font_family=FONT,
    )


class Axis:
    """Time to x. pieces: the stretches that are shown, in order; what lies between them becomes a mark."""

    def __init__(self, pieces: Sequence[tuple[float, float]], left: float, right: float) -> None:
        self.pieces = [(a, max(b, a + 0.001)) for a, b in pieces]
        self.left, self.right = left, right
        breaks = len(self.pieces) - 1
        room = max(right - left - breaks * _BREAK_PX, (right - left) / 2)
        self._gap = (right - left - room) / breaks if breaks else 0.0
        self.total = sum(b - a for a, b in self.pieces)
        self._scale = room / self.total
        self._starts = [a for a, _ in self.pieces]

    def x(self, at: float) -> float:
        """Where a moment lies; one outside of all pieces lies at the nearest edge."""
        place = max(0, bisect_right(self._starts, at) - 1)
        before = sum(b - a for a, b in self.pieces[:place]) * self._scale + place * self._gap
        a, b = self.pieces[place]
        return self.left + before + (min(max(at, a), b) - a) * self._scale

    @property
    def step(self) -> float:
        """Seconds between two ticks."""
        most = max(2.0, (self.right - self.left) / _LABEL_PX)
        return next((s for s in _STEPS if self.total / s <= most), 86400 * max(1, self.total // 864000))

    def draw(self, top: float, bottom: float) -> list[str]:
        """Ticks with the time of day, rules across the rows, and a mark for each stretch left out."""
        out, last = [], -1e9
        for a, b in self.pieces:
            at = -(-a // self.step) * self.step
            while at <= b:
                x = self.x(at)
                if x - last >= _LABEL_PX - 8 and x <= self.right - 20:
                    out.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, stroke=RULE))
                    out.append(text(x, bottom + 13, clock(at, self.step), text_anchor="middle", fill=FAINT))
                    last = x
                at += self.step
        for (_, end), (start, _) in zip(self.pieces, self.pieces[1:], strict=False):
            out += self._left_out(end, start, top, bottom)
        return out

    def _left_out(self, end: float, start: float, top: float, bottom: float) -> list[str]:
        x = self.x(end)
        shade = tag(
            "rect", hover(f"nothing for {length(start - end)}"), x=x, y=top, width=self._gap,
            height=bottom - top, fill="#f0f0f0",
        )  # fmt: skip
        words = text(
            x + self._gap / 2, top - 3, length(start - end), font_size=9, text_anchor="middle", fill=FAINT
        )
        return [shade, words]
