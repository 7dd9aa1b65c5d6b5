"""Every drill program, one after the other: ``python -m zkmigrate.lab.drills``, or ``make drills``.

Each runs as its own process with a time limit and leaves ``DIRECTORY/NAME/result.json``;
``DIRECTORY/result.json`` has the whole. The exit code is 0 only when every chosen drill held.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from zkmigrate.lab.drills import result
from zkmigrate.lab.drills.programs import PROGRAMS, Program
from zkmigrate.lab.drills.runner import prepare
from zkmigrate.lab.shutdown import running
from zkmigrate.lab.wait import Progress, TimedProgress

PATIENCE_S = 120.0
"""Seconds for a drill that is ended to take its lab down."""


@dataclass(frozen=True)
class Ended:
    """How one program ended. why: what is wrong, "" when it held. body: its result, if any."""

    name: str
    seconds: float
    why: str
    body: dict[str, Any] | None = None

    @property
    def held(self) -> bool:
        return not self.why


@dataclass
class Series:
    """Programs, run one after the other."""

    programs: Sequence[Program]
    directory: Path
    progress: Progress
    done: list[Ended] = field(default_factory=list)

    def run(self) -> None:
        """Run all. Ctrl-C and the signals of ``end_on_signals`` end the running program and the series."""
        left = {program.name: self._usual_s(program) for program in self.programs}
        for number, program in enumerate(self.programs, 1):
            where = f"drill {number} of {len(self.programs)}, {program.name}"
            self.progress(
                f"{where}: about {_minutes(left[program.name])}, in all {_minutes(sum(left.values()))}"
            )
            ended = self._one(program)
            del left[program.name]
            self.done.append(ended)
            outcome = "held" if ended.held else f"NOT held: {ended.why}"
            self.progress(f"{where}: {outcome}, {ended.seconds:.0f} s; {_minutes(sum(left.values()))} left")

    def _usual_s(self, program: Program) -> float:
        """Seconds it took the last time here, or usually takes."""
        last = result.read(self.directory / program.name)
        return float(last["seconds"]) if last else program.usual_s

    def _one(self, program: Program) -> Ended:
        began = time.monotonic()
        directory = self.directory / program.name
        (directory / result.FILE).unlink(missing_ok=True)
        command = [sys.executable, "-m", program.module, *program.words, "--directory", str(directory)]

        def ended(why: str) -> Ended:
            body = result.read(directory)
            if not why and (body is None or not body["held"]):
                why = "it left no result" if body is None else "its result does not say that it held"
            return Ended(program.name, round(time.monotonic() - began, 1), why, body)

        try:
            with running(command, None, PATIENCE_S) as process:
                code = process.wait(program.limit_s)
        except subprocess.TimeoutExpired:
            return ended(f"no end within {program.limit_s} s")
        except (KeyboardInterrupt, SystemExit):
            self.done.append(ended("interrupted"))
            raise
        return ended("" if code == 0 else _first_failed(directory, code))


def _first_failed(directory: Path, code: int) -> str:
    body = result.read(directory) or {"cases": []}
    failed = [case["name"] for case in body["cases"] if not case["held"]]
    return f"exit code {code}" + (f", cases {', '.join(failed)}" if failed else "")


def _minutes(seconds: float) -> str:
    return f"{max(1, round(seconds / 60))} min" if seconds else "nothing"


def table(done: Sequence[Ended]) -> str:
    """The last screen of the series."""
    lines = ["", f"{'drill':<16}{'held':<6}{'cases':<12}{'seconds':>8}  why"]
    for ended in done:
        cases = ended.body["cases"] if ended.body else []
        right = f"{sum(case['held'] for case in cases)} of {len(cases)}"
        held = "yes" if ended.held else "NO"
        lines.append(f"{ended.name:<16}{held:<6}{right:<12}{ended.seconds:>8.0f}  {ended.why}".rstrip())
    return "\n".join(lines)


def body_of(asked: Sequence[Program], done: Sequence[Ended], seconds: float) -> dict[str, Any]:
    """``result.json`` of the series; it held when each chosen program ran and held."""
    held = len(done) == len(asked) and all(ended.held for ended in done)
    rows = [
        {
            "drill": e.name, "held": e.held, "why": e.why, "seconds": e.seconds,
            "cases": e.body["cases"] if e.body else [],
        }
        for e in done
    ]  # fmt: skip
    return {"held": held, "seconds": round(seconds, 1), "drills": rows}


@click.command()
@click.option(
    "--only",
    multiple=True,
    type=click.Choice([program.name for program in PROGRAMS]),
    help="Only this drill; may be given again.",
)
@click.option("--list", "listed", is_flag=True, help="List the drills; run none.")
@click.option("--directory", default="drills", type=click.Path(path_type=Path), help="Where the results go.")
def main(only: tuple[str, ...], listed: bool, directory: Path) -> None:
    """Run the drills, each on its own lab, and judge them."""
    programs = [program for program in PROGRAMS if not only or program.name in only]
    if listed:
        for program in programs:
            click.echo(f"{program.name:<16}{_minutes(program.usual_s):<8}{program.what}")
        return
    progress = TimedProgress()
    directory = prepare(directory, keep=True)
    series = Series(programs, directory, progress)
    code: int | None = None
    try:
        series.run()
    except (KeyboardInterrupt, SystemExit) as end:
        code = end.code if isinstance(end, SystemExit) and isinstance(end.code, int) else 130
    body = body_of(programs, series.done, progress.seconds)
    result.write(directory, body)
    click.echo(table(series.done))
    sys.exit((0 if body["held"] else 1) if code is None else code)


if __name__ == "__main__":
    main()
