"""Playbook: a runbook as a table of contents, a value that the engine receives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.model.by_hand import Manual
from zkmigrate.model.look import Look
from zkmigrate.model.report import Reporting
from zkmigrate.model.sampling import Sampling, View
from zkmigrate.model.step import AnyStep, Context, Records
from zkmigrate.model.window import WatchSpec, WindowSpec


@dataclass(frozen=True)
class Stage:
    """Steps that belong together under one heading.

    consent: question asked once on a terminal before the stage starts, empty for none.
    skip: what is missing without the stage, where it may be skipped; empty where it may not.
    rehearsal: walk the steps forward, then back to where the stage began (the context says ``rehearsal``).
    window: clients are shut out in these steps, and they are walked by this; the watch (lease, probes,
    canaries) runs beside them.
    watched: questions that are asked beside the steps of a stage without a window.
    locked: the run holds the lock of its hosts; not before the program that keeps it is installed there.
    noticed: the cluster's clients may notice the stage, there and back, so the produce canary runs.
    refused: exit code of a step of the stage that is blocked.
    gate: the verb preflight looks as the stage's first step does; at the first gate, as all its steps do.
    outdates: what a run has done that changed anything here, such as ``joined dest``: the first gate's
    demands hold no more. Empty where they still do.
    unnoticed: why clients notice nothing of a window that shuts nobody out; empty where its steps say more.
    """

    id: str
    title: str
    steps: tuple[AnyStep, ...]
    consent: str = ""
    rehearsal: bool = False
    window: WindowSpec | None = None
    watched: WatchSpec | None = None
    skip: str = ""
    locked: bool = True
    noticed: bool = False
    refused: int = 6
    gate: bool = False
    outdates: str = ""
    unnoticed: str = ""


@dataclass(frozen=True)
class Counted:
    """A step that takes the hosts, or the topics, of one kind through it, wave after wave.

    step: ``stage.step``. many: what such targets are called. targets: which there are, by the inventory and
    what the run has recorded; none while that is not known. paced: how far it is and how long the rest takes
    are told, and ``--pause-after`` counts its targets; at most one step is.
    """

    step: str
    many: str
    targets: Callable[[Inventory, Records], tuple[str, ...]]
    paced: bool = False


@dataclass(frozen=True)
class Role:
    """Hosts that play one part in a runbook.

    part: the key of ``Inventory.hosts``. many: what such hosts are called. changed: a run may change them.
    witness: they keep the lock and the copies of the journal. service: unit and commands of the service
    whose state ``status`` asks of a witness; None for none. without: how an inventory looks without some of
    them; None where none can be retired.
    """

    part: str
    many: str
    changed: bool = False
    witness: bool = False
    service: Callable[[Inventory], tuple[str, tuple[str, ...]]] | None = None
    without: Callable[[Inventory, Collection[str]], Inventory] | None = None


def nothing_foreseen(_context: Context, _look: Look) -> tuple[str, ...]:
    """There is nothing to say of the run but its steps."""
    return ()


@dataclass(frozen=True)
class Playbook:
    """A named runbook.

    counted: the steps whose targets are counted. inventory: the shape of its file, a subclass where it has
    sections of its own. sections: those that its file must have; more may be there. roles: the hosts that it
    works with, in the order in which they are shown; where it names none, all that the inventory has, and it
    changes none of them. alters_clusters: what a cluster held before a change of it, only the journal knows.
    manual: what the page by hand says around the steps. report: what is special about its report. foreseen:
    what ``plan`` says of the whole run, such as how long its window will be. sampling: what is seen in
    passing. clusters: those that its changes name, each with what sends changes to it, as ``module:name`` of
    a function that takes the inventory and a look and gives an ``engine.apply.Alter``. A playbook is pure:
    what reaches out is named, and loaded where hosts are reached.
    """

    id: str
    title: str
    stages: tuple[Stage, ...] = field(default_factory=tuple)
    counted: tuple[Counted, ...] = ()
    inventory: type[Inventory] = Inventory
    sections: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()
    alters_clusters: bool = False
    manual: Manual = field(default_factory=Manual)
    report: Reporting = field(default_factory=Reporting)
    foreseen: Callable[[Context, Look], tuple[str, ...]] = nothing_foreseen
    sampling: tuple[Sampling, ...] = ()
    clusters: Mapping[str, str] = field(default_factory=dict)

    def hosts(self, inventory: Inventory) -> dict[str, tuple[str, ...]]:
        """The names of the hosts by their part, in the order in which they are shown."""
        there = inventory.hosts
        parts = [role.part for role in self.roles] or list(there)
        return {part: there[part] for part in parts if part in there}

    def changed(self, inventory: Inventory) -> tuple[str, ...]:
        """The hosts that a run may change; every other one it never does."""
        return _names(inventory, (role for role in self.roles if role.changed))

    def witnesses(self, inventory: Inventory) -> tuple[str, ...]:
        """The hosts that keep the lock and the copies of the journal; where there are none, only this
        machine does."""
        return _names(inventory, (role for role in self.roles if role.witness))

    @property
    def many_witnesses(self) -> str:
        """What the witnesses are called."""
        return _called(role for role in self.roles if role.witness)

    @property
    def many_changed(self) -> str:
        """What the hosts are called that a run may change."""
        return _called(role for role in self.roles if role.changed)

    def service(self, inventory: Inventory, host: str) -> tuple[str, tuple[str, ...]]:
        """Unit and commands of the service of a host; no unit where its role names no service."""
        for role in self.roles:
            if role.service is not None and host in inventory.hosts.get(role.part, ()):
                return role.service(inventory)
        return "", ()

    @property
    def retirable(self) -> tuple[str, ...]:
        """The parts of which a host that is gone for good can be left out of a run."""
        return tuple(role.part for role in self.roles if role.without is not None)

    def without(self, inventory: Inventory, names: Collection[str]) -> Inventory:
        """The inventory without retired hosts."""
        for role in self.roles if names else ():
            if role.without is not None:
                inventory = role.without(inventory, names)
        return inventory

    def tells_all(self, inventory: Inventory) -> bool:
        """Whether hosts can tell all that a run did, so that one can go on without its journal."""
        return bool(self.witnesses(inventory)) and not self.alters_clusters

    @property
    def paced(self) -> Counted | None:
        """The step whose pace is told."""
        return next((counted for counted in self.counted if counted.paced), None)

    @property
    def noticed(self) -> tuple[str, ...]:
        """The stages that clients of the cluster may notice."""
        return tuple(stage.id for stage in self.stages if stage.noticed)

    def views(self) -> tuple[View, ...]:
        """What tells its samples on one screen."""
        return tuple(sampling.view() for sampling in self.sampling)

    @property
    def gates(self) -> tuple[Stage, ...]:
        """The stages that begin with a look at whether to go on."""
        return tuple(stage for stage in self.stages if stage.gate)

    @property
    def unlocked(self) -> tuple[str, ...]:
        """The stages that are walked forward without the lock of the hosts."""
        return tuple(stage.id for stage in self.stages if not stage.locked)

    def step_ids(self) -> tuple[str, ...]:
        """Qualified ids ``stage.step`` in order, as ``--until`` and ``rollback --to`` take them."""
        return tuple(f"{stage.id}.{step.id}" for stage in self.stages for step in stage.steps)


def _names(inventory: Inventory, roles: Iterable[Role]) -> tuple[str, ...]:
    return tuple(name for role in roles for name in inventory.hosts.get(role.part, ()))


def _called(roles: Iterable[Role]) -> str:
    return " and ".join(role.many for role in roles) or "hosts"
