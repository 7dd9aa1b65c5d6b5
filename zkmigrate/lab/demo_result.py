"""Provide the common parts of all demos: the lab around a demo, its result file, and its final text."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from zkmigrate.errors import ZkmigrateError
from zkmigrate.lab import state
from zkmigrate.lab.fit import WINDOW_OVER_FLOOR
from zkmigrate.lab.judge import Verdict
from zkmigrate.lab.judge.secrets import CLAIM
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.shutdown import end_on_signals
from zkmigrate.lab.spec import LabSpec
from zkmigrate.lab.wait import Progress, TimedProgress

BACKEND = "nspawn"
LEFT = "there are still {}; `zkmigrate lab sweep`, or the next start, removes labs whose owner died"


def show(
    directory: Path,
    prepare: Callable[[Progress], LabSpec],
    play: Callable[[Lab, Path, Progress], dict[str, Any]],
    report: Callable[[Path], Path | None] = lambda _directory: None,
) -> NoReturn:
    """Run a demo in a lab of its own, write ``result.json``, and exit with 0 only if every claim held.

    directory: emptied first. prepare: returns the lab's spec. play: runs the demo and returns the content of
    ``result.json``. report: writes a page about the demo and returns its path, or None if there is nothing to
    report.
    """
    progress = TimedProgress()
    directory = directory.absolute()
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "history").mkdir(parents=True)
    end_on_signals()
    others = state.directories()
    try:
        with Lab.up(prepare(progress), progress) as lab:
            try:
                result = play(lab, directory, progress)
            finally:
                progress("lab: taking everything down")
    except ZkmigrateError as error:
        progress(f"failed: {error}")
        progress(f"the recordings are in {directory}")
        if page := report(directory):
            progress(f"the report: {page}")
        sys.exit(1)
    except (KeyboardInterrupt, SystemExit) as end:
        # A second signal may have interrupted the teardown as well.
        left = [path.name for path in state.own(others)]
        progress(
            "interrupted: " + (LEFT.format(", ".join(left)) if left else "nothing of the lab is left behind")
        )
        sys.exit(end.code if isinstance(end, SystemExit) else 130)
    result["seconds"] = round(progress.seconds, 1)
    (directory / "result.json").write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    click.echo(summary(result, directory.name))
    if page := report(directory):
        click.echo(f"the report, to be read in a browser: {page}")
    sys.exit(0 if result["held"] else 1)


def result_of(verdict: Verdict, facts: dict[str, Any], wanted: dict[str, str]) -> dict[str, Any]:
    """Return the content of ``result.json``. It holds only if every claim and every condition holds.

    facts: the demo's results besides the recordings, by name. wanted: the versions in the lab's spec.
    """
    values = verdict.result()
    ratio = _ratio(values["window_s"], facts["floor_s"])
    conditions = {
        "real_hosts": facts["backend"] == BACKEND,
        "versions_as_asked": facts["versions"] == wanted,
        "source_files_unchanged": facts["source_files_unchanged"],
        "run_complete": facts["run_complete"],
        "owners_on_dest_at_survey": facts["owners_on_dest_at_survey"],
        "canary_acknowledged_by_each_broker": all(facts["canary_acknowledged"].values()),
        "analysed": facts["analysed"],
        "window_over_floor": ratio is not None and ratio <= WINDOW_OVER_FLOOR,
    }
    held = verdict.held and all(conditions.values())
    return {**values, **facts, "window_over_floor": ratio, "conditions": conditions, "held": held}


def _ratio(window_s: float | None, floor_s: float) -> float | None:
    """Return the window as a multiple of the floor; None without a window."""
    return None if window_s is None or floor_s <= 0 else round(window_s / floor_s, 2)


def summary(result: dict[str, Any], directory: str = "demo") -> str:
    """Return the final text of a demo: every claim and whether it held, then the verdict.

    directory: the directory of the result, as shown to the user.
    """
    lines = ["", "claim                                   held     value"]
    for name, claim in result["claims"].items():
        value = json.dumps(result[name])
        lines.append(f"{name:<40}{claim['held']:<9}{value[:90]}")
        if claim["held"] != "yes":
            lines.append(f"    needed: {claim['needed']}; {claim['detail']}"[:400])
    if CLAIM in result:
        lines += _of_secrets(result[CLAIM])
    if "conditions" in result:
        lines += _of_the_move(result)
    lines += [
        "",
        "every claim held" if result["held"] else f"NOT every claim held: see {directory}/result.json",
    ]
    return "\n".join(lines)


def _of_secrets(search: dict[str, Any]) -> list[str]:
    """Return the table of the search for secrets: how many texts of each kind of place were searched."""
    lines = ["", f"{search['secrets']} secrets searched in              texts"]
    lines += [f"{kind:<40}{count}" for kind, count in search["searched"].items()]
    lines.append(f"{'seen in places of the lab itself':<40}{search['own_places']}")
    return [*lines, f"{'found':<40}{len(search['found'])}", *(f"    {one}" for one in search["found"]), ""]


def _of_the_move(result: dict[str, Any]) -> list[str]:
    """Return the lines after the claims that only the demo of the move shows."""
    lines = [f"{name:<40}{'yes' if held else 'no'}" for name, held in result["conditions"].items()]
    for name in ("opened_by", "canary_acknowledged", "limits"):
        lines.append(f"{name:<49}{json.dumps(result[name])}")
    ratio = f"{result['window_s']} / {result['floor_s']} = {result['window_over_floor']}"
    lines.append(f"{'window_s / floor_s':<49}{ratio}")
    lines.append(f"{'machine':<49}{json.dumps(result['machine'])}")
    if result["tries"]:
        lines.append(f"{'tries that turned back':<49}{json.dumps(result['tries'])}")
    return lines
