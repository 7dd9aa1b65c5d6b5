"""The subtree of the chroot as a host's disk holds it: read whole, outside the window."""

from __future__ import annotations

from zkmigrate.errors import HostError
from zkmigrate.facts.disk import directories
from zkmigrate.facts.ownership import Ephemeral, Ownership
from zkmigrate.model.fact import Reading, Seen, Unknown
from zkmigrate.model.look import Look
from zkmigrate.zkdata.errors import ZkDataError
from zkmigrate.zkdata.tail import newest
from zkmigrate.zkdata.tree import Tree, load_tree, subtree_max_zxid
from zkmigrate.zkdata.txnlog import Cursor


def source_ownership(
    look: Look, host: str, data_dir: str, txn_dir: str, chroot: str
) -> Reading[tuple[Ownership, Cursor | None]]:
    """Who owns what under the chroot, and a log cursor that stands at or below that state."""
    data, logs = directories(look, host, data_dir, txn_dir)
    try:
        cursor = newest(data, logs).cursor
        tree = load_tree(data, logs, chroot=chroot)
    except (HostError, ZkDataError) as error:
        return Unknown("failed", f"{host}: {error}")
    return Seen((ownership(tree, chroot), cursor))


def ownership(tree: Tree, chroot: str) -> Ownership:
    """The small state that the window keeps current (``facts/ownership.py``)."""
    ephemerals = {
        path: Ephemeral(owner, tree.nodes[path].czxid)
        for owner, paths in tree.owners.items()
        for path in paths
    }
    return Ownership(chroot, tree.zxid, subtree_max_zxid(tree, chroot), ephemerals, dict(tree.sessions))
