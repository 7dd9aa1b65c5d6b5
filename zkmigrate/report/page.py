"""The report as one HTML page: no script, nothing fetched; it prints, and it can be mailed."""

from __future__ import annotations

from zkmigrate.model.report import Report, day, length
from zkmigrate.report import pictures, plots, sheet
from zkmigrate.report.parts import opening, picture, section
from zkmigrate.report.svg import esc
from zkmigrate.report.tables import figures, lists, tables

MARK = '<meta name="generator" content="zkmigrate report">'
"""Stands near the top of every page, so that only an earlier report is overwritten."""

STATES = {
    "complete": ("Complete", "#00664b"),
    "back": ("Rolled back", "#7a4b00"),
    "turned": ("Turned back", "#7a4b00"),
    "open": ("Unfinished", "#7a4b00"),
    "damaged": ("Journal damaged", "#a30000"),
}


def page(report: Report) -> str:
    """The whole page as text."""
    title = f"{report.name or report.playbook}: run {report.run}"
    word, colour = STATES[report.state]
    head = [
        *opening(title, MARK),
        f'<p><span class="state" style="background:{colour}" id="state">{esc(word)}</span> '
        f'<span id="headline">{esc(report.headline)}</span></p>',
        f'<p class="small">{esc(report.playbook)}, from {esc(day(report.start))} to {esc(day(report.end))}. '
        "All times are UTC, by the operator's machine.</p>",
        _figures(report),
    ]
    body = [_list(*one) for one in lists(report)]
    body += _pictures(report)
    body += [section(table) for table in tables(report)]
    return "\n".join([*head, *body, "</body></html>", ""])


def _figures(report: Report) -> str:
    boxes = "".join(
        f'<div>{esc(what)}<b>{esc(much)}</b><span class="small">{esc(note)}</span></div>'
        for what, much, note in figures(report)
    )
    return f'<div class="figures">{boxes}</div>'


def _list(id: str, title: str, lines: tuple[str, ...]) -> str:
    items = "".join(f"<li>{esc(line)}</li>" for line in lines)
    return f'<section id="{id}"><h2>{esc(title)}</h2><ul>{items}</ul></section>'


def _pictures(report: Report) -> list[str]:
    special = report.shown.reporting
    legends = [sheet.legend(name, states, special.colours) for name, states in special.legends]
    out = ["<h2>Timeline</h2>", picture(pictures.timeline(report) + "".join(legends), special.caption)]
    for number, window in enumerate(report.windows):
        name = f"{'Rehearsed window' if window.rehearsal else 'Window'}: {window.stage}"
        out.append(f"<h2>{esc(name)}</h2>")
        parts = [f"{p.step}{' back' if p.back else ''} {length(p.seconds or 0)}" for p in window.parts]
        first = [
            sheet.legend(f"{id}-{number}", states, special.colours) for id, states in special.legends[:1]
        ]
        drawn = pictures.close_up(window, report, number) + "".join(first)
        out.append(picture(drawn, f"{', '.join(parts)}."))
    if any(p.behind is not None for p in report.lags):
        heading, _, caption = special.behind
        out.append(f"<h2>{esc(heading)}</h2>")
        out.append(picture(plots.lag(report), caption))
    return out
