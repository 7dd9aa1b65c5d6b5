"""Plots of an analysis as SVG: bars, a line over time, a week by hours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zkmigrate.report.sheet import SERIES
from zkmigrate.report.svg import CHAR_PX, FAINT, RULE, Axis, figure, hover, tag, text

WIDTH = 1040
_ROW, _BAR, _LABEL_CHARS = 20, 14, 40
_PLOT = 120
_MARK, _MARK_CHAR = 11, 5.0
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True)
class Bar:
    """label: as long as it likes; value: not negative."""

    label: str
    value: float


def bars(name: str, title: str, of: Sequence[Bar]) -> str:
    """Horizontal bars, in the order given. name: unique in its page."""
    left = min(_LABEL_CHARS, max((len(bar.label) for bar in of), default=0)) * CHAR_PX + 16
    most = max((bar.value for bar in of), default=0.0) or 1.0
    room = WIDTH - left - 90
    body = [text(0, 14, title, font_size=12)]
    for n, bar in enumerate(of):
        y = 24 + n * _ROW
        shown = bar.label if len(bar.label) <= _LABEL_CHARS else f"{bar.label[: _LABEL_CHARS - 1]}…"
        wide = bar.value / most * room
        body += [
            text(left - 8, y + _BAR - 3, shown, text_anchor="end"),
            tag(
                "rect", hover(f"{bar.label}: {bar.value:g}"), x=left, y=float(y), width=max(wide, 0.5),
                height=_BAR, fill=SERIES[0],
            ),
            text(left + wide + 6, y + _BAR - 3, f"{bar.value:,.10g}", fill=FAINT),
        ]  # fmt: skip
    told = "; ".join(f"{bar.label} {bar.value:g}" for bar in of[:5])
    return figure(name, title, told, WIDTH, 32 + len(of) * _ROW, body)


def over_time(
    name: str,
    title: str,
    points: Sequence[tuple[float, float]],
    step_s: float,
    marks: Sequence[tuple[float, str]] = (),
) -> str:
    """Values over time as columns that are `step_s` wide. points: seconds since the epoch, rising, and a
    value. marks: moments with their names."""
    left, right = 60.0, WIDTH - 12.0
    most = max((value for _, value in points), default=0.0) or 1.0
    first, last = (points[0][0], points[-1][0] + step_s) if points else (0.0, 1.0)
    axis = Axis([(first, last)], left, right)
    bottom = 24.0 + _PLOT
    body = [text(0, 14, title, font_size=12), *axis.draw(24, bottom)]
    for share in (0.5, 1.0):
        y = bottom - share * _PLOT
        body.append(tag("line", x1=left, x2=right, y1=y, y2=y, stroke=RULE))
        body.append(text(left - 6, y + 4, f"{most * share:g}", text_anchor="end", fill=FAINT))
    columns: dict[int, float] = {}
    for at, value in points:  # no more columns than pixels: the highest of each
        x = int(axis.x(at))
        columns[x] = max(columns.get(x, 0.0), value)
    wide = max(1.0, axis.x(first + step_s) - axis.x(first) - 0.5)
    body += [
        tag(
            "rect",
            x=float(x),
            y=bottom - v / most * _PLOT,
            width=wide,
            height=v / most * _PLOT,
            fill=SERIES[0],
        )
        for x, v in columns.items()
        if v > 0
    ]
    named, rows = _marked(axis, marks, bottom + 30)
    body += named
    told = f"{len(points)} values, at most {most:g}"
    return figure(name, title, told, WIDTH, bottom + 24 + rows * _MARK, body)


def _marked(axis: Axis, marks: Sequence[tuple[float, str]], top: float) -> tuple[list[str], int]:
    """Lines through a plot at these moments, with their names below it, and in how many rows these are."""
    out: list[str] = []
    taken: list[float] = []
    for at, words in marks:
        x, wide = axis.x(at), len(words) * _MARK_CHAR + 8
        left = min(x, axis.right - wide)
        row = next((n for n, end in enumerate(taken) if end <= left), len(taken))
        taken[row : row + 1] = [left + wide]
        y = top + row * _MARK
        out.append(tag("line", hover(words), x1=x, x2=x, y1=24.0, y2=y, stroke=SERIES[1]))
        out.append(text(left + 3, y, words, font_size=9))
    return out, len(taken)


def week(name: str, title: str, mean: Mapping[tuple[int, int], float]) -> str:
    """A week as rows of days and columns of hours. mean: by (day, 0 is Monday; hour); absent: never seen."""
    left, cell, high = 44.0, (WIDTH - 60.0) / 24, 22
    most = max(mean.values(), default=0.0) or 1.0
    body = [text(0, 14, title, font_size=12)]
    body += [
        text(left + (hour + 0.5) * cell, 30, f"{hour:02}", text_anchor="middle", fill=FAINT)
        for hour in range(24)
    ]
    for day, word in enumerate(_DAYS):
        y = 36.0 + day * high
        body.append(text(left - 8, y + 15, word, text_anchor="end"))
        for hour in range(24):
            value = mean.get((day, hour))
            known = value is not None
            words = f"{word} {hour:02}h: {value:.4g}" if known else f"{word} {hour:02}h: no data"
            # Known hours from light to dark blue; unknown ones are an empty frame.
            strength = 0.12 + 0.88 * ((value or 0.0) / most) ** 0.5
            body.append(
                tag(
                    "rect", hover(words),
                    x=left + hour * cell, y=y, width=cell - 2, height=high - 2,
                    fill=SERIES[0] if known else "none", stroke=RULE,
                    fill_opacity=strength if known else None,
                )
            )  # fmt: skip
    told = f"{len(mean)} of 168 hours seen, at most {most:.4g}"
    return figure(name, title, told, WIDTH, 44 + 7 * high, body)
