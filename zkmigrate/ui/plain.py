"""One line per event: for pipes, logs and dumb terminals."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TextIO

from zkmigrate.engine import events
from zkmigrate.ui import sentences

_EVERY_S = 2.0


class Plain:
    """Writes a line per event, with the time. Waits and countdowns are thinned out, never dropped at their
    first."""

    def __init__(self, out: TextIO, clock: Callable[[], str], now: Callable[[], float]) -> None:
        self._out = out
        self._clock = clock
        self._now = now
        self._guard = threading.Lock()
        self._story = sentences.Story()
        self._said: dict[str, tuple[str, float]] = {}

    def __call__(self, event: events.Event) -> None:
        with self._guard:
            if self._thinned(event):
                return
            for line in self._story.lines(event):
                self._line(line)

    def _thinned(self, event: events.Event) -> bool:
        match event:
            case events.Waits():
                key = f"{event.what}"
            case events.Countdown():
                key = "countdown"
            case events.Holding():
                key = f"late: {event.late}"
            case _:
                self._said.clear()
                return False
        told, at = self._said.get(type(event).__name__, ("", 0.0))
        if told == key and self._now() - at < _EVERY_S:
            return True
        self._said[type(event).__name__] = (key, self._now())
        return False

    def _line(self, text: str) -> None:
        if text:
            self._out.write(f"{self._clock()} {text}\n")
            self._out.flush()
