"""New examples for every test of hypothesis, round after round: ``python -m tests.explore``.

Each round has a seed of its own, which is told first. The first round in which a test fails ends it, with 1.
When the time is over, the round that runs is ended; its examples are not counted.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

AT_ONCE = 2
PATIENCE_S = 30.0
USES = re.compile(r"^@given\(", re.MULTILINE)
COUNTED = re.compile(r"- (\d+) passing, ")


def files(folder: Path) -> list[str]:
    """The test files that hypothesis gives examples to."""
    return [str(path) for path in sorted(folder.rglob("test_*.py")) if USES.search(path.read_text())]


def one_round(named: list[str], seed: int, limit_s: float) -> tuple[int | None, str]:
    """pytest's exit code, and what it said; no exit code where the time was over before its end."""
    words = (f"-n{AT_ONCE}", "--dist=worksteal", "-x", "-q", "-p", "no:cacheprovider", "-m", "hypothesis")
    told = ("--hypothesis-show-statistics", f"--hypothesis-seed={seed}")
    process = subprocess.Popen(
        (sys.executable, "-m", "pytest", *words, *told, *named),
        env=os.environ | {"HYPOTHESIS_PROFILE": "search"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=PATIENCE_S)
            finally:
                process.kill()
            return None, ""
    return process.returncode, said


def tried(said: str) -> int:
    """How many examples a whole round took."""
    return sum(map(int, COUNTED.findall(said)))


@click.command()
@click.option("--minutes", default=15.0, help="When it ends, where nothing fails.")
@click.argument("folder", default="tests", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(minutes: float, folder: Path) -> None:
    """Look for an example that fails."""
    end = time.monotonic() + 60 * minutes
    named = files(folder)
    rounds = examples = 0
    while (left := end - time.monotonic()) > 0:
        seed = secrets.randbits(32)
        click.echo(f"round {rounds + 1}: --hypothesis-seed={seed}")
        code, said = one_round(named, seed, left)
        if code is None:
            break
        examples += tried(said)
        if code:
            click.echo(said)
            click.echo(
                f"pytest ended with {code}. Once more: HYPOTHESIS_PROFILE=search python -m pytest "
                f"--hypothesis-seed={seed} TEST"
            )
            sys.exit(1)
        rounds += 1
    click.echo(f"{len(named)} files, {rounds} whole rounds, {examples} examples, no failure")


if __name__ == "__main__":
    main()
