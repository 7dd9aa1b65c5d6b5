"""The engine's interfaces to everything outside; :class:`Ports` holds them.

The command line passes the real ones. ``WatchPort``, ``HoldPort`` and ``HookRunner`` are classes that do
nothing; a run without a watch, a hold file or hooks uses them directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from zkmigrate.kafka.rates import Overrides
from zkmigrate.runbook.engine.apply import Apply
from zkmigrate.runbook.engine.clock import Clock, Interrupt
from zkmigrate.runbook.engine.events import Emit
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.engine.hold_file import HoldPort
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Stage
from zkmigrate.runbook.model.sampling import Note, note_nothing
from zkmigrate.runbook.model.step import AnyStep, Context, Way
from zkmigrate.runbook.model.window import Word

HookHow: TypeAlias = Literal["done", "timeout", "interrupted", "not-started"]


@dataclass(frozen=True)
class Answer:
    """The operator's answer: go on, stop (resumable), walk back to the start of ``to``, or skip the stage.

    by: the person or option that answered; empty without a question or an answer.
    """

    word: Word
    to: str = ""
    by: str = field(default="", compare=False)


class Lock(Protocol):
    """The lock of the run."""

    def fencing(self, stage: str, way: Way) -> int:
        """Return this operator's fencing number for a step of ``stage``.

        It takes the hosts' lock if the step needs it. Raises LockedError if another operator holds or took
        it.
        """

    def close(self) -> None: ...


class WatchPort:
    """The watch beside the steps of a stage."""

    def follow(self, _stage: Stage, _history: History, _context: Context, /) -> None:
        """Start, continue or stop the renewals and probes, as the journal's history says."""

    def finding(self) -> Finding | None:
        """Return the first finding that the walk has not answered yet."""
        return None

    def answered(self, _finding: Finding, /) -> None:
        """Go on in spite of this finding: report it again only when it changes."""

    def left_s(self) -> float | None:
        """Return the seconds until the way back must start; None outside the lease."""
        return None

    def close(self) -> None:
        """Stop all threads. Nothing renews the lease any more."""


class Confirm(Protocol):
    """Asks the operator before the run goes on."""

    def step(self, stage: Stage, step: AnyStep, findings: tuple[Finding, ...], /) -> Answer:
        """Ask before a step that changes something, outside the window."""

    def consent(self, stage: Stage, /) -> Answer:
        """Ask the stage's own question."""

    def decide(self, phase: str, finding: Finding, unanswered: Word, left_s: float | None, /) -> Answer:
        """Ask for go or back (or stop, if ``unanswered`` is stop) about a finding that the rules leave open.

        It returns within ``left_s`` seconds, with ``unanswered`` if there is no answer.
        """

    def listen(self) -> bool:
        """Return whether the operator wants to stop. It is called again and again while a step waits.

        It is not called inside a window.
        """

    def hold(self, where: str, /) -> Answer | None:
        """Return the answer typed during a hold (go, stop or back), or None. It is called again and again.

        where: the step, or the phase in a window.
        """


@dataclass(frozen=True)
class HookCall:
    """One program to run on this machine.

    name: the moment, also used in the name of its output file. variables: added to the environment. text: its
    standard input.
    """

    name: str
    run: str
    args: tuple[str, ...]
    timeout_s: float
    variables: Mapping[str, str]
    text: str


@dataclass(frozen=True)
class HookEnd:
    """The result of a program.

    code: its exit code, None unless ``how`` is done. said: the end of its output. output: the file with all
    of its output, empty if none.
    """

    how: HookHow
    code: int | None
    seconds: float
    said: str
    output: str


class HookRunner:
    """Runs the operator's own programs. It raises nothing if a program fails or cannot be started."""

    def run(self, _call: HookCall, /) -> HookEnd:
        """Run a program and wait for it. A request to stop ends the program early."""
        return HookEnd("not-started", None, 0.0, "nothing is run here", "")

    def start(self, call: HookCall, done: Callable[[HookEnd], None], /) -> None:
        """Start a program without waiting for it; another thread calls ``done`` with the result."""
        done(self.run(call))


@dataclass(frozen=True)
class Ports:
    """The outside interfaces that the walk needs.

    copies: sends the journal's bytes to the witnesses and returns, by host, why a copy is not up to date.
    overrides: reads the rates that an operator has set. note: records samples that steps leave for the
    report.
    """

    look: Look
    apply: Apply
    clock: Clock
    confirm: Confirm
    lock: Lock
    interrupt: Interrupt
    emit: Emit
    watch: WatchPort = field(default_factory=WatchPort)
    copies: Callable[[bytes], Mapping[str, str]] | None = None
    holds: HoldPort = field(default_factory=HoldPort)
    overrides: Callable[[], Overrides] = Overrides
    hooks: HookRunner = field(default_factory=HookRunner)
    note: Note = note_nothing
