"""Each row of what moving partitions promises has a test that carries its id, as ``test_t3_…`` does."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]

PLANS = (*(f"R{n}" for n in range(1, 18)), "S1", "S2", *(f"B{n}" for n in range(1, 19)))
KAFKA = ("P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P13")
MOVES = ("T3", "T5", "T6", "T11")
ROWS = (*PLANS, *KAFKA, *MOVES)


def carried() -> set[str]:
    """The ids in the names of all tests."""
    names = [
        found[1]
        for file in TESTS.rglob("test_*.py")
        for found in re.finditer(r"^(?:    )?def test_((?:[a-z][0-9]+_)+)", file.read_text(), re.MULTILINE)
    ]
    return {id.upper() for name in names for id in name.rstrip("_").split("_")}


def test_every_row_has_a_test_with_its_id() -> None:
    assert sorted(set(ROWS) - carried()) == []
