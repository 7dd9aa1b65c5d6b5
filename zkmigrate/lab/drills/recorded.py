"""The record of the drills: data in docs/record and docs/drills, and the two pages made of it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from zkmigrate.errors import UsageError
from zkmigrate.lab.drills.result import Case

RECORD, KEPT = Path("docs/record"), Path("docs/drills")
TRACK_RECORD, LIMITS = Path("docs/track-record.md"), Path("docs/limits.md")
KINDS = {"frozen": "frozen host", "ssh": "stopped sshd", "dropped": "dropped packets"}

GROUPS = {
    "moves": "Whole moves under load",
    "cut-overs": "Cut-overs, again and again",
    "faults": "Faults",
    "back": "Back to source behind the open door",
    "verbs": "Other verbs, mutants, examples",
    "tests": "Played by every test run",
}
AREAS = {
    "window": "The window",
    "back": "The way back",
    "proof": "Proofs",
    "journal": "Journal, plan and resume",
    "roll": "The roll, brokers and topics",
    "join": "JOIN and dest's configs",
    "preflight": "Preflight, inventory and init",
    "host": "zkm-host",
    "screen": "Commands, screens and reports",
    "hand": "The runbook by hand",
    "files": "Readers of ZooKeeper's files",
    "analysis": "Analyses",
    "placement": "Placement of partitions",
    "switch": "Topics on a second cluster",
    "lab": "Lab, load, demo and judge",
    "tests": "Tests",
}
APART = ("lab", "tests")
"""Areas that are not the tool: the page only counts their defects."""

ABOUT_DRILLS = """
What was drilled, how often, with which outcome, and every defect found. All drills ran on one machine with
two cores that runs every host of the lab, so times are upper bounds. [Limits](limits.md) tells what was
not tried.

A program writes both pages from the data in `docs/record` and `docs/drills`. Edit those, then run
`python -m zkmigrate.lab.drills --pages`. [The protocol](explanation/protocol.md) explains the words in
capitals.
"""
ABOUT_GROUPS = """
ZooKeeper 3.5.8 to 3.5.8 with Kafka 2.8.2, unless a drill names others. The data also hold each drill's
command and commit.

*Held*: all that the drill judged was right. Where it judged its load, no acknowledged record was lost or
read twice, no acknowledged create was missing, and no session of Kafka ended. *In part*: some claims did
not hold. *Mended*: all held after a mend. *Window* is FENCE to the first write that dest serves, *floor*
the start of dest's servers alone, *gap* the longest pause of a producer. A number in parentheses is an
[exit code](reference/exit-codes.md).
"""
ABOUT_SERIES = """
`python -m zkmigrate.lab.drills --record` ([how](how-to/drills.md)) keeps each case in `docs/drills`.
*Worst* is the longest time without a server for brokers, of the time allowed, or else the longest case.
"""
ABOUT_FIGURES = """
More figures, with what they are compared with, are in [bench](../bench/README.md).
"""
ABOUT_DEFECTS = """
{count} defects, {tested} of them with a test that would find the defect again. Below are those of the
tool, with a link to that test. `docs/record/defects.toml` has all of them, also {apart} of lab, load,
drills and tests, with cause, mend and state.
"""
ABOUT_LIMITS = """
Every size, version and shape that was tried, that the tool refuses, and that was not tried. What is
neither tried nor refused may work: [rehearse it](how-to/rehearse.md). Each trial is in the [track
record](track-record.md).
"""

USUAL = "3.5.8 to 3.5.8, Kafka 2.8.2"
"""The versions of a drill that names none, as ABOUT_GROUPS says."""

Result = Mapping[str, Any]
Words = Annotated[str, StringConstraints(min_length=1, pattern=r"^\S[^\n]*$")]
Versions = Annotated[str, StringConstraints(pattern=r"^\d[\d.]* to \d[\d.]*, Kafka \d[\d.]*$")]
Test = Annotated[str, StringConstraints(pattern=r"^tests/[\w/]+\.py(::test_\w+)?$")]


class Entry(BaseModel):
    """One entry of the record: each of these keys and no other."""

    model_config = ConfigDict(extra="forbid", frozen=True)


E = TypeVar("E", bound=Entry)


class Drill(Entry):
    """One drill. times: how often; conditions: load, sessions, hosts, size. tree: the commit it ran on."""

    group: Literal["moves", "cut-overs", "faults", "back", "verbs", "tests"]
    what: Words
    versions: tuple[Versions, ...]
    conditions: str
    times: Words
    outcome: Literal["held", "in part", "mended", "refused", "turned back"]
    seen: Words
    command: Words
    date: date
    tree: Words


class Figure(Entry):
    """Something measured."""

    what: Words
    seen: Words
    note: Words


class Defect(Entry):
    """A defect. now: what the program does instead. untested: why no test finds it."""

    area: Literal[
        "window", "back", "proof", "journal", "roll", "join", "preflight", "host", "screen", "hand", "files",
        "analysis", "placement", "switch", "lab", "tests",
    ]  # fmt: skip
    found: Words
    seen: Words
    cause: Words
    now: Words
    state: Literal["mended", "worked around", "not reproduced", "open"]
    tests: tuple[Test, ...] = ()
    untested: str = ""


class Limit(Entry):
    """Sizes, versions or shapes of one kind. An empty text: none was tried, or is refused."""

    group: Words
    what: Words
    tried: str
    refused: str
    not_tried: Words


@dataclass(frozen=True)
class Record:
    """The whole record. results: the results of drill programs."""

    drills: tuple[Drill, ...]
    figures: tuple[Figure, ...]
    defects: tuple[Defect, ...]
    limits: tuple[Limit, ...]
    results: tuple[Result, ...]


def kept(body: Result, seen: str, root: str) -> dict[str, Any]:
    """The part of a drill's result that is kept: common keys of each case, and figures.

    seen: the date and the commit. root: the path of the checkout, which is left out.
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


def read_record(root: Path) -> Record:
    """The record of this checkout.

    UsageError names file, entry and key of the first mistake: an unknown or missing key, a value of another
    form, a defect without test and reason, or with a test that does not exist.
    """
    folder = root / RECORD
    defects = _entries(folder / "defects.toml", Defect)
    for number, defect in enumerate(defects, 1):
        problems = [_proof_problem(defect), *(_test_problem(root, test) for test in defect.tests)]
        for wrong in filter(None, problems):
            raise UsageError(f"defects.toml: defect {number} ({defect.seen}): {wrong}")
    return Record(
        _entries(folder / "drills.toml", Drill),
        _entries(folder / "figures.toml", Figure),
        defects,
        _entries(folder / "limits.toml", Limit),
        tuple(json.loads(path.read_text()) for path in sorted((root / KEPT).glob("*.json"))),
    )


def write_pages(root: Path) -> None:
    """Write both pages of this checkout from its record. UsageError as ``read_record``."""
    for path, text in pages(read_record(root)).items():
        (root / path).write_text(text)


def pages(record: Record) -> dict[Path, str]:
    """The text of each page."""
    of_the_tool = [defect for defect in record.defects if defect.area not in APART]
    track = [
        "# Track record",
        ABOUT_DRILLS,
        "## Drills",
        ABOUT_GROUPS,
        *_grouped(record.drills, GROUPS, "group", _drill),
        "## Drills by program",
        ABOUT_SERIES,
        _table(("drill", "cases", "held", "worst", "sessions lost", "seen"), map(series_of, record.results)),
        "## Figures",
        ABOUT_FIGURES,
        "\n".join(f"- {figure.what}: {figure.seen}; {figure.note}" for figure in record.figures),
        "## Defects found",
        ABOUT_DEFECTS.format(
            count=len(record.defects),
            tested=sum(bool(defect.tests) for defect in record.defects),
            apart=sum(defect.area in APART for defect in record.defects),
        ),
        *_grouped(of_the_tool, AREAS, "area", _defect),
    ]
    limits = ["# Limits", ABOUT_LIMITS]
    for group in dict.fromkeys(limit.group for limit in record.limits):
        found = [limit for limit in record.limits if limit.group == group]
        rows = [(one.what, one.tried or "not tried", one.refused, one.not_tried) for one in found]
        limits += [f"## {group}", _table(("what", "tried", "refused", "not tried"), [rows])]
    return {TRACK_RECORD: _text(track), LIMITS: _text(limits)}


def series_of(result: Result) -> list[tuple[str, ...]]:
    """A row for each series of a drill's cases: each kind and outcome of silence, and the rest."""
    series: dict[str, list[Result]] = {}
    for case in result["cases"]:
        name = "all others"
        if case["name"].startswith("silent-"):
            name = f"{KINDS[case['name'].split('-')[1]]}, {case['expected'].partition(':')[0]}"
        series.setdefault(name, []).append(case)
    return [
        (result["drill"], name, _held(cases), _worst(cases), _sessions(cases), result["seen"])
        for name, cases in series.items()
    ]


def _held(cases: Sequence[Result]) -> str:
    """How many held, and the names of those that did not."""
    wrong = [case["name"] for case in cases if not case["held"]]
    share = f"{len(cases) - len(wrong)} of {len(cases)}"
    return f"{share}; NOT held: {', '.join(dict.fromkeys(wrong))}" if wrong else share


def _worst(cases: Sequence[Result]) -> str:
    """The figure nearest to its limit, or the longest case."""
    judged = [case for case in cases if "served_s" in case]
    if not judged:
        case = max(cases, key=lambda case: case["seconds"])
        return f"{case['seconds']:.0f} s ({case['name']})"
    case = max(judged, key=lambda case: case["served_s"] / case["limit_s"])
    return f"{case['served_s']:.1f} s of {case['limit_s']:.1f} ({case['name']})"


def _sessions(cases: Sequence[Result]) -> str:
    if not any("sessions_lost" in case for case in cases):
        return ""
    lost, lone = (sum(case.get(key, 0) for case in cases) for key in ("sessions_lost", "lone_lost"))
    return f"{lost}" + (f"; {lone} that knew that host alone" if lone else "")


def _drill(drill: Drill) -> str:
    if drill.group == "tests":
        return f"- {drill.what} (`{drill.command}`)"
    versions = "" if drill.versions == (USUAL,) else " and ".join(drill.versions)
    about = "; ".join(filter(None, (versions, drill.conditions)))
    what = f"**{drill.what}** ({about})" if about else f"**{drill.what}**"
    return f"- {what}. Times: {drill.times}. *{drill.outcome.capitalize()}*: {drill.seen}. {drill.date}"


def _defect(defect: Defect) -> str:
    if not defect.tests:
        return f"- {defect.seen} (no test: {defect.untested})"
    path = defect.tests[0].partition("::")[0]
    return f"- {defect.seen} [{Path(path).stem.removeprefix('test_')}](../{path})"


def _grouped(
    entries: Iterable[Any], names: Mapping[str, str], of: str, line: Callable[[Any], str]
) -> Iterator[str]:
    """A heading and a list for each group that has entries, in the order of the names."""
    entries = list(entries)
    for group, heading in names.items():
        found = [line(entry) for entry in entries if getattr(entry, of) == group]
        if found:
            yield f"### {heading}"
            yield "\n".join(found)


def _table(head: Sequence[str], rows: Iterable[Iterable[Sequence[str]]]) -> str:
    lines = [head, ["---"] * len(head), *(row for some in rows for row in some)]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())


def _text(parts: Iterable[str]) -> str:
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _entries(path: Path, kind: type[E]) -> tuple[E, ...]:
    """The entries of a file, which are tables of one name. UsageError names the first mistake."""
    name = kind.__name__.lower()
    try:
        body = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path.name}: {error}") from error
    if strange := sorted(set(body) - {name}):
        raise UsageError(f"{path.name}: {strange[0]}: unknown, needed [[{name}]]")
    found = []
    for number, entry in enumerate(body.get(name, ()), 1):
        try:
            found.append(kind.model_validate(entry))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise UsageError(f"{path.name}: {name} {number}: {where}: {first['msg']}") from error
    return tuple(found)


def _proof_problem(defect: Defect) -> str:
    if bool(defect.tests) == bool(defect.untested):
        return "tests or untested, one of them, is needed"
    return ""


def _test_problem(root: Path, test: str) -> str:
    """What is wrong with a test's name; "" when the test exists."""
    name, _, function = test.partition("::")
    if not (root / name).is_file():
        return f"no file {name}"
    if function and not re.search(rf"^(?:async )?def {function}\(", (root / name).read_text(), re.MULTILINE):
        return f"no {function} in {name}"
    return ""
