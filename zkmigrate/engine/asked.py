"""Names of stages, steps and phases as the operator gives them, held against a playbook."""

from __future__ import annotations

from zkmigrate.errors import UsageError
from zkmigrate.model.playbook import Playbook


def known(playbook: Playbook, name: str) -> None:
    """UsageError for what is neither a stage, nor a ``stage.step``, nor empty."""
    names = ("", *(s.id for s in playbook.stages), *playbook.step_ids())
    if name not in names:
        possible = ", ".join(names[1:])
        raise UsageError(f"no stage or step {name!r} in {playbook.id}; possible: {possible}")


def phase(playbook: Playbook, hold_at: str) -> str:
    """The ``stage.step`` of a window that is meant, its stage given or not; UsageError when there is none."""
    windows = [s for s in playbook.stages if s.window and not s.rehearsal]
    phases = [f"{s.id}.{step.id}" for s in windows for step in s.steps]
    found = [name for name in phases if hold_at in (name, name.partition(".")[2])]
    if hold_at and not found:
        possible = ", ".join(phases) or "none, it has no window"
        raise UsageError(f"no phase {hold_at!r} to hold at in {playbook.id}; possible: {possible}")
    return found[0] if found else ""
