"""Changes: every way in which zkmigrate touches a host or a cluster, as data.

A closed union of two kinds. Each change describes itself for the operator and tells what it touches:
``where``.

- A :data:`HostChange` names a host and knows the words that ``zkm-host`` takes for it: ``verb`` and
  ``arguments`` around the operation id (``zkm-host help``). The host remembers that id. ``expect`` is what
  zkm-host answers when the work is done, as an extended regular expression; ``spared`` the refusal by which,
  walking back, a host says that it never came so far. ``answer_s`` is how many seconds the answer is waited
  for outside a window.
- A :data:`ClusterChange` names a cluster. A cluster remembers no operation id, so the change is idempotent by
  value: sent twice it leaves what it leaves sent once. It carries what was found before; the journal holds
  that with the intent, and :func:`inverses` puts it back. ``command`` is the line of the cluster's own tool
  that does the same; ``expect`` tells in words what the tool says.

The plan prints changes, the engine applies the same values, the model world interprets them.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

KAFKA = "kafka"
"""The cluster that the inventory's section of this name describes."""

SOURCE = "source"
"""The ensemble that the inventory's section of this name describes, as a cluster."""

BOOTSTRAP = "BOOTSTRAP"
"""Stands in a command for ``address:port`` of any broker."""

ANSWER_S = 20.0
"""Seconds for the answer of a change that neither stops nor starts a service nor copies data."""

ServiceAction: TypeAlias = Literal["start", "stop", "kill", "restart", "reload", "enable", "disable"]
Place: TypeAlias = Literal["first", "quorum", "rest"]


def encode(content: bytes) -> str:
    """Content as the one-word argument that zkm-host takes (RFC 4648 base64, ``-`` for empty)."""
    return base64.b64encode(content).decode("ascii") or "="


def command_words(commands: tuple[str, ...]) -> tuple[str, ...]:
    """``KEY=VALUE`` of a service as zkm-host takes them: commands in base64, ``ports`` as they are."""
    pairs = (text.partition("=") for text in commands)
    return tuple(f"{key}={value if key == 'ports' else encode(value.encode())}" for key, _, value in pairs)


class _OnHost:
    host: str
    spared = ""
    answer_s = ANSWER_S

    @property
    def where(self) -> str:
        """What the change touches."""
        return self.host


class _OnCluster:
    cluster: str

    @property
    def where(self) -> str:
        """What the change touches."""
        return self.cluster

    @property
    def command(self) -> str:
        """By hand; here for a change that no tool but zkmigrate makes."""
        return f"zkmigrate alone: {self.describe()}"

    def describe(self) -> str:
        """In words."""
        raise NotImplementedError


@dataclass(frozen=True)
class InstallProgram(_OnHost):
    """Install zkm-host and its sudoers file on a host; the only change that does not go through zkm-host."""

    host: str
    verb = "install"
    expect = ""

    def arguments(self) -> tuple[str, ...]:
        return ()

    def describe(self) -> str:
        return "install zkm-host and the sudoers file that allows it"


@dataclass(frozen=True)
class UninstallProgram(_OnHost):
    """Remove zkm-host, its sudoers file and this run's state from a host."""

    host: str
    verb = "uninstall"
    expect = "^uninstalled$"
    answer_s = 60.0

    def arguments(self) -> tuple[str, ...]:
        return ()

    def describe(self) -> str:
        return "remove zkm-host, its sudoers file and the run's state"


@dataclass(frozen=True)
class PutFile(_OnHost):
    """Write a file whole: mode as octal text, owner as ``user:group``."""

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


@dataclass(frozen=True)
class MoveAside(_OnHost):
    """Rename a file or directory to a sibling name, so that it can be put back."""

    host: str
    path: str
    verb = "move-aside"
    expect = "^(moved|absent) /"

    def arguments(self) -> tuple[str, ...]:
        return (self.path,)

    def describe(self) -> str:
        return f"move {self.path} aside"


@dataclass(frozen=True)
class Restore(_OnHost):
    """Put back exactly what an earlier operation replaced; ``operation`` is that operation's id."""

    host: str
    operation: str
    what: str
    verb = "restore"
    expect = "^restored /"

    def arguments(self) -> tuple[str, ...]:
        return (self.operation,)

    def describe(self) -> str:
        return f"put back what was there before: {self.what}"


@dataclass(frozen=True)
class Discard(_OnHost):
    """Remove for good what an earlier operation moved aside; ``operation`` is that operation's id."""

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
class SetService(_OnHost):
    """Start, stop, kill or restart a service, or let it read its config again (reload, which starts one that
    is down).

    commands: what replaces systemctl, ``KEY=VALUE`` as ``Service.commands`` of the inventory gives them; all
    of them, because one action may need several: a restart stops, looks and starts.
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
class Arm(_OnHost):
    """Prepare a dest host for the cut-over: chains with empty sets, image begun, guard installed.

    spec: key=value lines as ``zkm-host help arm`` lists them.
    """

    host: str
    spec: str
    verb = "arm"
    expect = "^armed tag="
    answer_s = 300.0

    def arguments(self) -> tuple[str, ...]:
        return (encode(self.spec.encode()),)

    def describe(self) -> str:
        return "install own chains with empty sets, begin the image, install the guard"


@dataclass(frozen=True)
class Fence(_OnHost):
    """Refuse clients at the client port and end their sockets; the kernel reopens after ``ttl_ms``."""

    host: str
    ttl_ms: int
    verb = "fence"
    expect = "^killed=[0-9]+ left=0 "

    def arguments(self) -> tuple[str, ...]:
        return (str(self.ttl_ms),)

    def describe(self) -> str:
        return f"refuse clients (lease {self.ttl_ms} ms) and end their connections"


@dataclass(frozen=True)
class Cut(_OnHost):
    """Block everything between this host and source; the kernel unblocks after ``ttl_ms``."""

    host: str
    ttl_ms: int
    verb = "cut"
    expect = "^killed=[0-9]+ left=0 "

    def arguments(self) -> tuple[str, ...]:
        return (str(self.ttl_ms),)

    def describe(self) -> str:
        return f"block all traffic with source (lease {self.ttl_ms} ms) and end those connections"


@dataclass(frozen=True)
class Seal(_OnHost):
    """Make the lease permanent, if boot id and data stamp are still what the proof was made from."""

    host: str
    boot_id: str
    stamp: str
    verb = "seal"
    expect = "^sealed$"

    def arguments(self) -> tuple[str, ...]:
        return (self.boot_id, self.stamp)

    def describe(self) -> str:
        return f"seal: keep the block for good, if still boot {self.boot_id} and data stamp {self.stamp[:12]}"


@dataclass(frozen=True)
class Unseal(_OnHost):
    """Turn the permanent block back into a lease."""

    host: str
    fence_ttl_ms: int
    cut_ttl_ms: int
    verb = "unseal"
    expect = "^unsealed "
    spared = "unseal is refused in phase (stopped|cut|fenced|armed);"

    def arguments(self) -> tuple[str, ...]:
        return (str(self.fence_ttl_ms), str(self.cut_ttl_ms))

    def describe(self) -> str:
        return "unseal: the block is a lease again"


@dataclass(frozen=True)
class Go(_OnHost):
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
    "open": _Simple("let clients in for good: the point of no return", "^open$"),
    "finalize": _Simple("remove the block, guard, image and staged files", "^finalized$", answer_s=120.0),
}


@dataclass(frozen=True)
class HostVerb(_OnHost):
    """A zkm-host verb without arguments of its own."""

    host: str
    verb: SimpleVerb

    def arguments(self) -> tuple[str, ...]:
        return ()

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
class RestoreImage(_OnHost):
    """Put data and log directories back exactly as they were at STOP, with the observer config."""

    host: str
    verb = "image"
    expect = "^image restored$"
    spared = "image is refused in phase (stopped|cut|fenced|armed);"
    answer_s = 300.0

    def arguments(self) -> tuple[str, ...]:
        return ("restore",)

    def describe(self) -> str:
        return "put data, epoch files and the observer config back as they were at STOP"


@dataclass(frozen=True)
class ElectLeaders(_OnCluster):
    """Kafka elects the preferred replica of every partition as its leader; the operator's client asks for it.

    bootstrap: ``address:port`` of the broker that is asked first.
    """

    cluster: str
    bootstrap: str
    verb = "elect-leaders"
    expect = "no error; `Election not needed` means that the preferred replica leads already"

    @property
    def command(self) -> str:
        return (
            f"kafka-leader-election.sh --bootstrap-server {self.bootstrap} --election-type preferred "
            "--all-topic-partitions"
        )

    def describe(self) -> str:
        return f"ask Kafka at {self.bootstrap} to elect every partition's preferred leader"


@dataclass(frozen=True)
class AlterTopicConfig(_OnCluster):
    """Set one config of one topic, or unset it, so that the brokers' default holds again.

    value: what it becomes. before: what the topic itself was found to set. None: the topic sets nothing.
    """

    cluster: str
    topic: str
    key: str
    value: str | None
    before: str | None
    verb = "alter-topic-config"
    expect = "`Completed updating config` for each topic"

    @property
    def command(self) -> str:
        if self.value is None:
            act = f"--delete-config {shlex.quote(self.key)}"
        else:  # in brackets, for else the tool would end a value at its first comma
            act = f"--add-config {shlex.quote(f'{self.key}=[{self.value}]')}"
        topic = f"--entity-type topics --entity-name {shlex.quote(self.topic)}"
        return f"kafka-configs.sh --bootstrap-server {BOOTSTRAP} --alter {topic} {act}"

    def describe(self) -> str:
        found = "unset" if self.before is None else f"{self.key}={self.before}"
        act = f"unset {self.key}" if self.value is None else f"set {self.key}={self.value}"
        return f"{act} of topic {self.topic} (found: {found})"


@dataclass(frozen=True)
class BeginReplay(_OnCluster):
    """Write the mark of a replay into an ensemble (``zookeeper.data.replay.Mark``); one that is there already
    stays.

    disk: the dest host whose disk is read. cut: the newest zxid that both ensembles share, as text. consent:
    who owns the ensemble and agreed.
    """

    cluster: str
    chroot: str
    disk: str
    cut: str
    consent: str
    verb = "begin-replay"
    expect = ""

    def describe(self) -> str:
        return f"begin to replay what dest did under {self.chroot}, with the consent of {self.consent}"


@dataclass(frozen=True)
class ReplayTransactions(_OnCluster):
    """Do again what dest did under the chroot behind the mark, up to a zxid, each transaction once.

    The znodes' contents may be secrets, so they are not in the change: they are read from dest's disk when it
    is sent. fingerprint: what the requests from the cut up to ``upto`` must have. count: how many of these
    transactions no change before it has. Zxids are text.
    """

    cluster: str
    chroot: str
    disk: str
    cut: str
    upto: str
    count: int
    fingerprint: str
    verb = "replay"
    expect = ""

    def describe(self) -> str:
        return f"replay {self.count} transactions of {self.disk} under {self.chroot}, up to {self.upto}"


@dataclass(frozen=True)
class EndReplay(_OnCluster):
    """Remove the mark of a replay."""

    cluster: str
    chroot: str
    verb = "end-replay"
    expect = ""

    def describe(self) -> str:
        return f"remove the mark of the replay under {self.chroot}"


HostChange: TypeAlias = (
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
)
Replaying: TypeAlias = BeginReplay | ReplayTransactions | EndReplay
"""The changes of :data:`SOURCE`: their position is a znode there, so sent twice they do nothing twice."""

ClusterChange: TypeAlias = ElectLeaders | AlterTopicConfig | Replaying
Change: TypeAlias = HostChange | ClusterChange
Changes: TypeAlias = tuple[Change, ...]


@dataclass(frozen=True)
class RecoveredChange:
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
class Outcome:
    """What a host or a cluster answered: zkm-host's exit code, a cluster's 0 or 1, and its lines."""

    rc: int
    output: str = ""


@dataclass(frozen=True)
class Applied:
    """A change that the journal knows for a step and target: its operation id, and whether the outcome is
    known.

    ``confirmed`` is False when only the intent was journaled (the tool died, or the connection broke).
    """

    change: Change | RecoveredChange
    operation: str
    confirmed: bool


def inverse(applied: Applied) -> Change | None:
    """What takes one change back by default; None where the step that sent it has to say."""
    change = applied.change
    if isinstance(change, AlterTopicConfig):
        return replace(change, value=change.before, before=change.value)
    if isinstance(change, PutFile | MoveAside) or (isinstance(change, RecoveredChange) and change.replaces):
        return Restore(change.host, applied.operation, change.path)
    return None


def inverses(applied: tuple[Applied, ...]) -> Changes:
    """The default undo: put back each before-image, newest first.

    A change that was sent again because its outcome was unknown has one inverse, in the place of the first
    time. Changes without a before-image have no default inverse; a step that uses them states its undo.
    """
    oldest_first = dict.fromkeys(made for a in applied if (made := inverse(a)) is not None)
    return tuple(reversed(oldest_first))


def undoes(change: Change, applied: Applied) -> bool:
    """Whether a change of the way back takes this one back, whatever it found before."""
    if isinstance(change, Restore):
        return change.operation == applied.operation
    made = inverse(applied)
    if isinstance(change, AlterTopicConfig) and isinstance(made, AlterTopicConfig):
        return replace(change, before=made.before) == made
    return False
