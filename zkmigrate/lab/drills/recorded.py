"""What a drill leaves in the repository: its result as data, and its rows in docs/track-record.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zkmigrate.errors import UsageError
from zkmigrate.lab.drills.result import Case

PLACES = {
    name: (f"<!-- {name}: rows by --record -->", f"<!-- {name}: end -->") for name in ("drills", "silent")
}
HEAD = (
    "| drill | case | held | outcome | seconds | seen | reproduce |",
    "|---|---|---|---|---|---|---|",
)
KINDS = {"frozen": "all its processes frozen", "ssh": "its sshd alone", "dropped": "packets dropped"}
SILENT_HEAD = (
    f"| held after | then | {' | '.join(KINDS.values())} | allowed | sessions lost | of clients that know "
    "only that host | seen |",
    "|---|---|---|---|---|---|---|---|---|",
)
REPRODUCE = "`python -m zkmigrate.lab.drills --only {}`"
_OUTCOMES = 3

Result = Mapping[str, Any]


def kept(body: Result, seen: str, root: str) -> dict[str, Any]:
    """What is kept of a drill's result: what all cases have, and figures.

    seen: when, and at which commit. root: where it ran, which is left out.
    """
    cases = [
        {
            name: value.replace(root, ".") if isinstance(value, str) else value
            for name, value in case.items()
            if name in Case.__dataclass_fields__ or isinstance(value, int | float)
        }
        for case in body["cases"]
    ]
    return {**{name: body[name] for name in ("drill", "held", "seconds")}, "seen": seen, "cases": cases}


def read_kept(folder: Path) -> list[Result]:
    """All that is kept there, by the drills' names."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def rows_of(result: Result) -> list[str]:
    """One row for each name among the cases of a drill's result."""
    drill = result["drill"]
    by_name: dict[str, list[Case]] = {}
    for body in result["cases"]:
        case = Case.of(body)
        by_name.setdefault(case.name, []).append(case)
    return [
        _row(
            drill,
            f"{name}: {cases[0].what}",
            f"{sum(case.held for case in cases)} of {len(cases)}",
            _outcomes(cases),
            _range([case.seconds for case in cases]),
            result["seen"],
            REPRODUCE.format(drill),
        )
        for name, cases in by_name.items()
    ]


def silent_rows(result: Result) -> list[str]:
    """One row for each phase at which a host fell silent: ``silent-KIND-PHASE``."""
    by_phase: dict[str, list[Result]] = {}
    for case in result["cases"]:
        if case["name"].startswith("silent-"):
            by_phase.setdefault(case["name"].split("-")[2], []).append(case)
    return [
        _row(
            phase.upper(),
            cases[0]["expected"].partition(":")[0],
            *(_served([case for case in cases if case["name"].split("-")[1] == kind]) for kind in KINDS),
            _range([case["limit_s"] for case in cases if "limit_s" in case]),
            str(sum(case.get("sessions_lost", 0) for case in cases)),
            str(sum(case.get("lone_lost", 0) for case in cases)),
            result["seen"],
        )
        for phase, cases in by_phase.items()
    ]


def rewritten(text: str, results: Iterable[Result]) -> str:
    """The page with the rows of these results, and no others, between its markers. The table of silent hosts
    stays as it is where no result has any.

    UsageError when the page lacks a marker, or two are in the wrong order.
    """
    results = list(results)
    text = _between(text, "drills", (*HEAD, *(row for result in results for row in rows_of(result))))
    silent = [row for result in results for row in silent_rows(result)]
    return _between(text, "silent", (*SILENT_HEAD, *silent) if silent else None)


def _between(text: str, name: str, lines: Sequence[str] | None) -> str:
    begin, end = PLACES[name]
    before, has_begin, rest = text.partition(begin)
    table, has_end, after = rest.partition(end)
    if not has_begin or not has_end:
        raise UsageError(f"no place for the rows: {begin} and {end}, in this order, have to be in the page")
    if lines is not None:
        table = "\n".join(("", "", *lines, "", ""))
    return before + begin + table + end + after


def _row(*cells: str) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _served(cases: Sequence[Result]) -> str:
    """Seconds until brokers had a server again, over these cases; a case that did not hold is said first."""
    wrong = sum(not case["held"] for case in cases)
    told = [f"NOT held: {wrong} of {len(cases)}"] if wrong else []
    return "; ".join([*told, _range([case["served_s"] for case in cases if "served_s" in case])])


def _outcomes(cases: list[Case]) -> str:
    """What came of them, failures first."""
    said = [("" if c.held else "NOT held: ") + c.outcome for c in sorted(cases, key=lambda c: c.held)]
    distinct = list(dict.fromkeys(said))
    more = len(distinct) - _OUTCOMES
    return "; ".join(distinct[:_OUTCOMES]) + (f"; and {more} more like these" if more > 0 else "")


def _range(figures: Sequence[float]) -> str:
    if not figures:
        return "not seen"
    least, most = min(figures), max(figures)
    return f"{least:.1f}" if least == most else f"{least:.1f} to {most:.1f}"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())
