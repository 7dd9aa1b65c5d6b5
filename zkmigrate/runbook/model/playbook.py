"""Playbook: a runbook's stages and steps, as a value that the engine receives."""

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
    """A group of consecutive steps with one title.

    - consent: question asked on a terminal before the stage starts, empty for none.
    - skip: what is unknown if the stage is skipped; empty if it may not be skipped.
    - rehearsal: walk the steps forward, then back to the stage's start.
    - window: the window that the steps form, in which clients are shut out (in a rehearsal there may be none
      to shut out); the watch (lease, probes) runs beside them.
    - locked: the run holds its hosts' lock. This is impossible before zkm-host, which keeps it, is installed.
    - noticed: clients may notice the stage in either direction, so the produce canary runs.
    - refused: exit code when a step of the stage is blocked.
    - gate: ``preflight`` makes the checks of the stage's first step; for the first gate, those of every step
      of that stage.
    - outdates: the change made here, such as ``joined dest``, after which the first gate's checks no longer
      apply; empty if they still do.
    - idle: returns the inventory key whose value leaves nothing to do in this stage, so that the run skips
      it; else an empty text.
    - unnoticed: in a rehearsal, why clients notice nothing although the stage has a window; else empty.
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
    """A step that changes all hosts, or topics, of one kind, wave after wave.

    - step: ``stage.step``. many: the plural noun for its targets.
    - targets: returns all of them, from the inventory and the run's records; none while unknown.
    - paced: whether the run reports its progress and time left, and ``hold --at`` counts its targets; true
      for at most one step.
    - told: whether the step reports its own progress and time left while it waits. It does so if a target
      still has work to finish after its change.
    """

    step: str
    many: str
    targets: Callable[[Inventory, Records], tuple[str, ...]]
    paced: bool = False
    told: bool = False


@dataclass(frozen=True)
class Role:
    """The hosts that play one part in a runbook.

    - part: the key of ``Inventory.hosts``. many: the plural noun for such hosts.
    - changed: whether a run may change them.
    - witness: whether they keep the lock and the copies of the journal.
    - service: returns unit and commands of the service whose state ``status`` reads on a witness.
    - without: returns the inventory without some of them; None if none can be retired.
    - ordered: the channel for orders to them. They refuse an order whose fencing number is lower than that of
      an earlier order from any run.
    - told: returns the line that ``status`` shows about a host that is no witness.
    """

    part: str
    many: str
    changed: bool = False
    witness: bool = False
    service: Callable[[Inventory], tuple[str, tuple[str, ...]]] | None = None
    without: Callable[[Inventory, Collection[str]], Inventory] | None = None
    ordered: str = ""
    told: Callable[[Inventory, Look, str], str] | None = None


GoNoGo: TypeAlias = Callable[[Context, Look, str, str, Sequence[str]], str]
"""Return the go/no-go page as Markdown.

Takes the context with the records of the rehearsed run, a look, the digest of the plan, the id of that run
(empty without one), and the plan's remarks.
"""


@dataclass(frozen=True)
class KeptFile:
    """A file in a run's directory for readers without zkmigrate. words: its purpose."""

    text: str
    words: str


@dataclass(frozen=True)
class Playbook:
    """A named runbook.

    It is pure: code that reaches hosts is only named here, and loaded where hosts are reached.

    - counted: the steps whose targets are counted.
    - inventory: the class of its inventory, a subclass if it has sections of its own.
    - sections: the sections that the inventory file must contain; it may contain more.
    - roles: the hosts it works with, in the order shown. Without any it works with all hosts of the inventory
      and changes none.
    - alters_clusters: whether only the journal knows what a cluster contained before a change.
    - go_no_go: makes the page that is signed before the point of no return, if there is one.
    - report: the part of the report that is specific to this playbook.
    - foreseen: the lines of ``plan`` about the whole run, such as the length of its window.
    - measured: returns further lines of ``plan`` that need two looks; returns Waiting until it is time for
      the second.
    - foreseen_back: the lines that ``rollback`` shows before its question. The context's ``unrestored``
      belongs to the paced step.
    - sampling: the samples that the run takes for its report and screen.
    - throttled: whether the run copies replicas at rates that ``zkmigrate throttle`` overrides.
    - files: the files that the run keeps in its directory, by name, computed from its records. Each is on
      disk before the step after that record begins.
    - looks: stages that only read and that no run walks; ``preflight --stage`` names one.
    - clusters: the clusters that its changes name → the sender for each. A sender is ``module:name`` of a
      function of inventory and look that returns an ``engine.apply.Alter``.
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
        """Return the names of the hosts by their part in the runbook, in the order shown."""
        there = inventory.hosts
        parts = [role.part for role in self.roles] or list(there)
        return {part: there[part] for part in parts if part in there}

    def changed(self, inventory: Inventory) -> tuple[str, ...]:
        """Return the hosts that a run may change. It changes no other host."""
        return _names(inventory, (role for role in self.roles if role.changed))

    def witnesses(self, inventory: Inventory) -> tuple[str, ...]:
        """Return the hosts that keep the lock and the journal's copies.

        Without such hosts, only the operator's machine keeps lock and journal.
        """
        return _names(inventory, (role for role in self.roles if role.witness))

    def ordered(self, inventory: Inventory) -> dict[str, str]:
        """Return the channel for orders to each host that takes orders, by host."""
        roles = [role for role in self.roles if role.ordered]
        return {host: role.ordered for role in roles for host in inventory.hosts.get(role.part, ())}

    @property
    def many_witnesses(self) -> str:
        """The plural noun for the witnesses."""
        return _called(role for role in self.roles if role.witness)

    @property
    def many_changed(self) -> str:
        """The plural noun for the hosts that a run may change."""
        return _called(role for role in self.roles if role.changed)

    def service(self, inventory: Inventory, host: str) -> tuple[str, tuple[str, ...]]:
        """Return unit and commands of a host's service; the unit is empty if the host's role names none."""
        for role in self.roles:
            if role.service is not None and host in inventory.hosts.get(role.part, ()):
                return role.service(inventory)
        return "", ()

    @property
    def retirable(self) -> tuple[str, ...]:
        """The parts whose hosts a run can leave out when they are gone permanently."""
        return tuple(role.part for role in self.roles if role.without is not None)

    def without(self, inventory: Inventory, names: Collection[str]) -> Inventory:
        """Return the inventory without retired hosts."""
        for role in self.roles if names else ():
            if role.without is not None:
                inventory = role.without(inventory, names)
        return inventory

    def tells_all(self, inventory: Inventory) -> bool:
        """Return whether the hosts' own records suffice to continue a run without its journal."""
        return bool(self.witnesses(inventory)) and not self.alters_clusters

    @property
    def paced(self) -> Counted | None:
        """The step whose progress and time left the run reports, or None."""
        return next((counted for counted in self.counted if counted.paced), None)

    @property
    def noticed(self) -> tuple[str, ...]:
        """The stages that clients of the cluster may notice."""
        return tuple(stage.id for stage in self.stages if stage.noticed)

    def views(self) -> tuple[View, ...]:
        """Create one view for each sampling, for one screen."""
        return tuple(sampling.view() for sampling in self.sampling)

    @property
    def gates(self) -> tuple[Stage, ...]:
        """The stages that begin with a check of whether to go on."""
        return tuple(stage for stage in self.stages if stage.gate)

    @property
    def unlocked(self) -> tuple[str, ...]:
        """The stages that are walked forward without the hosts' lock."""
        return tuple(stage.id for stage in self.stages if not stage.locked)

    def step_ids(self) -> tuple[str, ...]:
        """Return ``stage.step`` of every step in order, as ``--until`` and ``rollback --to`` take them."""
        return tuple(f"{stage.id}.{step.id}" for stage in self.stages for step in stage.steps)


def _names(inventory: Inventory, roles: Iterable[Role]) -> tuple[str, ...]:
    return tuple(name for role in roles for name in inventory.hosts.get(role.part, ()))


def _called(roles: Iterable[Role]) -> str:
    return " and ".join(role.many for role in roles) or "hosts"
