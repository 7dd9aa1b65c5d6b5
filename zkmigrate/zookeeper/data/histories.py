"""Two logs side by side: up to where two servers hold the same transactions under the same numbers.

Servers of one ensemble, observers included, log the same transaction under the same zxid. Two logs part where
one holds another transaction under a number, as after a cut-over, when each side goes on by itself. A server
that joins again afterwards is synchronised by number only, so its log may agree once more behind the place
where it parted: the zxids are healthy, the trees are not.
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
    """The first number under which the two logs hold different transactions, each in words."""

    zxid: int
    source: str
    dest: str

    def __str__(self) -> str:
        return f"{format_zxid(self.zxid)} is {self.source} on source and {self.dest} on dest"


@dataclass(frozen=True, slots=True)
class Histories:
    """common: the newest zxid that both logs hold alike, None where they share none. compared: how many they
    share by number. parting: None where they agree as far as they overlap. rejoined: they agree again behind
    it. own: dest's first zxid behind `common`, None for none."""

    common: int | None
    compared: int
    parting: Parting | None
    rejoined: bool
    own: int | None


def compare(source: Directory, dest: Directory, *, max_record: int = MAX_RECORD) -> Histories:
    """Walk two log directories side by side. Raises what `logdir.walk` raises."""
    common: int | None = None
    parting: Parting | None = None
    compared, rejoined = 0, False
    own: int | None = None
    left, right = walk(source, max_record=max_record), walk(dest, max_record=max_record)
    a, b = next(left, None), next(right, None)
    while b is not None:
        if a is not None and a.zxid < b.zxid:
            a = next(left, None)
            continue
        if a is not None and a.zxid == b.zxid:
            compared += 1
            if _alike(a, b):
                common, own, rejoined = b.zxid, None, parting is not None
                a, b = next(left, None), next(right, None)
                continue
            parting = parting or Parting(b.zxid, _words(a), _words(b))
            a = next(left, None)
        own = own or b.zxid
        b = next(right, None)
    return Histories(common, compared, parting, rejoined, own)


def _alike(a: Record, b: Record) -> bool:
    """Whether two records of one number are one transaction. Bytes may differ where versions do: the tree's
    digest is logged since 3.6, the paths of a closeSession likewise, and an observer of 3.5 logs the
    operations of a failed multi as it finds them."""
    if a.payload == b.payload:
        return True
    left, right = a.txn(), b.txn()
    if left.header != right.header:
        return False
    bodies = (left.body, right.body)
    if any(isinstance(body, CloseSessionTxn) and body.paths is None for body in bodies):
        return True
    return left.body == right.body or (_failed(left) and _failed(right))


def _failed(txn: Txn) -> bool:
    return isinstance(txn.body, MultiTxn) and txn.body.failed


def _words(record: Record) -> str:
    txn = record.txn()
    return words(txn.header.type.name, touched_paths(txn))


def words(kind: str, paths: Sequence[str]) -> str:
    """A transaction as `Parting` tells it: its type and the paths that it changes."""
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return " ".join((kind, *paths[:_SHOWN])) + more
