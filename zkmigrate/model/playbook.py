"""Playbook: a runbook as a table of contents, a value that the engine receives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from zkmigrate.inventory import Inventory
from zkmigrate.model.by_hand import Manual
from zkmigrate.model.report import Reporting
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
    locked: the run holds the lock of its hosts; not before the program that keeps it is installed there.
    noticed: the cluster's clients may notice the stage, there and back, so the produce canary runs.
    refused: exit code of a step of the stage that is blocked.
    """

    id: str
    title: str
    steps: tuple[AnyStep, ...]
    consent: str = ""
    rehearsal: bool = False
    window: WindowSpec | None = None
    skip: str = ""
    locked: bool = True
    noticed: bool = False
    refused: int = 6


@dataclass(frozen=True)
class Counted:
    """A step that takes the hosts of one kind through it, wave after wave.

    step: ``stage.step``. many: what such hosts are called. targets: which there are. paced: how far it is and
    how long the rest takes are told, and ``--pause-after`` counts its targets; at most one step is.
    """

    step: str
    many: str
    targets: Callable[[Inventory], tuple[str, ...]]
    paced: bool = False


@dataclass(frozen=True)
class Playbook:
    """A named runbook.

    counted: the steps whose targets are counted. manual: what the page by hand says around the steps.
    report: what is special about its report.
    """

    id: str
    title: str
    stages: tuple[Stage, ...] = field(default_factory=tuple)
    counted: tuple[Counted, ...] = ()
    manual: Manual = field(default_factory=Manual)
    report: Reporting = field(default_factory=Reporting)

    @property
    def paced(self) -> Counted | None:
        """The step whose pace is told."""
        return next((counted for counted in self.counted if counted.paced), None)

    @property
    def noticed(self) -> tuple[str, ...]:
        """The stages that clients of the cluster may notice."""
        return tuple(stage.id for stage in self.stages if stage.noticed)

    @property
    def unlocked(self) -> tuple[str, ...]:
        """The stages that are walked forward without the lock of the hosts."""
        return tuple(stage.id for stage in self.stages if not stage.locked)

    def step_ids(self) -> tuple[str, ...]:
        """Qualified ids ``stage.step`` in order, as ``--until`` and ``rollback --to`` take them."""
        return tuple(f"{stage.id}.{step.id}" for stage in self.stages for step in stage.steps)
