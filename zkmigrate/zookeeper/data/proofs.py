"""Prove in three ways, from the disks alone, that dest holds the same subtree as source.

tail: no dest disk is behind the newest transaction that left a zxid in source's subtree. delta: after dest's
newest transaction, source's log holds none that touches the subtree (`delta`). digest: the two subtrees are
equal at one zxid (`sums`).

The proofs compare the transactions that both sides share. Before a cut-over dest has no other transactions;
afterwards dest has transactions of its own. `after_cut` says that the operator knows of the cut-over, because
zxids alone do not distinguish such a log from one that diverged by mistake.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from zkmigrate.zookeeper.data.delta import DeltaResult, delta, required_zxid
from zkmigrate.zookeeper.data.histories import Histories, compare
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.reader import Directory, Listed
from zkmigrate.zookeeper.data.seal import check_snapshot
from zkmigrate.zookeeper.data.snapname import snapshot_files
from zkmigrate.zookeeper.data.sums import ReportProgress, Sums, differing_buckets, read_sums
from zkmigrate.zookeeper.data.tail import newest
from zkmigrate.zookeeper.data.txn import CloseSessionTxn
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD
from zkmigrate.zookeeper.data.zxid import epoch, format_zxid

Proved = bool | None
PROOFS = ("tail", "delta", "digest")
WORDS: Mapping[Proved, str] = {True: "held", False: "NOT HELD", None: "unproved"}
AFTER_CUT = "if dest was cut over, pass --after-cut"


def all_held(claims: Iterable[Proved]) -> Proved:
    """Combine several claims: False if one is False, else None if one is unknown, else True."""
    known = set(claims)
    return False if False in known else None if None in known else True


@dataclass(frozen=True)
class Side:
    """The disk of one server.

    name: the disk's name in messages. data, logs: the `version-2` of its dataDir and dataLogDir.
    """

    name: str
    data: Directory
    logs: Directory


@dataclass(frozen=True, slots=True)
class Reach:
    """The result of comparing the log on one dest disk with source's log.

    newest: the newest durable zxid on the disk. zxid: the newest zxid that the disk shares with source, 0 if
    unknown. unproved: why `zxid` is unknown; "" if it is known.
    """

    newest: int
    zxid: int
    histories: Histories
    unproved: str


def unread_reach(why: str) -> Reach:
    """Return the Reach of a disk that cannot be read. why: the reason."""
    return Reach(0, 0, Histories(None, 0, None, False, None), why)


@dataclass(frozen=True, slots=True)
class TailProof:
    """The result of the tail proof.

    needed, path: the largest zxid in source's subtree, and the znode that has this zxid. reach: the Reach of
    each dest disk, by the disk's name.
    """

    held: Proved
    needed: int
    path: str
    reach: Mapping[str, Reach]


@dataclass(frozen=True, slots=True)
class DigestProof:
    """The result of comparing one dest's subtree with source's at `zxid`.

    source, dest: the sums of both subtrees; None if a subtree was not read, and `unproved` then says why.
    buckets: the numbers of the buckets that differ.
    """

    held: Proved
    zxid: int
    source: Sums | None
    dest: Sums | None
    buckets: frozenset[int] = frozenset()
    unproved: str = ""


def reach_of(source: Side, upto: int, dest: Side, *, after_cut: bool, max_record: int = MAX_RECORD) -> Reach:
    """Return how far a dest disk agrees with source's, whose newest durable zxid is `upto`.

    Raises the errors of the readers.
    """
    at = newest(dest.data, dest.logs, max_record=max_record).zxid
    found = compare(source.logs, dest.logs, max_record=max_record)
    return reach_by(found, at, upto, dest, after_cut=after_cut)


def reach_by(found: Histories, at: int, upto: int, dest: Side, *, after_cut: bool) -> Reach:
    """Return the result of `reach_of` for logs that were already compared.

    found: the comparison of the logs. at, upto: the newest durable zxid of dest and of source.
    """
    if found.rejoined:
        return Reach(
            at, 0, found, f"the logs differ and then agree again at {_hex(found.common)}: {found.parting}"
        )
    if found.parting is None and (at <= upto or found.common == upto):
        return Reach(at, at, found, "")
    if not after_cut:
        ahead = f"dest is at {format_zxid(at)} and source at {format_zxid(upto)}, and no log contains both"
        parted = f"the logs differ: {found.parting}" if found.parting else ahead
        return Reach(at, 0, found, f"{parted}; {AFTER_CUT}")
    zxid = found.common if found.common is not None else _snapshot_of(dest, epoch(upto))
    if zxid is None:
        return Reach(at, 0, found, "dest has no transaction or snapshot from before a cut-over")
    if found.own is None:
        return Reach(at, zxid, found, "")
    if epoch(found.own) <= epoch(zxid):
        why = (
            f"dest's own transactions begin with {_hex(found.own)}, in the epoch of {_hex(zxid)}, so there "
            "was no cut-over"
        )
        return Reach(at, 0, found, why)
    return Reach(at, zxid, found, "")


def _snapshot_of(dest: Side, last_epoch: int) -> int | None:
    """Return the zxid of the newest complete snapshot up to this epoch; None if there is none."""
    listed = Listed(dest.data)
    for file in snapshot_files(listed):
        if epoch(file.zxid) <= last_epoch and not check_snapshot(listed.open(file.name), file.name):
            return file.zxid
    return None


def covers(zxid: int, needed: int) -> bool:
    """Return whether a dest disk holds the newest transaction in source's subtree.

    This is the claim of the tail proof. zxid: the newest zxid that the dest disk shares with source. needed:
    the largest zxid in source's subtree.
    """
    return zxid >= needed


def tail_held(where: Reach, needed: int) -> Proved:
    """Return whether the tail proof holds for one dest disk (`covers`); None if its reach is unknown."""
    return None if where.unproved else covers(where.zxid, needed)


def tail_proof(subtree: Sums, reach: Mapping[str, Reach]) -> TailProof:
    """Make the tail proof. subtree: source's subtree at its newest zxid. reach: by the dest disk's name."""
    held = all_held(tail_held(where, subtree.largest) for where in reach.values())
    return TailProof(held, subtree.largest, subtree.largest_path, reach)


def highest(reach: Mapping[str, Reach]) -> int:
    """Return the highest of the zxids up to which each dest disk agrees with source.

    No dest disk's log holds an expiry that source logged above this zxid.
    """
    return max(where.zxid for where in reach.values())


def has_cut_over(reach: Mapping[str, Reach]) -> bool:
    """Return whether every dest disk has transactions of its own.

    If so, sessions that dest has not closed are sessions of dest.
    """
    return all(not where.unproved and where.histories.own is not None for where in reach.values())


def comparison_zxid(where: Reach, upto: int) -> int:
    """Return the zxid at which two trees are compared: the newest zxid that both hold.

    where: the Reach of the dest disk. upto: the newest zxid of source.
    """
    return min(upto, where.newest if where.unproved else where.zxid)


def delta_proof(
    source: Side,
    upto: int,
    at: Sums,
    dests: Sequence[Side],
    reach: Mapping[str, Reach],
    *,
    on_dest: Collection[int] = (),
    max_record: int = MAX_RECORD,
) -> DeltaResult:
    """Make the delta proof over source's log, after the lowest zxid that a dest disk shares with source.

    upto: source's newest zxid. at: source's subtree at the lowest shared zxid. on_dest: sessions known to be
    clients of dest. After a cut-over, the sessions that dest has not closed are added to on_dest.
    """
    lowest = min(where.zxid for where in reach.values())
    unproved = "; ".join(f"{name}: {where.unproved}" for name, where in reach.items() if where.unproved)
    if unproved:
        return DeltaResult(lowest, upto, lowest, 0, (), (), unproved, None)
    living = set(on_dest)
    if has_cut_over(reach):
        closed = {session for d in dests for session in _closed_sessions(d, reach[d.name].zxid, max_record)}
        living |= at.owners.keys() - closed
    return delta(
        source.logs,
        chroot=at.chroot,
        after=lowest,
        upto=required_zxid(upto),
        owners=at.owners,
        living=living,
        highest=highest(reach),
        max_record=max_record,
    )


def _closed_sessions(dest: Side, after: int, max_record: int) -> set[int]:
    """Return the sessions that dest closed after the zxid `after`."""
    records = (r for r in walk(dest.logs, after=after, max_record=max_record) if r.zxid > after)
    return {r.session for r in records if isinstance(r.txn().body, CloseSessionTxn)}


def digest_proof(
    source: Sums, dest: Side, *, max_record: int = MAX_RECORD, tell: ReportProgress
) -> DigestProof:
    """Compare source's subtree with dest's at the same zxid. source: its sums at that zxid.

    Raises the errors of the readers.
    """
    theirs = read_sums(
        dest.data, dest.logs, chroot=source.chroot, upto=source.zxid, max_record=max_record, tell=tell
    )
    buckets = differing_buckets(source, theirs)
    return DigestProof(not buckets, source.zxid, source, theirs, buckets)


def _hex(zxid: int | None) -> str:
    return "nothing" if zxid is None else format_zxid(zxid)
