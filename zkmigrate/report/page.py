"""Write the report as one HTML page for screens, paper and mail. It has no script and loads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zkmigrate.report import pictures, plots
from zkmigrate.report.render import render
from zkmigrate.report.tables import figures, lists, tables
from zkmigrate.runbook.model.report import Report, day, length

STATES = {
    "complete": ("Complete", "#00664b"),
    "back": ("Rolled back", "#7a4b00"),
    "turned": ("Turned back", "#7a4b00"),
    "open": ("Unfinished", "#7a4b00"),
    "damaged": ("Journal damaged", "#a30000"),
}


def page(report: Report) -> str:
    """Return the whole page as text."""
    word, colour = STATES[report.state]
    made = render(
        "report/page.html",
        title=f"{report.name or report.playbook}: run {report.run}",
        state=word,
        colour=colour,
        report=report,
        start=day(report.start),
        end=day(report.end),
        figures=figures(report),
        lists=lists(report),
        pictures=_pictures(report),
        colours=report.shown.reporting.colours,
        tables=tables(report),
    )
    return str(made)


def _pictures(report: Report) -> Iterator[tuple[str, str, str, Sequence[Sequence[str]]]]:
    """Yield (heading, drawing, caption, lists of the states that are drawn) of each picture."""
    special = report.shown.reporting
    legends = [states for _, states in special.legends]
    yield "Timeline", pictures.timeline(report), special.caption, legends
    for window in report.windows:
        name = f"{'Rehearsed window' if window.rehearsal else 'Window'}: {window.stage}"
        parts = ", ".join(f"{p.name} {length(p.seconds or 0)}" for p in window.parts)
        yield name, pictures.close_up(window, report), f"{parts}.", legends[:1]
    if any(p.behind is not None for p in report.lags):
        heading, _, caption = special.behind
        yield heading, plots.lag(report), caption, ()
    if report.curves:
        yield special.curved[0], plots.curves(report), special.curved[1], ()
