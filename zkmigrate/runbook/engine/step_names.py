"""Names of stages, steps and phases as the operator gives them, and the ids of changes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from zkmigrate.errors import UsageError
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.step import Way


def operation_id(step: str, target: str, way: Way, leg: int, number: int) -> str:
    """Return ``<stage>.<step>.<target>.<leg>.<n>`` in at most 80 characters; a long target name is shortened.

    On the way back the leg is ``back<leg>``: without the journal, the host's own record must distinguish a
    change from its undo (``hosts/facts/operations.py``).
    """
    ends = f".{'back' if way is Way.BACK else ''}{leg}.{number}"
    if len(step) + len(target) + 1 + len(ends) > 80:
        target = f"{target[:12]}-{hashlib.sha256(target.encode()).hexdigest()[:8]}"
    return f"{step}.{target}{ends}"


def _ids(stages: Iterable[Stage]) -> list[str]:
    return [f"{stage.id}.{step.id}" for stage in stages for step in stage.steps]


def known(playbook: Playbook, name: str) -> None:
    """Raise UsageError for a name that is neither a stage, nor a ``stage.step``, nor empty."""
    names = (*(s.id for s in playbook.stages), *playbook.step_ids())
    if name and name not in names:
        raise UsageError(f"{name!r} is not a stage or step of {playbook.id}; possible: {', '.join(names)}")


def phases(playbook: Playbook) -> list[str]:
    """Return the phases to hold at: a window's step, with and without its stage."""
    windows = [s for s in playbook.stages if s.window and not s.rehearsal]
    return [name for s in windows for step in s.steps for name in (step.id, f"{s.id}.{step.id}")]


def hold_places(playbook: Playbook) -> list[str]:
    """Return the names that :func:`place` takes: stages, steps outside windows, phases of the cut-over."""
    outside = _ids(s for s in playbook.stages if not s.window)
    return [*(s.id for s in playbook.stages), *outside, *phases(playbook)]


def phase(playbook: Playbook, hold_at: str) -> str:
    """Return the ``stage.step`` of a window's step, given with or without its stage.

    Raises UsageError for another name.
    """
    phases = _ids(s for s in playbook.stages if s.window and not s.rehearsal)
    found = [name for name in phases if hold_at in (name, name.partition(".")[2])]
    if hold_at and not found:
        possible = ", ".join(phases) or "none, it has no window"
        raise UsageError(f"{hold_at!r} is not a phase of {playbook.id} to hold at; possible: {possible}")
    return found[0] if found else ""


def ahead(playbook: Playbook, hold_at: str, now: str, *, begun: bool) -> None:
    """Raise UsageError for a phase after which the walk can no longer hold.

    now: the step the walk is at. begun: whether that step has sent a change. Without this check an operator
    who requested a hold would see the door open instead.
    """
    ids = playbook.step_ids()
    first = ids.index(now) - (0 if begun else 1)
    if not hold_at or ids.index(hold_at) >= first:
        return
    left = [name for name in phases(playbook) if name in ids[max(first, 0) :]]
    possible = f"--hold-at {', '.join(left)}" if left else "none is left to hold at"
    raise UsageError(f"cannot hold at {hold_at}: it is behind, the run is at {now}. Next: {possible}")


def place(playbook: Playbook, at: str) -> str:
    """Return the place to hold at: a stage or ``stage.step``; in a window the phase alone suffices.

    Raises UsageError if the walk cannot hold there.
    """
    stages = {s.id: s for s in playbook.stages}
    outside = _ids(s for s in playbook.stages if not s.window)
    if not at or at in stages or at in outside:
        return at
    try:
        return phase(playbook, at)
    except UsageError:
        inside = _ids(s for s in playbook.stages if s.window)
        rehearsed = [name for name in inside if stages[name.partition(".")[0]].rehearsal]
        why = "a rehearsal is held before it begins, not inside" if at in rehearsed else "no such place"
        possible = ", ".join([*stages, *outside, *(name for name in inside if name not in rehearsed)])
        raise UsageError(f"cannot hold at {at!r} in {playbook.id}: {why}; possible: {possible}") from None


def holds(playbook: Playbook, at: str) -> str:
    """Return where a hold takes effect, in words. at: from :func:`place`."""
    if not at:
        return "at the next place"
    inside = at in _ids(s for s in playbook.stages if s.window)
    return f"after {at}" if inside else f"before {at}"


def skippable(playbook: Playbook, names: tuple[str, ...]) -> frozenset[str]:
    """Return the stages to skip. Raises UsageError for a stage that is unknown or may not be skipped."""
    may = [s.id for s in playbook.stages if s.skip]
    for name in names:
        if name not in may:
            possible = ", ".join(may) or "none"
            raise UsageError(f"{name!r} cannot be skipped in {playbook.id}; possible: {possible}")
    return frozenset(names)


def behind(playbook: Playbook, here: str, to: str) -> None:
    """Raise UsageError for an unknown place to walk back to, or one ahead of the step ``here``, if any."""
    steps = playbook.step_ids()
    reached = steps[: steps.index(here) + 1] if here else steps
    stages = dict.fromkeys(step.partition(".")[0] for step in reached)
    if to and to not in (*stages, *reached):
        every = (*(stage.id for stage in playbook.stages), *steps)
        what = f"{to} is ahead" if to in every else f"{to!r} is not a stage or step of {playbook.id}"
        raise UsageError(f"{what}; possible: {', '.join((*stages, *reached))}")
