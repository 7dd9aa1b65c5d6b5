"""The face of a run: where its events go, and who is asked."""

from __future__ import annotations

import contextlib
import getpass
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TextIO

from zkmigrate.engine import events
from zkmigrate.engine.clock import Interrupt
from zkmigrate.engine.confirm import Terminal, Unattended
from zkmigrate.engine.journal import Journal
from zkmigrate.engine.ports import Confirm
from zkmigrate.inventory import Inventory
from zkmigrate.model.playbook import Stage
from zkmigrate.model.step import Context
from zkmigrate.rules import expected
from zkmigrate.ui import found
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


@dataclass(frozen=True)
class Face:
    """console: the one dialogue with the operator; a question by another would be wiped off the screen."""

    emit: events.Emit
    confirm: Confirm
    console: StdConsole


def face_of(
    called: Called,
    yes: bool,
    stack: contextlib.ExitStack,
    remarks: Callable[[Stage], Sequence[str]],
) -> Face:
    """The face for a call. yes: nobody is asked. stack: closes the live view. remarks: as in Terminal."""
    if called.as_json:
        console = StdConsole(called.stdin, sys.stderr)
        return Face(JsonLines(called.out, time.time), Unattended(console), console)
    quiet: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    view: events.Emit = Plain(called.out, lambda: time.strftime("%H:%M:%S"), time.monotonic)
    if called.interactive and os.environ.get("TERM", "dumb") != "dumb":
        from zkmigrate.ui.live import LiveView  # rich is slow to import

        live = stack.enter_context(LiveView(called.out))
        view, quiet = live, live.quiet
    console = StdConsole(called.stdin, called.out, quiet, lambda: called.interrupt.wanted)
    if yes or not called.interactive:
        return Face(view, Unattended(console), console)
    someone = Terminal(console, getpass.getuser(), time.monotonic, found.findings, remarks)
    return Face(view, someone, console)


def remarks_of(inventory: Inventory, journal: Journal) -> Callable[[Stage], Sequence[str]]:
    """What a rehearsal of this run says about a window that is about to open."""

    def remarks(stage: Stage) -> Sequence[str]:
        if not stage.window or stage.rehearsal:
            return ()
        history = journal.history
        return expected.before_the_cut(Context(history.run, inventory, records=history.records()))

    return remarks


def say_interrupted(interrupt: Interrupt, emit: events.Emit) -> threading.Event:
    """Answer the first Ctrl-C at once, from a thread of its own; set the event to end that."""
    over = threading.Event()

    def listen() -> None:
        while not over.is_set():
            interrupt.wait(0.5)
            if interrupt.wanted and not over.is_set():
                emit(
                    events.Noted(
                        "asked to stop: what is in flight on the hosts is finished and journaled first; "
                        "once more stops at once"
                    )
                )
                return

    threading.Thread(target=listen, name="interrupt", daemon=True).start()
    return over
