"""Playbook: a runbook as a table of contents, a value that the engine receives."""

from __future__ import annotations

from dataclasses import dataclass, field

from zkmigrate.model.step import AnyStep
from zkmigrate.model.window import WindowSpec


@dataclass(frozen=True)
class Stage:
    """Steps that belong together under one heading.

    consent: question asked once on a terminal before the stage starts, empty for none.
    skip: what is missing without the stage, where it may be skipped; empty where it may not.
    rehearsal: walk the steps forward, then back to where the stage began (the context says ``rehearsal``).
    window: clients are shut out in these steps, and they are walked by this; the watch (lease, probes,
    canaries) runs beside them.
    """

    id: str
    title: str
    steps: tuple[AnyStep, ...]
    consent: str = ""
    rehearsal: bool = False
    window: WindowSpec | None = None
    skip: str = ""


@dataclass(frozen=True)
class Playbook:
    """A named runbook."""

    id: str
    title: str
    stages: tuple[Stage, ...] = field(default_factory=tuple)

    def step_ids(self) -> tuple[str, ...]:
        """Qualified ids ``stage.step`` in order, as ``--until`` and ``rollback --to`` take them."""
        return tuple(f"{stage.id}.{step.id}" for stage in self.stages for step in stage.steps)
