"""What the znodes of a subtree held: their data at one zxid, then every change of it, in order.

A tree (`tree`) knows a znode's data by its digest. Who has to read the data itself, of a few small znodes and
over time, reads it here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zkmigrate.zookeeper.data.effect import Owned, is_session, is_under
from zkmigrate.zookeeper.data.logdir import behind
from zkmigrate.zookeeper.data.reader import Directory
from zkmigrate.zookeeper.data.snapname import SnapshotFile
from zkmigrate.zookeeper.data.snapshot import read_snapshot
from zkmigrate.zookeeper.data.tree import from_best_snapshot
from zkmigrate.zookeeper.data.txn import CreateContainerTxn, CreateTTLTxn, CreateTxn, DeleteTxn, SetDataTxn
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD


@dataclass(frozen=True, slots=True)
class Content:
    """One znode's data from `zxid` on. there: False where it was deleted then. time_ms: milliseconds since
    the epoch, by the leader's clock; 0 where it stands in the snapshot."""

    zxid: int
    time_ms: int
    path: str
    data: bytes | None
    there: bool = True


def contents(
    data: Directory, logs: Directory, *, root: str, upto: int, max_record: int = MAX_RECORD
) -> Iterator[Content]:
    """The znodes at and under `root`: first those of the best snapshot to know the state at `upto` from, then
    every change behind it, up to the newest transaction.

    What the snapshot holds already may be given once more. data, logs: `version-2` of dataDir and dataLogDir.
    Raises as `tree.load_tree`, from `next`.
    """

    def attempt(file: SnapshotFile) -> tuple[_Begun, bool]:
        snapshot = read_snapshot(data.open(file.name), file.name, max_record=max_record)
        found = _Begun(file.zxid, root)
        newest = 0
        for node in snapshot:
            if is_under(node.path, root):
                found.znodes.append(Content(file.zxid, 0, node.path, node.data))
                newest = max(newest, node.stat.czxid, node.stat.mzxid, node.stat.pzxid)
                if is_session(node.stat.ephemeral_owner):
                    found.owned.add(node.path, node.stat.ephemeral_owner)
        return found, newest > upto

    base, _ = from_best_snapshot(data, upto, attempt)
    base = base or _Begun(0, root)
    yield from base.znodes
    for record in behind(logs, base.zxid, max_record=max_record):
        for _, body in base.owned.take(record.txn()):
            match body:
                case CreateTxn() | CreateContainerTxn() | CreateTTLTxn() | SetDataTxn() if is_under(
                    body.path, root
                ):
                    yield Content(record.zxid, record.time_ms, body.path, body.data)
                case DeleteTxn() if is_under(body.path, root):
                    yield Content(record.zxid, record.time_ms, body.path, None, there=False)


class _Begun:
    """What a snapshot holds of the subtree."""

    def __init__(self, zxid: int, root: str) -> None:
        self.zxid = zxid
        self.znodes: list[Content] = []
        self.owned = Owned(root)
