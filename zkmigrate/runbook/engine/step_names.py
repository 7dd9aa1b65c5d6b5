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


def hold_places(playbook: Playbook) -> list[str]:
    """Return the names that :func:`place` takes: stages, steps outside windows, phases of the cut-over."""
    outside = _ids(s for s in playbook.stages if not s.window)
    phases = [name for phase in _phases(playbook) for name in (phase.partition(".")[2], phase)]
    return [*(s.id for s in playbook.stages), *outside, *phases]


def _phases(playbook: Playbook) -> list[str]:
    return _ids(s for s in playbook.stages if s.window and not s.rehearsal)


def is_phase(playbook: Playbook, name: str) -> bool:
    """Return whether a place is a step of a window, so that the walk holds after it and not before."""
    return name in _phases(playbook)


def place(playbook: Playbook, at: str) -> str:
    """Return the place to hold at: a stage or ``stage.step``. In a window the phase alone suffices.

    Raises UsageError if the walk cannot hold there.
    """
    phases = _phases(playbook)
    whole = [*(s.id for s in playbook.stages), *_ids(s for s in playbook.stages if not s.window), *phases]
    if not at or at in whole:
        return at
    if found := [name for name in phases if at == name.partition(".")[2]]:
        return found[0]
    rehearsed = _ids(s for s in playbook.stages if s.rehearsal)
    why = "a rehearsal is held before it begins, not inside" if at in rehearsed else "no such place"
    raise UsageError(f"cannot hold at {at!r} in {playbook.id}: {why}; possible: {', '.join(whole)}")


def skippable(playbook: Playbook, names: tuple[str, ...]) -> frozenset[str]:
    """Return the stages to skip. Raises UsageError for a stage that is unknown or may not be skipped."""
    may = [s.id for s in playbook.stages if s.skip]
    for name in names:
        if name not in may:
            possible = ", ".join(may) or "none"
            raise UsageError(f"{name!r} cannot be skipped in {playbook.id}; possible: {possible}")
    return frozenset(names)


def behind(playbook: Playbook, here: str, to: str) -> None:
    """Raise UsageError unless the run can walk back to the start of ``to``.

    The place must be a stage or step, and must not come after the step ``here``. here: empty if unknown.
    """
    steps = playbook.step_ids()
    reached = steps[: steps.index(here) + 1] if here else steps
    stages = dict.fromkeys(step.partition(".")[0] for step in reached)
    if to and to not in (*stages, *reached):
        every = (*(stage.id for stage in playbook.stages), *steps)
        what = (
            f"the run has not reached {to}"
            if to in every
            else f"{to!r} is not a stage or step of {playbook.id}"
        )
        raise UsageError(f"{what}; possible: {', '.join((*stages, *reached))}")
