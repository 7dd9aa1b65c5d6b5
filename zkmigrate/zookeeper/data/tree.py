"""The state of one subtree: a snapshot, then every transaction after the zxid in its name (see `effect`).

Replay over a fuzzy snapshot must end in the state of the live tree, so the rules are those of ZooKeeper's
DataTree. A create of an existing znode only raises its parent's cversion. A create sets the parent's cversion
and pzxid if its parentCVersion is larger. A delete raises the parent's pzxid, even if the child is already
gone. setData and setACL set the versions that the transaction carries.

`/zookeeper` holds each server's own config, and the quotas. A chroot includes its quotas, but what each
server counts for a quota is no data here. The rest is left out unless the chroot is in it.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from zkmigrate.zookeeper.data.chroot import QUOTA_STATS, QUOTAS, SERVERS_OWN, WHOLE_TREE, Chroot
from zkmigrate.zookeeper.data.effect import (
    Owned,
    is_session,
    operations,
    owner_of,
    parent_of,
)
from zkmigrate.zookeeper.data.errors import CorruptError, NoDataError, ZkDataError
from zkmigrate.zookeeper.data.logdir import describe_gap, walk
from zkmigrate.zookeeper.data.reader import Directory
from zkmigrate.zookeeper.data.session import format_session
from zkmigrate.zookeeper.data.snapname import SnapshotFile, snapshot_files
from zkmigrate.zookeeper.data.snapshot import Snapshot, SnapshotNode, read_snapshot
from zkmigrate.zookeeper.data.txn import (
    Acl,
    CloseSessionTxn,
    CreateContainerTxn,
    CreateSessionTxn,
    CreateTTLTxn,
    CreateTxn,
    DeleteTxn,
    SetACLTxn,
    SetDataTxn,
    Txn,
    TxnBody,
    TxnHeader,
)
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD
from zkmigrate.zookeeper.data.zxid import epoch, format_zxid

T = TypeVar("T")

Progress = Callable[[int, int | None], None]
"""A function that reports progress in transactions: ``tell(done, total)``. total: None while unknown."""

_PROGRESS_EVERY = 500
_SHA_DIGITS_SHOWN = 16


@dataclass(frozen=True, slots=True)
class Znode:
    """One znode at one zxid.

    data_sha256: the raw SHA-256 digest of the data. data_length: in bytes; -1 for null data, 0 for empty
    data. acl: None if unknown (see SnapshotNode). The other fields are those of StatPersisted.
    """

    data_sha256: bytes
    data_length: int
    acl: tuple[Acl, ...] | None
    czxid: int
    mzxid: int
    pzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int


@dataclass(frozen=True, slots=True)
class Difference:
    """One path that differs between two trees.

    kind: "only left", "only right", or the name of the first field that differs. left, right: the values of
    that field as text; "" if there is none.
    """

    path: str
    kind: str
    left: str
    right: str


@dataclass(slots=True)
class Tree:
    """The znodes of a chroot, and every open session, at `zxid`.

    sessions: id → timeout in ms. snapshot: the file from which the tree was read, "" for none. skipped: newer
    snapshots that were unusable, with the reason.
    """

    chroot: Chroot
    zxid: int = 0
    nodes: dict[str, Znode] = field(default_factory=dict)
    sessions: dict[int, int] = field(default_factory=dict)
    snapshot: str = ""
    skipped: dict[str, str] = field(default_factory=dict)
    _owned: Owned = field(default_factory=Owned)

    def holds(self, path: str) -> bool:
        """Return whether the path is part of this tree."""
        return self.chroot.holds(path)

    def load(self, snapshot: Snapshot, zxid: int) -> None:
        """Read a snapshot to its end, where the snapshot's seals are checked. zxid: the zxid in its name."""
        self.sessions = dict(snapshot.sessions)
        for node in snapshot:
            if self.holds(node.path):
                self.put(node.path, from_snapshot(node))
        self.zxid = zxid

    def apply(self, txn: Txn) -> None:
        """Apply one transaction to the tree and to the list of open sessions."""
        for _, body in operations(txn, self._owned):
            self._change(txn.header, body)
        self.zxid = max(self.zxid, txn.header.zxid)

    def _change(self, head: TxnHeader, body: TxnBody) -> None:
        match body:
            case CreateTxn() | CreateContainerTxn() | CreateTTLTxn():
                self._create(head, body)
            case DeleteTxn():
                self._delete(body.path, head.zxid)
            case SetDataTxn() if node := self.nodes.get(body.path):
                digest, length = _digest(body.path, body.data)
                self.nodes[body.path] = replace(
                    node,
                    data_sha256=digest,
                    data_length=length,
                    version=body.version,
                    mzxid=head.zxid,
                    mtime=head.time_ms,
                )
            case SetACLTxn() if node := self.nodes.get(body.path):
                self.nodes[body.path] = replace(node, acl=body.acl, aversion=body.version)
            case CreateSessionTxn():
                self.sessions[head.session] = body.timeout_ms
            case CloseSessionTxn():
                self.sessions.pop(head.session, None)

    def _create(self, head: TxnHeader, body: CreateTxn | CreateContainerTxn | CreateTTLTxn) -> None:
        if not self.holds(body.path):
            return
        zxid, time_ms = head.zxid, head.time_ms
        parent_path = parent_of(body.path)
        if body.path != self.chroot.path and self.holds(parent_path):
            parent = self.nodes.get(parent_path)
            if parent is None:
                return  # gone before the dump reached it: its deletion follows
            cversion = parent.cversion + 1 if body.parent_cversion == -1 else body.parent_cversion
            if cversion > parent.cversion:
                self.nodes[parent_path] = replace(parent, cversion=cversion, pzxid=zxid)
        there = self.nodes.get(body.path)
        if there is not None:
            if there.acl is None:
                self.nodes[body.path] = replace(there, acl=body.acl)
            return
        owner = owner_of(body, head.session)
        stat = zxid, zxid, zxid, time_ms, time_ms, 0, 0, 0, owner
        self.put(body.path, Znode(*_digest(body.path, body.data), body.acl, *stat))

    def put(self, path: str, node: Znode) -> None:
        """Add a znode, or replace the znode at this path."""
        self.nodes[path] = node
        if is_session(node.ephemeral_owner):
            self._owned.add(path, node.ephemeral_owner)

    def _delete(self, path: str, zxid: int) -> None:
        if not self.holds(path):
            return
        parent = self.nodes.get(parent_of(path)) if path != self.chroot.path else None
        if parent is not None and zxid > parent.pzxid:
            self.nodes[parent_of(path)] = replace(parent, pzxid=zxid)
        if self.nodes.pop(path, None) is not None:
            self._owned.drop(path)

    @property
    def owners(self) -> dict[int, tuple[str, ...]]:
        """The ephemeral znodes that each session owns in this tree, sorted."""
        return self._owned.owners

    @property
    def smallest_timeout_ms(self) -> int | None:
        """The smallest known timeout of the sessions that own ephemerals here; None if there is none."""
        return min((self.sessions[owner] for owner in self.owners if owner in self.sessions), default=None)


def _digest(path: str, data: bytes | None) -> tuple[bytes, int]:
    """Return a znode's data_sha256 and data_length. What a server counts for a quota is no data."""
    if path.endswith(f"/{QUOTA_STATS}") and path.startswith(f"{QUOTAS}/"):
        data = None
    return hashlib.sha256(data or b"").digest(), -1 if data is None else len(data)


def from_snapshot(node: SnapshotNode) -> Znode:
    """Convert a snapshot's node to a `Znode`."""
    digest, length = _digest(node.path, node.data)
    s = node.stat
    zxids_and_times = s.czxid, s.mzxid, s.pzxid, s.ctime, s.mtime
    versions = s.version, s.cversion, s.aversion
    return Znode(digest, length, node.acl, *zxids_and_times, *versions, s.ephemeral_owner)


def load_tree(
    data: Directory,
    log: Directory | None = None,
    *,
    chroot: Chroot = WHOLE_TREE,
    upto: int | None = None,
    max_record: int = MAX_RECORD,
    tell: Progress | None = None,
) -> Tree:
    """Read the subtree at `upto`, or at the newest zxid of the directories.

    data, log: the `version-2` of dataDir and dataLogDir.

    A snapshot's content may be newer than its name. So if the log continues after `upto`, a snapshot needs a
    proof: a later snapshot, also not above `upto`, shows that the dump of the first had ended. Without that
    proof, a snapshot is used only if no stat in it is above `upto`.

    Raises NoDataError if there is no snapshot and no log from the first transaction on, or if all of them are
    too new for `upto`. Raises CorruptError for a hole or damage in the log between snapshot and end, or for a
    damaged newest log.
    """
    logs = log or data

    def attempt(file: SnapshotFile) -> tuple[Tree, bool]:
        tree = Tree(chroot, snapshot=file.name)
        tree.load(read_snapshot(data.open(file.name), file.name, max_record=max_record), file.zxid)
        newest = max_zxid(tree)
        ahead = replay(tree, logs, file.zxid, upto, max_record, tell)
        return tree, ahead and upto is not None and newest > upto

    found, skipped = from_best_snapshot(data, upto, attempt)
    tree = found or from_log(logs, Tree(chroot), upto, skipped, max_record, tell)
    tree.skipped = skipped
    return tree


def from_best_snapshot(
    data: Directory, upto: int | None, attempt: Callable[[SnapshotFile], tuple[T, bool]]
) -> tuple[T | None, dict[str, str]]:
    """Return the result of ``attempt`` with the best usable snapshot, and the unusable ones with the reason.

    The first result is None without a usable snapshot; the second maps file names to reasons. attempt:
    returns a result, and whether the snapshot's content may be newer than `upto`. Errors of attempt are
    raised, except for damage in the snapshot, or in a log that does not reach back to an older snapshot.
    """
    skipped: dict[str, str] = {}
    broken: CorruptError | NoDataError | None = None
    for file, sure in _candidates(snapshot_files(data), upto):
        try:
            found, newer = attempt(file)
        except ZkDataError as error:
            if error.file != file.name:
                if not isinstance(error, CorruptError | NoDataError):
                    raise
                # After a SNAP sync the log does not reach back to an older snapshot; a newer one may work.
                broken = broken or error
            skipped[file.name] = str(error)
            continue
        if newer and not sure:
            skipped[file.name] = "its content is newer than the requested zxid"
            continue
        return found, skipped
    if broken is not None:
        raise broken
    return None, skipped


def from_log(
    logs: Directory,
    tree: Tree,
    upto: int | None,
    skipped: Mapping[str, str],
    max_record: int = MAX_RECORD,
    tell: Progress | None = None,
) -> Tree:
    """Read the subtree into an empty tree from a log that reaches back to the first transaction.

    skipped: the reasons why snapshots were not usable, for the error. Raises the errors of `load_tree`.
    """
    for path in SERVERS_OWN:
        if tree.holds(path):
            tree.nodes[path] = Znode(*_digest(path, b""), None, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    replay(tree, logs, 0, upto, max_record, tell)
    if tree.zxid == 0:
        raise NoDataError("; ".join(skipped.values()) or "there is no snapshot or transaction to start from")
    return tree


def _candidates(snapshots: Iterable[SnapshotFile], upto: int | None) -> Iterator[tuple[SnapshotFile, bool]]:
    """Yield snapshots to start from, best first, and whether the dump had certainly ended at `upto`."""
    if upto is None:
        yield from ((file, True) for file in snapshots)
        return
    usable = [file for file in snapshots if file.zxid <= upto]
    yield from ((file, True) for file in usable[1:2])
    yield from ((file, False) for file in usable[:1])
    yield from ((file, True) for file in usable[2:])


def replay(
    tree: Tree,
    logs: Directory,
    start: int,
    upto: int | None,
    max_record: int,
    tell: Progress | None,
) -> bool:
    """Apply the transactions after `start` up to `upto`. Return True if the log continues after `upto`.

    Raises the errors of `load_tree`.
    """
    last: int | None = None
    total = upto - start if upto is not None and epoch(upto) == epoch(start) else None
    done = 0
    for record in walk(logs, after=start, max_record=max_record):
        missing = describe_gap(last, start, record.zxid) if record.zxid > start else ""
        if upto is not None and record.zxid > upto:
            # After a hole transactions may be missing: the server may have received a snapshot.
            if missing and tree.zxid < upto:
                raise CorruptError(missing, record.file, record.offset)
            return True
        if record.zxid > start:
            if missing:
                raise CorruptError(missing, record.file, record.offset)
            tree.apply(record.txn())
            done += 1
            if tell is not None and done % _PROGRESS_EVERY == 0:
                tell(done, total)
        last = record.zxid
    if upto is not None and tree.zxid < upto:
        raise NoDataError(f"the directories end at 0x{tree.zxid:x}, before the requested 0x{upto:x}")
    return False


def max_zxid(tree: Tree) -> int:
    """Return the largest czxid, mzxid or pzxid of a tree's znodes, 0 for none.

    setACL and the deletion of a znode whose parent is not part of the tree leave no zxid.
    """
    return max((max(n.czxid, n.mzxid, n.pzxid) for n in tree.nodes.values()), default=0)


_COMPARED = tuple(f.name for f in fields(Znode))


def diff(left: Tree, right: Tree, limit: int = 100) -> tuple[Difference, ...]:
    """Return the paths that differ, sorted, at most `limit`. Sessions are not compared."""
    return tuple(itertools.islice(differences(left.nodes, right.nodes), limit))


def differences(left: Mapping[str, Znode], right: Mapping[str, Znode]) -> Iterator[Difference]:
    """Yield the paths that differ, sorted."""
    for path in sorted(left.keys() | right.keys()):
        a, b = left.get(path), right.get(path)
        if a is None or b is None:
            yield Difference(path, "only right" if a is None else "only left", "", "")
        elif a != b:
            name = next(name for name in _COMPARED if getattr(a, name) != getattr(b, name))
            yield Difference(
                path, name, format_value(name, getattr(a, name)), format_value(name, getattr(b, name))
            )


def format_value(name: str, value: Any) -> str:
    """Return a field's value as ZooKeeper's own shell shows it; for data, the first digits of its SHA-256."""
    if name in ("czxid", "mzxid", "pzxid"):
        return format_zxid(value)
    if name == "ephemeral_owner":
        return format_session(value)
    if name == "acl":
        return "unknown" if value is None else ",".join(_rights(acl) for acl in value) or "nobody"
    return value.hex()[:_SHA_DIGITS_SHOWN] if isinstance(value, bytes) else str(value)


def _rights(acl: Acl) -> str:
    letters = "".join(letter for bit, letter in enumerate("rwcda") if acl.perms >> bit & 1)
    return f"{acl.scheme}:{acl.id}:{letters}"
