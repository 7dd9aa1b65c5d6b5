"""Define the changes that can be made to znodes of a ZooKeeper ensemble, below a chroot."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from zkmigrate.runbook.model.change import ClusterChange

SOURCE = "source"
"""The name of the source ensemble as a cluster, and of its section in the inventory."""

DEST = "dest"
"""The name of the dest ensemble as a cluster, and of its section in the inventory."""

ZNODES = "kafka-znodes"
"""The name of the znodes of the inventory's Kafka cluster (section ``kafka``), as a cluster of their own."""

CONNECT = "CONNECT"
"""The placeholder for the brokers' ``zookeeper.connect`` in a command."""


@dataclass(frozen=True)
class BeginReplay(ClusterChange):
    """Write the mark of a replay (``zookeeper.data.replay.Mark``) into an ensemble.

    An existing mark is not changed. disk: the dest host whose disk is read. cut: the newest zxid that both
    ensembles share, as text. consent: the ensemble's owner, who agreed to the replay.
    """

    cluster: str
    chroot: str
    disk: str
    cut: str
    consent: str
    verb = "begin-replay"
    expect = ""

    def describe(self) -> str:
        return f"begin to replay dest's changes under {self.chroot}, with the consent of {self.consent}"


@dataclass(frozen=True)
class ReplayTransactions(ClusterChange):
    """Replay dest's transactions under the chroot, each once, from the mark up to a zxid.

    Znodes may hold secrets, so their contents are read from dest's disk when the change is sent. fingerprint:
    identifies the requests from the cut up to ``upto``. count: how many transactions this change adds. Zxids
    are text.
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
class EndReplay(ClusterChange):
    """Remove the mark of a replay."""

    cluster: str
    chroot: str
    verb = "end-replay"
    expect = ""

    def describe(self) -> str:
        return f"remove the mark of the replay under {self.chroot}"


class Versions(Protocol):
    """The numbers of a znode that show whether it was changed, or deleted and created again."""

    @property
    def czxid(self) -> int: ...
    @property
    def mzxid(self) -> int: ...
    @property
    def version(self) -> int: ...


def mark(znode: Versions) -> str:
    """Return a text that every change of the znode itself alters, except a change of its ACL."""
    return f"{znode.czxid:x} {znode.mzxid:x} {znode.version}"


@dataclass(frozen=True)
class DeleteZnode(ClusterChange):
    """Delete one znode that has not changed since it was read.

    path: its path below the chroot. data: its data. acl: its ACL, as permissions, scheme and id of each
    entry. mark: as :func:`mark` returns it. A znode whose mark differs was changed or created again, and is
    not deleted.
    """

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

    def inverse(self, _operation: str = "") -> CreateZnode:
        return CreateZnode(self.cluster, self.chroot, self.path, self.data, self.acl)


@dataclass(frozen=True)
class CreateZnode(ClusterChange):
    """Create a deleted znode again, with its data and ACL. An existing znode stays unchanged."""

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
        return f"create the znode {self.path} again ({len(self.data)} bytes)"


Kept: TypeAlias = tuple[str, bytes | None, tuple[tuple[int, str, str], ...], str]
"""A znode that can be created again: path, data (None is ZooKeeper's null), ACL and mark."""


@dataclass(frozen=True)
class DeleteZnodes(ClusterChange):
    """Delete znodes in one transaction, and none of them if one has changed since it was read.

    nodes: children before their parents. Those that do not exist are skipped.
    """

    cluster: str
    nodes: tuple[Kept, ...]
    verb = "delete-znodes"
    expect = ""

    def describe(self) -> str:
        return f"delete {_znodes(self.nodes)}"

    def inverse(self, _operation: str = "") -> CreateZnodes:
        return CreateZnodes(self.cluster, self.nodes)


@dataclass(frozen=True)
class CreateZnodes(ClusterChange):
    """Create deleted znodes again, with their data and ACLs. Existing znodes stay unchanged.

    nodes: in the order in which they were deleted, children first. They are created from the last to the
    first.
    """

    cluster: str
    nodes: tuple[Kept, ...]
    verb = "create-znodes"
    expect = ""

    def describe(self) -> str:
        return f"create {_znodes(self.nodes)} again"


def _znodes(nodes: tuple[Kept, ...]) -> str:
    size = sum(len(data or b"") for _, data, _, _ in nodes)
    return f"{len(nodes)} znodes up to {nodes[-1][0]} ({size:,} bytes)"


Replaying: TypeAlias = BeginReplay | ReplayTransactions | EndReplay
"""The changes of :data:`SOURCE`. A znode there holds their position, so a second send has no effect."""
