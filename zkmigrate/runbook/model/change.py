"""Changes: every way in which zkmigrate changes a host or a cluster, as data.

The plan prints changes, the engine applies them and the tests' model world interprets them. ``where`` names
the host or cluster.

- A :data:`HostChange` holds ``verb`` and ``arguments`` for ``zkm-host`` (``zkm-host help``), which remembers
  the operation id sent with them. ``expect``: an extended regular expression that matches zkm-host's answer
  when the work is done. ``spared``: on the way back, a refusal that matches this means that the host never
  reached this change. ``answer_s``: seconds to wait for the answer outside a window.
- A :data:`ClusterChange` is idempotent by value, because a cluster remembers no operation id: sending it
  twice has the same effect as sending it once. It contains the value found before the change; the journal
  keeps it with the intent, and :func:`inverses` restores it. ``command`` is the equivalent command of the
  cluster's own tool; ``expect`` says in words what that tool prints.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, TypeAlias

ANSWER_S = 20.0
"""Seconds to wait for a change that neither stops nor starts a service nor copies data."""

ServiceAction: TypeAlias = Literal["start", "stop", "kill", "restart", "reload", "enable", "disable"]
Place: TypeAlias = Literal["first", "quorum", "rest"]


def encode(content: bytes) -> str:
    """Return content as the one-word argument that zkm-host takes: RFC 4648 base64, or ``=`` if empty."""
    return base64.b64encode(content).decode("ascii") or "="


def command_words(commands: tuple[str, ...]) -> tuple[str, ...]:
    """Return a service's ``KEY=VALUE`` pairs as zkm-host takes them.

    Commands are base64-encoded; ``ports`` stays as it is.
    """
    pairs = (text.partition("=") for text in commands)
    return tuple(f"{key}={value if key == 'ports' else encode(value.encode())}" for key, _, value in pairs)


KINDS: dict[str, type[HostChange] | type[ClusterChange]] = {}
"""Every kind of change by its class name, which is what the journal and a saved plan contain."""


class HostChange:
    """A change of a host, sent to a program there with an operation id that the program remembers.

    Each subclass is a frozen dataclass with class attributes ``verb`` and ``expect``. Defining it adds it to
    ``KINDS``. channel: the program that receives the change, by the site's name for it; empty for zkm-host.
    """

    host: str
    channel = ""
    spared = ""
    answer_s = ANSWER_S
    words = ""

    if TYPE_CHECKING:  # one kind has a field instead

        @property
        def verb(self) -> str: ...

        @property
        def expect(self) -> str: ...

    def __init_subclass__(cls) -> None:
        KINDS[cls.__name__] = cls

    @property
    def where(self) -> str:
        return self.host

    @property
    def command(self) -> str:
        """Return the command that sends the change by hand; empty if zkm-host takes it.

        OPID and N are placeholders for the run's operation id and fencing number.
        """
        return ""

    def arguments(self) -> tuple[str, ...]:
        return ()

    def describe(self) -> str:
        return self.words

    def inverse(self, _operation: str) -> HostChange | None:
        """Return the default undo of this change.

        Return None if the step that sent the change must define the undo itself. operation: the operation id
        of this change.
        """
        return None


class ClusterChange:
    """A change of a cluster, idempotent by value, sent by the cluster's sender (``Playbook.clusters``).

    Each subclass is a frozen dataclass with class attributes ``verb`` and ``expect``. Defining it adds it to
    ``KINDS``.
    """

    cluster: str
    verb: ClassVar[str]
    expect: ClassVar[str]

    def __init_subclass__(cls) -> None:
        KINDS[cls.__name__] = cls

    @property
    def where(self) -> str:
        return self.cluster

    @property
    def command(self) -> str:
        """Return the command of the cluster's own tool; by default only zkmigrate can send the change."""
        return f"only zkmigrate can do this: {self.describe()}"

    def describe(self) -> str:
        """Return the change in words."""
        raise NotImplementedError

    def inverse(self, _operation: str = "") -> ClusterChange | None:
        """Return the default undo of this change.

        Return None if the step that sent the change must define the undo itself.
        """
        return None

    def by_default(self) -> ClusterChange:
        """Return the equivalent change for a broker that is up; by default, this change itself."""
        return self


@dataclass(frozen=True)
class InstallProgram(HostChange):
    """Install zkm-host, its sudoers file and the run's policy; the only change that zkm-host does not make.

    path, policy: path and content of the file that says what zkm-host may change for this run.
    """

    host: str
    path: str = ""
    policy: str = ""
    verb = "install"
    expect = ""
    words = "install zkm-host, the sudoers file that allows it, and the policy that limits it"


@dataclass(frozen=True)
class UninstallProgram(HostChange):
    """Remove zkm-host, its sudoers file and this run's state from a host."""

    host: str
    verb = "uninstall"
    expect = "^uninstalled$"
    answer_s = 60.0
    words = "remove zkm-host, its sudoers file and the run's state"


@dataclass(frozen=True)
class PutFile(HostChange):
    """Write a whole file. mode: octal text. owner: ``user:group``."""

    host: str
    path: str
    content: bytes
    owner: str
    mode: str = "0644"
    verb = "put"
    expect = "^(wrote|unchanged) /"

    def arguments(self) -> tuple[str, ...]:
        digest = hashlib.sha256(self.content).hexdigest()
        return (self.path, self.mode, self.owner, digest, encode(self.content))

    def describe(self) -> str:
        return f"write {self.path} ({len(self.content)} bytes, mode {self.mode}, owner {self.owner})"

    def inverse(self, operation: str) -> HostChange:
        return Restore(self.host, operation, self.path)


@dataclass(frozen=True)
class EditLine(HostChange):
    """Replace one line of a file that may hold passwords; its other bytes, owner and mode stay.

    Neither the journal nor the host's records have any other line. number: counts from 1. old, new: the line
    with its line feed. before, after: the SHA-256 of the whole file; the host refuses a file that has
    neither.
    """

    host: str
    path: str
    number: int
    old: bytes
    new: bytes
    before: str
    after: str
    verb = "edit"
    expect = "^(wrote|unchanged) /"

    def arguments(self) -> tuple[str, ...]:
        return (self.path, str(self.number), self.before, self.after, encode(self.new))

    def describe(self) -> str:
        if self.before == self.after:
            return f"leave {self.path} as it is"
        return f"write line {self.number} of {self.path}: {self.new.decode('utf-8', 'replace').strip()}"

    def inverse(self, operation: str) -> HostChange:
        return Restore(self.host, operation, self.path)


def edit_line(host: str, path: str, before: bytes, after: bytes) -> EditLine | None:
    """Return the change from one content of a file to another, or None if more than one line differs.

    Equal contents give a change without a line, for a file that a killed run has already written.
    """
    if before == after:
        digest = hashlib.sha256(before).hexdigest()
        return EditLine(host, path, 1, b"", b"", digest, digest)
    old, new = before.split(b"\n"), after.split(b"\n")
    wrong = [at for at, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]]
    if len(old) != len(new) or len(wrong) != 1:
        return None
    at = wrong[0]
    end = b"" if at == len(old) - 1 else b"\n"
    digests = (hashlib.sha256(content).hexdigest() for content in (before, after))
    return EditLine(host, path, at + 1, old[at] + end, new[at] + end, *digests)


def replace_content(host: str, path: str, before: bytes, after: bytes, owner: str, mode: str) -> HostChange:
    """Return the change of a file's content: of one line if that is enough, else of the whole file."""
    return edit_line(host, path, before, after) or PutFile(host, path, after, owner, mode)


@dataclass(frozen=True)
class MoveAside(HostChange):
    """Rename a file or directory so that it can be put back.

    folder: the directory to move it into, on the same file system and accessible to root only; empty to keep
    it beside the original under another name.
    """

    host: str
    path: str
    folder: str = ""
    verb = "move-aside"
    expect = "^(moved|absent) /"

    def arguments(self) -> tuple[str, ...]:
        return (self.path, self.folder) if self.folder else (self.path,)

    def describe(self) -> str:
        return f"move {self.path} aside" + (f", into {self.folder}" if self.folder else "")

    def inverse(self, operation: str) -> HostChange:
        return Restore(self.host, operation, self.path)


@dataclass(frozen=True)
class Restore(HostChange):
    """Put back what an earlier operation replaced. operation: the id of that operation."""

    host: str
    operation: str
    what: str
    verb = "restore"
    expect = "^restored /"

    def arguments(self) -> tuple[str, ...]:
        return (self.operation,)

    def describe(self) -> str:
        return f"restore the earlier state: {self.what}"


@dataclass(frozen=True)
class Discard(HostChange):
    """Delete permanently what an earlier operation moved aside. operation: the id of that operation."""

    host: str
    operation: str
    what: str
    verb = "discard"
    expect = "^discarded "

    def arguments(self) -> tuple[str, ...]:
        return (self.operation,)

    def describe(self) -> str:
        return f"remove what was moved aside: {self.what}"


@dataclass(frozen=True)
class SetService(HostChange):
    """Start, stop, kill, restart, reload, enable or disable a service.

    Reload starts a service that is down. commands: ``KEY=VALUE`` pairs that replace systemctl, as in the
    inventory's ``Service.commands``. All of them are sent, because a restart stops, checks and starts the
    service.
    """

    host: str
    unit: str
    action: ServiceAction
    commands: tuple[str, ...] = ()
    verb = "service"
    answer_s = 180.0

    def arguments(self) -> tuple[str, ...]:
        return (self.unit, self.action, *command_words(self.commands))

    @property
    def expect(self) -> str:
        return f"^{self.action} {re.escape(self.unit)}$"

    def describe(self) -> str:
        own = dict(text.split("=", 1) for text in self.commands)
        keys = {"restart": ("stop", "start"), "kill": ("kill" if "kill" in own else "stop",)}
        used = [own[key] for key in keys.get(self.action, (self.action,)) if key in own]
        return f"{self.action} {self.unit}" + (f" with: {', then '.join(used)}" if used else "")


@dataclass(frozen=True)
class Arm(HostChange):
    """Prepare a dest host for the cut-over: add chains with empty sets, begin the image, add the guard.

    spec: ``key=value`` lines as described by ``zkm-host help arm``.
    """

    host: str
    spec: str
    verb = "arm"
    expect = "^armed tag="
    answer_s = 300.0
    words = "install own chains with empty sets, begin the image, install the guard"

    def arguments(self) -> tuple[str, ...]:
        return (encode(self.spec.encode()),)


@dataclass(frozen=True)
class Fence(HostChange):
    """Refuse clients at the client port and end their connections; the kernel reopens after ``ttl_ms``."""

    host: str
    ttl_ms: int
    verb = "fence"
    expect = "^killed=[0-9]+ left=0 "

    def arguments(self) -> tuple[str, ...]:
        return (str(self.ttl_ms),)

    def describe(self) -> str:
        return f"refuse clients (lease {self.ttl_ms} ms) and end their connections"


@dataclass(frozen=True)
class Cut(HostChange):
    """Block what ``policy.cut`` names between this host and source; the kernel unblocks after ``ttl_ms``."""

    host: str
    ttl_ms: int
    verb = "cut"
    expect = "^killed=[0-9]+ left=0 "

    def arguments(self) -> tuple[str, ...]:
        return (str(self.ttl_ms),)

    def describe(self) -> str:
        lease = f"lease {self.ttl_ms} ms"
        return f"block the traffic with source that policy.cut names ({lease}) and end those connections"


@dataclass(frozen=True)
class Seal(HostChange):
    """Make the block permanent if the boot id and the data stamp are still those that were proved."""

    host: str
    boot_id: str
    stamp: str
    verb = "seal"
    expect = "^sealed$"

    def arguments(self) -> tuple[str, ...]:
        return (self.boot_id, self.stamp)

    def describe(self) -> str:
        return (
            f"seal: make the block permanent, if still boot {self.boot_id} and data stamp {self.stamp[:12]}"
        )


@dataclass(frozen=True)
class Unseal(HostChange):
    """Turn the permanent block back into a lease."""

    host: str
    fence_ttl_ms: int
    cut_ttl_ms: int
    verb = "unseal"
    expect = "^unsealed "
    spared = "unseal is refused in phase (stopped|cut|fenced|armed);"
    words = "unseal: the block ends again when its lease is not renewed"

    def arguments(self) -> tuple[str, ...]:
        return (str(self.fence_ttl_ms), str(self.cut_ttl_ms))


@dataclass(frozen=True)
class Go(HostChange):
    """Let the host reform by itself, at its place in the start order.

    - place: ``first`` holds the newest transaction; ``quorum`` completes the majority once the first are
      LOOKING; ``rest`` joins a formed quorum.
    - first: ``ip:port`` of the hosts with the newest transaction.
    - majority: the number of hosts that form a majority.
    - open_limit_ms: how long the host waits for ``open`` before it acts by itself.
    """

    host: str
    place: Place
    first: tuple[str, ...]
    majority: int
    open_limit_ms: int
    verb = "go"
    expect = "^go (first|quorum|rest)"

    def arguments(self) -> tuple[str, ...]:
        return (self.place, ",".join(self.first), str(self.majority), str(self.open_limit_ms))

    def describe(self) -> str:
        return f"go: reform and start as participant, place {self.place}, majority {self.majority}"


SimpleVerb: TypeAlias = Literal[
    "disarm", "reopen", "uncut", "stopped", "started-observer", "halt", "checked", "open", "finalize"
]


class _Simple(NamedTuple):
    words: str
    expect: str
    spared: str = ""
    answer_s: float = ANSWER_S


_SIMPLE: dict[str, _Simple] = {
    "disarm": _Simple("remove own chains, sets, guard and image", "^disarmed$", answer_s=120.0),
    "reopen": _Simple("let clients in again", "^reopened$"),
    "uncut": _Simple("unblock the traffic with source", "^uncut$"),
    "stopped": _Simple("record that ZooKeeper is stopped", "^stopped$"),
    "started-observer": _Simple(
        "start ZooKeeper as observer of source again",
        "^started ",
        "started-observer is refused in phase (fenced|armed);",
        120.0,
    ),
    "halt": _Simple(
        "stop the finisher and ZooKeeper",
        "^halted$",
        "halt is refused in phase (stopped|cut|fenced|armed);",
        120.0,
    ),
    "checked": _Simple("record that the reformed ensemble passed the checks", "^checked$"),
    "open": _Simple("let clients in permanently: the point of no return", "^open$"),
    "finalize": _Simple("remove the block, guard, image and staged files", "^finalized$", answer_s=120.0),
}


@dataclass(frozen=True)
class HostVerb(HostChange):
    """A zkm-host verb without arguments of its own."""

    host: str
    verb: SimpleVerb

    @property
    def expect(self) -> str:
        return _SIMPLE[self.verb].expect

    @property
    def spared(self) -> str:  # type: ignore[override]
        return _SIMPLE[self.verb].spared

    @property
    def answer_s(self) -> float:  # type: ignore[override]
        return _SIMPLE[self.verb].answer_s

    def describe(self) -> str:
        return _SIMPLE[self.verb].words


@dataclass(frozen=True)
class RestoreImage(HostChange):
    """Restore the data and log directories as they were at STOP, with the observer config."""

    host: str
    verb = "image"
    expect = "^image restored$"
    spared = "image is refused in phase (stopped|cut|fenced|armed);"
    answer_s = 300.0
    words = "put data, epoch files and the observer config back as they were at STOP"

    def arguments(self) -> tuple[str, ...]:
        return ("restore",)


Change: TypeAlias = HostChange | ClusterChange
Changes: TypeAlias = tuple[Change, ...]


@dataclass(frozen=True)
class RecoveredChange:
    """A change known only from the host's own record, because the journal that recorded it is lost.

    path: the path that a ``put``, ``edit`` or ``move-aside`` replaced, else empty. Its content is not
    recorded.
    """

    host: str
    verb: str
    path: str = ""

    @property
    def replaces(self) -> bool:
        """Whether the host keeps a before-image of ``path``."""
        return self.verb in (PutFile.verb, EditLine.verb, MoveAside.verb)

    def inverse(self, operation: str) -> HostChange | None:
        """Return the change that restores the before-image, or None if the host keeps none."""
        return Restore(self.host, operation, self.path) if self.replaces else None


@dataclass(frozen=True)
class Outcome:
    """A host's or cluster's answer: zkm-host's exit code, or 0 or 1 from a cluster, with the output."""

    rc: int
    output: str = ""


@dataclass(frozen=True)
class Applied:
    """A journaled change of one step on one target, with its operation id.

    confirmed: False while only the intent is known.
    """

    change: Change | RecoveredChange
    operation: str
    confirmed: bool


def inverse(applied: Applied) -> Change | None:
    """Return the default undo of an applied change.

    Return None if the step that sent the change must define the undo itself.
    """
    return applied.change.inverse(applied.operation)


def inverses(applied: tuple[Applied, ...]) -> Changes:
    """Return the default undo: restore each before-image, newest first.

    A change that was sent again because its outcome was unknown has one inverse, at the position of its first
    sending. A step whose changes have no before-image defines its own undo.
    """
    oldest_first = dict.fromkeys(made for a in applied if (made := inverse(a)) is not None)
    return tuple(reversed(oldest_first))


def undoes(change: Change, applied: Applied) -> bool:
    """Return whether a change of the way back undoes an applied change.

    The comparison ignores the value that a change found before it was made.
    """
    if isinstance(change, Restore):
        return change.operation == applied.operation
    made = inverse(applied)
    if isinstance(change, ClusterChange):
        change = change.by_default()
    if made is None or type(change) is not type(made):
        return False
    return {**vars(change), "before": None} == {**vars(made), "before": None}
