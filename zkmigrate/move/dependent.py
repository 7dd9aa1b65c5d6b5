"""The interface of a dependent: a system that uses ZooKeeper and can be moved.

A dependent is pure: it reads only through a ``Look``, and returns values and changes. It declares which of
its ephemerals must survive; the move proves that much and no more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from zkmigrate.hosts.facts.host_names import Names, Resolve
from zkmigrate.hosts.facts.status import HostStatus
from zkmigrate.runbook.model.change import Changes
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.look import DirEntry, Look
from zkmigrate.runbook.model.sampling import Sampling
from zkmigrate.runbook.model.step import Context
from zkmigrate.runbook.model.window import Probe

if TYPE_CHECKING:
    from zkmigrate.inventory.inventory import Inventory, Service

V = TypeVar("V")


class Member(Protocol):
    """One process of a dependent, on a host of its own.

    also: further addresses of that host. port: the port on which the process listens.
    """

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def also(self) -> tuple[str, ...]: ...
    @property
    def port(self) -> int: ...


CLOCK_STEP_S = 0.01
"""Tolerance in seconds: zkm-host reads uptime and clock one after the other, in milliseconds."""

NOT_ASKED = Absent("not asked")


@dataclass(frozen=True)
class MemberFacts:
    """One member's config file, service and current ZooKeeper connections.

    file: the file's content. entry: its directory entry. status: the state of its service. zookeepers: the
    ZooKeeper addresses that it is connected to. names: the addresses to which names in its file resolve,
    where the inventory has others.
    """

    file: Reading[bytes]
    entry: DirEntry | None
    status: Reading[HostStatus] = NOT_ASKED
    zookeepers: Reading[frozenset[str]] = NOT_ASKED
    names: Names = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        """Whether the service of the member is known to be active."""
        return isinstance(self.status, Seen) and self.status.value.unit_state == "active"


def started_after(facts: MemberFacts, path: str) -> bool:
    """Return whether the member's process started after its file at this path last changed.

    If so, a restart would change nothing. The inode's change time dates the file, not its mtime: a file that
    was put back has its old mtime. Where zkm-host made that change, both times are on the boot clock, which
    nobody sets. Otherwise both are on the host's own clock, which must not be set in between.
    """
    changed = facts.entry.changed_ns if facts.entry is not None else None
    if changed is None:
        return False
    status = facts.status.value if isinstance(facts.status, Seen) else None
    if status is None or status.unit_started is None:
        return False
    written = status.written
    if written is not None and (written.path, written.changed_ns) == (path, changed):
        return written.boot_id != status.boot_id or status.unit_since >= written.uptime_s
    return status.unit_started + CLOCK_STEP_S >= changed / 1e9


@dataclass(frozen=True)
class Words:
    """The words by which messages name a dependent.

    kind: the name of its section in the inventory, and the first word of its checks' ids. one, many: the noun
    for its members, singular and plural. system: its name. key: the setting in its file that names ZooKeeper.
    identity: the key of its section that names the cluster. session_key: the setting in its file that bounds
    a session's timeout; unused if it keeps no ephemerals. again: the imperative for making a member read its
    file, such as "restart".
    """

    kind: str
    one: str
    many: str
    system: str
    key: str
    identity: str
    session_key: str
    again: str = "restart"

    @property
    def longer_sessions(self) -> str:
        """What to do when the dependent's sessions end too early for the window."""
        return f"raise {self.session_key} and {self.again} the {self.many} (the roll does)"

    @property
    def wrong_section(self) -> str:
        """What to do when the chroot belongs to another cluster."""
        return f"correct {self.kind}.chroot or {self.kind}.{self.identity} in migration.yml"


@dataclass(frozen=True)
class Position:
    """The state of one member during the roll.

    moved: file and process use the wanted ensemble, and the member is settled. touched: its file already
    names the wanted ensemble or it is down, so it counts as half done. down: its process does not run.
    settling: its process has read the right file, so it only needs time.
    """

    name: str
    moved: bool
    touched: bool
    down: bool = False
    settling: bool = False


@dataclass(frozen=True)
class Progress:
    """What a member that has read the right file still lacks, and how long to wait for it.

    words: the text to show. deadline_s: seconds to wait, counted from the first look of this wait. poll_s:
    seconds until the next look. marks: values to pass to the next call of ``Dependent.progress``.
    """

    words: str
    deadline_s: float
    poll_s: float = 0.2
    marks: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ending:
    """The changes that follow once every member has moved, in either direction.

    target: the name under which the wave lists them; it is not a host. asked: whether the policy wants these
    changes. without: how to skip them when the maintenance window is over.
    """

    target: str
    changes: Changes
    asked: bool
    without: str


class Dependent(Protocol[V]):
    """A system that uses ZooKeeper and can be moved.

    V: the type of the cluster's state as the dependent's own looks found it. Only the dependent reads such a
    value.
    """

    words: Words
    shape: type[Inventory]
    """The inventory class that has its section."""
    sampling: tuple[Sampling, ...]
    """What to sample while a run is in progress."""
    clusters: Mapping[str, str]
    """The clusters that its changes name, in the form of ``Playbook.clusters``."""

    # --- its members and places

    def members(self, inventory: Inventory) -> tuple[Member, ...]:
        """Return the members: the dependent's processes, in the order of the inventory."""
        ...

    def without(self, inventory: Inventory, names: Collection[str]) -> Inventory:
        """Return the inventory without these members, which are gone permanently."""
        ...

    def chroot(self, inventory: Inventory) -> str:
        """Return the dependent's subtree of ZooKeeper, such as ``/kafka``."""
        ...

    def config(self, inventory: Inventory) -> str:
        """Return the path, on each member's host, of the file that names ZooKeeper."""
        ...

    def identity(self, inventory: Inventory) -> str:
        """Return the identity of the dependent's cluster, from the inventory."""
        ...

    def identity_seen(self, inventory: Inventory, look: Look, via: str) -> Reading[str]:
        """Read the cluster's identity under the chroot from one ZooKeeper host; Absent if there is none."""
        ...

    def service(self, inventory: Inventory) -> Service:
        """Return the service that each member runs as. Its commands contain the member's port."""
        ...

    # --- its file, as bytes

    def names_dest(self, inventory: Inventory, content: bytes, resolve: Resolve) -> bool | None:
        """Return whether the file names a dest host; None if a name in it does not resolve.

        content: the content of a member's file. resolve: resolves a name as the member's host does. Raises
        UsageError if the file cannot be read safely.
        """
        ...

    def with_dest(self, inventory: Inventory, content: bytes) -> bytes:
        """Return the file's content naming dest only, with every other byte kept.

        Raises UsageError if the file cannot be read safely.
        """
        ...

    def restart_or_reload(self, inventory: Inventory, member: str) -> Changes:
        """Return the changes that make a member read its file: a restart or a reload."""
        ...

    def has_read(self, inventory: Inventory, own: V, member: str, facts: MemberFacts, /) -> bool:
        """Return whether the member's process has read its file as it is now."""
        ...

    # --- its state

    def cluster(self, c: Context, look: Look) -> V:
        """Return the state of the dependent's cluster, as its members report it."""
        ...

    def for_roll(self, c: Context, look: Look, own: V, members: Mapping[str, MemberFacts]) -> V:
        """Return the cluster's state ``own``, with the facts added that only the roll needs."""
        ...

    def why_silent(self, own: V) -> str:
        """Return why the cluster does not answer, or an empty string if it does.

        The roll waits while it does not answer.
        """
        ...

    def settled(self, inventory: Inventory, own: V, member: str) -> bool:
        """Return whether a connected member does its full work again."""
        ...

    def is_spare(self, inventory: Inventory, own: V, member: str) -> bool:
        """Return whether this member can stop without any effect on clients."""
        ...

    def next_wave(
        self, inventory: Inventory, own: V, positions: tuple[Position, ...]
    ) -> tuple[tuple[str, ...], str]:
        """Return the members to change next, all at once, or the reason why none may change now.

        Both are empty once all members have moved. A half-done member comes first.
        """
        ...

    def progress(
        self, c: Context, own: V, member: str, marks: Mapping[str, Any], now: float, least_s: float
    ) -> Progress:
        """Return what this member still lacks.

        marks: from the previous look, empty at the first. now: seconds on a monotonic clock. least_s: the
        shortest time to wait for the member.
        """
        ...

    def why_unsettled(self, own: V) -> str:
        """Return which part of the cluster is not settled, or an empty string if everything is."""
        ...

    def ending(self, inventory: Inventory) -> Ending | None:
        """Return the changes that can follow the last wave, or None if there are none."""
        ...

    def ending_due(self, own: V) -> bool:
        """Return whether the changes of the ending would have any effect now."""
        ...

    def who_is_behind(self, inventory: Inventory, own: V) -> str:
        """Return which members are not registered or not settled, or an empty string if all are.

        It never raises, even if no member answers.
        """
        ...

    def proofs(self, own: V) -> tuple[Finding, ...]:
        """Return the findings that all members are registered and settled.

        Call it once ``who_is_behind`` is empty.
        """
        ...

    # --- its ephemerals and claims

    def keeps(self, path: str, /) -> bool:
        """Return whether the ephemeral at this path must keep its owner and czxid through the move.

        If so, its session must outlive the window. Otherwise only data, versions and the parents' counters
        must be kept.
        """
        ...

    def claims(self, inventory: Inventory, member: str, owns: tuple[str, ...]) -> bool:
        """Return whether a session belongs to this member.

        owns: the ephemerals that the session owns. The session comes from this member's host.
        """
        ...

    def idle_sessions(self, inventory: Inventory, look: Look, member: str) -> Reading[int]:
        """Return how many sessions of this member own no ephemeral."""
        ...

    # --- its probes while its clients are shut out

    def probes(self, inventory: Inventory, look: Look) -> tuple[Probe, ...]:
        """Return the probes that ask the members while the window shuts clients out."""
        ...

    # --- its checks, in addition to those of any dependent

    @property
    def checks(self) -> tuple[Any, ...]:
        """The dependent's checks (``move/preflight/check.py``), in the order shown.

        Checks that any dependent shares (``move/preflight/members.py``) may be among them; those that are not
        follow after these.
        """
        ...

    def evidence(self, c: Context, look: Look, common: Any, gate: str) -> Any:
        """Return the evidence for the dependent's own checks, which ``Evidence.of_dependent`` stores.

        common: the evidence that every move needs.
        """
        ...


def unit_of(dependent: Dependent[Any], inventory: Inventory, member: Member) -> tuple[str, tuple[str, ...]]:
    """Return a member's unit, and the commands that replace systemd (``Service.commands``)."""
    service = dependent.service(inventory)
    return service.unit, service.commands(member.port)


AnyDependent: TypeAlias = Dependent[Any]


class OfDependent:
    """Base class of a step that uses the dependent."""

    def __init__(self, dependent: AnyDependent) -> None:
        self.dependent = dependent


def program_hosts(dependent: AnyDependent, inventory: Inventory) -> tuple[str, ...]:
    """Return the hosts on which zkm-host is installed: dest's and the members'."""
    return (*inventory.dest_names, *(member.name for member in dependent.members(inventory)))
