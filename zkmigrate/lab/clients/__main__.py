"""Run the client matrix: clients of several libraries and releases work while their cluster changes.

``python -m zkmigrate.lab.clients --bootstrap HOST:PORT --hook 'COMMAND'`` starts a producer and a consumer
group of each client against a cluster that already runs. It runs the command halfway, stops the clients, and
judges the records of each client. It builds no lab.

A case is one client; ``judge.clients.Row`` defines when a case passes. ``result.json`` contains its
``figures``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import click

from zkmigrate.errors import ZkmigrateError
from zkmigrate.lab.clients.families import FAMILIES
from zkmigrate.lab.clients.matrix import Matrix, play
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.judge.clients import Figures, Row
from zkmigrate.lab.shutdown import end_on_signals
from zkmigrate.lab.wait import Progress, TimedProgress
from zkmigrate.runbook.model.finding import Held

NAME = "client_matrix"
EXPECTED = "no record failed, or was lost, moved, twice, unseen or gone"
HOOK_S = 600.0
COLUMNS = [one.name for one in fields(Figures)][1:]
"""The figures that the table shows, in order."""


def case_of(row: Row, seconds: float) -> dict[str, Any]:
    """Return one client's entry in ``result.json``. seconds: how long the matrix took."""
    return {
        "name": row.client,
        "what": f"a producer and a group of {row.figures.library or row.client}",
        "expected": EXPECTED,
        "outcome": row.why
        or "every acknowledged record is in the log at its offset, and its group received it",
        "seconds": seconds,
        "held": row.held is Held.YES,
        "figures": asdict(row.figures),
    }


def table(rows: Sequence[Row]) -> str:
    """Return a table of each client's figures as text; "-" stands for an unknown figure."""
    head = ["client", "library", *COLUMNS, "held"]
    lines = [head]
    for row in rows:
        figures = asdict(row.figures)
        values = ["-" if figures[name] is None else str(figures[name]) for name in COLUMNS]
        lines.append([row.client, row.figures.library or "-", *values, row.held.value])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            word.ljust(width) if at < 2 else word.rjust(width)
            for at, (word, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def carried_out(command: str) -> str:
    """Run the hook's command in a shell and return the end of its output. Raises LabError if it fails."""
    try:
        done = subprocess.run(
            command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=HOOK_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise LabError(f"the hook did not end within {HOOK_S:g} s: {command}") from late
    last = done.stdout.strip()[-1000:]
    if done.returncode != 0:
        raise LabError(f"the hook ended with exit code {done.returncode}: {last}")
    return last or "the hook ended with exit code 0"


def case_of_hook(command: str, progress: Progress) -> dict[str, Any]:
    """Run the hook's command and return its entry in ``result.json``."""
    began = time.monotonic()
    progress(f"hook: {command}")
    try:
        outcome, held = carried_out(command), True
    except LabError as error:
        outcome, held = str(error), False
    seconds = round(time.monotonic() - began, 1)
    progress(f"hook: {'as expected' if held else 'WRONG'}, {seconds} s: {outcome}")
    return {
        "name": "hook", "what": command, "expected": "it does not fail", "outcome": outcome,
        "seconds": seconds, "held": held,
    }  # fmt: skip


def work(
    matrix: Matrix, clients: Sequence[str], hook: str, directory: Path, progress: Progress
) -> list[dict[str, Any]]:
    """Run the clients, run the hook halfway, and print a table. Return the entries of ``result.json``."""
    cases: list[dict[str, Any]] = []
    programs = {name: FAMILIES[name](progress) for name in clients}
    began = time.monotonic()

    def during() -> None:
        if hook:
            cases.append(case_of_hook(hook, progress))

    rows = play(matrix, programs, directory, progress, during)
    seconds = round(time.monotonic() - began, 1)
    for row in rows:
        if row.why:
            progress(f"{row.client}: {row.why}")
    click.echo(f"\n{table(rows)}\n")
    return [*cases, *(case_of(row, seconds) for row in rows)]


@click.command()
@click.option("--bootstrap", required=True, help="Addresses of brokers for the clients: HOST:PORT,…")
@click.option(
    "--client", "clients", multiple=True, type=click.Choice(list(FAMILIES)),
    help="A client. Repeatable. Default: all clients.",
)  # fmt: skip
@click.option("--seconds", default=60.0, type=click.FloatRange(min=1), help="How long the clients run.")
@click.option(
    "--rate", default=20.0, type=click.FloatRange(0.1, 10_000), help="Records per second and client."
)
@click.option("--topic", default="clients", help="The topic. It is created if it does not exist.")
@click.option(
    "--partitions", default=3, type=click.IntRange(min=1), help="Number of partitions of a new topic."
)
@click.option(
    "--replication-factor", default=1, type=click.IntRange(min=1), help="Replication factor of a new topic."
)
@click.option("--groups", default="clients", help="Prefix of the name of each client's group.")
@click.option(
    "--log-at",
    default="",
    help="Addresses of brokers from which the log is read at the end. Default: --bootstrap.",
)
@click.option(
    "--hook", default="", help="A shell command to run halfway, such as one that switches the clusters."
)
@click.option(
    "--directory", default=f"drills/{NAME}", type=click.Path(path_type=Path), help="Directory for the result."
)
def main(
    bootstrap: str,
    clients: tuple[str, ...],
    seconds: float,
    rate: float,
    topic: str,
    partitions: int,
    replication_factor: int,
    groups: str,
    log_at: str,
    hook: str,
    directory: Path,
) -> None:
    """Run clients of several libraries and releases on one topic, and judge their records."""
    matrix = Matrix(bootstrap, topic, partitions, replication_factor, groups, rate, seconds, log_at)
    progress = TimedProgress()
    directory = directory.absolute()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    end_on_signals()
    cases: list[dict[str, Any]] = []
    try:
        cases = work(matrix, clients or list(FAMILIES), hook, directory, progress)
    except ZkmigrateError as error:
        progress(f"failed: {error}; the recordings are in {directory}")
    held = bool(cases) and all(case["held"] for case in cases)
    body = {"drill": NAME, "held": held, "seconds": round(progress.seconds, 1), "cases": cases}
    (directory / "result.json").write_text(json.dumps(body, indent=1) + "\n")
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
