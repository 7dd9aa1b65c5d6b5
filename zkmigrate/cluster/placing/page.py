"""The report of a plan as one HTML page that loads nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zkmigrate.cluster.placement.plan import Notice, Plan
from zkmigrate.cluster.placement.statistics import Statistics
from zkmigrate.cluster.placing import text
from zkmigrate.report.render import render
from zkmigrate.report.svg import SERIES
from zkmigrate.runbook.model.report import Table, size

BEFORE, AFTER = SERIES[5], SERIES[0]
_WIDTH, _LABELS, _ROW, _BAR = 860, 150, 26, 10
_WORDS = 80
_NAME_CHARS = 22


def page(title: str, plan: Plan, told: Statistics, notices: Sequence[Notice]) -> str:
    """Return the whole page as text."""
    free = [(str(one.broker), one.before.free, one.after.free) for one in told.brokers]
    racks: dict[str, tuple[int, int]] = {}
    for one in told.brokers:
        before, after = racks.get(one.rack, (0, 0))
        racks[one.rack] = before + one.before.free, after + one.after.free
    by_rack = [(rack or "no rack", *both) for rack, both in sorted(racks.items())]
    rows = tuple(text.phase_rows(plan))
    dirs = tuple(text.dir_rows(plan))
    directories = [Table("log-dirs", "Log directories", text.DIR_HEAD, dirs)] if dirs else []
    phases = (
        [Table("phases", "Phases", text.PHASE_HEAD, rows, "Submit the phases one after the other.")]
        if rows
        else []
    )
    made = render(
        "cluster/placing/page.html",
        title=title,
        summary=text.summary(plan, told),
        remarks=text.remarks(plan, told),
        figures=text.figures(told),
        notices=text.notice_lines(notices),
        legend=(("before", BEFORE), ("after", AFTER)),
        pictures=(
            ("Free bytes per broker", bars("Free bytes per broker", free)),
            ("Free bytes per rack", bars("Free bytes per rack", by_rack)),
        ),
        tables=(
            Table("brokers", "Brokers", text.BROKER_HEAD, tuple(text.broker_rows(told))),
            Table(
                "moves",
                "Moves",
                text.MOVE_HEAD,
                tuple(text.move_rows(plan)),
                "Submit the moves in this order.",
            ),
            *directories,
            *phases,
        ),
    )
    return str(made)


def bars(title: str, of: Iterable[tuple[str, int, int]]) -> str:
    """Draw two bars for each name: bytes before and after. A negative number is drawn as an empty bar."""
    of = list(of)
    most = max((max(before, after) for _, before, after in of), default=0) or 1
    rows = []
    for number, (name, *values) in enumerate(of):
        top = number * _ROW
        drawn = [
            {
                "y": top + at * (_BAR + 1) + 2,
                "width": round(max(value, 0) / most * (_WIDTH - _LABELS - _WORDS), 1),
                "height": _BAR,
                "colour": colour,
                "words": size(value),
                "said": f"{name} {when}: {value} bytes free",
            }
            for at, (value, colour, when) in enumerate(
                zip(values, (BEFORE, AFTER), ("before", "after"), strict=True)
            )
        ]
        shown = name if len(name) <= _NAME_CHARS else f"{name[: _NAME_CHARS - 1]}…"
        rows.append({"name": shown, "y": top, "bars": drawn})
    return render(
        "cluster/placing/bars.svg", title=title, description=f"{len(rows)} names, at most {size(most)}",
        width=_WIDTH, height=len(rows) * _ROW + 4, labels=_LABELS, rows=rows,
    )  # fmt: skip
