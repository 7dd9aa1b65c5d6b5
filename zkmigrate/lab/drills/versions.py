"""Whole moves between the versions that the preflight calls drilled, each on its own lab.

``python -m zkmigrate.lab.drills.versions`` runs ``zkmigrate.lab.demo`` for every entry of
``preflight.drilled.DRILLED``. A case holds when the demo ends with 0: then every claim of its judge held, and
the servers told these versions.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from zkmigrate.lab.drills import result
from zkmigrate.lab.drills.result import Case
from zkmigrate.lab.drills.runner import directory_option, run_drill
from zkmigrate.lab.shutdown import running
from zkmigrate.lab.wait import Progress
from zkmigrate.move.preflight.drilled import DRILLED, Drill

NAME = "versions"
LIMIT_S, PATIENCE_S = 1500.0, 60.0
EXPECTED = "every claim of the demo's judge held"
FIGURES = ("lost", "duplicated", "window_s")


def options_of(drill: Drill) -> list[str]:
    """The demo's options for a move."""
    return [
        "--source-version", drill.source, "--dest-version", drill.dest, "--kafka-version", drill.kafka
    ]  # fmt: skip


def case_of(drill: Drill, code: int | None, found: Mapping[str, Any] | None, seconds: float) -> Case:
    """The case of one demo. code: its exit code, None when it did not end in time; found: its result."""
    what = f"the demo, ZooKeeper {drill.source} to {drill.dest}, Kafka {drill.kafka}"
    held = code == 0 and found is not None and found["held"] is True
    if found is None:
        outcome = "no end in time" if code is None else f"ended with {code} without a result"
    else:
        figures = ", ".join(f"{name} {found[name]}" for name in FIGURES)
        wrong = [name for name, claim in found["claims"].items() if claim["held"] != "yes"]
        wrong += [name for name, right in found["conditions"].items() if not right]
        outcome = f"{'not held: ' + ', '.join(wrong) if wrong else 'every claim held'}; {figures}"
    return Case(str(drill), what, EXPECTED, outcome, round(seconds, 1), held)


def moved(drill: Drill, directory: Path) -> Case:
    """Run the demo for these versions."""
    began = time.monotonic()
    command = [sys.executable, "-m", "zkmigrate.lab.demo", "--directory", str(directory), *options_of(drill)]
    code: int | None = None
    try:
        with running(command, None, PATIENCE_S) as process:
            code = process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        pass
    path = directory / result.FILE
    found = json.loads(path.read_text()) if path.exists() else None
    return case_of(drill, code, found, time.monotonic() - began)


@click.command()
@click.option(
    "--case", "wanted", multiple=True, type=click.Choice([str(d) for d in DRILLED]),
    help="Only this move; may be given again.",
)  # fmt: skip
@directory_option(NAME)
def main(wanted: tuple[str, ...], directory: Path) -> None:
    """Move a loaded Kafka between each pair of versions that is called drilled."""
    drills = [drill for drill in DRILLED if not wanted or str(drill) in wanted]

    def play(directory: Path, progress: Progress, cases: list[Case]) -> None:
        for number, drill in enumerate(drills, 1):
            progress(f"move {number} of {len(drills)}: {drill}")
            cases.append(moved(drill, directory / f"{drill.source}-{drill.dest}-{drill.kafka}"))
            progress(f"{drill}: {'held' if cases[-1].held else 'NOT held'}, {cases[-1].outcome}")

    run_drill(NAME, directory, play)


if __name__ == "__main__":
    main()
