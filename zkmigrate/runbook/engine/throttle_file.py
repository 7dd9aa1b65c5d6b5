"""The throttle file, by which an operator sets rates of a run from another terminal.

``runs/RUN/throttle`` is a JSON object {every, each, by, place, since}; rates are bytes per second, and
``each`` has one for each id. ``zkmigrate throttle set`` and ``clear`` write it; without overrides it does not
exist. The run reads it at each look, so it outlives a process. An unreadable file never fails the run, which
then chooses the rates itself.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from zkmigrate.kafka.rates import LEAST, MOST, Overrides
from zkmigrate.runbook.engine import run_file

NAME = "throttle"


class ThrottleFile:
    """The throttle file of one run directory."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / NAME

    def read(self) -> Overrides:
        """Return the present overrides. Never raises: ``wrong`` says why the file cannot be read."""
        try:
            said = run_file.json_object(run_file.content(self._path))
            each = said.get("each", {})
            if not isinstance(each, dict):
                raise ValueError("its rates are not a JSON object")
            every = said.get("every")
            return Overrides(
                None if every is None else _rate(every),
                {_id(id_): _rate(rate) for id_, rate in sorted(each.items())},
                run_file.line(said.get("by", "")),
                run_file.moment(said.get("since", 0)),
            )
        except FileNotFoundError:
            return Overrides()
        except OSError as error:
            return Overrides(wrong=str(error.strerror))
        except ValueError as error:
            return Overrides(wrong=str(error))

    def change(
        self, edit: Callable[[Overrides], Overrides], by: str, place: str, since: float
    ) -> tuple[Overrides, Overrides]:
        """Replace the overrides by ``edit(overrides)``. Return the overrides before and after.

        Two calls at once never mix. by, place: as in :class:`~zkmigrate.runbook.engine.hold_file.Hold`.
        Raises OSError if the file cannot be written, and any exception of ``edit``.
        """
        with self._alone():
            before = self.read()
            after = replace(edit(before), by=by, since=since)
            if after:
                each = {str(id_): rate for id_, rate in after.each.items()}
                body = {"every": after.every, "each": each, "by": by, "place": place, "since": since}
                run_file.write(self._path, body)
            else:
                self._path.unlink(missing_ok=True)
            return before, self.read()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock a separate file during the block, because the run's process has the directory's lock."""
        lock = self._path.with_name(f"{NAME}.lock")
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def _rate(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not LEAST <= value <= MOST:
        raise ValueError(f"{value!r} is not a rate from {LEAST} to {MOST} bytes per second")
    return value


def _id(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise ValueError(f"{text!r} is not an id")
    return int(text)
