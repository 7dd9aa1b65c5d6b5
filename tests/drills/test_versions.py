"""Whole moves between the versions that the preflight calls drilled, each in its own lab.

It runs ``zkmigrate.lab.demo`` for every entry of ``preflight.drilled.DRILLED``. A case holds if the demo ends
with 0: then every claim of its judge held, and the servers reported these versions.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.drills.labs import Play
from tests.drills.roll_site import require
from zkmigrate.lab.shutdown import running
from zkmigrate.move.preflight.drilled import DRILLED, Drill

pytestmark = pytest.mark.drill

MINUTES = 20
PATIENCE_S = 60.0
FIGURES = ("lost", "duplicated", "window_s")


def options_of(drill: Drill) -> list[str]:
    """Return the demo's options for a move."""
    return [
        "--source-version", drill.source, "--dest-version", drill.dest, "--kafka-version", drill.kafka
    ]  # fmt: skip


def move(drill: Drill, directory: Path) -> str:
    """Run the demo for these versions and return its figures. Raises Unexpected if something did not hold."""
    command = [sys.executable, "-m", "zkmigrate.lab.demo", "--directory", str(directory), *options_of(drill)]
    with running(command, None, PATIENCE_S) as process:
        code = process.wait()
    path = directory / "result.json"
    require(path.exists(), f"ended with {code} without a result")
    found = json.loads(path.read_text())
    wrong = [name for name, claim in found["claims"].items() if claim["held"] != "yes"]
    wrong += [name for name, right in found["conditions"].items() if not right]
    outcome = ", ".join(f"{name} {found[name]}" for name in FIGURES)
    require(code == 0 and found["held"] and not wrong, f"ended with {code}: {', '.join(wrong)}; {outcome}")
    return outcome


@pytest.mark.parametrize("drill", DRILLED, ids=str)
def test_the_demo_moves_between_drilled_versions(drill: Drill, directory: Path, play: Play) -> None:
    what = f"the demo, ZooKeeper {drill.source} to {drill.dest}, Kafka {drill.kafka}"
    folder = directory / f"{drill.source}-{drill.dest}-{drill.kafka}"
    play(what, "every claim of its judge held", lambda: move(drill, folder))
