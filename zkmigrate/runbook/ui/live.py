"""Show a run on a terminal: events scroll by above a board that is redrawn four times a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from zkmigrate.runbook.engine import events
from zkmigrate.runbook.model.sampling import View
from zkmigrate.runbook.ui import sentences
from zkmigrate.runbook.ui.board import Board
from zkmigrate.runbook.ui.styled import Styled

_STYLES = {"bold": "bold", "dim": "dim", "warn": "bold yellow", "bad": "bold red"}
_SHARE = 2
"""The board takes at most one ``_SHARE``-th of the terminal's height."""

_LEAST_LINES = 8
_EVERY_S = 0.25
_ON_THE_BOARD = (
    events.Waits,
    events.Progressed,
    events.Countdown,
    events.Holding,
    events.WaveBegun,
    events.ChangeSent,
)
"""Events that only the board shows."""


class LiveView:
    """A receiver of events that shows them on a terminal while its context is open.

    keys: a line on the keys that work while the run waits; empty with ``--yes``. clock: returns the time of
    day, shown with changes that end outside the window. views: how the playbook shows its samples.
    """

    def __init__(
        self,
        out: TextIO,
        now: Callable[[], float] = time.monotonic,
        keys: str = "",
        clock: Callable[[], str] = lambda: time.strftime("%H:%M:%S"),
        views: Sequence[View] = (),
    ) -> None:
        self._console: Console = Styled(out)
        self._board = Board(now, keys, views)
        self._live = self._new_live()
        # Held while a thread writes to the terminal: otherwise its text would shift the drawing of another.
        self._lock = threading.RLock()
        self._story = sentences.Story()
        self._clock = clock
        self._in_window = False
        self._sent: dict[str, str] = {}
        self._stopped = threading.Event()
        self._redraws = threading.Thread(target=self._redraw_often, name="live-view", daemon=True)

    def __enter__(self) -> LiveView:
        self._live.start()
        self._redraws.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self._redraws.join(timeout=5.0)
        with self._lock:
            self._live.stop()

    def _new_live(self) -> Live:
        # A stopped Live remembers its height, and would erase that many lines when it starts again.
        return Live(console=self._console, auto_refresh=False, transient=True)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Hide the view while a question is open."""
        with self._lock:
            running = self._live.is_started
            if running:
                self._live.stop()
        try:
            yield
        finally:
            if running:
                with self._lock:
                    self._live = self._new_live()
                    self._live.start()
                    self._redraw()

    def sample(self, mono: float, kind: str, body: Mapping[str, Any]) -> None:
        """Show a sample on the board."""
        self._board.sample(mono, kind, body)

    def __call__(self, event: events.Event) -> None:
        self._board.take(event)
        with self._lock:
            done = self._done_line(event)
        if isinstance(event, _ON_THE_BOARD):
            return
        with self._lock:
            for line in [*self._story.lines(event), *done]:
                self._console.print(Text(line))

    def _done_line(self, event: events.Event) -> list[str]:
        """Return a line with the time for a change that this event ends outside the window."""
        if isinstance(event, events.StageBegun):
            self._in_window = event.window
        elif isinstance(event, events.ChangeSent):
            self._sent[event.operation] = f"{event.change.where}: {event.change.describe()}"
        elif isinstance(event, events.ChangeEnded):
            text = self._sent.pop(event.operation, "")
            if text and event.status == "done" and not self._in_window:
                return [f"   {self._clock()} {text}"]
        return []

    def _redraw_often(self) -> None:
        while not self._stopped.wait(_EVERY_S):
            self._redraw()

    def _redraw(self) -> None:
        with self._lock:
            if self._live.is_started:
                self._live.update(self._drawn(), refresh=True)

    def _drawn(self) -> Group:
        size = self._console.size
        height = max(_LEAST_LINES, size.height // _SHARE)
        lines = self._board.lines(size.width - 1, min(height, size.height - 1))
        return Group(*(Text(text, style=_STYLES.get(style, ""), no_wrap=True) for text, style in lines))
