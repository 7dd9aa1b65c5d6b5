"""Write events as lines, for pipes, logs and terminals without cursor control."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TextIO

from zkmigrate.runbook.engine import events
from zkmigrate.runbook.ui import sentences

_EVERY_S = 2.0
_LONG_S, _LATER_S = 20.0, 10.0
"""A wait that has lasted for _LONG_S seconds is shown every _LATER_S."""


class Plain:
    """A receiver of events that writes them as lines with the time.

    A repeated wait or countdown is shown every 2 s, and a wait of more than 20 s every 10 s.
    """

    def __init__(self, out: TextIO, clock: Callable[[], str], now: Callable[[], float]) -> None:
        self._out = out
        self._clock = clock
        self._now = now
        self._lock = threading.Lock()
        self._story = sentences.Story()
        self._last: dict[str, tuple[str, float, float]] = {}
        """The key of the last event of each repeated kind, when that began, and when it was last shown."""

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
        kind, now = type(event).__name__, self._now()
        before, began, shown = self._last.get(kind, ("", now, now))
        if before != key:
            began = now
        long = isinstance(event, events.Waits) and now - began >= _LONG_S
        if before == key and now - shown < (_LATER_S if long else _EVERY_S):
            return True
        self._last[kind] = (key, began, now)
        return False
