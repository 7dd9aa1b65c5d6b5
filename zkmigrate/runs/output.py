"""The face of a run: where its events go, and who is asked."""

from __future__ import annotations

import contextlib
import getpass
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO

from zkmigrate.engine import events, evidence, step_names
from zkmigrate.engine.clock import Interrupt
from zkmigrate.engine.confirm import WHILE_IT_WAITS, LookUp, Terminal, Unattended
from zkmigrate.engine.history import Next
from zkmigrate.engine.hold_file import HoldPort
from zkmigrate.engine.journal import Journal
from zkmigrate.engine.ports import Confirm
from zkmigrate.errors import JournalError, UsageError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.model.finding import Finding
from zkmigrate.model.playbook import Playbook, Stage
from zkmigrate.model.sampling import View
from zkmigrate.model.step import Context
from zkmigrate.ui import finding_lines, sentences
from zkmigrate.ui.console import StdConsole
from zkmigrate.ui.jsonl import JsonLines
from zkmigrate.ui.plain import Plain


class Called(Protocol):
    """What of a call of the command line decides about its face."""

    @property
    def as_json(self) -> bool: ...
    @property
    def interactive(self) -> bool: ...
    @property
    def stdin(self) -> int: ...
    @property
    def out(self) -> TextIO: ...
    @property
    def interrupt(self) -> Interrupt: ...


Show = Callable[[float, str, Mapping[str, Any]], None]
"""``show(monotonic seconds, kind, body)`` of a sample."""


def _unseen(_mono: float, _kind: str, _body: Mapping[str, Any]) -> None:
    return None


@dataclass(frozen=True)
class Face:
    """console: the one dialogue with the operator; a question by another would be wiped off the screen.
    sample: shows what is seen in passing, where there is a place for it."""

    emit: events.Emit
    confirm: Confirm
    console: StdConsole
    sample: Show = _unseen


def in_lines(called: Called) -> events.Emit:
    """The view for pipes, and for a terminal before there is more to show."""
    if called.as_json:
        return JsonLines(called.out, time.time)
    return Plain(called.out, lambda: time.strftime("%H:%M:%S"), time.monotonic)


def face_of(
    called: Called,
    yes: bool,
    stack: contextlib.ExitStack,
    look_up: LookUp,
    news: Callable[[], Sequence[str]] = tuple,
    views: Sequence[View] = (),
) -> Face:
    """The face for a call. yes: nobody is asked. stack: closes the live view. news: what is to be said while
    a question is open. views: how the playbook tells its samples."""
    if called.as_json:
        console = StdConsole(called.stdin, sys.stderr)
        return Face(in_lines(called), Unattended(console, look_up), console)
    quiet: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    sample: Show = _unseen
    view = in_lines(called)
    if called.interactive and os.environ.get("TERM", "dumb") != "dumb":
        from zkmigrate.ui.live import LiveView  # rich is slow to import

        live = stack.enter_context(LiveView(called.out, keys="" if yes else WHILE_IT_WAITS, views=views))
        view, quiet, sample = live, live.quiet, live.sample
    console = StdConsole(called.stdin, called.out, quiet, lambda: called.interrupt.wanted, news)
    if yes or not called.interactive:
        return Face(view, Unattended(console, look_up), console, sample)
    return Face(view, Terminal(console, getpass.getuser(), time.monotonic, look_up), console, sample)


@dataclass
class RunLookUp:
    """What a dialogue can look up about a run. tell: where to say that a question is open. holds: what
    somebody at another terminal wants."""

    inventory: Inventory
    playbook: Playbook
    journal: Journal
    tell: events.Emit = field(default=lambda _event: None)
    holds: HoldPort = field(default_factory=HoldPort)
    _held: str = ""

    def remarks(self, stage: Stage) -> Sequence[str]:
        """What a rehearsal of this run says about a window that is about to open."""
        if not stage.window or stage.rehearsal:
            return ()
        history = self.journal.history
        return stage.window.remarks(
            Context(
                history.run,
                self.inventory,
                records=history.records(),
                retired=tuple(history.retired.values()),
            )
        )

    def cannot_go_back(self, to: str) -> str:
        history = self.journal.history
        if final := history.no_way_back(self.playbook):
            return f"there is no way back after {final}"
        at = history.next(self.playbook)
        try:
            step_names.behind(self.playbook, at.id if isinstance(at, Next) else "", to)
        except UsageError as error:
            return str(error)
        return ""

    def findings(self, name: str) -> Sequence[str]:
        try:
            behind = evidence.of(self.journal.entries())
        except JournalError as error:
            return (str(error),)
        return finding_lines.behind(behind, name)

    def in_short(self, told: Sequence[Finding]) -> Sequence[str]:
        return finding_lines.findings(told)

    def whole(self, told: Sequence[Finding]) -> Sequence[str]:
        return finding_lines.whole(told)

    def news(self) -> Sequence[str]:
        """A hold that was asked for since this was last called."""
        hold = self.holds.wanted()
        before, self._held = self._held, "" if hold is None else hold.mark
        if hold is None or hold.mark == before:
            return ()
        try:
            at = step_names.place(self.playbook, hold.at)
        except UsageError:
            at = ""
        return (sentences.sentence(events.HoldAsked(step_names.holds(self.playbook, at), hold.words())),)

    def asking(self, where: str) -> None:
        self.tell(events.Asking(where))
