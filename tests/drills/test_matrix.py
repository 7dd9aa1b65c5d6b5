"""Whole moves of the matrix, each in its own lab: versions, chroot, security, shape.

It runs ``zkmigrate.lab.demo`` for every cell. A case holds if the demo ends with 0: then every claim of its
judge held, and the servers reported these versions. The cells that held become the page of the matrix.
"""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.drills import matrix
from tests.drills.labs import Play
from tests.drills.roll_site import require
from zkmigrate.lab.shutdown import running

pytestmark = pytest.mark.drill

MINUTES = 120
PATIENCE_S = 60.0


def move(cell: matrix.Cell, directory: Path) -> str:
    """Run the demo for this cell and return its figures. Raises Unexpected if something did not hold."""
    command = [sys.executable, "-m", "zkmigrate.lab.demo", "--directory", str(directory), *cell.options]
    with running(command, None, PATIENCE_S) as process:
        code = process.wait()
    path = directory / "result.json"
    require(path.exists(), f"ended with {code} without a result")
    found = json.loads(path.read_text())
    wrong = [name for name, claim in found["claims"].items() if claim["held"] != "yes"]
    wrong += [name for name, right in found["conditions"].items() if not right]
    outcome = ", ".join(f"{name} {found[name]}" for name in matrix.FIGURES)
    require(code == 0 and found["held"] and not wrong, f"ended with {code}: {', '.join(wrong)}; {outcome}")
    matrix.keep(cell, found, datetime.now(UTC).date().isoformat())
    return outcome


@pytest.mark.parametrize("cell", matrix.CELLS, ids=str)
def test_the_demo_moves(cell: matrix.Cell, directory: Path, play: Play) -> None:
    folder = directory / re.sub(r"[^a-z0-9.]+", "-", str(cell).lower())
    play(f"the demo, ZooKeeper {cell}", "every claim of its judge held", lambda: move(cell, folder))
