"""Compare two logs: find the newest zxid up to which two servers hold the same transactions.

Servers of one ensemble, observers included, log the same transaction under the same zxid. Two logs part
(diverge) at the first zxid under which they hold different transactions, as after a cut-over, when each side
continues alone. A server that joins again later is synchronised by zxid only. So two logs may agree again
after they have parted: the zxids match then, but the trees differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zkmigrate.zookeeper.data.effect import touched_paths
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.reader import Directory
from zkmigrate.zookeeper.data.txn import CloseSessionTxn, MultiTxn, Txn
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD, Record
from zkmigrate.zookeeper.data.zxid import format_zxid

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Parting:
    """The first zxid under which two logs hold different transactions.

    source, dest: the transaction in source's log and the one in dest's, described in words.
    """

    zxid: int
    source: str
    dest: str

    def __str__(self) -> str:
        return f"{format_zxid(self.zxid)} is {self.source} on source and {self.dest} on dest"


@dataclass(frozen=True, slots=True)
class Histories:
    """The result of comparing source's log with dest's.

    common: the newest zxid with the same transaction in both logs, or None. compared: how many zxids are in
    both logs. parting: the first difference; None if the logs agree where they overlap. rejoined: whether the
    logs agree again after they have parted. own: dest's first zxid after `common`, or None.
    """

    common: int | None
    compared: int
    parting: Parting | None
    rejoined: bool
    own: int | None


def compare(source: Directory, dest: Directory, *, max_record: int = MAX_RECORD) -> Histories:
    """Compare two log directories. Raises the errors of `logdir.LogWalk`."""
    common: int | None = None
    own: int | None = None
    parting: Parting | None = None
    compared, rejoined = 0, False
    left, right = walk(source, max_record=max_record), walk(dest, max_record=max_record)
    a, b = next(left, None), next(right, None)
    while b is not None:
        if a is not None and a.zxid < b.zxid:
            a = next(left, None)
            continue
        if a is not None and a.zxid == b.zxid:
            compared += 1
            if _is_same(a, b):
                common, own, rejoined = b.zxid, None, parting is not None
                a, b = next(left, None), next(right, None)
                continue
            parting = parting or Parting(b.zxid, _words(a), _words(b))
            a = next(left, None)
        own = own or b.zxid
        b = next(right, None)
    return Histories(common, compared, parting, rejoined, own)


def _is_same(a: Record, b: Record) -> bool:
    """Return whether two records with one zxid are the same transaction.

    The bytes may differ between versions. The tree's digest and the paths of a closeSession are logged since
    3.6. An observer of 3.5 may log a failed multi with other types for its operations.
    """
    if a.payload == b.payload:
        return True
    left, right = a.txn(), b.txn()
    if left.header != right.header:
        return False
    if any(isinstance(txn.body, CloseSessionTxn) and txn.body.paths is None for txn in (left, right)):
        return True
    return left.body == right.body or (_failed(left) and _failed(right))


def _failed(txn: Txn) -> bool:
    return isinstance(txn.body, MultiTxn) and txn.body.failed


def _words(record: Record) -> str:
    txn = record.txn()
    return words(txn.header.type.name, touched_paths(txn))


def words(kind: str, paths: Sequence[str]) -> str:
    """Describe a transaction for `Parting`: its type and the first paths that it changes."""
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return " ".join((kind, *paths[:_SHOWN])) + more
