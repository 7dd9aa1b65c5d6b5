"""The hand-kept pages of drills and limits agree with the preflight, the findings and the tests."""

from __future__ import annotations

import re
from pathlib import Path

from zkmigrate.cli.findings import entries
from zkmigrate.move.preflight.drilled import DRILLED, Drill

ROOT = Path(__file__).resolve().parents[2]
TRACK_RECORD, LIMITS = ((ROOT / "docs" / page).read_text() for page in ("track-record.md", "limits.md"))


def moves_named(text: str) -> set[Drill]:
    """Return every ``A to B, Kafka C`` and ``A to B with Kafka C`` of a text."""
    number = r"(\d+\.\d+\.\d+)"
    found = re.findall(rf"{number} to {number}(?:,| with) Kafka {number}", " ".join(text.split()))
    return {Drill(*versions) for versions in found}


def test_the_versions_are_those_of_the_drills_that_held() -> None:
    """The track record's whole moves, the README's sentence and the check say the same, and nothing twice."""
    usual = TRACK_RECORD.partition("## Drills\n")[2].partition(", unless")[0]
    moves = TRACK_RECORD.partition("### Whole moves under load\n")[2].partition("\n### ")[0]
    held = [line for line in moves.splitlines() if "*Held*" in line]
    assert any(line.startswith("| Demo from a bare clone") for line in held), "of the usual versions"
    assert set(DRILLED) == moves_named(usual) | moves_named("\n".join(held))
    assert set(DRILLED) == moves_named((ROOT / "README.md").read_text())
    assert len(set(DRILLED)) == len(DRILLED)


def test_every_row_of_the_limits_is_whole_and_names_findings_that_exist() -> None:
    rows = [line for line in LIMITS.splitlines() if line.startswith("|")]
    assert len(rows) > 30
    assert [row for row in rows if row.count("|") != 5] == []
    named = set(re.findall(r"`((?:dest|host|kafka|remove|source|survey)\.[a-z-]+)`", LIMITS))
    assert len(named) > 15
    assert named - entries().keys() == set()


def test_every_test_that_the_track_record_names_exists() -> None:
    named = set(re.findall(r"\btests/[\w/]+\.py", TRACK_RECORD))
    assert named != set()
    assert [path for path in named if not (ROOT / path).is_file()] == []
