"""Changes: every way in which zkmigrate touches a host or a cluster, as data.

The plan prints changes, the engine applies them and the model world interprets them. ``where`` names the host
or cluster.

- A :data:`HostChange` holds ``verb`` and ``arguments`` for ``zkm-host`` (``zkm-host help``), which remembers
  the operation id sent with them. ``expect``: zkm-host's answer when the work is done, an extended regular
  expression. ``spared``: the refusal that, on the way back, means that the host never came so far.
  ``answer_s``: how many seconds to wait for the answer outside a window.
- A :data:`ClusterChange` is idempotent by value, for a cluster remembers no operation id: sent twice, it has
  the effect of once. It carries what was found before; the journal keeps that with the intent, and
  :func:`inverses` restores it. ``command`` is the equivalent line of the cluster's own tool; ``expect`` says
  in words what that tool prints.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

from zkmigrate.kafka.rights import Acl
from zkmigrate.topics.mirror.rules.direction import Copies

KAFKA = "kafka"
"""The cluster in the inventory's section of this name."""

SOURCE = "source"
"""The source ensemble as a cluster, in the inventory's section of this name."""

ZNODES = "kafka-znodes"
"""The znodes of the Kafka cluster in the inventory's section ``kafka``, as a cluster of their own."""

MIRRORED = "mirrored"
"""The cluster to which the inventory's topics are mirrored."""

BOOTSTRAP = "BOOTSTRAP"
"""Stands for ``address:port`` of any broker in a command."""

CONNECT = "CONNECT"
"""Stands for the brokers' ``zookeeper.connect`` in a command."""

ANSWER_S = 20.0
"""Seconds to wait for a change that neither stops nor starts a service nor copies data."""

ServiceAction: TypeAlias = Literal["start", "stop", "kill", "restart", "reload", "enable", "disable"]
Place: TypeAlias = Literal["first", "quorum", "rest"]


def encode(content: bytes) -> str:
    """Content as the one-word argument that zkm-host takes: RFC 4648 base64, ``=`` for empty."""
    return base64.b64encode(content).decode("ascii") or "="


def command_words(commands: tuple[str, ...]) -> tuple[str, ...]:
    """``KEY=VALUE`` of a service as zkm-host takes them: commands in base64, ``ports`` as is."""
    pairs = (text.partition("=") for text in commands)
    return tuple(f"{key}={value if key == 'ports' else encode(value.encode())}" for key, _, value in pairs)


class _OnHost:
    host: str
    spared = ""
    answer_s = ANSWER_S
    words = ""

    @property
    def where(self) -> str:
        return self.host

    def arguments(self) -> tuple[str, ...]:
        return ()

    def describe(self) -> str:
        return self.words


class _OnCluster:
    cluster: str

    @property
    def where(self) -> str:
        return self.cluster

    @property
    def command(self) -> str:
        """How to do it by hand; by default only zkmigrate can."""
        return f"zkmigrate alone: {self.describe()}"

    def describe(self) -> str:
        """In words."""
        raise NotImplementedError


@dataclass(frozen=True)
class InstallProgram(_OnHost):
    """Install zkm-host and its sudoers file; the only change that does not go through zkm-host."""

    host: str
    verb = "install"
    expect = ""
    words = "install zkm-host and the sudoers file that allows it"


@dataclass(frozen=True)
class UninstallProgram(_OnHost):
    """Remove zkm-host, its sudoers file and this run's state from a host."""

    host: str
    verb = "uninstall"
    expect = "^uninstalled$"
    answer_s = 60.0
    words = "remove zkm-host, its sudoers file and the run's state"


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
    """Rename a file or directory, so that it can be put back. folder: where to, on the same file system and
    for root alone; empty for a sibling name."""

    host: str
    path: str
    folder: str = ""
    verb = "move-aside"
    expect = "^(moved|absent) /"

    def arguments(self) -> tuple[str, ...]:
        return (self.path, self.folder) if self.folder else (self.path,)

    def describe(self) -> str:
        return f"move {self.path} aside" + (f", into {self.folder}" if self.folder else "")


@dataclass(frozen=True)
class Restore(_OnHost):
    """Put back what an earlier operation (by its id) replaced."""

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
    """Remove for good what an earlier operation (by its id) moved aside."""

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
    """Start, stop, kill, restart or reload a service. Reload starts one that is down. commands: replace
    systemctl, ``KEY=VALUE`` as in the inventory's ``Service.commands``. All of them go along, because a
    restart stops, looks and starts."""

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
    """Prepare a dest host for the cut-over: chains with empty sets, image begun, guard installed. spec:
    key=value lines as in ``zkm-host help arm``."""

    host: str
    spec: str
    verb = "arm"
    expect = "^armed tag="
    answer_s = 300.0
    words = "install own chains with empty sets, begin the image, install the guard"

    def arguments(self) -> tuple[str, ...]:
        return (encode(self.spec.encode()),)


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
class Seal(_OnHost):
    """Make the lease permanent, if boot id and data stamp are still those that were proved."""

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
    words = "unseal: the block is a lease again"

    def arguments(self) -> tuple[str, ...]:
        return (str(self.fence_ttl_ms), str(self.cut_ttl_ms))


@dataclass(frozen=True)
class Go(_OnHost):
    """Let the host reform by itself, in its place of the start order. place: ``first`` holds the newest
    transaction; ``quorum`` completes the majority once the first are LOOKING; ``rest`` joins a formed quorum.
    first: ``ip:port`` of the hosts with the newest transaction. majority: how many hosts form one.
    open_limit_ms: how long the host waits for ``open`` before it acts by itself."""

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
    """Restore data and log directories as they were at STOP, with the observer config."""

    host: str
    verb = "image"
    expect = "^image restored$"
    spared = "image is refused in phase (stopped|cut|fenced|armed);"
    answer_s = 300.0
    words = "put data, epoch files and the observer config back as they were at STOP"

    def arguments(self) -> tuple[str, ...]:
        return ("restore",)


GatewayVerb: TypeAlias = Literal["route", "settle", "hold", "unhold", "seal", "unseal", "go"]


@dataclass(frozen=True)
class GatewayOrder(_OnHost):
    """An order to the gateway on a host, which remembers the operation id as zkm-host does. order, app, to,
    hold, ttl_ms: as in ``zkmigrate gateway order``."""

    host: str
    order: GatewayVerb
    app: str
    to: str = ""
    hold: str = ""
    ttl_ms: int = 0
    verb = "order"
    expect = "^done: "

    def arguments(self) -> tuple[str, ...]:
        return (self.order, self.app, f"to={self.to}", f"hold={self.hold}", f"ttl_ms={self.ttl_ms}")

    def options(self) -> tuple[str, ...]:
        """What ``zkmigrate gateway order`` takes behind the application."""
        told = {"--to": self.to, "--hold": self.hold, "--ttl-ms": str(self.ttl_ms) if self.ttl_ms else ""}
        return tuple(word for option, value in told.items() if value for word in (option, value))

    def describe(self) -> str:
        more = [f"to {self.to}"] if self.to else []
        more += [f"for at most {self.ttl_ms} ms"] if self.ttl_ms else []
        return " ".join((f"tell the gateway: {self.order} {self.app}", *more))


@dataclass(frozen=True)
class CopyOffsets(_OnCluster):
    """Commit for these groups on target what they have committed on source for these topics. It changes no
    group that has members on target."""

    cluster: str
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    verb = "copy-offsets"
    expect = ""

    def describe(self) -> str:
        return f"commit on target what {len(self.groups):,} groups have committed on source"


@dataclass(frozen=True)
class SetDirection(_OnCluster):
    """Record on both clusters where copiers may write these topics.

    number: the run's fencing number. Nothing is changed if a higher one is recorded.
    """

    cluster: str
    copies: Copies
    topics: tuple[str, ...]
    number: int
    verb = "set-direction"
    expect = ""

    def describe(self) -> str:
        where = {"forward": "on target only", "none": "on neither cluster", "backward": "on source only"}
        return f"let copiers write {where[self.copies]}, topics: {len(self.topics):,}"


@dataclass(frozen=True)
class AlterAcls(_OnCluster):
    """Add these ACLs to target, or delete exactly these there. acls: the fields of each :class:`Acl`."""

    cluster: str
    action: Literal["grant", "revoke"]
    acls: tuple[tuple[str, ...], ...]
    verb = "alter-acls"
    expect = ""

    def describe(self) -> str:
        return f"{self.action} on target: {'; '.join(str(Acl(*one)) for one in self.acls)}"


@dataclass(frozen=True)
class ElectLeaders(_OnCluster):
    """Ask Kafka to elect the preferred replica of every partition as leader. bootstrap: ``address:port`` of
    the broker that is asked first."""

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
    """Set or unset one config of one topic. value, before: the new value and the one found on the topic
    itself; None: unset, so the brokers' default holds."""

    cluster: str
    topic: str
    key: str
    value: str | None
    before: str | None
    verb = "alter-topic-config"
    expect = "`Completed updating config` for each topic"

    @property
    def command(self) -> str:
        return _configs_command(f"topics --entity-name {shlex.quote(self.topic)}", self.key, self.value)

    def describe(self) -> str:
        return _configs_words(f"topic {self.topic}", self.key, self.value, self.before)


@dataclass(frozen=True)
class AlterBrokerConfig(_OnCluster):
    """Set or unset one dynamic config of one broker, by its id. value, before: as in AlterTopicConfig."""

    cluster: str
    broker: int
    key: str
    value: str | None
    before: str | None
    verb = "alter-broker-config"
    expect = "`Completed updating config` for the broker"

    @property
    def command(self) -> str:
        return _configs_command(f"brokers --entity-name {self.broker}", self.key, self.value)

    def describe(self) -> str:
        return _configs_words(f"broker {self.broker}", self.key, self.value, self.before)


def _configs_command(entity: str, key: str, value: str | None) -> str:
    if value is None:
        act = f"--delete-config {shlex.quote(key)}"
    else:  # in brackets, for else the tool would end a value at its first comma
        act = f"--add-config {shlex.quote(f'{key}=[{value}]')}"
    return f"kafka-configs.sh --bootstrap-server {BOOTSTRAP} --alter --entity-type {entity} {act}"


def _configs_words(entity: str, key: str, value: str | None, before: str | None) -> str:
    found = "unset" if before is None else f"{key}={before}"
    act = f"unset {key}" if value is None else f"set {key}={value}"
    return f"{act} of {entity} (found: {found})"


@dataclass(frozen=True)
class ReassignPartition(_OnCluster):
    """Give one partition another replica set. replicas: broker ids in order, the preferred leader first.
    before: the set that the way back restores. Kafka silently replaces a reassignment in flight, so only a
    partition without one is reassigned."""

    cluster: str
    topic: str
    partition: int
    replicas: tuple[int, ...]
    before: tuple[int, ...]
    verb = "reassign-partition"
    expect = "`Successfully started partition reassignment`"

    @property
    def command(self) -> str:
        row = {"topic": self.topic, "partition": self.partition, "replicas": list(self.replicas)}
        return _reassign_command("--execute --additional", row)

    def describe(self) -> str:
        return (
            f"reassign {self.topic}-{self.partition} to brokers {_ids(self.replicas)} "
            f"(before: {_ids(self.before)})"
        )


@dataclass(frozen=True)
class CancelReassignment(_OnCluster):
    """Cancel the reassignment of one partition. replicas: its target. The replicas that stay keep the
    target's order, so a reassignment to the original set follows."""

    cluster: str
    topic: str
    partition: int
    replicas: tuple[int, ...]
    verb = "cancel-reassignment"
    expect = "`Successfully cancelled partition reassignments`"

    @property
    def command(self) -> str:
        row = {"topic": self.topic, "partition": self.partition, "replicas": list(self.replicas)}
        return _reassign_command("--cancel --preserve-throttles", row)

    def describe(self) -> str:
        return f"cancel the reassignment of {self.topic}-{self.partition} to brokers {_ids(self.replicas)}"


@dataclass(frozen=True)
class PlaceReplica(_OnCluster):
    """Put one replica into a log directory of its broker. A broker that has the replica copies it there and
    removes the old one. One that has none yet remembers the directory, until it stops, for the reassignment
    that follows. before: where the replica is; empty where the broker has none."""

    cluster: str
    broker: int
    topic: str
    partition: int
    path: str
    before: str
    verb = "place-replica"
    expect = ""

    def describe(self) -> str:
        found = f"found: {self.before}" if self.before else "the broker has none yet"
        return f"put {self.topic}-{self.partition} of broker {self.broker} into {self.path} ({found})"


@dataclass(frozen=True)
class ElectPreferred(_OnCluster):
    """Elect the preferred replica of these partitions, each a topic and a number, as leader."""

    cluster: str
    partitions: tuple[tuple[str, int], ...]
    verb = "elect-preferred"
    expect = "no error; `Election not needed` means that the preferred replica leads already"

    @property
    def command(self) -> str:
        rows = [{"topic": topic, "partition": number} for topic, number in self.partitions]
        return (
            f"kafka-leader-election.sh --bootstrap-server {BOOTSTRAP} --election-type preferred "
            f"--path-to-json-file <(echo {shlex.quote(json.dumps({'partitions': rows}))})"
        )

    def describe(self) -> str:
        named = [f"{topic}-{number}" for topic, number in self.partitions[:5]]
        more = f" and {len(self.partitions) - 5:,} more" if len(self.partitions) > 5 else ""
        return f"elect the preferred leader of {', '.join(named)}{more}"


@dataclass(frozen=True)
class CreateTopic(_OnCluster):
    """Create a topic. sets: the replica set of each partition, from 0 on."""

    cluster: str
    topic: str
    sets: tuple[tuple[int, ...], ...]
    verb = "create-topic"
    expect = "`Created topic`"

    @property
    def command(self) -> str:
        return _topics_command("--create", self.topic, f"--replica-assignment {_assignment(self.sets)}")

    def describe(self) -> str:
        return f"create topic {self.topic} with {len(self.sets):,} partitions, the first on {self.sets[0]}"


@dataclass(frozen=True)
class DeleteTopic(_OnCluster):
    """Delete a topic. before: the topic id that was found, so that no later topic of the same name is
    deleted; empty where brokers tell none."""

    cluster: str
    topic: str
    before: str
    verb = "delete-topic"
    expect = "nothing"

    @property
    def command(self) -> str:
        return _topics_command("--delete", self.topic, "")

    def describe(self) -> str:
        return f"delete topic {self.topic}" + (f" with id {self.before}" if self.before else "")


@dataclass(frozen=True)
class GrowTopic(_OnCluster):
    """Add partitions to a topic. old: the sets that it has. sets: those of the new partitions. Nothing takes
    it back."""

    cluster: str
    topic: str
    old: tuple[tuple[int, ...], ...]
    sets: tuple[tuple[int, ...], ...]
    verb = "grow-topic"
    expect = "nothing"

    @property
    def count(self) -> int:
        """How many partitions the topic has then."""
        return len(self.old) + len(self.sets)

    @property
    def command(self) -> str:
        every = _assignment((*self.old, *self.sets))
        return _topics_command(
            "--alter", self.topic, f"--partitions {self.count} --replica-assignment {every}"
        )

    def describe(self) -> str:
        return f"let topic {self.topic} grow from {len(self.old):,} to {self.count:,} partitions"


def _topics_command(act: str, topic: str, rest: str) -> str:
    words = f"kafka-topics.sh --bootstrap-server {BOOTSTRAP} {act} --topic {shlex.quote(topic)} {rest}"
    return words.rstrip()


def _assignment(sets: tuple[tuple[int, ...], ...]) -> str:
    """Sets as ``kafka-topics.sh`` takes them."""
    return ",".join(":".join(map(str, of)) for of in sets)


@dataclass(frozen=True)
class UnregisterBroker(_OnCluster):
    """Let a cluster without ZooKeeper forget a broker that is down. One that starts registers again."""

    cluster: str
    broker: int
    verb = "unregister-broker"
    expect = "`Broker N is no longer registered.`"

    @property
    def command(self) -> str:
        return f"kafka-cluster.sh unregister --bootstrap-server {BOOTSTRAP} --id {self.broker}"

    def describe(self) -> str:
        return f"let Kafka forget broker {self.broker}"


@dataclass(frozen=True)
class AlterAtController(_OnCluster):
    """Set or unset one dynamic config of a broker that is down, where there is no ZooKeeper. No other broker
    accepts it; the controller does, until the broker is unregistered. before: the value that the run
    recorded, because a broker that is down does not report its own."""

    cluster: str
    broker: int
    key: str
    value: str | None
    before: str | None
    verb = "alter-at-controller"
    expect = "`Completed updating config` for the broker"

    @property
    def command(self) -> str:
        told = _configs_command(f"brokers --entity-name {self.broker}", self.key, self.value)
        return told.replace(f"--bootstrap-server {BOOTSTRAP}", "--bootstrap-controller CONTROLLER:PORT")

    def describe(self) -> str:
        return (
            f"{_configs_words(f'broker {self.broker}', self.key, self.value, self.before)} at the controller"
        )


def _reassign_command(act: str, row: dict[str, object]) -> str:
    plan = shlex.quote(json.dumps({"version": 1, "partitions": [row]}))
    return (
        f"kafka-reassign-partitions.sh --bootstrap-server {BOOTSTRAP} {act} "
        f"--reassignment-json-file <(echo {plan})"
    )


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))


@dataclass(frozen=True)
class BeginReplay(_OnCluster):
    """Write the mark of a replay (``zookeeper.data.replay.Mark``) into an ensemble; an existing one stays.
    disk: the dest host whose disk is read. cut: the newest zxid that both ensembles share, as text. consent:
    who owns the ensemble and agreed."""

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
    """Repeat what dest did under the chroot after the mark, up to a zxid, each transaction once. Znodes may
    hold secrets, so their contents are read from dest's disk when the change is sent. fingerprint: of the
    requests from the cut up to ``upto``. count: how many transactions this change adds. Zxids are text."""

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


@dataclass(frozen=True)
class DeleteZnode(_OnCluster):
    """Delete one znode that nobody has changed since it was read. path: below the chroot. data, acl: what it
    held; of each ACL entry permissions, scheme and id. mark: its czxid, mzxid and version, as text; another
    mark is another znode, which stays."""

    cluster: str
    chroot: str
    path: str
    data: bytes
    acl: tuple[tuple[int, str, str], ...]
    mark: str
    verb = "delete-znode"
    expect = "nothing"

    @property
    def command(self) -> str:
        return f"zkCli.sh -server {CONNECT} delete {shlex.quote(self.path)}"

    def describe(self) -> str:
        return f"delete the znode {self.path} ({len(self.data)} bytes)"


@dataclass(frozen=True)
class CreateZnode(_OnCluster):
    """Make a deleted znode again, with its data and ACL; one that exists stays as it is."""

    cluster: str
    chroot: str
    path: str
    data: bytes
    acl: tuple[tuple[int, str, str], ...]
    verb = "create-znode"
    expect = "`Created PATH`"

    @property
    def command(self) -> str:
        data = shlex.quote(self.data.decode("utf-8", "replace"))
        return f"zkCli.sh -server {CONNECT} create {shlex.quote(self.path)} {data}"

    def describe(self) -> str:
        return f"make the znode {self.path} again ({len(self.data)} bytes)"


HostChange: TypeAlias = (
    InstallProgram | UninstallProgram | PutFile | MoveAside | Restore | Discard | SetService | Arm |
    Fence | Cut | Seal | Unseal | Go | HostVerb | RestoreImage | GatewayOrder
)  # fmt: skip
Replaying: TypeAlias = BeginReplay | ReplayTransactions | EndReplay
"""The changes of :data:`SOURCE`: their position is a znode there, so a second send does nothing."""

ClusterChange: TypeAlias = (
    ElectLeaders | AlterTopicConfig | AlterBrokerConfig | ReassignPartition | CancelReassignment |
    PlaceReplica | ElectPreferred | UnregisterBroker | AlterAtController | Replaying | DeleteZnode |
    CreateZnode | CopyOffsets | AlterAcls | SetDirection | CreateTopic | DeleteTopic | GrowTopic
)  # fmt: skip
Change: TypeAlias = HostChange | ClusterChange
Changes: TypeAlias = tuple[Change, ...]


@dataclass(frozen=True)
class RecoveredChange:
    """A change known from the host's own record only, because the journal that held it is lost. path: what a
    ``put`` or ``move-aside`` replaced, else empty; its content is not on record."""

    host: str
    verb: str
    path: str = ""

    @property
    def replaces(self) -> bool:
        """Whether the host keeps a before-image of ``path``."""
        return self.verb in (PutFile.verb, MoveAside.verb)


@dataclass(frozen=True)
class Outcome:
    """What a host or cluster answered: zkm-host's exit code, or a cluster's 0 or 1, and its lines."""

    rc: int
    output: str = ""


@dataclass(frozen=True)
class Applied:
    """A journaled change of a step and target with its operation id. confirmed: False while only the intent
    is known."""

    change: Change | RecoveredChange
    operation: str
    confirmed: bool


def inverse(applied: Applied) -> Change | None:
    """What undoes one change by default; None where the step that sent it must say."""
    change = applied.change
    if isinstance(change, AlterTopicConfig | AlterBrokerConfig):
        return replace(change, value=change.before, before=change.value)
    if isinstance(change, AlterAtController):  # the broker is up again by then
        return AlterBrokerConfig(change.cluster, change.broker, change.key, change.before, change.value)
    if isinstance(change, ReassignPartition):
        return replace(change, replicas=change.before, before=change.replicas)
    if isinstance(change, PlaceReplica) and change.before:
        return replace(change, path=change.before, before=change.path)
    if isinstance(change, CreateTopic):
        return DeleteTopic(change.cluster, change.topic, "")
    if isinstance(change, DeleteZnode):
        return CreateZnode(change.cluster, change.chroot, change.path, change.data, change.acl)
    if isinstance(change, PutFile | MoveAside) or (isinstance(change, RecoveredChange) and change.replaces):
        return Restore(change.host, applied.operation, change.path)
    return None


def inverses(applied: tuple[Applied, ...]) -> Changes:
    """The default undo: restore each before-image, newest first. A change that was sent again because its
    outcome was unknown has one inverse, in place of the first. A step whose changes have no before-image
    states its own undo."""
    oldest_first = dict.fromkeys(made for a in applied if (made := inverse(a)) is not None)
    return tuple(reversed(oldest_first))


def undoes(change: Change, applied: Applied) -> bool:
    """Whether a change of the way back undoes this one, whatever it found before."""
    if isinstance(change, Restore):
        return change.operation == applied.operation
    made = inverse(applied)
    if isinstance(change, AlterAtController):  # whoever took it
        change = AlterBrokerConfig(**vars(change))
    if made is None or type(change) is not type(made):
        return False
    return {**vars(change), "before": None} == {**vars(made), "before": None}
