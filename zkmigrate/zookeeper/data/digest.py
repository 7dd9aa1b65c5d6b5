"""ZooKeeper's tree digest (3.6+, version 2), computed for a loaded tree.

A server writes it behind each transaction it logs (`TxnDigest`: the tree after that transaction) and into a
snapshot's second section, so a replay that meets it did what the server did, stat by stat. The sum, modulo
2^64, over all znodes but those under `/zookeeper/` (`/zookeeper` itself counts) of the CRC-32 over

| bytes | what |
|---|---|
| path | in the JVM's default charset, here UTF-8; the root's is empty |
| data | nothing where it is null |
| 60 | long czxid, mzxid, pzxid, ctime, mtime, int version, cversion, aversion, long ephemeralOwner |

Access lists are not in it, only how often they changed. A JVM before 18 that runs in a locale without UTF-8
sees a `?` for each character of a path that is not ASCII: such a path gives another digest there.

Sources: org.apache.zookeeper.server.DigestCalculator, NodeHashMapImpl and AdHash; checked against every
digest in the recorded logs and snapshots of 3.6, 3.7, 3.8 and 3.9.
"""

from __future__ import annotations

import struct
import zlib

from zkmigrate.zookeeper.data.effect import SYSTEM_ROOT
from zkmigrate.zookeeper.data.tree import Tree, Znode

DIGEST_VERSION = 2
_STAT = struct.Struct(">qqqqqiiiq")
_MASK = (1 << 64) - 1


def znode_digest(path: str, node: Znode) -> int:
    """What one znode adds to its tree's digest: 0 under `/zookeeper/`, else an unsigned 32-bit number."""
    if path.startswith(SYSTEM_ROOT + "/"):
        return 0
    stat = _STAT.pack(
        node.czxid,
        node.mzxid,
        node.pzxid,
        node.ctime,
        node.mtime,
        node.version,
        node.cversion,
        node.aversion,
        node.ephemeral_owner,
    )
    return zlib.crc32(stat, node.content_crc32)


def tree_digest(tree: Tree) -> int:
    """The digest of a tree as `TxnDigest.tree_digest` and `SnapshotDigest.digest` carry it, a signed long.

    Raises ValueError for a tree that does not hold everything: one loaded without `whole`.
    """
    if not tree.whole:
        raise ValueError(f"a digest is of a whole tree, this one holds a part of {tree.chroot}")
    total = sum(znode_digest(path, node) for path, node in tree.nodes.items()) & _MASK
    return total - (1 << 64) if total >> 63 else total
