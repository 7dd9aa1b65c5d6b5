"""Carry out the options ``-v``, ``--log-file`` and ``--no-color``."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from pathlib import Path

import click

from zkmigrate.clean import clean

_FORM = logging.Formatter("%(asctime)s.%(msecs)03d %(message)s", "%Y-%m-%dT%H:%M:%S")


class _ToStderr(logging.Handler):
    """A log handler that writes to the current ``sys.stderr``, which the live view replaces while it runs."""

    def emit(self, record: logging.LogRecord) -> None:
        # Not click.echo, which bypasses the stream that the live view puts in place of standard error.
        with contextlib.suppress(OSError):  # a closed terminal must not make the logged work fail
            print(clean(self.format(record)), file=sys.stderr, flush=True)


class _ToFile(logging.FileHandler):
    """A log handler that appends to a file that only its owner can read."""

    def _open(self) -> object:  # type: ignore[override]
        return os.fdopen(os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a")

    def format(self, record: logging.LogRecord) -> str:
        return clean(super().format(record))


def verbose(context: click.Context, _option: click.Parameter, given: bool) -> None:
    """Log commands and answers to standard error for as long as the verb runs."""
    if given:
        _add(context, _ToStderr())


def log_file(context: click.Context, _option: click.Parameter, given: Path | None) -> None:
    """Append commands and answers to a file for as long as the verb runs. Raises BadParameter."""
    if given is not None:
        try:
            _add(context, _ToFile(given))
        except OSError as error:
            raise click.BadParameter(f"cannot be written: {error}") from error


def no_color(_context: click.Context, _option: click.Parameter, given: bool) -> None:
    """Make rich print no colours, as NO_COLOR does."""
    if given:
        os.environ["NO_COLOR"] = "1"


def _add(context: click.Context, handler: logging.Handler) -> None:
    log = logging.getLogger("zkmigrate")
    handler.setFormatter(_FORM)
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    log.propagate = False

    def remove() -> None:
        log.removeHandler(handler)
        handler.close()

    context.call_on_close(remove)
