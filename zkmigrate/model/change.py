"""Changes: every way in which zkmigrate touches a host, as data.

A closed union. Each change names its host, describes itself for the operator, and knows the words that
``zkm-host`` takes for it: ``verb`` and ``arguments`` around the operation id (``hostside/zkm-host help``).
One, :class:`ElectLeaders`, does not go to ``zkm-host`` but to Kafka.
The plan prints changes, the engine applies the same values, the model world interprets them.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Literal, TypeAlias

ServiceAction: TypeAlias = Literal["start", "stop", "kill", "restart", "enable", "disable"]
Place: TypeAlias = Literal["first", "quorum", "rest"]


def encode(content: bytes) -> str:
    """Content as the one-word argument that zkm-host takes (RFC 4648 base64, ``-`` for empty)."""
    return base64.b64encode(content).decode("ascii") or "="


def command_words(commands: tuple[str, ...]) -> tuple[str, ...]:
    """``KEY=VALUE`` of a service as zkm-host takes them: commands in base64, ``ports`` as they are."""
    pairs = (text.partition("=") for text in commands)
    return tuple(f"{key}={value if key == 'ports' else encode(value.encode())}" for key, _, value in pairs)


@dataclass(frozen=True)
class InstallProgram:
    """Install zkm-host and its sudoers file on a host; the only change that does not go through zkm-host."""

    host: str
    verb = "install"

    def arguments(self) -> tuple[str, ...]:
        return ()

    def describe(self) -> str:
        return "install zkm-host and the sudoers file that allows it"


@dataclass(frozen=True)
class UninstallProgram:
    """Remove zkm-host, its sudoers file and this run's state from a host."""

    host: str
    verb = "uninstall"

    def arguments(self) -> tuple[str, ...]:
        return ()

    def describe(self) -> str:
        return "remove zkm-host, its sudoers file and the run's state"


@dataclass(frozen=True)
class PutFile:
    """Write a file whole: mode as octal text, owner as ``user:group``."""

    host: str
    path: str
    content: bytes
    owner: str
    mode: str = "0644"
    verb = "put"

    def arguments(self) -> tuple[str, ...]:
        digest = hashlib.sha256(self.content).hexdigest()
        return (self.path, self.mode, self.owner, digest, encode(self.content))

    def describe(self) -> str:
        return f"write {self.path} ({len(self.content)} bytes, mode {self.mode}, owner {self.owner})"


@dataclass(frozen=True)
class MoveAside:
    """Rename a file or directory to a sibling name, so that it can be put back."""

    host: str
    path: str
    verb = "move-aside"

    def arguments(self) -> tuple[str, ...]:
        return (self.path,)

    def describe(self) -> str:
        return f"move {self.path} aside"


@dataclass(frozen=True)
class Restore:
    """Put back exactly what an earlier operation replaced; ``operation`` is that operation's id."""

    host: str
    operation: str
    what: str
    verb = "restore"

    def arguments(self) -> tuple[str, ...]:
        return (self.operation,)

    def describe(self) -> str:
        return f"put back what was there before: {self.what}"


@dataclass(frozen=True)
class Discard:
    """Remove for good what an earlier operation moved aside; ``operation`` is that operation's id."""

    host: str
    operation: str
    what: str
    verb = "discard"

    def arguments(self) -> tuple[str, ...]:
        return (self.operation,)

    def describe(self) -> str:
        return f"remove what was moved aside: {self.what}"


@dataclass(frozen=True)
class SetService:
    """Start, stop, kill or restart a service.

    commands: what replaces systemctl, ``KEY=VALUE`` as ``Service.commands`` of the inventory gives them; all
    of them, because one action may need several: a restart stops, looks and starts.
    """

    host: str
    unit: str
    action: ServiceAction
    commands: tuple[str, ...] = ()
    verb = "service"

    def arguments(self) -> tuple[str, ...]:
        return (self.unit, self.action, *command_words(self.commands))

    def describe(self) -> str:
        own = dict(text.split("=", 1) for text in self.commands)
        keys = {"restart": ("stop", "start"), "kill": ("kill" if "kill" in own else "stop",)}
        used = [own[key] for key in keys.get(self.action, (self.action,)) if key in own]
        return f"{self.action} {self.unit}" + (f" with: {', then '.join(used)}" if used else "")


@dataclass(frozen=True)
class Arm:
    """Prepare a dest host for the cut-over: chains with empty sets, image begun, guard installed.

    spec: key=value lines as ``zkm-host help arm`` lists them.
    """

    host: str
    spec: str
    verb = "arm"

    def arguments(self) -> tuple[str, ...]:
        return (encode(self.spec.encode()),)

    def describe(self) -> str:
        return "install own chains with empty sets, begin the image, install the guard"


@dataclass(frozen=True)
class Fence:
    """Refuse clients at the client port and end their sockets; the kernel reopens after ``ttl_ms``."""

    host: str
    ttl_ms: int
    verb = "fence"

    def arguments(self) -> tuple[str, ...]:
        return (str(self.ttl_ms),)

    def describe(self) -> str:
        return f"refuse clients (lease {self.ttl_ms} ms) and end their connections"


@dataclass(frozen=True)
class Cut:
    """Block everything between this host and source; the kernel unblocks after ``ttl_ms``."""

    host: str
    ttl_ms: int
    verb = "cut"

    def arguments(self) -> tuple[str, ...]:
        return (str(self.ttl_ms),)

    def describe(self) -> str:
        return f"block all traffic with source (lease {self.ttl_ms} ms) and end those connections"


@dataclass(frozen=True)
class Seal:
    """Make the lease permanent, if boot id and data stamp are still what the proof was made from."""

    host: str
    boot_id: str
    stamp: str
    verb = "seal"

    def arguments(self) -> tuple[str, ...]:
        return (self.boot_id, self.stamp)

    def describe(self) -> str:
        return f"seal: keep the block for good, if still boot {self.boot_id} and data stamp {self.stamp[:12]}"


@dataclass(frozen=True)
class Unseal:
    """Turn the permanent block back into a lease."""

    host: str
    fence_ttl_ms: int
    cut_ttl_ms: int
    verb = "unseal"

    def arguments(self) -> tuple[str, ...]:
        return (str(self.fence_ttl_ms), str(self.cut_ttl_ms))

    def describe(self) -> str:
        return "unseal: the block is a lease again"


@dataclass(frozen=True)
class Go:
    """Let the host reform by itself, in its place of the start order.

    place: ``first`` = holds the newest transaction; ``quorum`` = completes the majority once the first are
    LOOKING; ``rest`` = joins a formed quorum. first: ``ip:port`` of the hosts that hold the newest
    transaction. majority: q. open_limit_ms: how long the host waits for ``open`` before acting by itself.
    """

    host: str
    place: Place
    first: tuple[str, ...]
    majority: int
    open_limit_ms: int
    verb = "go"

    def arguments(self) -> tuple[str, ...]:
        return (self.place, ",".join(self.first), str(self.majority), str(self.open_limit_ms))

    def describe(self) -> str:
        return f"go: reform and start as participant, place {self.place}, majority {self.majority}"


@dataclass(frozen=True)
class ElectLeaders:
    """Kafka elects the preferred replica of every partition as its leader; the operator's client asks for it.

    host: the broker that is asked first. bootstrap: its ``address:port``.
    """

    host: str
    bootstrap: str
    verb = "elect-leaders"

    def arguments(self) -> tuple[str, ...]:
        return (self.bootstrap,)

    def describe(self) -> str:
        return f"ask Kafka at {self.bootstrap} to elect every partition's preferred leader"


SimpleVerb: TypeAlias = Literal[
    "disarm", "reopen", "uncut", "stopped", "started-observer", "halt", "checked", "open", "finalize"
]

_SIMPLE_TEXT: dict[str, str] = {
    "disarm": "remove own chains, sets, guard and image",
    "reopen": "let clients in again",
    "uncut": "unblock the traffic with source",
    "stopped": "record that ZooKeeper is stopped",
    "started-observer": "start ZooKeeper as observer of source again",
    "halt": "stop the finisher and ZooKeeper",
    "checked": "record that the reformed ensemble passed the checks",
    "open": "let clients in for good: the point of no return",
    "finalize": "remove the block, guard, image and staged files",
}


@dataclass(frozen=True)
class HostVerb:
    """A zkm-host verb without arguments of its own."""

    host: str
    verb: SimpleVerb

    def arguments(self) -> tuple[str, ...]:
        return ()

    def describe(self) -> str:
        return _SIMPLE_TEXT[self.verb]


@dataclass(frozen=True)
class RestoreImage:
    """Put data and log directories back exactly as they were at STOP, with the observer config."""

    host: str
    verb = "image"

    def arguments(self) -> tuple[str, ...]:
        return ("restore",)

    def describe(self) -> str:
        return "put data, epoch files and the observer config back as they were at STOP"


Change: TypeAlias = (
    InstallProgram
    | UninstallProgram
    | PutFile
    | MoveAside
    | Restore
    | Discard
    | SetService
    | Arm
    | Fence
    | Cut
    | Seal
    | Unseal
    | Go
    | HostVerb
    | RestoreImage
    | ElectLeaders
)
Changes: TypeAlias = tuple[Change, ...]


@dataclass(frozen=True)
class Recorded:
    """A change that only the host's own record tells of, because the journal that knew it is lost.

    path: what a ``put`` or ``move-aside`` replaced, empty for other verbs; the content is not on record.
    """

    host: str
    verb: str
    path: str = ""

    @property
    def replaces(self) -> bool:
        """Whether the host keeps a before-image of ``path``."""
        return self.verb in (PutFile.verb, MoveAside.verb)


@dataclass(frozen=True)
class Applied:
    """A change that the journal knows for a step and target: its operation id, and whether the outcome is
    known.

    ``confirmed`` is False when only the intent was journaled (the tool died, or the connection broke).
    """

    change: Change | Recorded
    operation: str
    confirmed: bool


def inverses(applied: tuple[Applied, ...]) -> Changes:
    """The default undo of file changes: put back each before-image, newest first.

    Changes other than PutFile and MoveAside have no default inverse; a step that uses them states its undo.
    """
    return tuple(
        Restore(a.change.host, a.operation, a.change.path)
        for a in reversed(applied)
        if isinstance(a.change, PutFile | MoveAside) or (isinstance(a.change, Recorded) and a.change.replaces)
    )
