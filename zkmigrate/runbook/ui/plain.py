"""Write events as lines, for pipes, logs and terminals without cursor control."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TextIO

from zkmigrate.runbook.engine import events
from zkmigrate.runbook.ui import sentences

_EVERY_S = 2.0


class Plain:
    """A receiver of events that writes them as lines with the time.

    A repeated wait or countdown is shown every 2 s.
    """

    def __init__(self, out: TextIO, clock: Callable[[], str], now: Callable[[], float]) -> None:
        self._out = out
        self._clock = clock
        self._now = now
        self._lock = threading.Lock()
        self._story = sentences.Story()
        self._last: dict[str, tuple[str, float]] = {}

    def __call__(self, event: events.Event) -> None:
        with self._lock:
            if self._repeated(event):
                return
            for line in self._story.lines(event):
                self._out.write(f"{self._clock()} {line}\n")
            self._out.flush()

    def _repeated(self, event: events.Event) -> bool:
        match event:
            case events.Waits():
                key = event.what
            case events.Countdown():
                key = "countdown"
            case events.Holding():
                key = f"late: {event.late}"
            case _:
                self._last.clear()
                return False
        before, at = self._last.get(type(event).__name__, ("", 0.0))
        if before == key and self._now() - at < _EVERY_S:
            return True
        self._last[type(event).__name__] = (key, self._now())
        return False
