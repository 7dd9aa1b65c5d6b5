"""Playbook: a runbook as a table of contents, a value that the engine receives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.report import Reporting
from zkmigrate.runbook.model.sampling import Sampling, View
from zkmigrate.runbook.model.step import AnyStep, Context, Records, Waiting
from zkmigrate.runbook.model.window import WindowSpec


@dataclass(frozen=True)
class Stage:
    """Steps under one heading.

    - consent: question asked on a terminal before the stage starts, empty for none.
    - skip: what is missing without the stage; empty where it may not be skipped.
    - rehearsal: walk the steps forward, then back to the stage's start.
    - window: clients are shut out in these steps; the watch (lease, probes, canaries) runs beside them.
    - locked: the run holds its hosts' lock; impossible before zkm-host, which keeps it, is installed.
    - noticed: clients may notice the stage in either direction, so the produce canary runs.
    - refused: exit code when a step of the stage is blocked.
    - gate: the verb preflight looks as the stage's first step does, at the first gate as all its steps do.
    - outdates: what a run has changed here, such as ``joined dest``, so that the first gate's demands hold no
      more; empty where they still do.
    - idle: which key of an inventory leaves the stage nothing to do, so that it is skipped; else empty.
    - unnoticed: why clients notice nothing of a window that shuts nobody out; else empty.
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
    gate: bool = False
    outdates: str = ""
    unnoticed: str = ""
    idle: Callable[[Inventory], str] = lambda _inventory: ""


@dataclass(frozen=True)
class Counted:
    """A step that takes all hosts, or topics, of one kind through it, wave after wave. step: ``stage.step``.
    many: what such targets are called. targets: all of them, from the inventory and the run's records; none
    while unknown. paced: the run tells its progress and time left, and ``--pause-after`` counts its targets;
    at most one step is. told: the step itself tells its progress and time left while it waits, for a target
    that was changed is not done yet."""

    step: str
    many: str
    targets: Callable[[Inventory, Records], tuple[str, ...]]
    paced: bool = False
    told: bool = False


@dataclass(frozen=True)
class Role:
    """Hosts that play one part in a runbook. part: the key of ``Inventory.hosts``. many: what such hosts are
    called. changed: a run may change them. witness: they keep the lock and the copies of the journal.
    service: unit and commands of the service whose state ``status`` asks of a witness. without: the inventory
    without some of them; None where none can be retired. ordered: the channel by which they take orders.
    They refuse an order with a lower fencing number than that of an earlier order from any run. told: what a
    host that is no witness says of itself, in one line of ``status``."""

    part: str
    many: str
    changed: bool = False
    witness: bool = False
    service: Callable[[Inventory], tuple[str, tuple[str, ...]]] | None = None
    without: Callable[[Inventory, Collection[str]], Inventory] | None = None
    ordered: str = ""
    told: Callable[[Inventory, Look, str], str] | None = None


GoNoGo: TypeAlias = Callable[[Context, Look, str, str, Sequence[str]], str]
"""Returns the page as Markdown. Takes the context with the records of the rehearsed run, what looks, the
digest of the plan, the id of that run (empty without one), and the plan's remarks."""


@dataclass(frozen=True)
class KeptFile:
    """A file in a run's directory for somebody without zkmigrate. words: what it is for."""

    text: str
    words: str


@dataclass(frozen=True)
class Playbook:
    """A named runbook. It is pure: what reaches out is named, and loaded where hosts are reached.

    - counted: the steps whose targets are counted.
    - inventory: the shape of its file, a subclass where it has sections of its own.
    - sections: those that its file must have; more may be there.
    - roles: the hosts it works with, in the order shown; without any, all of the inventory, none of which it
      changes.
    - alters_clusters: only the journal knows what a cluster held before a change.
    - go_no_go: makes the page that is signed before the point of no return, where there is one.
    - report: what is special about its report.
    - foreseen: what ``plan`` says of the whole run, such as the length of its window.
    - measured: what ``plan`` adds to it after two looks; Waiting until it is time for the second.
    - foreseen_back: what ``rollback`` says before it asks; ``unrestored`` is of the paced step.
    - sampling: what the run samples in passing.
    - throttled: its run copies replicas at rates that ``zkmigrate throttle`` overrides.
    - files: what the run keeps in its directory, by name, from its records. Each is on disk before the step
      after that record begins.
    - looks: stages outside the walk that only look; ``preflight --stage`` names one.
    - clusters: those that its changes name → what sends changes there, ``module:name`` of a function of
      inventory and look that gives an ``engine.apply.Alter``.
    """

    id: str
    title: str
    stages: tuple[Stage, ...] = field(default_factory=tuple)
    counted: tuple[Counted, ...] = ()
    inventory: type[Inventory] = Inventory
    sections: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()
    alters_clusters: bool = False
    go_no_go: GoNoGo | None = None
    report: Reporting = field(default_factory=Reporting)
    foreseen: Callable[[Context, Look], tuple[str, ...]] = lambda _context, _look: ()
    measured: Callable[[Context, Look], tuple[str, ...] | Waiting] = lambda _context, _look: ()
    foreseen_back: Callable[[Context], tuple[str, ...]] = lambda _context: ()
    sampling: tuple[Sampling, ...] = ()
    throttled: bool = False
    files: Callable[[Records], Mapping[str, KeptFile]] = lambda _records: {}
    looks: tuple[Stage, ...] = ()
    clusters: Mapping[str, str] = field(default_factory=dict)

    def hosts(self, inventory: Inventory) -> dict[str, tuple[str, ...]]:
        """The names of the hosts by their part, in the order shown."""
        there = inventory.hosts
        parts = [role.part for role in self.roles] or list(there)
        return {part: there[part] for part in parts if part in there}

    def changed(self, inventory: Inventory) -> tuple[str, ...]:
        """The hosts that a run may change; it changes no other."""
        return _names(inventory, (role for role in self.roles if role.changed))

    def witnesses(self, inventory: Inventory) -> tuple[str, ...]:
        """The hosts that keep the lock and the journal's copies; without any, only this machine does."""
        return _names(inventory, (role for role in self.roles if role.witness))

    def ordered(self, inventory: Inventory) -> dict[str, str]:
        """Return the hosts that take orders, each with its channel."""
        roles = [role for role in self.roles if role.ordered]
        return {host: role.ordered for role in roles for host in inventory.hosts.get(role.part, ())}

    @property
    def many_witnesses(self) -> str:
        """What the witnesses are called."""
        return _called(role for role in self.roles if role.witness)

    @property
    def many_changed(self) -> str:
        """What the hosts that a run may change are called."""
        return _called(role for role in self.roles if role.changed)

    def service(self, inventory: Inventory, host: str) -> tuple[str, tuple[str, ...]]:
        """Unit and commands of a host's service; no unit where its role names none."""
        for role in self.roles:
            if role.service is not None and host in inventory.hosts.get(role.part, ()):
                return role.service(inventory)
        return "", ()

    @property
    def retirable(self) -> tuple[str, ...]:
        """The parts of which a run can leave out a host that is gone for good."""
        return tuple(role.part for role in self.roles if role.without is not None)

    def without(self, inventory: Inventory, names: Collection[str]) -> Inventory:
        """The inventory without retired hosts."""
        for role in self.roles if names else ():
            if role.without is not None:
                inventory = role.without(inventory, names)
        return inventory

    def tells_all(self, inventory: Inventory) -> bool:
        """Whether hosts can tell all that a run did, so that it can go on without its journal."""
        return bool(self.witnesses(inventory)) and not self.alters_clusters

    @property
    def paced(self) -> Counted | None:
        """The step whose progress and time left are told."""
        return next((counted for counted in self.counted if counted.paced), None)

    @property
    def noticed(self) -> tuple[str, ...]:
        """The stages that clients of the cluster may notice."""
        return tuple(stage.id for stage in self.stages if stage.noticed)

    def views(self) -> tuple[View, ...]:
        """What shows its samples on one screen."""
        return tuple(sampling.view() for sampling in self.sampling)

    @property
    def gates(self) -> tuple[Stage, ...]:
        """The stages that begin with a look at whether to go on."""
        return tuple(stage for stage in self.stages if stage.gate)

    @property
    def unlocked(self) -> tuple[str, ...]:
        """The stages that are walked forward without the hosts' lock."""
        return tuple(stage.id for stage in self.stages if not stage.locked)

    def step_ids(self) -> tuple[str, ...]:
        """``stage.step`` in order, as ``--until`` and ``rollback --to`` take them."""
        return tuple(f"{stage.id}.{step.id}" for stage in self.stages for step in stage.steps)


def _names(inventory: Inventory, roles: Iterable[Role]) -> tuple[str, ...]:
    return tuple(name for role in roles for name in inventory.hosts.get(role.part, ()))


def _called(roles: Iterable[Role]) -> str:
    return " and ".join(role.many for role in roles) or "hosts"
