"""Define the changes that can be made to znodes of a ZooKeeper ensemble, below a chroot."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from zkmigrate.runbook.model.change import ClusterChange

SOURCE = "source"
"""The cluster name of the source ensemble, and the name of its section in the inventory."""

DEST = "dest"
"""The cluster name of the dest ensemble, and the name of its section in the inventory."""

ZNODES = "kafka-znodes"
"""The cluster name for changes to the znodes of the Kafka cluster in the inventory (section ``kafka``)."""

CONNECT = "CONNECT"
"""The placeholder in a command for the value of the brokers' ``zookeeper.connect``."""


@dataclass(frozen=True)
class BeginReplay(ClusterChange):
    """Create the znode that records the progress of a replay (``zookeeper.data.replay.Mark``).

    An existing znode is not changed. disk: the dest host whose transaction log is read. cut: the newest zxid
    that both ensembles share, as text. consent: the owner of the source ensemble, who agreed to the replay.
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
    """Send source the transactions of dest under the chroot that source has not received yet, up to ``upto``.

    Znodes may hold secrets, so their contents are read from dest's disk only when the change is sent. disk:
    the dest host whose transaction log is read. cut: the newest zxid that both ensembles share. fingerprint:
    a hash that identifies the requests from the cut up to ``upto``. count: how many transactions this change
    adds. Zxids are text.
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
    """Delete the znode that records the progress of a replay."""

    cluster: str
    chroot: str
    verb = "end-replay"
    expect = ""

    def describe(self) -> str:
        return f"delete the znode that records the replay under {self.chroot}"


class Versions(Protocol):
    """The numbers of a znode that show whether it was changed, or deleted and created again."""

    @property
    def czxid(self) -> int: ...
    @property
    def mzxid(self) -> int: ...
    @property
    def version(self) -> int: ...


def mark(znode: Versions) -> str:
    """Return a text that identifies one version of a znode.

    The text differs after every change of the znode's data, and after the znode was deleted and created
    again. A change of the ACL or of the children does not alter the text.
    """
    return f"{znode.czxid:x} {znode.mzxid:x} {znode.version}"


@dataclass(frozen=True)
class DeleteZnode(ClusterChange):
    """Delete one znode that has not changed since it was read.

    path: the znode's path below the chroot. data: the znode's data. acl: the permissions, scheme and id of
    each entry. mark: the result of :func:`mark` when the znode was read. A znode with another mark was
    changed or created again, and is not deleted.
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
    """Delete znodes in one transaction, or none of them if any znode has changed since it was read.

    nodes: children before their parents. Znodes that no longer exist are skipped.
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

    nodes: the znodes in the order of their deletion, children before their parents. The last znode is created
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
    return f"{len(nodes)} znodes ({size:,} bytes of data), the last of which is {nodes[-1][0]}"


Replaying: TypeAlias = BeginReplay | ReplayTransactions | EndReplay
"""The changes that are sent to the source ensemble.

Source's znode of the replay records the progress, so sending the same change twice has no effect.
"""
