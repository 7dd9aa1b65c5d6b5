"""A tree that holds `/zookeeper` too, and ZooKeeper's digest of it (3.6+, version 2).

A server writes the digest behind each transaction it logs (`TxnDigest`: the tree after that transaction), and
into a snapshot's second section. So a replay that meets it did what the server did, stat by stat. The digest
is the sum, modulo 2^64, over all znodes but those under `/zookeeper/` (`/zookeeper` itself counts) of the
CRC-32 over

| bytes | what |
|---|---|
| path | in the JVM's default charset, here UTF-8; the root's is empty |
| data | nothing where it is null |
| 60 | long czxid, mzxid, pzxid, ctime, mtime, int version, cversion, aversion, long ephemeralOwner |

It covers how often an access list changed, not the list. A JVM before 18 in a locale without UTF-8 sees a `?`
for each character of a path that is not ASCII: such a path gives another digest there.

Sources: org.apache.zookeeper.server.DigestCalculator, NodeHashMapImpl and AdHash; checked against every
digest in the recorded logs and snapshots of 3.6, 3.7, 3.8 and 3.9.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping

from zkmigrate.zookeeper.data.chroot import SYSTEM_ROOT, Chroot
from zkmigrate.zookeeper.data.effect import operations
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.reader import Directory
from zkmigrate.zookeeper.data.snapname import SnapshotFile, snapshot_files
from zkmigrate.zookeeper.data.snapshot import read_snapshot
from zkmigrate.zookeeper.data.tree import Tree, Znode, from_best_snapshot, from_log, replay
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD

DIGEST_VERSION = 2
_STAT = struct.Struct(">qqqqqiiiq")


class WholeTree(Tree):
    """Every znode, `/zookeeper` included."""

    def holds(self, path: str) -> bool:
        return True


def load_whole(directory: Directory, upto: int | None = None) -> Tree:
    """As `load_tree` of "/", whole."""

    def attempt(file: SnapshotFile) -> tuple[Tree, bool]:
        tree = WholeTree(Chroot("/"))
        tree.load(read_snapshot(directory.open(file.name), file.name), file.zxid)
        replay(tree, directory, file.zxid, upto, MAX_RECORD, None)
        return tree, False

    found, skipped = from_best_snapshot(directory, upto, attempt)
    return found or from_log(directory, WholeTree(Chroot("/")), upto, skipped)


def data_of(directory: Directory) -> dict[bytes, bytes]:
    """All data in the directory by its SHA-256, the empty one included: a tree keeps only that."""
    found = {b""}
    for file in snapshot_files(directory):
        found |= {node.data or b"" for node in read_snapshot(directory.open(file.name), file.name)}
    for record in walk(directory):
        found |= {getattr(body, "data", None) or b"" for _, body in operations(record.txn())}
    return {hashlib.sha256(data).digest(): data for data in found}


def znode_digest(path: str, node: Znode, data: Mapping[bytes, bytes]) -> int:
    """What one znode adds to its tree's digest: 0 under `/zookeeper/`, else an unsigned 32-bit number."""
    if path.startswith(SYSTEM_ROOT + "/"):
        return 0
    zxids_and_times = node.czxid, node.mzxid, node.pzxid, node.ctime, node.mtime
    stat = _STAT.pack(*zxids_and_times, node.version, node.cversion, node.aversion, node.ephemeral_owner)
    name = b"" if path == "/" else path.encode("utf-8", "surrogatepass")
    return zlib.crc32(name + data[node.data_sha256] + stat)


def tree_digest(tree: Tree, data: Mapping[bytes, bytes]) -> int:
    """The digest as `TxnDigest.tree_digest` and `SnapshotDigest.digest` carry it, a signed long. data: as
    `data_of` gives it."""
    total = sum(znode_digest(path, node, data) for path, node in tree.nodes.items()) & (1 << 64) - 1
    return total - (1 << 64) if total >> 63 else total
