"""Sums over the znodes of a subtree at one zxid, in memory that does not grow with the tree.

Two trees are compared without holding either. Every znode is hashed with its path (BLAKE2b, 256 bits), the
path decides the bucket, and the hashes of one bucket are added modulo 2^256. Equal sums mean equal znodes in
any order (an additive multiset hash: Clarke et al., "Incremental Multiset Hash Functions", 2003). This finds
accidents and errors, not computed collisions. Only buckets with different sums need a closer look.

A znode that no later transaction touches is as the snapshot says, so it is hashed while it is read. Some
znodes are kept in memory: those that transactions touch, their parents, and the ephemerals of sessions that
close. By default ZooKeeper writes a new snapshot after at most 100,000 transactions. The path of every
ephemeral is kept too.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from zkmigrate.zookeeper.data.chroot import WHOLE_TREE, Chroot
from zkmigrate.zookeeper.data.effect import is_session, parent_of, path_changes
from zkmigrate.zookeeper.data.errors import NoDataError
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.reader import Directory
from zkmigrate.zookeeper.data.snapname import SnapshotFile, snapshot_files
from zkmigrate.zookeeper.data.snapshot import read_snapshot
from zkmigrate.zookeeper.data.tree import Tree, Znode, from_best_snapshot, from_log, from_snapshot, replay
from zkmigrate.zookeeper.data.txn import CloseSessionTxn
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD

BUCKETS = 4096
REPORT_EVERY = 20_000
"""The number of znodes between two reports of progress."""

_BITS = 256
_MASK = (1 << _BITS) - 1
_STAT = struct.Struct(">32sqqqqqqiiiq")

ReportProgress = Callable[[str, int, int | None], None]
"""A function that reports progress: ``tell(what, done, total)``.

what: "znodes" or "transactions". total: None if unknown.
"""

View = Callable[[str, Znode], Znode | None]
"""A function that returns the part of a znode that is compared; None leaves the znode out."""


def whole_znode(_path: str, node: Znode) -> Znode:
    """Return the complete znode: the View that compares everything."""
    return node


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums over the znodes of a chroot at `zxid`, as a View shows them.

    znodes: how many znodes the View shows. largest: the largest czxid, mzxid or pzxid of all znodes; 0 if
    there is no znode. largest_path: the path of the znode with this zxid. sums: BUCKETS integers below 2^256.
    owners: the paths of each session's ephemerals, sorted. sessions: id → timeout in ms, for all open
    sessions. snapshot, skipped: see `tree.Tree`. held: how many znodes were kept in memory.
    """

    chroot: Chroot
    zxid: int
    znodes: int
    largest: int
    largest_path: str
    sums: tuple[int, ...]
    owners: Mapping[int, tuple[str, ...]]
    sessions: Mapping[int, int]
    snapshot: str
    skipped: Mapping[str, str]
    held: int

    @property
    def digest(self) -> str:
        """One value for all sums: 64 hex digits, which are equal exactly if all sums are equal."""
        whole_znode = hashlib.blake2b(digest_size=32)
        for value in self.sums:
            whole_znode.update(value.to_bytes(_BITS // 8, "big"))
        return whole_znode.hexdigest()


def bucket_of(path: str) -> int:
    """Return the bucket of a path, 0 to BUCKETS - 1."""
    return zlib.crc32(path.encode("utf-8", "surrogatepass")) % BUCKETS


def differing_buckets(left: Sums, right: Sums) -> frozenset[int]:
    """Return the numbers of the buckets whose sums differ."""
    return frozenset(n for n, (a, b) in enumerate(zip(left.sums, right.sums, strict=True)) if a != b)


def hash_of(path: str, node: Znode) -> int:
    """Return the 256-bit hash of a znode at its path.

    Every part of the input has a fixed length or follows its length, so two different znodes never give the
    same bytes.
    """
    name = path.encode("utf-8", "surrogatepass")
    taken = hashlib.blake2b(struct.pack(">i", len(name)) + name, digest_size=_BITS // 8)
    stat = (node.data_length, node.czxid, node.mzxid, node.pzxid, node.ctime, node.mtime)
    versions = (node.version, node.cversion, node.aversion)
    taken.update(_STAT.pack(node.data_sha256, *stat, *versions, node.ephemeral_owner))
    taken.update(struct.pack(">i", -1 if node.acl is None else len(node.acl)))
    for acl in node.acl or ():
        scheme, name = (part.encode("utf-8", "surrogatepass") for part in (acl.scheme, acl.id))
        taken.update(struct.pack(">iii", acl.perms, len(scheme), len(name)) + scheme + name)
    return int.from_bytes(taken.digest(), "big")


@dataclass(slots=True)
class _Gathered:
    """The sums over the znodes that were read so far."""

    view: View = whole_znode
    sums: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    znodes: int = 0
    largest: int = 0
    largest_path: str = ""
    owners: dict[int, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Iterable[tuple[str, Znode]], view: View) -> _Gathered:
        found = cls(view)
        for path, node in nodes:
            found.take(path, node)
        return found

    def take(self, path: str, node: Znode) -> None:
        seen = self.view(path, node)
        if seen is not None:
            at = bucket_of(path)
            self.sums[at] = (self.sums[at] + hash_of(path, seen)) & _MASK
            self.znodes += 1
        newest = max(node.czxid, node.mzxid, node.pzxid)
        if newest > self.largest:
            self.largest, self.largest_path = newest, path
        if is_session(node.ephemeral_owner):
            self.owners.setdefault(node.ephemeral_owner, []).append(path)


class _Pass(Iterable[tuple[str, Znode]]):
    """The znodes of one subtree at `upto`, each once, from one snapshot and the log after it.

    `next` raises the errors of the readers; after an error, discard the znodes received so far. After the
    end, `tree` has its zxid, its sessions and the znodes kept in memory, and `newer` says whether the
    snapshot's content may be newer than `upto`.
    """

    def __init__(
        self,
        data: Directory,
        logs: Directory,
        file: SnapshotFile,
        tree: Tree,
        upto: int | None,
        max_record: int,
        tell: ReportProgress,
    ) -> None:
        self._logs = logs
        self._file = file
        self.tree = tree
        self._upto = upto
        self._max_record = max_record
        self._tell = tell
        self.newer = False
        self._touched, self._closed, unnamed = _touched_paths(logs, file.zxid, upto, max_record)
        if unnamed:
            # Parents come before their children, so only an extra reading knows them in time.
            self._touched |= {
                parent_of(node.path)
                for node in read_snapshot(data.open(file.name), file.name, max_record=max_record)
                if node.stat.ephemeral_owner in unnamed
            }
        self._newest = 0
        self._snapshot = read_snapshot(data.open(file.name), file.name, max_record=max_record)
        tree.sessions = dict(self._snapshot.sessions)

    def __iter__(self) -> Iterator[tuple[str, Znode]]:
        for number, node in enumerate(self._snapshot, 1):
            if number % REPORT_EVERY == 0:
                self._tell("znodes", number, None)
            if not self.tree.holds(node.path):
                continue
            self._newest = max(self._newest, node.stat.czxid, node.stat.mzxid, node.stat.pzxid)
            if node.path in self._touched or node.stat.ephemeral_owner in self._closed:
                self.tree.put(node.path, from_snapshot(node))
            else:
                yield node.path, from_snapshot(node)
        self.tree.zxid = self._file.zxid
        ahead = replay(
            self.tree,
            self._logs,
            self._file.zxid,
            self._upto,
            self._max_record,
            lambda done, total: self._tell("transactions", done, total),
        )
        self.newer = ahead and self._upto is not None and self._newest > self._upto
        yield from self.tree.nodes.items()


def _touched_paths(
    logs: Directory, after: int, upto: int | None, max_record: int
) -> tuple[set[str], set[int], set[int]]:
    """Return paths, closed sessions, and unnamed sessions of the transactions after `after` up to `upto`.

    Paths are those of the changed znodes and of their parents. Unnamed sessions are the closed sessions whose
    ephemerals the log does not name (3.4, 3.5).
    """
    paths: set[str] = set()
    closed: set[int] = set()
    unnamed: set[int] = set()
    for record in walk(logs, after=after, max_record=max_record):
        if upto is not None and record.zxid > upto:
            break
        if record.zxid <= after:
            continue
        txn = record.txn()
        for change in path_changes(txn):
            paths.update((change.path, parent_of(change.path)))
        if isinstance(txn.body, CloseSessionTxn):
            closed.add(txn.header.session)
            if txn.body.paths is None:
                unnamed.add(txn.header.session)
    return paths, closed, unnamed


def _silent(_what: str, _done: int, _total: int | None) -> None:
    """Report nothing."""


def read_sums(
    data: Directory,
    log: Directory | None = None,
    *,
    chroot: Chroot = WHOLE_TREE,
    upto: int | None = None,
    view: View = whole_znode,
    max_record: int = MAX_RECORD,
    tell: ReportProgress = _silent,
) -> Sums:
    """Return the sums of a subtree at `upto`, or at the newest zxid of the directories.

    data, log: the `version-2` of dataDir and dataLogDir. The choice of the snapshot and the errors are those
    of `tree.load_tree`.
    """
    logs = log or data

    def attempt(file: SnapshotFile) -> tuple[tuple[Tree, _Gathered], bool]:
        nodes = _Pass(data, logs, file, Tree(chroot, snapshot=file.name), upto, max_record, tell)
        return (nodes.tree, _Gathered.of(nodes, view)), nodes.newer

    found, skipped = from_best_snapshot(data, upto, attempt)
    if found is None:
        whole_tree = from_log(logs, Tree(chroot), upto, skipped, max_record)
        found = whole_tree, _Gathered.of(whole_tree.nodes.items(), view)
    tree, gathered = found
    return Sums(
        tree.chroot,
        tree.zxid,
        gathered.znodes,
        gathered.largest,
        gathered.largest_path,
        tuple(gathered.sums),
        {session: tuple(sorted(paths)) for session, paths in sorted(gathered.owners.items())},
        tree.sessions,
        tree.snapshot,
        skipped,
        len(tree.nodes),
    )


def znodes(
    data: Directory,
    log: Directory | None,
    found: Sums,
    *,
    max_record: int = MAX_RECORD,
    tell: ReportProgress = _silent,
) -> Iterator[tuple[str, Znode]]:
    """Read again the znodes that were summed up in `found`, in any order.

    Raises the errors of `read_sums`, and NoDataError if the snapshot no longer exists.
    """
    logs = log or data
    if not found.snapshot:
        yield from from_log(logs, Tree(found.chroot), found.zxid, {}, max_record).nodes.items()
        return
    file = next((file for file in snapshot_files(data) if file.name == found.snapshot), None)
    if file is None:
        raise NoDataError(f"{found.snapshot} was removed after it was read")
    tree = Tree(found.chroot, snapshot=found.snapshot)
    yield from _Pass(data, logs, file, tree, found.zxid, max_record, tell)
