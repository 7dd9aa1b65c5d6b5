"""Draw the plots of an analysis: bars, a line over time, and a week by hours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zkmigrate.report.render import render
from zkmigrate.report.sheet import EDGE, HEAD, Sheet
from zkmigrate.report.svg import SERIES, Axis
from zkmigrate.runbook.model.report import clock

_PLOT = 120
_MARK, _MARK_CHAR = 11, 5.0
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True)
class Bar:
    """One bar of a plot.

    label: text of any length. value: the length of the bar, not negative.
    """

    label: str
    value: float


def bars(title: str, of: Sequence[Bar]) -> str:
    """Return the markup of a plot of horizontal bars, in the order given."""
    most = max((bar.value for bar in of), default=0.0) or 1.0
    return render("spark/bars.html", title=title, of=of, most=most)


def week(title: str, mean: Mapping[tuple[int, int], float]) -> str:
    """Return the markup of a plot of a week as rows of days and columns of hours.

    mean: value by (day, hour), where day 0 is Monday; a cell is empty if its key is absent.
    """
    rows = [[mean.get((day, hour)) for hour in range(24)] for day in range(7)]
    most = max(mean.values(), default=0.0) or 1.0
    return render("spark/week.html", title=title, days=_DAYS, mean=rows, most=most)


def over_time(
    title: str,
    points: Sequence[tuple[float, float]],
    step_s: float,
    marks: Sequence[tuple[float, str]] = (),
) -> str:
    """Return the markup of a plot of values over time, as columns that are `step_s` seconds wide.

    points: (seconds since 1970, value), in order of time. marks: (seconds since 1970, name) of moments to
    show.
    """
    most = max((value for _, value in points), default=0.0) or 1.0
    first, last = (points[0][0], points[-1][0] + step_s) if points else (0.0, 1.0)
    sheet = Sheet(Axis([(first, last)], 60.0, EDGE))
    sheet.text(0, 14, title, font_size=12)
    sheet.y = foot = HEAD + _PLOT
    for share in (0.5, 1.0):
        sheet.rule(foot - share * _PLOT, f"{most * share:.4g}")
    columns: dict[int, tuple[float, float]] = {}
    for at, value in points:  # no more columns than pixels: the highest of each
        pixel = int(sheet.axis.x(at))
        columns[pixel] = max(columns.get(pixel, (0.0, at)), (value, at))
    for value, at in columns.values():
        if value > 0:
            said, high = f"{clock(at)}: {value:g}", value / most * _PLOT
            sheet.bar(at, at + step_s, foot - high, said, height=high, fill=SERIES[0])
    taken: list[float] = []
    for at, words in marks:  # names below the axis, in as many rows as they need
        wide = len(words) * _MARK_CHAR + 8
        x = sheet.axis.x(at)
        left = min(x, EDGE - wide)
        row = next((n for n, end in enumerate(taken) if end <= left), len(taken))
        taken[row : row + 1] = [left + wide]
        y = foot + 30 + row * _MARK
        sheet.mark("line", words, x1=x, x2=x, y1=HEAD, y2=y, stroke=SERIES[1])
        sheet.text(left + 3, y, words, font_size=9)
    return sheet.drawn(title, f"{len(points)} values, at most {most:g}", below=len(taken) * _MARK)
