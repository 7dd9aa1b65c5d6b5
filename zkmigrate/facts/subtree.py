"""The subtree of the chroot as a host's disk holds it: read whole, outside the window."""

from __future__ import annotations

from zkmigrate.errors import HostError
from zkmigrate.facts.disk import directories
from zkmigrate.facts.ownership import Ephemeral, Ownership, rolled_forward
from zkmigrate.model.fact import Reading, Seen, Unknown
from zkmigrate.model.look import Look
from zkmigrate.zkdata.errors import ZkDataError
from zkmigrate.zkdata.logdir import walk
from zkmigrate.zkdata.tree import Tree, load_tree, subtree_max_zxid
from zkmigrate.zkdata.txnlog import Cursor


def source_ownership(
    look: Look,
    host: str,
    data_dir: str,
    txn_dir: str,
    chroot: str,
    known: tuple[Ownership, Cursor] | None = None,
) -> Reading[tuple[Ownership, Cursor | None]]:
    """Who owns what under the chroot, and the log cursor at exactly that state.

    known: an earlier state of the same host's log with its cursor; then only the rest of the log is read, if
    the cursor's file is still there.
    """
    data, logs = directories(look, host, data_dir, txn_dir)
    try:
        if known is None or known[1].file not in logs.names_with_sizes():
            state = ownership(load_tree(data, logs, chroot=chroot), chroot)
            rest = walk(logs, after=state.upto)
        else:
            state, rest = known[0], walk(logs, cursor=known[1])
        # Reading the tree took its time: what was written meanwhile is read now, so that the window need not.
        state = rolled_forward(state, rest)
        if rest.gaps:
            return Unknown("failed", f"{host}: the log has a hole: {rest.gaps[0]}")
    except (HostError, ZkDataError) as error:
        return Unknown("failed", f"{host}: {error}")
    return Seen((state, rest.cursor))


def ownership(tree: Tree, chroot: str) -> Ownership:
    """The small state that the window keeps current (``facts/ownership.py``)."""
    ephemerals = {
        path: Ephemeral(owner, tree.nodes[path].czxid)
        for owner, paths in tree.owners.items()
        for path in paths
    }
    return Ownership(chroot, tree.zxid, subtree_max_zxid(tree, chroot), ephemerals, dict(tree.sessions))
