"""Each row of what plans, throttles, removals, mirrors and the gateway promise: a test carries its id."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]

PLANS = (*(f"R{n}" for n in range(1, 18)), "S1", "S2", *(f"B{n}" for n in range(1, 19)))
KAFKA = ("P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "P12", "P13", "P14")
MOVES = (*(f"T{n}" for n in range(1, 12)), "U1", "U2")
REMOVAL = tuple(f"X{n}" for n in range(1, 22))
SECOND_CLUSTER = (*(f"H{n}" for n in (*range(1, 13), 14, 16, 17, *range(20, 24), 25)),)
ROWS = (*PLANS, *KAFKA, *MOVES, *REMOVAL, *SECOND_CLUSTER)


def ids(test: str) -> set[str]:
    """The ids in the name of a test: small ones before the words, as in ``t3_t11_rates_stay``, or large ones
    anywhere."""
    words = test.split("_")
    small = takewhile(lambda word: re.fullmatch(r"[a-z][0-9]+", word), words)
    return {word.upper() for word in small} | {word for word in words if re.fullmatch(r"[A-Z][0-9]+", word)}


def carried() -> set[str]:
    """The ids in the names of all tests."""
    texts = (file.read_text() for file in TESTS.rglob("test_*.py"))
    names = (name for text in texts for name in re.findall(r"^ *def test_(\w+)", text, re.MULTILINE))
    return {id for name in names for id in ids(name)}


def test_ids_are_read_from_names() -> None:
    assert ids("t3_t11_a_rate_of_p7_stays") == {"T3", "T11"}
    assert ids("a_rate_stays_T8") == {"T8"}
    assert ids("a_p95_is_told") == set()


def test_every_row_has_a_test_with_its_id() -> None:
    assert sorted(set(ROWS) - carried()) == []
