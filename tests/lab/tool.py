"""The command line as the operator of a lab runs it: one process from the operator's place, for one run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from zkmigrate.lab.lab import Lab
from zkmigrate.lab.operator import call


def started(
    lab: Lab,
    directory: Path,
    run: str,
    *words: str,
    program: Sequence[str] = ("zkmigrate",),
    new_session: bool = False,
) -> subprocess.Popen[str]:
    """Begin ``program`` (a module and its own words) with a verb and its options; its input is held open.

    directory: holds ``migration.yml`` and ``runs``.
    """
    verb, *options = words
    path = str(directory / "migration.yml")
    argv = [sys.executable, "-m", *program, verb, "-i", path, "--run-id", run, "--yes", *options]
    return subprocess.Popen(
        lab.operator_command(argv),
        env={**os.environ, "ZKMIGRATE_RUNS": str(directory / "runs")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=new_session,
    )


def ended(process: subprocess.Popen[str], answer: str, timeout_s: float) -> int:
    """Type ``answer``, wait for the end and print what was said; the exit code."""
    said, _ = process.communicate(answer, timeout=timeout_s)
    print(said)
    return process.returncode


def beside(directory: Path, run: str, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a verb to its end at a second terminal of the operator's machine, without a way to the hosts."""
    words = [verb, "-i", str(directory / "migration.yml"), "--run-id", run, *options]
    return subprocess.run(
        [sys.executable, "-m", "zkmigrate", *words],
        env={**os.environ, "ZKMIGRATE_RUNS": str(directory / "runs")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def asked(lab: Lab, inventory: Path, *words: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a verb to its end from the operator's place, and print what it printed."""
    done = call(lab, inventory, *words, timeout_s=timeout_s)
    print(done.stdout, done.stderr)
    return done
