"""End a program that owns a lab, together with the programs that it has started.

SIGTERM and SIGHUP remove the lab, as Ctrl-C does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn

import click


@contextlib.contextmanager
def running(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    patience_s: float = 20,
    output: IO[bytes] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in its own session, so that Ctrl-C does not reach it, and end it with the block.

    The process receives SIGTERM (a Ctrl-C may be ignored in the background), and SIGKILL after ``patience_s``
    seconds. output: the file for standard output and standard error; None for those of this process.
    """
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for number, limit_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 10)):
            if process.poll() is None:
                process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(limit_s)


def shown(command: Sequence[str], environment: Mapping[str, str], copy: Path) -> int:
    """Run a program to its end as `running` does, and return its exit code.

    Its output and errors are shown as they come, and appended to the file `copy`.
    """
    reading, writing = os.pipe()
    with (
        os.fdopen(reading, "rb") as lines,
        copy.open("ab") as saved,
        os.fdopen(writing, "wb") as pipe,
        running(command, {**environment, "PYTHONUNBUFFERED": "1"}, output=pipe) as process,
    ):
        pipe.close()
        for line in lines:
            saved.write(line)
            click.echo(line, nl=False)
        return process.wait()


def end_on_signals() -> None:
    """Make SIGTERM and SIGHUP raise SystemExit (128 + number), so that clean-ups run."""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, end)
