"""Events: what the engine tells whoever watches. The engine never prints.

A closed union of frozen dataclasses; :func:`to_json` gives each as one JSON object with its ``event`` name.
Times are seconds; ``at`` is added by the receiver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from zkmigrate.engine.codec import encode_change, encode_finding
from zkmigrate.model.change import Change
from zkmigrate.model.finding import Finding
from zkmigrate.model.step import Hazard, Way


@dataclass(frozen=True)
class RunBegun:
    """A walk starts: ``resumed`` when the journal already had a position. stages: ``(id, title)``. over:
    ``(id, ok, skipped or undone)`` of those that a process before came to an end with."""

    run: str
    playbook: str
    way: Way
    resumed: bool
    hosts: tuple[str, ...]
    stages: tuple[tuple[str, str], ...]
    over: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class StageBegun:
    """The walk enters a stage."""

    stage: str
    title: str
    way: Way
    window: bool
    rehearsal: bool


@dataclass(frozen=True)
class StepBegun:
    """The walk enters a step.

    waves: how many waves of it an earlier process of the run has begun. done, of, left_s: as its last wave
    told them, or would tell them now; 0 where none was begun. many: as in ``WaveBegun``.
    """

    stage: str
    step: str
    title: str
    hazard: Hazard
    way: Way
    waves: int = 0
    done: int = 0
    of: int = 0
    left_s: float | None = None
    many: str = ""


@dataclass(frozen=True)
class WaveBegun:
    """These targets are changed now, all at once.

    done, of: in the step that is paced, how many targets had been changed before, and of how many. left_s:
    about how long the rest takes, at the pace of the waves before; None where that cannot be said. many: what
    the targets are called.
    """

    stage: str
    step: str
    way: Way
    targets: tuple[str, ...]
    done: int = 0
    of: int = 0
    left_s: float | None = None
    many: str = ""


@dataclass(frozen=True)
class ChangeSent:
    """A change is on its way to its host or cluster; its intent is durable."""

    target: str
    operation: str
    change: Change


@dataclass(frozen=True)
class ChangeEnded:
    """status: done, failed (rc is not 0), unknown (not confirmed) or skipped (not sent)."""

    target: str
    operation: str
    status: str
    rc: int
    output: str


@dataclass(frozen=True)
class Waits:
    """The step waits for ``what``; ``left_s`` until the wait counts as failed, None while it looks itself and
    takes as long as that takes."""

    stage: str
    step: str
    what: str
    progress: str
    left_s: float | None


@dataclass(frozen=True)
class StepEnded:
    """The step is done in this direction, with its evidence."""

    stage: str
    step: str
    way: Way
    seconds: float
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class StepBlocked:
    """The step cannot go on."""

    stage: str
    step: str
    way: Way
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Turned:
    """The direction changed."""

    way: Way
    to: str
    why: str


@dataclass(frozen=True)
class Consented:
    """A question was answered: that of a stage before it starts or, with ``step``, one before or in a step.

    answer: go, stop, back or skip; to: where back leads, empty for the start of the stage. by: who answered,
    empty where nobody did. findings: those in doubt when it was answered.
    """

    stage: str
    question: str
    answer: str
    by: str
    step: str = ""
    to: str = ""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class StageSkipped:
    """A stage is passed over; ``missing`` is what is not known without it, ``by`` who wanted that."""

    stage: str
    missing: str
    by: str


@dataclass(frozen=True)
class Asking:
    """A question is open at the run's own terminal, before ``where``, a stage or ``stage.step``."""

    where: str


@dataclass(frozen=True)
class Holding:
    """The walk holds after ``phase`` of a window, or before a step outside of one, until it is released or
    answered.

    before: the step, empty in a window. who: who made it hold, and why; empty for ``--hold-at``. left_s:
    seconds in which the window can still turn back without losing a session, None when that does not
    count. opens_s: seconds, at the most, until the hosts open by themselves, None before they serve. late:
    the time in which a way back keeps the clients' sessions is over. progress: how far a step that is under
    way has come, in words, empty where nothing of it was done.
    """

    phase: str
    left_s: float | None
    opens_s: float | None = None
    before: str = ""
    who: str = ""
    late: bool = False
    progress: str = ""


@dataclass(frozen=True)
class HoldAsked:
    """Somebody at another terminal asks the walk to hold; where: from which step on, in words."""

    where: str
    who: str


@dataclass(frozen=True)
class HoldEnded:
    """The walk holds no more. how: released, go, stop, back, deadline, or left for another reason; by: who
    released it, empty where nobody said."""

    step: str
    how: str
    by: str


@dataclass(frozen=True)
class Countdown:
    """Seconds left in which the window can still turn back without losing a session."""

    left_s: float


@dataclass(frozen=True)
class Alarm:
    """The watch or a step saw something during the window; ``decision`` is go, back or ask."""

    phase: str
    finding: Finding
    decision: str


@dataclass(frozen=True)
class HookBegun:
    """A program of the operator's own is run; ``waited`` for, or beside the walk."""

    moment: str
    stage: str
    run: str
    timeout_s: float
    waited: bool


@dataclass(frozen=True)
class HookEnded:
    """It ended: ``how`` is done, timeout, interrupted or not-started; ``code`` is None unless it ended by
    itself. said: the end of its output. stops: its failure stops the run."""

    moment: str
    stage: str
    run: str
    code: int | None
    how: str
    seconds: float
    said: str
    output: str
    stops: bool


@dataclass(frozen=True)
class Noted:
    """A remark for the operator."""

    text: str


@dataclass(frozen=True)
class RunEnded:
    """Why the walk stopped: exit code (docs/reference/exit-codes.md), a sentence, the findings behind it."""

    code: int
    message: str
    findings: tuple[Finding, ...] = ()


Event: TypeAlias = (
    RunBegun
    | StageBegun
    | StepBegun
    | WaveBegun
    | ChangeSent
    | ChangeEnded
    | Waits
    | StepEnded
    | StepBlocked
    | Turned
    | Consented
    | StageSkipped
    | Asking
    | Holding
    | HoldAsked
    | HoldEnded
    | Countdown
    | Alarm
    | HookBegun
    | HookEnded
    | Noted
    | RunEnded
)
Emit: TypeAlias = Callable[[Event], None]


def to_json(event: Event) -> dict[str, Any]:
    """The event as a JSON object; changes and findings as in the journal, file content left out."""
    body: dict[str, Any] = {"event": type(event).__name__}
    for field in fields(event):
        value = getattr(event, field.name)
        if field.name == "change":
            encoded = encode_change(value)
            encoded.pop("content", None)
            value = {**encoded, "text": value.describe()}
        elif field.name == "findings":
            value = [encode_finding(f) for f in value]
        elif field.name == "finding":
            value = encode_finding(value)
        elif isinstance(value, Way | Hazard):
            value = value.value
        body[field.name] = value
    return body
