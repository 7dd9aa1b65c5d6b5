"""The engine's clock, and the operator's wish to stop."""

from __future__ import annotations

import itertools
import os
import select
import signal
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol


class Clock(Protocol):
    """``now`` in monotonic seconds, ``wall`` in seconds since the epoch; ``pause`` may return early."""

    def now(self) -> float: ...
    def wall(self) -> float: ...
    def pause(self, seconds: float) -> None: ...


class Interrupt:
    """Ctrl-C: the first asks the walk to stop at the next safe point, the second stops at once.

    While ``listening``, SIGINT, SIGTERM and SIGHUP come here; the second one raises KeyboardInterrupt in the
    main thread, whatever it is doing.
    """

    def __init__(self) -> None:
        # A handler may run in the middle of anything in the main thread, another handler included, so it
        # takes no lock: it counts in one C call and writes to a pipe that ``wait`` looks at.
        self._signals = itertools.count()
        self._wanted = False
        self._reader, self._writer = os.pipe()
        weakref.finalize(self, _close, self._reader, self._writer)

    @property
    def wanted(self) -> bool:
        """True once somebody asked the walk to stop."""
        return self._wanted

    def ask(self) -> None:
        """Ask the walk to stop at the next safe point."""
        self._wanted = True
        os.write(self._writer, b"!")

    def wait(self, seconds: float) -> None:
        """Wait that long, or until somebody asks the walk to stop."""
        ready = select.poll()  # select() takes no descriptor above 1023
        ready.register(self._reader, select.POLLIN)
        ready.poll(max(0.0, seconds * 1000))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals over (main thread only), and give them back at the end."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if next(self._signals):
            raise KeyboardInterrupt
        self.ask()


class RealClock:
    """The system's clocks; a pause ends early when the operator wants to stop."""

    def __init__(self, interrupt: Interrupt) -> None:
        self._interrupt = interrupt

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def pause(self, seconds: float) -> None:
        self._interrupt.wait(seconds)


def _close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)
