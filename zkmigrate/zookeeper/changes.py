"""The changes of a ZooKeeper ensemble below a chroot."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TypeAlias

from zkmigrate.runbook.model.change import ClusterChange

SOURCE = "source"
"""The source ensemble as a cluster, in the inventory's section of this name."""

ZNODES = "kafka-znodes"
"""The znodes of the Kafka cluster in the inventory's section ``kafka``, as a cluster of their own."""

CONNECT = "CONNECT"
"""Stands for the brokers' ``zookeeper.connect`` in a command."""


@dataclass(frozen=True)
class BeginReplay(ClusterChange):
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
class ReplayTransactions(ClusterChange):
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
class EndReplay(ClusterChange):
    """Remove the mark of a replay."""

    cluster: str
    chroot: str
    verb = "end-replay"
    expect = ""

    def describe(self) -> str:
        return f"remove the mark of the replay under {self.chroot}"


@dataclass(frozen=True)
class DeleteZnode(ClusterChange):
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

    def inverse(self, _operation: str = "") -> CreateZnode:
        return CreateZnode(self.cluster, self.chroot, self.path, self.data, self.acl)


@dataclass(frozen=True)
class CreateZnode(ClusterChange):
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


Replaying: TypeAlias = BeginReplay | ReplayTransactions | EndReplay
"""The changes of :data:`SOURCE`: their position is a znode there, so a second send does nothing."""
