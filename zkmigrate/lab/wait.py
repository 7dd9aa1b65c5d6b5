"""Wait for conditions. Every wait has a name for messages and a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from zkmigrate.lab.failure import NotReady

Progress = Callable[[str], None]
"""A function that receives one line of progress."""


def silent(_line: str) -> None:
    """Discard a line of progress."""


class TimedProgress:
    """A progress function that prints each line with the seconds since this object was created."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """The seconds since this object was created."""
        return time.monotonic() - self._start

    def __call__(self, line: str) -> None:
        click.echo(f"[{self.seconds:6.1f} s] {line}")


def wait_until(
    what: str, condition: Callable[[], str | None], deadline_s: float, poll_s: float = 0.1
) -> None:
    """Call `condition` every ``poll_s`` seconds until it returns None.

    condition: returns None if it is met, otherwise a text that says what is missing. Raises NotReady with the
    last text after `deadline_s` seconds.
    """
    end = time.monotonic() + deadline_s
    while (missing := condition()) is not None:
        if time.monotonic() >= end:
            raise NotReady(f"{what}: not done within {deadline_s:g} s. Still missing: {missing}")
        time.sleep(poll_s)
