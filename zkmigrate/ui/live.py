"""The live view: the board in place below the story, redrawn several times a second, whatever its size."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from zkmigrate.engine import events
from zkmigrate.model.sampling import View
from zkmigrate.ui import sentences
from zkmigrate.ui.board import Board
from zkmigrate.ui.styled import Styled

_STYLES = {"bold": "bold", "dim": "dim", "warn": "bold yellow", "bad": "bold red"}
_SHARE = 2
"""The board takes at most one ``_SHARE``-th of the terminal's height; above it the story goes on."""

_LEAST_LINES = 8
_EVERY_S = 0.25


class LiveView:
    """A context manager; events go in by calling it. Everything noteworthy also scrolls by above it.

    keys: what can be typed while the run waits, empty where nobody is asked. clock: the time of day, for the
    changes outside the window, each of which is told when it is done: the board forgets them. views: how the
    playbook tells its samples.
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
        self._live = self._fresh()
        # Whatever writes to the terminal holds it: what one thread printed would move what another one drew.
        self._guard = threading.RLock()
        self._story = sentences.Story()
        self._clock = clock
        self._in_window = False
        self._sent: dict[str, str] = {}
        self._over = threading.Event()
        self._drawer = threading.Thread(target=self._draw_again, name="live-view", daemon=True)

    def __enter__(self) -> LiveView:
        self._live.start()
        self._drawer.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._drawer.join(timeout=5.0)
        with self._guard:
            self._live.stop()

    def _fresh(self) -> Live:
        # One that was stopped remembers how many lines it had, and would wipe as many when started again.
        return Live(console=self._console, auto_refresh=False, transient=True)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Take the view off the screen while the operator is asked something."""
        with self._guard:
            running = self._live.is_started
            if running:
                self._live.stop()
        try:
            yield
        finally:
            if running:
                with self._guard:
                    self._live = self._fresh()
                    self._live.start()
                    self._redraw()

    def sample(self, mono: float, kind: str, body: Mapping[str, Any]) -> None:
        """What was seen in passing, for the board."""
        self._board.sample(mono, kind, body)

    def __call__(self, event: events.Event) -> None:
        self._board.take(event)
        with self._guard:
            done = self._done(event)
        if isinstance(
            event, events.Waits | events.Countdown | events.Holding | events.WaveBegun | events.ChangeSent
        ):
            return
        with self._guard:
            for line in [*self._story.lines(event), *done]:
                self._console.print(Text(line))

    def _done(self, event: events.Event) -> list[str]:
        """The change that has just been done, with the time, outside the window."""
        if isinstance(event, events.StageBegun):
            self._in_window = event.window
        elif isinstance(event, events.ChangeSent):
            self._sent[event.operation] = f"{event.change.where}: {event.change.describe()}"
        elif isinstance(event, events.ChangeEnded):
            text = self._sent.pop(event.operation, "")
            if text and event.status == "done" and not self._in_window:
                return [f"   {self._clock()} {text}"]
        return []

    def _draw_again(self) -> None:
        while not self._over.wait(_EVERY_S):
            self._redraw()

    def _redraw(self) -> None:
        with self._guard:
            if self._live.is_started:
                self._live.update(self._drawn(), refresh=True)

    def _drawn(self) -> Group:
        size = self._console.size
        height = max(_LEAST_LINES, size.height // _SHARE)
        lines = self._board.lines(size.width - 1, min(height, size.height - 1))
        return Group(*(Text(text, style=_STYLES.get(style, ""), no_wrap=True) for text, style in lines))
