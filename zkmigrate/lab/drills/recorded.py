"""The rows that drills leave in docs/track-record.md: pure, text in and text out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkmigrate.errors import UsageError
from zkmigrate.lab.drills.result import Case

BEGIN, END = "<!-- drills: rows by --record -->", "<!-- drills: end -->"
HEAD = (
    "| drill | case | held | outcome | seconds | seen | reproduce |",
    "|---|---|---|---|---|---|---|",
)
REPRODUCE = "`python -m zkmigrate.lab.drills --only {}`"
_OUTCOMES = 3


def rows_of(result: Mapping[str, Any], seen: str) -> list[str]:
    """One row for each name among the cases of a drill's result. seen: when, and at which commit."""
    drill = result["drill"]
    by_name: dict[str, list[Case]] = {}
    for body in result["cases"]:
        case = Case.of(body)
        by_name.setdefault(case.name, []).append(case)
    rows = []
    for name, cases in by_name.items():
        held = sum(case.held for case in cases)
        cells = (
            drill,
            f"{name}: {cases[0].what}",
            f"{held} of {len(cases)}",
            _outcomes(cases),
            _seconds(cases),
            seen,
            REPRODUCE.format(drill),
        )
        rows.append(f"| {' | '.join(map(_cell, cells))} |")
    return rows


def rewritten(text: str, results: Mapping[str, Mapping[str, Any]], seen: str) -> str:
    """The page with the rows of these drills, by name, in place of their old ones; other drills' rows stay.

    UsageError when the page has no two markers, one before the other.
    """
    before, begin, rest = text.partition(BEGIN)
    table, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"no place for the rows: {BEGIN} and {END}, in this order, have to be in the page")
    rows: dict[str, list[str]] = {}
    for line in table.splitlines():
        if line.startswith("| ") and line != HEAD[0]:
            rows.setdefault(line[2:].partition(" | ")[0], []).append(line)
    for drill, result in results.items():
        rows[drill] = rows_of(result, seen)
    lines = [BEGIN, "", *HEAD, *(row for group in rows.values() for row in group), "", END]
    return before + "\n".join(lines) + after


def _outcomes(cases: list[Case]) -> str:
    """What came of them, failures first."""
    said = [("" if c.held else "NOT held: ") + c.outcome for c in sorted(cases, key=lambda c: c.held)]
    distinct = list(dict.fromkeys(said))
    more = len(distinct) - _OUTCOMES
    return "; ".join(distinct[:_OUTCOMES]) + (f"; and {more} more like these" if more > 0 else "")


def _seconds(cases: list[Case]) -> str:
    least, most = min(c.seconds for c in cases), max(c.seconds for c in cases)
    return f"{least:.1f}" if len(cases) == 1 else f"{least:.1f} to {most:.1f}"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())
