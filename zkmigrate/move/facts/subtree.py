"""Read the whole subtree of the chroot from a host's disk, outside the window.

The disk is read over an open channel as root at about 20 MB/s, and parsed in Python: a gigabyte of snapshot
and logs takes more than a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from zkmigrate.errors import HostError
from zkmigrate.inventory.inventory import Dest, Inventory, Source
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Teller, tell_nobody
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.logdir import LogWalk, walk
from zkmigrate.zookeeper.data.sums import Sums, read_sums
from zkmigrate.zookeeper.data.tree import Difference, Tree, diff, load_tree, max_zxid
from zkmigrate.zookeeper.data.txnlog import Cursor
from zkmigrate.zookeeper.facts.disk import directories, read_disk
from zkmigrate.zookeeper.facts.ownership import Ephemeral, Ownership, apply_records


def source_ownership(
    look: Look,
    host: str,
    source: Source,
    chroot: Chroot,
    known: tuple[Ownership, Cursor] | None = None,
    teller: Teller = tell_nobody,
) -> Reading[tuple[Ownership, Cursor | None]]:
    """Return the owners of ephemerals under the chroot on source, and the log position of exactly that state.

    known: an earlier state from the same host's log, with its position. If the log file of that position
    still exists, only the rest of the log is read. teller: receives the progress of a long read.
    """
    data, logs = directories(look, host, source)

    def read() -> tuple[Ownership, Cursor | None]:
        if known is not None and known[1].file in logs.names_with_sizes():
            return _replayed(known[0], walk(logs, cursor=known[1]))
        tree = load_tree(data, logs, chroot=chroot, tell=_transactions_reporter(look, teller, host))
        # Read what was written while the tree was read, so that the window need not.
        state = ownership(tree)
        return _replayed(state, walk(logs, after=state.upto))

    return read_disk(read, host)


def _replayed(state: Ownership, rest: LogWalk) -> tuple[Ownership, Cursor | None]:
    """Apply the rest of the log to the state. Returns the new state and the new log position.

    Raises HostError for a log with a gap.
    """
    state = apply_records(state, rest)
    if rest.gaps:
        raise HostError(f"the log has a gap: {rest.gaps[0]}")
    return state, rest.cursor


COMPARE_S = 20.0
"""The seconds after which no further dest disk is compared. The first disk is always compared."""
_REPORT_AFTER_S = 2.0


@dataclass(frozen=True)
class Comparison:
    """The result of comparing dest's disks with source's disk at one zxid.

    znodes: how many znodes source has under the chroot. hosts: dest host → the paths that differ.
    """

    zxid: int
    znodes: int
    hosts: Mapping[str, Reading[tuple[Difference, ...]]]


def compare_with_source(
    look: Look, inventory: Inventory, chroot: Chroot, leader: str, zxid: int, teller: Teller = tell_nobody
) -> tuple[Reading[tuple[Ownership, Cursor | None]], Reading[Comparison]]:
    """Compare the chroot on each dest disk with the chroot on the disk of source's leader.

    Returns the owners of ephemerals, as :func:`source_ownership` does, and the comparison. zxid: every dest
    disk holds it and was read before this call, so source's log reaches it. Two trees are in memory at a
    time.
    """
    data, logs = directories(look, leader, inventory.source)
    tell = _transactions_reporter(look, teller, leader)
    read = read_disk(lambda: load_tree(data, logs, chroot=chroot, upto=zxid, tell=tell), leader)
    if not isinstance(read, Seen):
        return read, read
    tree = read.value

    def compare_disk(host: str) -> tuple[Difference, ...]:
        theirs = directories(look, host, inventory.dest)
        return diff(
            tree,
            load_tree(*theirs, chroot=chroot, upto=zxid, tell=_transactions_reporter(look, teller, host)),
        )

    hosts: dict[str, Reading[tuple[Difference, ...]]] = {}
    began = look.now()
    for host in inventory.dest_names:
        if hosts and look.now() - began > COMPARE_S:
            break
        hosts[host] = read_disk(partial(compare_disk, host), host)
    owners = read_disk(lambda: _replayed(ownership(tree), walk(logs, after=zxid)), leader)
    return owners, Seen(Comparison(zxid, len(tree.nodes), hosts))


@dataclass(frozen=True)
class Digests:
    """The sums of the chroot's subtree at one zxid, on source's disk and on each dest disk."""

    zxid: int
    source: Reading[Sums]
    hosts: Mapping[str, Reading[Sums]]


def digests(
    look: Look, inventory: Inventory, chroot: Chroot, leader: str, zxid: int, teller: Teller = tell_nobody
) -> Digests:
    """Compute sums of the chroot's subtree at one zxid on every disk, reading each disk once.

    The memory that this takes does not grow with the tree. leader: the leader of source.
    """

    def sum_disk(host: str, of: Source | Dest) -> Reading[Sums]:
        data, logs = directories(look, host, of)
        tell = _progress_reporter(look, teller, host)
        return read_disk(lambda: read_sums(data, logs, chroot=chroot, upto=zxid, tell=tell), host)

    hosts = {host: sum_disk(host, inventory.dest) for host in inventory.dest_names}
    return Digests(zxid, sum_disk(leader, inventory.source), hosts)


def _transactions_reporter(look: Look, teller: Teller, host: str) -> Callable[[int, int | None], None]:
    tell = _progress_reporter(look, teller, host)
    return lambda done, total: tell("transactions", done, total)


def _progress_reporter(look: Look, teller: Teller, host: str) -> Callable[[str, int, int | None], None]:
    began = look.now()

    def tell(what: str, done: int, total: int | None) -> None:
        if look.now() - began < _REPORT_AFTER_S:
            return
        of = "" if total is None else f" of {total}"
        since = " since its snapshot" if what == "transactions" else " of its snapshot"
        teller(f"the tree on the disk of {host}", f"{done}{of} {what}{since}")

    return tell


def ownership(tree: Tree) -> Ownership:
    """Return the owners of ephemerals in a tree. The window keeps this small state up to date."""
    ephemerals = {
        path: Ephemeral(owner, tree.nodes[path].czxid)
        for owner, paths in tree.owners.items()
        for path in paths
    }
    return Ownership(tree.chroot, tree.zxid, max_zxid(tree), ephemerals, dict(tree.sessions))
