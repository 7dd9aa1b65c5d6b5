"""A sheet: rows over one axis of time, the colours of states and series.

Colours are those of Okabe and Ito (Color Universal Design), told apart by people who see fewer colours; a
state is also written into its bar where there is room, and into what a pointer is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from zkmigrate.model.report import Span, clock, length
from zkmigrate.report.svg import CHAR_PX, Axis, figure, hover, tag, text

WIDTH, LABELS = 1040, 150
ROW, BAR, HEAD = 22, 16, 30
EDGE = WIDTH - 12

SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#1a1a1a", "#56b4e9")
BAD = "#d55e00"


JOINED_S = 3.0
"""Looks that are further apart are not joined."""


class Sheet:
    """Rows from top to bottom; what belongs to the axis is drawn below them. colours: of states."""

    def __init__(self, axis: Axis, right: float, colours: Mapping[str, str]) -> None:
        self.axis = axis
        self.colours = colours
        self.right = right
        self.y = float(HEAD)
        self.body: list[str] = []

    def row(self, name: str, draw: Callable[[float], Iterable[str]], height: float = ROW) -> None:
        shown = name if len(name) <= 23 else f"{name[:22]}…"
        self.body.append(text(LABELS - 8, self.y + BAR - 4, shown, text_anchor="end"))
        self.body += draw(self.y)
        self.y += height

    def gap(self) -> None:
        self.y += 8

    def bar(self, y: float, span: Span, name: str, height: float = BAR) -> str:
        end = self.axis.pieces[-1][1] if span.end is None else span.end
        x1, x2 = self.axis.x(span.start), self.axis.x(end)
        shown = length(end - span.start)
        until = "still so at the end" if span.end is None else f"to {clock(end, 0.1)}, {shown}"
        note = f" ({span.note})" if span.note else ""
        words = f"{name}: {span.state}{note}, from {clock(span.start, 0.1)} {until}"
        parts = [
            tag(
                "rect", hover(words), x=x1, y=y, width=max(x2 - x1, 1.0), height=height,
                fill=self.colours.get(span.state, "#ffffff"), stroke="#ffffff", stroke_width=0.5,
                data_lane=name, data_state=span.state, data_from=f"{span.start:.3f}",
                data_to="" if span.end is None else f"{span.end:.3f}",
            )
        ]  # fmt: skip
        if len(span.state) * CHAR_PX + 6 <= x2 - x1:
            parts.append(text((x1 + x2) / 2, y + height - 4.5, span.state, text_anchor="middle"))
        return "".join(parts)

    def whole(self, name: str, title: str, description: str) -> str:
        bottom = self.y
        height = bottom + 22
        return figure(
            name, title, description, WIDTH, height, [*self.axis.draw(HEAD - 4, bottom), *self.body]
        )


def legend(name: str, states: Sequence[str], colours: Mapping[str, str]) -> str:
    """The colours of these states."""
    body, x = [], 4.0
    for state in states:
        body.append(tag("rect", x=x, y=3.0, width=14.0, height=12.0, fill=colours[state]))
        body.append(text(x + 19, 13, state))
        x += 32 + len(state) * CHAR_PX
    return figure(f"legend-{name}", "Colours", ", ".join(states), WIDTH, 20, body)
