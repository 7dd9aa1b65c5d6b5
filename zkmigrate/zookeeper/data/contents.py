"""Read the data of a subtree's znodes at one zxid, then every later change, in order.

A `tree` keeps only the SHA-256 of the data. This module reads the data itself, for a few small znodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zkmigrate.zookeeper.data.chroot import Chroot, is_under
from zkmigrate.zookeeper.data.effect import Owned, is_session
from zkmigrate.zookeeper.data.logdir import records_after
from zkmigrate.zookeeper.data.reader import Directory
from zkmigrate.zookeeper.data.snapname import SnapshotFile
from zkmigrate.zookeeper.data.snapshot import read_snapshot
from zkmigrate.zookeeper.data.tree import from_best_snapshot
from zkmigrate.zookeeper.data.txn import CreateContainerTxn, CreateTTLTxn, CreateTxn, DeleteTxn, SetDataTxn
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD


@dataclass(frozen=True, slots=True)
class Content:
    """The data of one znode from `zxid` on.

    there: False if the znode was deleted at this zxid. time_ms: milliseconds since 1970 by the leader's
    clock; 0 if it is from the snapshot.
    """

    zxid: int
    time_ms: int
    path: str
    data: bytes | None
    there: bool = True


def contents(
    data: Directory, logs: Directory, *, root: str, upto: int, max_record: int = MAX_RECORD
) -> Iterator[Content]:
    """Yield the data of the znodes at and under `root`, then every later change.

    The first contents come from the best snapshot for the state at `upto`; the changes come from the log, up
    to its newest transaction. A change that the snapshot already holds may appear again. data, logs: the
    `version-2` of dataDir and dataLogDir. Raises the errors of `tree.load_tree` during the iteration.
    """

    def attempt(file: SnapshotFile) -> tuple[tuple[int, list[Content], Owned], bool]:
        snapshot = read_snapshot(data.open(file.name), file.name, max_record=max_record)
        znodes, owned, newest = list[Content](), Owned(Chroot(root)), 0
        for node in snapshot:
            if is_under(node.path, root):
                znodes.append(Content(file.zxid, 0, node.path, node.data))
                newest = max(newest, node.stat.czxid, node.stat.mzxid, node.stat.pzxid)
                if is_session(node.stat.ephemeral_owner):
                    owned.add(node.path, node.stat.ephemeral_owner)
        return (file.zxid, znodes, owned), newest > upto

    found, _ = from_best_snapshot(data, upto, attempt)
    zxid, znodes, owned = found or (0, [], Owned(Chroot(root)))
    yield from znodes
    for record in records_after(logs, zxid, max_record=max_record):
        for _, body in owned.take(record.txn()):
            match body:
                case CreateTxn() | CreateContainerTxn() | CreateTTLTxn() | SetDataTxn() if is_under(
                    body.path, root
                ):
                    yield Content(record.zxid, record.time_ms, body.path, body.data)
                case DeleteTxn() if is_under(body.path, root):
                    yield Content(record.zxid, record.time_ms, body.path, None, there=False)
