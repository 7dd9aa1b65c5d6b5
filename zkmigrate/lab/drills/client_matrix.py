"""The client matrix: clients of several families and releases at work, while something happens to their
cluster.

``python -m zkmigrate.lab.drills.client_matrix --bootstrap HOST:PORT --hook 'COMMAND'`` starts a producer
and a group of each client against addresses that are up already. It runs the command in the middle, stops
them, and judges what each of them recorded. It builds no lab, so ``make drills`` does not play it.

A case is one client, and holds as ``judge.clients.Row`` says. Its ``figures`` are in ``result.json``.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path

import click

from zkmigrate.lab.clients.families import FAMILIES
from zkmigrate.lab.clients.matrix import Matrix, play
from zkmigrate.lab.drills.result import Case
from zkmigrate.lab.drills.runner import directory_option, play_case, run_drill
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.judge.clients import Figures, Row
from zkmigrate.lab.wait import Progress
from zkmigrate.runbook.model.finding import Held

NAME = "client_matrix"
EXPECTED = "nothing failed, was lost, moved, twice, unseen or gone"
HOOK_S = 600.0
COLUMNS = [one.name for one in fields(Figures)][1:]
"""The figures that the table shows, in their order."""


@dataclass(frozen=True)
class ClientCase(Case):
    """A client, with what its records came to."""

    figures: Figures


def case_of(row: Row, seconds: float) -> ClientCase:
    """The case of one client. seconds: how long the matrix took."""
    what = f"a producer and a group of {row.figures.library or row.client}"
    outcome = row.why or "every record where it was acknowledged, and seen"
    return ClientCase(row.client, what, EXPECTED, outcome, seconds, row.held is Held.YES, row.figures)


def table(rows: Sequence[Row]) -> str:
    """The figures of each client; "-" where one is not known."""
    head = ["client", "library", *COLUMNS, "held"]
    lines = [head]
    for row in rows:
        told = asdict(row.figures)
        values = ["-" if told[name] is None else str(told[name]) for name in COLUMNS]
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
    """Run the hook's command by the shell; what it said last. Raises LabError when it fails."""
    try:
        done = subprocess.run(
            command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=HOOK_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise LabError(f"the hook did not end within {HOOK_S:g} s: {command}") from late
    last = done.stdout.strip()[-1000:]
    if done.returncode != 0:
        raise LabError(f"the hook ended with {done.returncode}: {last}")
    return last or "ended with 0"


def drill(
    matrix: Matrix, clients: Sequence[str], hook: Callable[[], str] | None, what: str
) -> Callable[[Path, Progress, list[Case]], None]:
    """The drill of these clients, for ``run_drill``. hook: what happens in the middle; returns its outcome,
    raises ZkmigrateError when it failed, which is a case of its own. what: the hook in words."""

    def played(directory: Path, progress: Progress, cases: list[Case]) -> None:
        programs = {name: FAMILIES[name](progress) for name in clients}
        began = time.monotonic()

        def during() -> None:
            if hook is not None:
                cases.append(play_case(progress, "hook", what, "it does not fail", hook))

        rows = play(matrix, programs, directory, progress, during)
        seconds = round(time.monotonic() - began, 1)
        cases += [case_of(row, seconds) for row in rows]
        for row in rows:
            if row.why:
                progress(f"{row.client}: {row.why}")
        click.echo(f"\n{table(rows)}\n")

    return played


@click.command()
@click.option("--bootstrap", required=True, help="The addresses HOST:PORT,… that each client is told.")
@click.option(
    "--client", "clients", multiple=True, type=click.Choice(list(FAMILIES)),
    help="Only this client; may be given again.",
)  # fmt: skip
@click.option("--seconds", default=60.0, type=click.FloatRange(min=1), help="How long they work.")
@click.option(
    "--rate", default=20.0, type=click.FloatRange(0.1, 10_000), help="Records per second and client."
)
@click.option("--topic", default="clients", help="The topic; it is made when it is missing.")
@click.option("--partitions", default=3, type=click.IntRange(min=1), help="How many the topic has.")
@click.option("--replication-factor", default=1, type=click.IntRange(min=1), help="For a topic that is made.")
@click.option("--groups", default="clients", help="What the name of each client's group begins with.")
@click.option("--log-at", default="", help="Where the log is read in the end; left out: at --bootstrap.")
@click.option("--hook", default="", help="A shell command to run in the middle, such as a switch.")
@directory_option(NAME)
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
    """Let clients of several families and releases work on one topic, and judge what became of their
    records."""
    matrix = Matrix(bootstrap, topic, partitions, replication_factor, groups, rate, seconds, log_at)
    command = partial(carried_out, hook) if hook else None
    run_drill(NAME, directory, drill(matrix, clients or list(FAMILIES), command, hook))


if __name__ == "__main__":
    main()
