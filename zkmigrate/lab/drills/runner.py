"""How a drill program runs: an empty directory, a lab under load, its cases, one result, an exit code."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import click

from zkmigrate.cli.flags import F
from zkmigrate.errors import ZkmigrateError
from zkmigrate.lab.drills import result
from zkmigrate.lab.drills.result import Case
from zkmigrate.lab.judge import judge, load_history
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.load.target import runner_for
from zkmigrate.lab.shutdown import end_on_signals
from zkmigrate.lab.spec import LabSpec
from zkmigrate.lab.wait import Progress, TimedProgress

Drill: TypeAlias = Callable[[Path, Progress, list[Case]], None]
"""Plays all cases: gets the directory, where progress goes, and the list that each case is added to."""


def directory_option(name: str) -> Callable[[F], F]:
    """The option ``--directory`` of the drill of this name."""
    path = click.Path(path_type=Path)
    return click.option("--directory", default=f"drills/{name}", type=path, help="Where the result goes.")


def prepare(directory: Path, *, keep: bool = False) -> Path:
    """Make the drill's directory, emptied unless ``keep``; its absolute path.

    From here on SIGTERM and SIGHUP end the program as Ctrl-C does.
    """
    directory = directory.absolute()
    if not keep:
        shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    end_on_signals()
    return directory


def run_drill(name: str, directory: Path, drill: Drill) -> NoReturn:
    """Play a drill and write its result; exit with 0 only when it came to its end and each case held."""
    progress = TimedProgress()
    directory = prepare(directory)
    cases: list[Case] = []
    complete = False
    try:
        drill(directory, progress, cases)
        complete = True
    except ZkmigrateError as error:
        progress(f"failed: {error}; the recordings are in {directory}")
        seconds = round(progress.seconds, 1)
        cases.append(Case("whole", "all of it", "played to its end", str(error)[:2000], seconds, False))
    finally:
        body = result.body_of(name, cases, progress.seconds)
        result.write(directory, {**body, "held": body["held"] and complete})
    failed = [case.name for case in cases if not case.held]
    progress(f"{len(cases)} cases, {f'{len(failed)} FAILED' if failed else 'all as expected'}")
    sys.exit(0 if body["held"] else 1)


def play_case(
    progress: Progress,
    name: str,
    what: str,
    expected: str,
    act: Callable[[], str],
    first: Callable[[], object] = lambda: None,
) -> Case:
    """Do one thing and judge it. act: returns the outcome; raises ZkmigrateError when it is not as expected.

    first: what brings the run to where the case begins; its time does not count.
    """
    began = time.monotonic()
    try:
        first()
        progress(f"{name}: {what}")
        began = time.monotonic()
        outcome, held = act(), True
    except ZkmigrateError as error:
        outcome, held = str(error), False
    seconds = round(time.monotonic() - began, 1)
    progress(f"{name}: {'as expected' if held else 'WRONG'}, {seconds} s: {outcome}")
    return Case(name, what, expected, outcome, seconds, held)


@contextmanager
def loaded_lab(
    spec: LabSpec, history: Path, progress: Progress, **load_options: Any
) -> Iterator[tuple[Lab, LoadRunner]]:
    """A lab, and its load that records to ``history``, not started; both end with the block."""
    with Lab.up(spec, progress) as lab:
        load = runner_for(lab, history, **load_options)
        try:
            yield lab, load
        finally:
            load.kill()
        progress("lab: taking everything down")


def finish_load(load: LoadRunner, expected: Mapping[str, Any]) -> tuple[str, list[str]]:
    """End the load and judge its records: the values of these claims in words, and what is wrong.

    expected: what each claim has to be.
    """
    wrong = load.finish()
    verdict = judge(load_history(load.directory))
    values = {name: verdict[name].value for name in expected}
    wrong += [
        f"{name} {value}: {verdict[name].detail}"[:1000]
        for name, value in values.items()
        if value != expected[name]
    ]
    return ", ".join(f"{name} {value}" for name, value in values.items()), wrong
