"""Parts that every page of ours has: its beginning with the style, pictures, tables. No script, nothing
fetched."""

from __future__ import annotations

from zkmigrate.model.report import Table
from zkmigrate.report.svg import esc, tag

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
body { font: 14px/1.45 Helvetica, Arial, 'DejaVu Sans', sans-serif; color: #1a1a1a; background: #fff;
  max-width: 1080px; margin: 0 auto; padding: 16px; }
h1 { font-size: 22px; margin: 0; } h2 { font-size: 17px; margin: 28px 0 6px; break-after: avoid; }
h3 { font-size: 14px; margin: 18px 0 4px; break-after: avoid; }
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


def opening(title: str, mark: str) -> list[str]:
    """A page up to its heading. mark: an element that tells which program wrote it."""
    return [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        mark,
        f'<meta http-equiv="Content-Security-Policy" content="{esc(_POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{esc(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{esc(title)}</h1>",
    ]


def picture(drawn: str, caption: str) -> str:
    """A drawing with what it says below it; caption may be empty."""
    words = tag("figcaption", esc(caption)) if caption else ""
    return f"<figure>{drawn}{words}</figure>"


def section(table: Table, level: int = 2) -> str:
    """A table with its heading, of this level."""
    head = "".join(f"<th>{esc(name)}</th>" for name in table.head)
    rows = "".join(_row(table, row) for row in table.rows)
    intro = f'<p class="small">{esc(table.intro)}</p>' if table.intro else ""
    inner = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    heading = f"<h{level}>{esc(table.title)}</h{level}>{intro}"
    return f'<section id="{table.id}">{heading}<div class="scroll">{inner}</div></section>'


def _row(table: Table, row: tuple[str, ...]) -> str:
    cells = []
    for n, cell in enumerate(row):
        kind = "wide" if n in table.wide else cell if cell in ("NO", "unknown", "warn") else ""
        cells.append(f'<td class="{kind}">{esc(cell)}</td>' if kind else f"<td>{esc(cell)}</td>")
    return f"<tr>{''.join(cells)}</tr>"
