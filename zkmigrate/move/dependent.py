"""Dependent: a system that uses ZooKeeper, as the move receives it.

A dependent is pure: it looks only through a ``Look`` and answers with values and changes. It declares which
of its ephemerals must survive; the move proves that much and no more.
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
    """One process of a dependent, on a host of its own. also: the host's further addresses. port: that its
    process listens on."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def also(self) -> tuple[str, ...]: ...
    @property
    def port(self) -> int: ...


CLOCK_STEP_S = 0.01
"""zkm-host reads uptime and clock one after the other, in milliseconds."""

NOT_ASKED = Absent("not asked")


@dataclass(frozen=True)
class MemberFacts:
    """One member: its file with its directory entry, its service, and the ZooKeeper addresses that it is
    connected to. names: what the names in its file resolve to, where the inventory has others."""

    file: Reading[bytes]
    entry: DirEntry | None
    status: Reading[HostStatus] = NOT_ASKED
    zookeepers: Reading[frozenset[str]] = NOT_ASKED
    names: Names = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        """Whether its service is known to be active."""
        return isinstance(self.status, Seen) and self.status.value.unit_state == "active"


def started_after(facts: MemberFacts, path: str) -> bool:
    """Whether the process is younger than its file at this path: a restart would change nothing.

    The last change dates the file, not its mtime: a file that was put back has its old mtime. Where zkm-host
    made that change, both times are on the boot clock, which nobody sets. Otherwise both are on the host's
    own clock, which must not be set in between.
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
    """The words for it in messages.

    kind: its section of the inventory, and the first word of its checks. one, many: its members. system: its
    name. key: what in its file names ZooKeeper. identity: the key of its section that names the cluster.
    session_key: what in its file bounds a session's timeout; unused where it keeps nothing. again: the
    imperative of what makes a member read its file.
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
        """The move where its sessions end too early for the window."""
        return f"raise {self.session_key} and {self.again} the {self.many} (the roll does)"

    @property
    def wrong_section(self) -> str:
        """The move where the chroot belongs to another cluster."""
        return f"correct {self.kind}.chroot or {self.kind}.{self.identity} in migration.yml"


@dataclass(frozen=True)
class Position:
    """One member in the roll.

    moved: file and process use the wanted ensemble, and it is settled. touched: its file already names the
    wanted ensemble, or it is down: a half-done target of ours. down: its process does not run. settling: its
    process has read the right file, so it only needs time.
    """

    name: str
    moved: bool
    touched: bool
    down: bool = False
    settling: bool = False


@dataclass(frozen=True)
class Progress:
    """What a member still lacks that has read the right file.

    deadline_s: from the first look of this wait. poll_s: until the next look. marks: for the next look.
    """

    words: str
    deadline_s: float
    poll_s: float = 0.2
    marks: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ending:
    """What follows when every member has moved, on either way. target: its name in the wave, not a host's.
    asked: whether the policy asks for it. without: the move that skips it outside the maintenance window."""

    target: str
    changes: Changes
    asked: bool
    without: str


class Dependent(Protocol[V]):
    """V: the state of its cluster, as its own looks found it; only the dependent reads that value."""

    words: Words
    shape: type[Inventory]
    """The shape of an inventory that has its section."""
    sampling: tuple[Sampling, ...]
    """Its samples while a run goes on."""
    clusters: Mapping[str, str]
    """As ``Playbook.clusters``: the clusters that its changes name."""

    # --- where it is

    def members(self, inventory: Inventory) -> tuple[Member, ...]:
        """Its processes, in the order of the inventory."""
        ...

    def without(self, inventory: Inventory, names: Collection[str]) -> Inventory:
        """The inventory without these members, which are gone for good."""
        ...

    def chroot(self, inventory: Inventory) -> str:
        """Its own subtree, such as ``/kafka``."""
        ...

    def config(self, inventory: Inventory) -> str:
        """The path of the file, on each member's host, that names ZooKeeper."""
        ...

    def identity(self, inventory: Inventory) -> str:
        """Its identity among its kind, from the inventory."""
        ...

    def identity_seen(self, inventory: Inventory, look: Look, via: str) -> Reading[str]:
        """Its identity under the chroot, seen through one ZooKeeper host; Absent where there is none."""
        ...

    def service(self, inventory: Inventory) -> Service:
        """The service of each member; its commands are asked with the member's port."""
        ...

    # --- its file, as bytes

    def names_dest(self, inventory: Inventory, content: bytes, resolve: Resolve) -> bool | None:
        """Return whether the file names a dest host; None where a name in it does not resolve. resolve: as
        the member's host does. Raises UsageError where the file cannot be read safely."""
        ...

    def with_dest(self, inventory: Inventory, content: bytes) -> bytes:
        """The same file naming dest only, every other byte kept. Raises as ``names_dest``."""
        ...

    def restart_or_reload(self, inventory: Inventory, member: str) -> Changes:
        """What makes a member read its file: a restart, or a reload."""
        ...

    def has_read(self, inventory: Inventory, own: V, member: str, facts: MemberFacts, /) -> bool:
        """Whether the member's process has read its file as it is now."""
        ...

    # --- its state

    def cluster(self, c: Context, look: Look) -> V:
        """Its state, as its members answer."""
        ...

    def for_roll(self, c: Context, look: Look, own: V, members: Mapping[str, MemberFacts]) -> V:
        """The same, with what only the roll needs."""
        ...

    def why_silent(self, own: V) -> str:
        """Why it does not answer; empty where it does. Otherwise nothing below is asked."""
        ...

    def settled(self, inventory: Inventory, own: V, member: str) -> bool:
        """Whether a member that is connected does its work in full again."""
        ...

    def is_spare(self, inventory: Inventory, own: V, member: str) -> bool:
        """Whether a stop of this member would cost nobody anything."""
        ...

    def next_wave(
        self, inventory: Inventory, own: V, positions: tuple[Position, ...]
    ) -> tuple[tuple[str, ...], str]:
        """Who may be changed next, all at once, or why nobody may; neither where all have moved. A half-done
        member comes first."""
        ...

    def progress(
        self, c: Context, own: V, member: str, marks: Mapping[str, Any], now: float, least_s: float
    ) -> Progress:
        """What this member lacks. marks: of the look before, empty at the first. now: seconds on a clock that
        nobody sets. least_s: the least time to wait for it."""
        ...

    def why_unsettled(self, own: V) -> str:
        """What in the cluster is not settled; empty where all is."""
        ...

    def ending(self, inventory: Inventory) -> Ending | None:
        """What can follow after the last wave; None for nothing."""
        ...

    def ending_due(self, own: V) -> bool:
        """Whether that would change anything now."""
        ...

    def who_is_behind(self, inventory: Inventory, own: V) -> str:
        """Which members are not registered or not settled; empty where all are. It never raises, even where
        no member answers."""
        ...

    def proofs(self, own: V) -> tuple[Finding, ...]:
        """That all are registered and settled, once ``who_is_behind`` is empty."""
        ...

    # --- its ephemerals and claims

    def keeps(self, path: str, /) -> bool:
        """Whether the ephemeral at this path must keep owner and czxid through the move, so that its session
        must outlive the window. Otherwise only data, versions and the parents' counters must be kept."""
        ...

    def claims(self, inventory: Inventory, member: str, owns: tuple[str, ...]) -> bool:
        """Whether a session that owns these ephemerals, from this member's host, is the member's own."""
        ...

    def idle_sessions(self, inventory: Inventory, look: Look, member: str) -> Reading[int]:
        """How many sessions of this member own nothing."""
        ...

    # --- what is asked of it while its clients are shut out

    def probes(self, inventory: Inventory, look: Look) -> tuple[Probe, ...]:
        """The probes of its members beside a window."""
        ...

    # --- its checks, beside those of any dependent

    @property
    def checks(self) -> tuple[Any, ...]:
        """Its checks (``move/preflight/check.py``) in the order shown. Those of any dependent
        (``move/preflight/members.py``) may be among them; the rest of those follow."""
        ...

    def evidence(self, c: Context, look: Look, common: Any, gate: str) -> Any:
        """What its checks judge by, beside ``common``, the evidence of any move:
        ``Evidence.of_dependent``."""
        ...


def unit_of(dependent: Dependent[Any], inventory: Inventory, member: Member) -> tuple[str, tuple[str, ...]]:
    """A member's unit, and the commands that replace systemd (``Service.commands``)."""
    service = dependent.service(inventory)
    return service.unit, service.commands(member.port)


AnyDependent: TypeAlias = Dependent[Any]


class OfDependent:
    """Base of a step that asks the dependent."""

    def __init__(self, dependent: AnyDependent) -> None:
        self.dependent = dependent


def program_hosts(dependent: AnyDependent, inventory: Inventory) -> tuple[str, ...]:
    """The hosts that zkm-host is installed on: dest's and the members'."""
    return (*inventory.dest_names, *(member.name for member in dependent.members(inventory)))
