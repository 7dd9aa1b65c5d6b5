"""Choose the view that shows a run's events, and the dialogue or option that answers its questions."""

from __future__ import annotations

import contextlib
import getpass
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zkmigrate.errors import HostError, JournalError, UsageError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.engine import events, evidence, pause, step_names
from zkmigrate.runbook.engine.confirm import WHILE_IT_WAITS, Terminal, Unattended
from zkmigrate.runbook.engine.history import Next
from zkmigrate.runbook.engine.hold_file import HoldPort
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.engine.ports import Confirm
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.sampling import View
from zkmigrate.runbook.model.step import Context
from zkmigrate.runbook.runs.verb_context import VerbContext
from zkmigrate.runbook.ui import finding_lines, sentences
from zkmigrate.runbook.ui.console import StdConsole
from zkmigrate.runbook.ui.jsonl import JsonLines
from zkmigrate.runbook.ui.plain import Plain

ShowSample = Callable[[float, str, Mapping[str, Any]], None]
"""``show(monotonic seconds, kind, body)`` shows a sample."""


def _ignore_sample(_mono: float, _kind: str, _body: Mapping[str, Any]) -> None:
    return None


@dataclass(frozen=True)
class RunOutput:
    """The output of one run, and its dialogue with the operator.

    console: the dialogue for every question; the live view would overwrite a question of another dialogue.
    sample: shows a sample, if the view has room for samples.
    """

    emit: events.Emit
    confirm: Confirm
    console: StdConsole
    sample: ShowSample = _ignore_sample


def line_output(context: VerbContext) -> events.Emit:
    """Return the view for pipes, and for a terminal until the live view starts."""
    if context.as_json:
        return JsonLines(context.out, time.time)
    return Plain(context.out, lambda: time.strftime("%H:%M:%S"), time.monotonic)


def run_output(
    context: VerbContext, yes: bool, stack: contextlib.ExitStack, info: RunInfo, views: Sequence[View] = ()
) -> RunOutput:
    """Return the output that fits the call, and start the live view if it is used.

    yes: whether to go on without questions. stack: closes the live view. views: how the playbook shows
    samples.
    """
    if context.as_json:
        console = StdConsole(context.stdin, sys.stderr)
        return RunOutput(line_output(context), Unattended(console, info), console)
    quiet: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    sample: ShowSample = _ignore_sample
    emit = line_output(context)
    if context.interactive and os.environ.get("TERM", "dumb") != "dumb":
        from zkmigrate.runbook.ui.live import LiveView  # rich is slow to import

        live = stack.enter_context(LiveView(context.out, keys="" if yes else WHILE_IT_WAITS, views=views))
        emit, quiet, sample = live, live.quiet, live.sample
    console = StdConsole(context.stdin, context.out, quiet, lambda: context.interrupt.wanted, info.news)
    confirm: Confirm = Unattended(console, info)
    if context.interactive and not yes:
        confirm = Terminal(console, getpass.getuser(), time.monotonic, info, lambda: context.interrupt.wanted)
    return RunOutput(emit, confirm, console, sample)


@dataclass
class RunInfo:
    """The information about a run that the operator can see while a question is open (``confirm.LookUp``).

    emit: announces an open question. holds: the holds that other terminals request. foreseen: returns the
    lines of ``plan`` about the whole run; raises HostError if a look fails.
    """

    inventory: Inventory
    playbook: Playbook
    journal: Journal
    emit: events.Emit = field(default=lambda _event: None)
    holds: HoldPort = field(default_factory=HoldPort)
    foreseen: Callable[[], Sequence[str]] = lambda: ()
    _seen_hold: str = ""

    def remarks(self, stage: Stage) -> Sequence[str]:
        """Return lines about a stage that is about to begin.

        Before replicas or topics are copied, the lines say how much is copied and how long that takes. Before
        a window they say how the run's rehearsal went.
        """
        paced = self.playbook.paced
        if paced is not None and paced.told and paced.step.startswith(f"{stage.id}."):
            try:
                return [line.strip() for line in self.foreseen()]
            except HostError as error:
                return (f"how much is copied is not known now: {error}",)
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
            return finding_lines.evidence_lines(evidence.of(self.journal.entries()), name)
        except JournalError as error:
            return (str(error),)

    def in_short(self, found: Sequence[Finding]) -> Sequence[str]:
        return finding_lines.findings(found)

    def whole(self, found: Sequence[Finding]) -> Sequence[str]:
        return finding_lines.whole(found)

    def news(self) -> Sequence[str]:
        """Return a line about a hold that was requested since the last call, if any."""
        hold = self.holds.wanted()
        before, self._seen_hold = self._seen_hold, "" if hold is None else hold.mark
        if hold is None or hold.mark == before:
            return ()
        where = pause.where_wanted(self.playbook, hold)
        return (sentences.sentence(events.HoldAsked(where, hold.words())),)

    def asking(self, where: str, keys: str = "", left_s: float | None = None) -> None:
        self.emit(events.Asking(where, keys, left_s))
