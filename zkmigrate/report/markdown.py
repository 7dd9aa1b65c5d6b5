"""Write the report as Markdown, for a ticket, a pull request, or a terminal of a hundred columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from zkmigrate.clean import clean
from zkmigrate.report.page import STATES
from zkmigrate.report.tables import figures, lists, tables
from zkmigrate.runbook.model.report import Lane, Report, Table, clock, day

WIDTH = 100
_MARKS = re.compile(r"([\\`*\[\]<>|#~&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<!\S)[-+](?=\s))")
_BRIEF_S = 0.1
"""States shorter than this many seconds are left out of a row's line."""


def plain(words: object) -> str:
    """Return text on one line, with all that Markdown or a terminal would interpret escaped."""
    return _MARKS.sub(r"\\\1", re.sub(r"\s+", " ", clean(str(words).replace("\n", " "))))


def markdown(report: Report) -> str:
    """Return the whole report as text."""
    word, _ = STATES[report.state]
    out = [
        f"# {plain(report.name or report.playbook)}: run {plain(report.run)}",
        "",
        *_wrapped(f"**{word}**: {plain(report.headline)}"),
        "",
        *_wrapped(f"{plain(report.playbook)}, from {day(report.start)} to {day(report.end)}. Times are UTC."),
        "",
    ]
    for what, much, note in figures(report):
        out += _wrapped(f"- {plain(what)}: **{plain(much)}** ({plain(note)})", "  ")
    for _, title, lines in lists(report):
        out += ["", f"## {title}", ""]
        for line in lines:
            out += _wrapped(f"- {plain(line)}", "  ")
    out += ["", "## Timeline", ""] if report.lanes else []
    for lane in report.lanes:
        out += _wrapped(f"- {plain(lane.name)}: {_story(lane)}", "  ")
    for table in tables(report):
        out += ["", f"## {plain(table.title)}", ""]
        if table.intro:
            out += [*_wrapped(plain(table.intro)), ""]
        out += _table(table)
    return "\n".join(out) + "\n"


def _story(lane: Lane) -> str:
    """Return the states of a row with their start times. Neighbours in the same state appear once."""
    parts: list[str] = []
    last = ""
    for span in lane.spans:
        if span.state != last and (span.end is None or span.end - span.start >= _BRIEF_S):
            parts.append(f"{clock(span.start, 0.1)} {plain(span.state)}")
            last = span.state
    return " · ".join(parts) or "no data"


def _wrapped(line: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _table(table: Table) -> list[str]:
    """Return a table if it fits the width, else a list with the first cells as headings."""
    rows = [[plain(cell) for cell in row] for row in table.rows]
    head = [plain(name) for name in table.head]
    widths = [max(len(row[n]) for row in [head, *rows]) for n in range(len(head))]
    if sum(widths) + 3 * len(widths) + 1 <= WIDTH:
        rule = [f"{'-' * max(3, width)}" for width in widths]
        return [_line(row, widths) for row in [head, rule, *rows]]
    return [line for row in rows for line in _item(table, head, row)]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return (
        "| " + " | ".join(cell.ljust(max(3, width)) for cell, width in zip(row, widths, strict=True)) + " |"
    )


def _item(table: Table, head: Sequence[str], row: Sequence[str]) -> list[str]:
    """Return one row as an item of a list.

    A row without a first cell belongs to the row before it.
    """
    if table.id == "findings":
        held, id, claim, seen = row[1:]
        words = f"  - {held}: {id}: " + "; ".join(part for part in (claim, seen) if part)
        begins = _wrapped(f"- **{row[0]}**", "  ") if row[0] else []
        return begins + _wrapped(words, "    ")
    if table.id == "decisions":
        what, where, sentence, answer, by = row[1:]
        words = f"- **{row[0]}** {f'{what} {where}'.strip()}: {sentence}"
        return _wrapped(words + f" → {answer}" * bool(answer) + f" (by {by})" * bool(by), "  ")
    cells = zip(head[1:], row[1:], strict=True)
    told = "; ".join(f"{name} {cell}" for name, cell in cells if cell not in ("", "-", "\\-"))
    if not row[0]:
        return _wrapped(f"  - {told}", "    ")
    return _wrapped(f"- **{row[0]}**: {told}", "  ")
