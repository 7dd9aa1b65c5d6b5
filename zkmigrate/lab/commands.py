"""Run programs of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from zkmigrate.lab.failure import LabError


def run(argv: Sequence[str], *, stdin: str | None = None, timeout_s: float = 60) -> str:
    """Run a program and return its standard output. stdin: text for the program's standard input.

    Raises LabError with the program's output if it is missing, fails or takes more than `timeout_s` seconds.
    """
    try:
        done = subprocess.run(
            argv, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError as missing:
        raise LabError(f"the program {argv[0]} is not on this machine; the lab needs it") from missing
    except subprocess.TimeoutExpired as late:
        raise LabError(f"{' '.join(argv)} did not end within {timeout_s:g} s") from late
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise LabError(f"{' '.join(argv)} ended with exit code {done.returncode}: {said}")
    return done.stdout
