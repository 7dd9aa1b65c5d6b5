"""The interface of a dependent: a system that uses ZooKeeper and can be moved.

A dependent has no side effects: it reads only through a ``Look``, and returns values and changes. It declares
which of its ephemerals must survive the move. The move proves the survival of these ephemerals only.
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
from zkmigrate.zookeeper.data.chroot import Chroot

if TYPE_CHECKING:
    from zkmigrate.inventory.inventory import Inventory, Service

V = TypeVar("V")


class Member(Protocol):
    """One process of a dependent, on a host that runs no other member.

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
    ZooKeeper addresses to which the member is connected. names: host name in the file → its addresses on the
    member's host, for each name that must be resolved to compare it with the inventory.
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
    """The words with which messages name a dependent.

    - kind: the name of its section in the inventory, and the first word of its checks' ids
    - one, many: the noun for its members, singular and plural
    - system: the name of the system, such as "Kafka"
    - key: the setting in a member's file that names ZooKeeper
    - identity: the key of its section in the inventory that identifies the cluster
    - session_key: the setting in a member's file that limits a session's timeout; unused for a dependent
      without ephemerals
    - again: the verb for making a member read its file, such as "restart"
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
        """What the operator can do if the dependent's session timeouts are too short for the window."""
        return f"raise {self.session_key} and {self.again} the {self.many} (the roll does)"

    @property
    def wrong_section(self) -> str:
        """What the operator can do if the chroot belongs to another cluster."""
        return f"correct {self.kind}.chroot or {self.kind}.{self.identity} in migration.yml"


@dataclass(frozen=True)
class Position:
    """The state of one member during the roll.

    moved: the member's file and process use the wanted ensemble, and the member is settled. touched: the file
    already names the wanted ensemble, or the member is down, so its move has begun. down: the process does
    not run. settling: the process has read the right file, so the member only needs time.
    """

    name: str
    moved: bool
    touched: bool
    down: bool = False
    settling: bool = False


@dataclass(frozen=True)
class Progress:
    """The conditions that a member does not meet yet after it has read the right file, and how long to wait.

    words: the unmet conditions as text. deadline_s: how many seconds to wait, from the first look of this
    wait. poll_s: seconds until the next look. marks: values to pass to the next call of
    ``Dependent.progress``.
    """

    words: str
    deadline_s: float
    poll_s: float = 0.2
    marks: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ending:
    """The changes that follow once every member has moved, in either direction.

    target: the name of these changes among the targets of the last wave; it is not a host. asked: whether the
    policy requests the changes. without: how the operator can skip the changes when the maintenance window is
    over.
    """

    target: str
    changes: Changes
    asked: bool
    without: str


class Dependent(Protocol[V]):
    """A system that uses ZooKeeper and can be moved.

    V: the type of a value that holds the state of the dependent's cluster. Only the dependent itself creates
    and reads such values; the parameter ``own`` of its methods is one.
    """

    words: Words
    shape: type[Inventory]
    """The class of inventories that has a section for this dependent."""
    sampling: tuple[Sampling, ...]
    """The measurements to repeat while a run is in progress."""
    clusters: Mapping[str, str]
    """The clusters that the dependent's changes can name, in the form of ``Playbook.clusters``."""

    # --- its members and places

    def members(self, inventory: Inventory) -> tuple[Member, ...]:
        """Return the members: the dependent's processes, in the order of the inventory."""
        ...

    def without(self, inventory: Inventory, names: Collection[str]) -> Inventory:
        """Return the inventory without the members that have these names and are gone permanently."""
        ...

    def chroot(self, inventory: Inventory) -> Chroot:
        """Return the dependent's znodes in ZooKeeper."""
        ...

    def config(self, inventory: Inventory) -> str:
        """Return the path of the config file that names ZooKeeper, on each member's host."""
        ...

    def identity(self, inventory: Inventory) -> str:
        """Return the id of the dependent's cluster that the inventory gives."""
        ...

    def identity_seen(self, inventory: Inventory, look: Look, via: str) -> Reading[str]:
        """Read the id of the cluster under the chroot, as the ZooKeeper host ``via`` shows it.

        Returns Absent if no id is stored under the chroot.
        """
        ...

    def service(self, inventory: Inventory) -> Service:
        """Return the service that runs a member. Its commands may contain the member's port."""
        ...

    # --- its file, as bytes

    def names_dest(self, inventory: Inventory, content: bytes, resolve: Resolve) -> bool | None:
        """Return whether a member's file names a dest host.

        content: the content of the file. resolve: resolves a name as the member's host does. Returns None if
        a name in the file does not resolve. Raises UsageError if the file cannot be parsed safely.
        """
        ...

    def with_dest(self, inventory: Inventory, content: bytes) -> bytes:
        """Return the content of a member's file, changed so that the file names only dest.

        Every other byte is kept. Raises UsageError if the file cannot be parsed safely.
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
        """Return the state ``own`` of the cluster, completed with the facts that only the roll needs."""
        ...

    def why_silent(self, own: V) -> str:
        """Return why the cluster does not answer, or an empty string if it answers.

        The roll waits as long as the cluster does not answer.
        """
        ...

    def settled(self, inventory: Inventory, own: V, member: str) -> bool:
        """Return whether a connected member does all of its work again."""
        ...

    def is_spare(self, inventory: Inventory, own: V, member: str) -> bool:
        """Return whether this member can stop without any effect on clients."""
        ...

    def next_wave(
        self, inventory: Inventory, own: V, positions: tuple[Position, ...]
    ) -> tuple[tuple[str, ...], str]:
        """Return the members to change next, all at once, and the reason why no member may change now.

        The first value is empty if there is a reason, and the reason is empty if there are members. Both are
        empty once all members have moved. A member whose move has begun comes first.
        """
        ...

    def progress(
        self, c: Context, own: V, member: str, marks: Mapping[str, Any], now: float, least_s: float
    ) -> Progress:
        """Return the conditions that this member does not meet yet, and how long to wait.

        marks: ``Progress.marks`` of the previous look, empty at the first look. now: seconds on a monotonic
        clock. least_s: the shortest time to wait for the member, in seconds.
        """
        ...

    def why_unsettled(self, own: V) -> str:
        """Return which part of the cluster is not settled, or an empty string if all of it is settled."""
        ...

    def ending(self, inventory: Inventory) -> Ending | None:
        """Return the changes that follow the last wave, or None if this dependent has no such changes."""
        ...

    def ending_due(self, own: V) -> bool:
        """Return whether the changes of the ending would have any effect now."""
        ...

    def who_is_behind(self, inventory: Inventory, own: V) -> str:
        """Return which members are not registered or not settled, or an empty string if all are settled.

        This method never raises an exception, even if no member answers.
        """
        ...

    def proofs(self, own: V) -> tuple[Finding, ...]:
        """Return the findings which state that all members are registered and settled.

        Call this method only if ``who_is_behind`` returned an empty string.
        """
        ...

    # --- its ephemerals and claims

    def keeps(self, path: str, /) -> bool:
        """Return whether the ephemeral at this path must keep its owner and czxid through the move.

        The session that owns such an ephemeral must outlive the window. Of other znodes only data, versions
        and the counters of their parents must be kept.
        """
        ...

    def claims(self, inventory: Inventory, member: str, owns: tuple[str, ...]) -> bool:
        """Return whether a session that comes from this member's host belongs to the member.

        owns: the ephemerals that the session owns.
        """
        ...

    def idle_sessions(self, inventory: Inventory, look: Look, member: str) -> Reading[int]:
        """Return how many sessions of this member own no ephemeral."""
        ...

    # --- its probes while its clients are shut out

    def probes(self, inventory: Inventory, look: Look) -> tuple[Probe, ...]:
        """Return the probes that check, during the window, whether the members still answer."""
        ...

    # --- its checks, in addition to those of any dependent

    @property
    def checks(self) -> tuple[Any, ...]:
        """The dependent's checks (``move/preflight/check.py``), in the order in which they are shown.

        The result may include checks that all dependents share (``move/preflight/members.py``). Shared checks
        that it leaves out are shown after it.
        """
        ...

    def evidence(self, c: Context, look: Look, common: Any, gate: str) -> Any:
        """Return the evidence for the dependent's own checks, which ``Evidence.of_dependent`` stores.

        common: the evidence that every move needs. gate: ``preflight``, ``roll`` or ``cutover``.
        """
        ...


def unit_of(dependent: Dependent[Any], inventory: Inventory, member: Member) -> tuple[str, tuple[str, ...]]:
    """Return a member's systemd unit, and the commands that are used instead of systemd.

    See ``Service.commands``; the tuple of commands is empty if systemd runs the service.
    """
    service = dependent.service(inventory)
    return service.unit, service.commands(member.port)


AnyDependent: TypeAlias = Dependent[Any]


class OfDependent:
    """Base class of the steps that need to know the dependent."""

    def __init__(self, dependent: AnyDependent) -> None:
        self.dependent = dependent


def program_hosts(dependent: AnyDependent, inventory: Inventory) -> tuple[str, ...]:
    """Return the names of the hosts on which zkm-host is installed: the dest hosts and the members' hosts."""
    return (*inventory.dest_names, *(member.name for member in dependent.members(inventory)))
