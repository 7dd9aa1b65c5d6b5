"""The matrix of moves: what it asks the demo for, and its page."""

from __future__ import annotations

import pytest

from tests.drills import matrix
from zkmigrate.cli.findings import entries
from zkmigrate.lab import demo, security
from zkmigrate.lab.spec import LabSpec


@pytest.mark.parametrize("cell", matrix.CELLS, ids=str)
def test_the_demo_takes_what_it_is_asked_for(cell: matrix.Cell) -> None:
    asked = demo.main.make_context("demo", cell.options).params
    names = ("source_version", "dest_version", "kafka_version", "chroot")
    assert tuple(asked[name] for name in names) == (cell.source, cell.dest, cell.kafka, cell.chroot)
    assert bool(asked["security"]) == bool(cell.security)
    LabSpec(**{name: asked[name] for name in (*names, "security", "shared")})  # these versions can have it


def test_the_matrix_is_as_large_as_it_has_to_be() -> None:
    assert len(set(map(str, matrix.CELLS))) == len(matrix.CELLS) >= 24
    assert sum(bool(cell.security) for cell in matrix.CELLS) >= 10
    assert sum(cell.chroot == "/" for cell in matrix.CELLS) >= 4


def test_full_is_every_kind_that_all_versions_have() -> None:
    asked = demo.main.make_context("demo", ["--security", "full"]).params["security"]
    assert set(asked) == set(security.Kind) - {security.Kind.ENFORCE}


def test_the_page_shows_the_results() -> None:
    known = matrix.read()
    assert set(known) <= set(map(str, matrix.CELLS))
    assert matrix.page(known) == matrix.PAGE.read_text()
    assert set(matrix.REFUSED.values()) <= entries().keys()


def test_a_row_shows_what_was_moved() -> None:
    cell = matrix.CELLS[0]
    assert matrix.page({}).count("*not tried* |") == len(matrix.CELLS)
    figures = dict(zip(matrix.FIGURES, (0, 0, 6, 6, 4.52, 2.21), strict=True))
    shown = matrix.page({str(cell): {"day": "2026-11-30", **figures}})
    assert "| *moved* 2026-11-30 | 6 of 6 | 4.5 (2.2) |" in shown
    said = f"1 of {len(matrix.CELLS)} rows were moved, of them 0 with security"
    assert said in " ".join(shown.split())
