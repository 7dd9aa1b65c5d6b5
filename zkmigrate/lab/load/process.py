"""Receive the signals that stop or drain a load process."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable
from types import FrameType

_TICK_NS = 20_000_000


class Orders:
    """The stop and drain signals of a load process: SIGTERM and SIGINT stop it, SIGUSR1 drains it.

    The load polls ``stopping`` and ``draining``.
    """

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._drain = threading.Event()

    def listen(self) -> Orders:
        """Install the signal handlers and return this object. Call this method on the main thread."""

        def stop(_number: int, _frame: FrameType | None) -> None:
            self._stop.set()

        def drain(_number: int, _frame: FrameType | None) -> None:
            self._drain.set()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGUSR1, drain)
        return self

    def stop(self) -> None:
        self._stop.set()

    def wait(self, seconds: float) -> None:
        """Wait for ``seconds``, or until a stop signal arrives."""
        self._stop.wait(seconds)

    def wait_due(self, due_ns: Iterable[int]) -> None:
        """Wait until the earliest of these times (CLOCK_MONOTONIC), at most 20 ms, or until a stop signal."""
        now = time.monotonic_ns()
        self.wait(max(0, min([now + _TICK_NS, *due_ns]) - now) / 1e9)

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def draining(self) -> bool:
        return self._drain.is_set()
