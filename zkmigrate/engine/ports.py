"""What the engine needs from outside, as protocols, and all of it as one value: :class:`World`.

The command line injects the real ones. Look and Step are in :mod:`zkmigrate.model`, Apply
is in :mod:`zkmigrate.engine.apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from zkmigrate.engine.apply import Apply
from zkmigrate.engine.clock import Clock, Interrupt
from zkmigrate.engine.events import Emit
from zkmigrate.engine.history import History
from zkmigrate.engine.hold_file import HoldPort, NoHolds
from zkmigrate.model.finding import Finding
from zkmigrate.model.look import Look
from zkmigrate.model.playbook import Stage
from zkmigrate.model.step import AnyStep, Context, Way
from zkmigrate.model.window import Word

HookHow: TypeAlias = Literal["done", "timeout", "interrupted", "not-started"]


@dataclass(frozen=True)
class Answer:
    """What the operator wants: go on, stop as it is (resumable), walk back to the start of ``to``, or skip a
    stage that may be.

    by: who said so, empty where nobody was asked or nobody answered; it makes no other answer of it.
    """

    word: Word
    to: str = ""
    by: str = field(default="", compare=False)


class Lock(Protocol):
    """The lock of the run. Raises LockedError when another operator holds or took it."""

    def fencing(self, stage: str, way: Way) -> int:
        """This operator's fencing number for a step of ``stage``; takes or gives up the hosts' lock."""
        ...

    def close(self) -> None: ...


class WatchPort(Protocol):
    """The watch beside the steps of a stage."""

    def follow(self, stage: Stage, history: History, context: Context, /) -> None:
        """Start, go on or stop renewing and probing, as the journal's history says."""
        ...

    def finding(self) -> Finding | None:
        """The first finding that nobody has answered yet."""
        ...

    def answered(self, finding: Finding, /) -> None:
        """The walk goes on in spite of this finding: do not report it again while it stays the same."""
        ...

    def left_s(self) -> float | None:
        """Seconds until the way back must start; None outside the lease."""
        ...

    def close(self) -> None:
        """Stop all threads. The lease is not renewed any more."""
        ...


class Confirm(Protocol):
    """Who is asked before the run goes on."""

    def step(self, stage: Stage, step: AnyStep, findings: tuple[Finding, ...], /) -> Answer:
        """Before a step that changes something, outside the window; by nobody where it need not be asked."""
        ...

    def consent(self, stage: Stage, /) -> Answer:
        """A stage's own question."""
        ...

    def decide(self, phase: str, finding: Finding, unanswered: Word, left_s: float | None, /) -> Answer:
        """The rules said Ask: go, back, or stop where ``unanswered`` is stop. It must come back within
        ``left_s``; nobody's answer is ``unanswered``."""
        ...

    def listen(self) -> bool:
        """Between two looks of a wait outside the window: whether the operator wants to stop."""
        ...

    def hold(self, where: str, unanswered: Word | None, left_s: float | None, /) -> Answer | None:
        """Polled while the walk holds at ``where``, a phase or ``stage.step``; None = still holding.

        left_s: until the way back must start, 0 once that has passed; None where there is no such time.
        Where nobody can type any more the answer is ``unanswered``: with None somebody else ends the hold.
        """
        ...


class NoWatch:
    """For stages without a lease."""

    def follow(self, _stage: Stage, _history: History, _context: Context) -> None:
        return None

    def finding(self) -> Finding | None:
        return None

    def answered(self, _finding: Finding) -> None:
        return None

    def left_s(self) -> float | None:
        return None

    def close(self) -> None:
        return None


@dataclass(frozen=True)
class HookCall:
    """One program to run on this machine. name: of the moment, for the file its output goes to. variables:
    added to the environment. text: what it reads on standard input."""

    name: str
    run: str
    args: tuple[str, ...]
    timeout_s: float
    variables: Mapping[str, str]
    text: str


@dataclass(frozen=True)
class HookEnd:
    """How a program ended; ``code`` is its exit code, None unless ``how`` is done.

    said: the end of its output. output: the file that holds all of it, empty if none.
    """

    how: HookHow
    code: int | None
    seconds: float
    said: str
    output: str


class HookRunner(Protocol):
    """Runs the operator's own programs. What a program, or starting it, does wrong is not raised."""

    def run(self, call: HookCall, /) -> HookEnd:
        """Run and wait. A wish to stop that comes meanwhile ends it."""
        ...

    def start(self, call: HookCall, done: Callable[[HookEnd], None], /) -> None:
        """Run without waiting; ``done`` is called from another thread."""
        ...


class NoHooks:
    """For walks without programs of the operator's own."""

    def run(self, _call: HookCall) -> HookEnd:
        return HookEnd("not-started", None, 0.0, "nothing is run here", "")

    def start(self, call: HookCall, done: Callable[[HookEnd], None]) -> None:
        done(self.run(call))


@dataclass(frozen=True)
class World:
    """Everything outside that the walk needs."""

    look: Look
    apply: Apply
    clock: Clock
    confirm: Confirm
    lock: Lock
    interrupt: Interrupt
    emit: Emit
    watch: WatchPort = field(default_factory=NoWatch)
    copies: Callable[[bytes], Mapping[str, str]] | None = None
    holds: HoldPort = field(default_factory=NoHolds)
    hooks: HookRunner = field(default_factory=NoHooks)
