"""The orders to a load process: to stop, or to drain."""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Orders:
    """SIGTERM (or SIGINT) orders the end, SIGUSR1 the drain; the load polls both."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._drain = threading.Event()

    def listen(self) -> Orders:
        """Install the signal handlers (main thread only)."""

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
        """Wait so long, or until the order to stop."""
        self._stop.wait(seconds)

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def draining(self) -> bool:
        return self._drain.is_set()
