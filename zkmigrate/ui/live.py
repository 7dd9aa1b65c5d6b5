"""The live view: stages and steps, hosts with their last change, waits and the countdown, in place."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from zkmigrate.engine import events
from zkmigrate.model.step import Way
from zkmigrate.ui import words


class LiveView:
    """A context manager; events go in by calling it. Everything noteworthy also scrolls by above it."""

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out)
        self._live = self._fresh()
        self._guard = threading.RLock()
        self._story = words.Story()
        self._hosts: dict[str, tuple[str, str]] = {}
        self._stages: dict[str, str] = {}
        self._wait = ""
        self._left: float | None = None
        self._title = ""

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def _fresh(self) -> Live:
        # One that was stopped remembers how many lines it had, and would wipe as many when started again.
        return Live(console=self._console, refresh_per_second=4, transient=True)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Take the view off the screen while the operator is asked something."""
        running = self._live.is_started
        if running:
            self._live.stop()
        try:
            yield
        finally:
            if running:
                with self._guard:
                    self._live = self._fresh()
                    self._live.update(self._drawn())
                    self._live.start()

    def __call__(self, event: events.Event) -> None:
        with self._guard:
            self._take(event)
            if not isinstance(
                event, events.Waits | events.Countdown | events.Holding | events.WaveBegun | events.ChangeSent
            ):
                for line in self._story.lines(event):
                    self._console.print(Text(line))
            self._live.update(self._drawn())

    def _take(self, event: events.Event) -> None:
        match event:
            case events.RunBegun():
                self._title = f"run {event.run}: {event.playbook}"
                self._hosts = dict.fromkeys(event.hosts, ("", ""))
                self._stages = {id: "" for id, _ in event.stages}
            case events.StageBegun():
                self._left = None  # of a window; the next countdown says it anew
                self._stages[event.stage] = "back" if event.way is Way.BACK else "now"
            case events.StepBegun():
                self._wait = ""
                self._stages[event.stage] = f"{event.way.value}: {event.step}"
            case events.StepEnded():
                self._wait, self._left = "", None
                self._stages[event.stage] = f"{event.step} {'undone' if event.way is Way.BACK else 'done'}"
            case events.ChangeSent():
                self._hosts[event.change.host] = (event.change.describe(), "…")
            case events.ChangeEnded():
                text, _ = self._hosts.get(event.target, ("", ""))
                self._hosts[event.target] = (text, event.status)
            case events.Waits():
                self._wait = f"waits for {event.what}: {event.progress} ({event.left_s:.0f} s left)"
            case events.Countdown():
                self._left = event.left_s
            case events.Holding():
                self._wait, self._left = words.holding(replace(event, left_s=None)), event.left_s
            case events.Turned() | events.RunEnded():
                self._wait, self._left = "", None
                for stage, text in self._stages.items():
                    self._stages[stage] = "walked back" if text.endswith(" undone") else text

    def _drawn(self) -> Group:
        steps = Table(show_header=False, box=None, padding=(0, 1))
        for stage, text in self._stages.items():
            steps.add_row(stage, text)
        hosts = Table(show_header=False, box=None, padding=(0, 1))
        for host, (text, status) in self._hosts.items():
            hosts.add_row(host, text, status)
        lines = [Text(self._wait)] if self._wait else []
        if self._left is not None:
            style = "bold red" if self._left < 3 else "bold"
            lines.append(Text(f"{self._left:.1f} s left to turn back", style=style))
        return Group(Text(self._title), steps, hosts, *lines)
