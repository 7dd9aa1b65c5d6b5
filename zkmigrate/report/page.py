"""The report as one HTML page: no script, nothing fetched; it prints, and it can be mailed."""

from __future__ import annotations

from zkmigrate.report import lanes, pictures, plots, sheet
from zkmigrate.report.svg import esc, length, tag
from zkmigrate.report.tables import Table, day, figures, lists, tables
from zkmigrate.report.value import Report

MARK = '<meta name="generator" content="zkmigrate report">'
"""Stands near the top of every page, so that only an earlier report is overwritten."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
STATES = {
    "complete": ("Complete", "#00664b"),
    "back": ("Rolled back", "#7a4b00"),
    "turned": ("Turned back", "#7a4b00"),
    "open": ("Unfinished", "#7a4b00"),
    "damaged": ("Journal damaged", "#a30000"),
}
_STYLE = """
body { font: 14px/1.45 Helvetica, Arial, 'DejaVu Sans', sans-serif; color: #1a1a1a; background: #fff;
  max-width: 1080px; margin: 0 auto; padding: 16px; }
h1 { font-size: 22px; margin: 0; } h2 { font-size: 17px; margin: 28px 0 6px; break-after: avoid; }
p { margin: 4px 0 8px; } .small { color: #595959; font-size: 12px; }
.state { display: inline-block; color: #fff; padding: 2px 10px; border-radius: 3px; font-weight: bold; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 8px;
  margin: 14px 0; }
.figures div { border: 1px solid #bfbfbf; border-radius: 3px; padding: 6px 10px; break-inside: avoid; }
.figures b { display: block; font-size: 18px; }
figure { margin: 8px 0 16px; break-inside: avoid; }
figcaption { color: #595959; font-size: 12px; }
svg { display: block; height: auto; }
table { border-collapse: collapse; width: 100%; font-size: 12.5px; }
th { text-align: left; border-bottom: 2px solid #7f7f7f; padding: 3px 6px; }
td { border-bottom: 1px solid #d9d9d9; padding: 3px 6px; vertical-align: top; white-space: nowrap; }
td.wide { white-space: normal; overflow-wrap: anywhere; min-width: 13em; }
tr { break-inside: avoid; } thead { display: table-header-group; }
td.NO, td.unknown { color: #a30000; font-weight: bold; } td.warn { color: #7a4b00; font-weight: bold; }
code { font-family: 'DejaVu Sans Mono', monospace; font-size: 12px; }
.scroll { overflow-x: auto; }
@page { size: A4; margin: 12mm; }
@media print { body { max-width: none; padding: 0; font-size: 11px; } table { font-size: 9px; }
  td { white-space: normal; } td.wide { min-width: 9em; }
  h2 { margin-top: 14px; } * { -webkit-print-color-adjust: exact; print-color-adjust: exact; } }
"""


def page(report: Report) -> str:
    """The whole page as text."""
    title = f"{report.name or report.playbook}: run {report.run}"
    word, colour = STATES[report.state]
    head = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        MARK,
        f'<meta http-equiv="Content-Security-Policy" content="{esc(_POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{esc(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{esc(title)}</h1>",
        f'<p><span class="state" style="background:{colour}" id="state">{esc(word)}</span> '
        f'<span id="headline">{esc(report.headline)}</span></p>',
        f'<p class="small">{esc(report.playbook)}, from {esc(day(report.start))} to {esc(day(report.end))}. '
        "All times are UTC, by the operator's machine.</p>",
        _figures(report),
    ]
    body = [_list(*one) for one in lists(report)]
    body += _pictures(report)
    body += [_table(table) for table in tables(report)]
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
    dest = sheet.legend("dest", lanes.DEST_STATES)
    others = sheet.legend("others", (*lanes.BROKER_STATES, *lanes.ENSEMBLE_STATES))
    out = [
        "<h2>Timeline</h2>",
        _figure(
            pictures.timeline(report) + dest + others,
            "Grey stretches: the tool did not run. A vermilion foot under a broker: it did not answer, as "
            "the crosses say. Triangles: another controller. A white gap in a client's row: a quarter of a "
            "second, of the canary 0.6 s, or more without an acknowledgement.",
        ),
    ]
    for number, window in enumerate(report.windows):
        name = f"{'Rehearsed window' if window.rehearsal else 'Window'}: {window.stage}"
        out.append(f"<h2>{esc(name)}</h2>")
        parts = [f"{p.step}{' back' if p.back else ''} {length(p.seconds or 0)}" for p in window.parts]
        colours = sheet.legend(f"dest-{number}", lanes.DEST_STATES)
        out.append(_figure(pictures.close_up(window, report, number) + colours, f"{', '.join(parts)}."))
    if any(p.behind is not None for p in report.lags):
        out.append("<h2>Transactions behind source</h2>")
        words = (
            "Each dest host against source's leader, asked at the same moment, until the proof. Behind by a "
            "few while others write is normal."
        )
        out.append(_figure(plots.lag(report), words))
    return out


def _figure(drawn: str, caption: str) -> str:
    words = tag("figcaption", esc(caption)) if caption else ""
    return f"<figure>{drawn}{words}</figure>"


def _table(table: Table) -> str:
    head = "".join(f"<th>{esc(name)}</th>" for name in table.head)
    rows = "".join(_row(table, row) for row in table.rows)
    intro = f'<p class="small">{esc(table.intro)}</p>' if table.intro else ""
    inner = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    heading = f"<h2>{esc(table.title)}</h2>{intro}"
    return f'<section id="{table.id}">{heading}<div class="scroll">{inner}</div></section>'


def _row(table: Table, row: tuple[str, ...]) -> str:
    cells = []
    for n, cell in enumerate(row):
        kind = "wide" if n in table.wide else cell if cell in ("NO", "unknown", "warn") else ""
        cells.append(f'<td class="{kind}">{esc(cell)}</td>' if kind else f"<td>{esc(cell)}</td>")
    return f"<tr>{''.join(cells)}</tr>"
