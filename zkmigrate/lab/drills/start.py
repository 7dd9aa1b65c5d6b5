"""How every drill program begins: an empty directory, a clock, and signals that end it in order."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import click

from zkmigrate.lab.shutdown import end_on_signals


class Telling:
    """Says lines, each with the seconds since it was made before it."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since this was made."""
        return time.monotonic() - self._began

    def __call__(self, line: str) -> None:
        click.echo(f"[{self.seconds:6.1f} s] {line}")


def begun(directory: Path, *, keep: bool = False) -> Path:
    """The directory of the drill's result, absolute and, unless ``keep``, empty; from here on SIGTERM and
    SIGHUP end the program as Ctrl-C does."""
    directory = directory.absolute()
    if not keep:
        shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    end_on_signals()
    return directory
