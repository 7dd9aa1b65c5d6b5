"""Events: the engine's reports to its listeners. The engine never prints.

A closed union of frozen dataclasses; :func:`to_json` returns each as a JSON object with its ``event`` name.
Times are seconds; the receiver adds ``at``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from zkmigrate.runbook.engine.codec import encode_change, encode_finding
from zkmigrate.runbook.model.change import Change
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.step import Hazard, Way


@dataclass(frozen=True)
class RunBegun:
    """A walk starts.

    resumed: the journal already had a position. stages: ``(id, title)``. over: (id, ``ok``, ``skipped`` or
    ``undone``) of the stages that earlier processes ended.
    """

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

    waves: how many waves of the step earlier processes began. done, of, left_s, many: the values of
    ``WaveBegun`` for the last of these waves; 0 without a wave.
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
    """The targets of a wave are changed now, all at once.

    done, of: for the paced step, how many targets were changed before, and how many there are. left_s:
    estimated seconds for the rest at the pace so far, None if unknown. many: the noun for the targets.
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
    """A change is being sent to its host or cluster; its intent is durable."""

    target: str
    operation: str
    change: Change


@dataclass(frozen=True)
class ChangeEnded:
    """The outcome of a change.

    status: done, failed (rc is not 0), unknown (not confirmed) or skipped (not sent).
    """

    target: str
    operation: str
    status: str
    rc: int
    output: str


@dataclass(frozen=True)
class Waits:
    """The current step waits for something.

    what: a clause that fits after "until"; during a long look, a noun. left_s: seconds until the wait fails;
    None during a long look.
    """

    stage: str
    step: str
    what: str
    progress: str
    left_s: float | None


@dataclass(frozen=True)
class Progressed:
    """The progress of a step that reports its own.

    done, of: the number of finished targets and of all targets. bytes_left: bytes still to be copied. left_s:
    estimated seconds for the rest, None if unknown.
    """

    stage: str
    step: str
    way: Way
    done: int
    of: int
    many: str
    bytes_left: int
    left_s: float | None


@dataclass(frozen=True)
class StepEnded:
    """A step is done in the direction of the walk; its findings are the evidence."""

    stage: str
    step: str
    way: Way
    seconds: float
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class StepBlocked:
    """The step cannot continue."""

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
    """A question before a stage, before a step or in a step was answered.

    - step: empty for a stage's own question.
    - answer: go, stop, back or skip. to: the place to which back leads, empty for the start of the stage.
    - by: the person or option that answered, empty without an answer.
    - findings: the findings that were in doubt at the time.
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
    """A stage is skipped.

    missing: what is unknown without it. by: the person, option or inventory key that skipped it.
    """

    stage: str
    missing: str
    by: str


@dataclass(frozen=True)
class Asking:
    """A question is open at the run's own terminal.

    where: the stage or ``stage.step`` that it comes before, or the finding that it is about, with its target.
    keys: the possible answers, if the live view stays on the screen. left_s: seconds to answer.
    """

    where: str
    keys: str = ""
    left_s: float | None = None


@dataclass(frozen=True)
class Holding:
    """The walk holds after ``phase`` of a window, or before a step outside one.

    - before: the step, empty in a window.
    - who: the person who made it hold, and why.
    - left_s: seconds in which the window can still turn back without losing a session, None if that does not
      apply.
    - opens_s: seconds, at most, until the hosts open by themselves, None before they serve.
    - late: whether it is too late for a way back that keeps the clients' sessions.
    - progress: the progress of a step that has begun, in words, else empty.
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
    """A person at another terminal wants the walk to hold. where: where it will hold, in words."""

    where: str
    who: str


@dataclass(frozen=True)
class HoldEnded:
    """The walk stops holding.

    how: why it stopped: released, go, stop, back, deadline, or left for another reason. by: the person who
    released it, if known.
    """

    step: str
    how: str
    by: str


@dataclass(frozen=True)
class Countdown:
    """The countdown of the seconds in which the window can still turn back without losing a session."""

    left_s: float


@dataclass(frozen=True)
class Alarm:
    """The watch or a step found trouble in the window. decision: go, back or ask."""

    phase: str
    finding: Finding
    decision: str


@dataclass(frozen=True)
class HookBegun:
    """A program of the operator starts. waited: whether the walk waits for it."""

    moment: str
    stage: str
    run: str
    timeout_s: float
    waited: bool


@dataclass(frozen=True)
class HookEnded:
    """A program of the operator ended.

    how: done, timeout, interrupted or not-started. code: its exit code, None unless it ended by itself. said:
    the end of its output. output: the file with all of its output. stops: whether its failure stops the run.
    """

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
    """The end of the walk: exit code, a sentence, and the findings behind it.

    docs/reference/exit-codes.md lists the codes.
    """

    code: int
    message: str
    findings: tuple[Finding, ...] = ()


Event: TypeAlias = (
    RunBegun | StageBegun | StepBegun | WaveBegun | ChangeSent | ChangeEnded | Waits | Progressed |
    StepEnded | StepBlocked | Turned | Consented | StageSkipped | Asking | Holding | HoldAsked | HoldEnded |
    Countdown | Alarm | HookBegun | HookEnded | Noted | RunEnded
)  # fmt: skip
Emit: TypeAlias = Callable[[Event], None]


def to_json(event: Event) -> dict[str, Any]:
    """Return the event as a JSON object, with changes and findings as in the journal but no file contents."""
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
