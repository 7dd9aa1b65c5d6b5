"""The delta proof: no transaction in source's log after dest's zxid concerns the chroot's subtree.

The proof reads the log of source's leader, for the zxids after D (`after`) up to S (`upto`). It reports every
transaction that changes a path at or under the chroot or deletes an ancestor of the chroot, and the opening
and closing of sessions that own ephemerals under the chroot.

Only one change is allowed: the expiry of a session that lives on dest, and only if no dest host has the
expiry in its log. Dest then keeps the session and its ephemerals. The proof needs a continuous log from D on.
A hole leaves the claim unproved, which is not the same as false.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.effect import Owned, changes, touches
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.logdir import LogWalk, describe_gap, walk
from zkmigrate.zookeeper.data.reader import Directory
from zkmigrate.zookeeper.data.txn import Txn, TxnHeader, TxnType
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD, Cursor
from zkmigrate.zookeeper.data.zxid import counter, format_zxid


@dataclass(frozen=True, slots=True)
class DeltaFinding:
    """One change in source's log that dest lacks.

    path: the changed znode; "" for the opening of a session. session: the session that made the change.
    expiry: whether the server ended the session (cxid 0), not a client.
    """

    zxid: int
    time_ms: int
    type: str
    path: str
    session: int
    expiry: bool = False


@dataclass(frozen=True, slots=True)
class DeltaResult:
    """The result of a delta proof.

    after, upto: as requested (see `delta`). last: the last zxid read. records: how many records were read
    after `after`. missing: changes that dest lacks. allowed: expiries of sessions that live on dest.
    unproved: the hole or damage that leaves the claim open, "" for none. cursor: where to continue; None if
    no record was read and no cursor was given.
    """

    after: int
    upto: int | None
    last: int
    records: int
    missing: tuple[DeltaFinding, ...]
    allowed: tuple[DeltaFinding, ...]
    unproved: str
    cursor: Cursor | None

    @property
    def held(self) -> bool | None:
        """Whether the delta proof holds; see `delta_held`."""
        return delta_held(len(self.missing), self.unproved)


def delta_held(missing: int, unproved: str) -> bool | None:
    """Return whether the delta proof holds, from the number of missing changes and the reason for a doubt.

    True: proved. False: dest lacks a change, whatever else is unproved. None: unknown.
    """
    if missing:
        return False
    return None if unproved else True


def required_zxid(zxid: int) -> int | None:
    """Return the zxid that a server's log must reach if the server reports `zxid` as its last one.

    Returns None if the log may end anywhere: `zxid` is then the start of an epoch, and the new leader has
    proposed nothing yet.
    """
    return zxid if counter(zxid) else None


class Judge:
    """The findings of a delta proof, and the owners of ephemerals under the chroot.

    The arguments are those of `delta`.
    """

    def __init__(
        self, chroot: Chroot, owners: Mapping[int, Collection[str]], living: Collection[int], highest: int
    ) -> None:
        self._chroot = chroot
        self._highest = highest
        self._owned = Owned.from_owners(owners, chroot)
        self._living = frozenset(living)
        self._opened: dict[int, DeltaFinding] = {}
        self.missing: list[DeltaFinding] = []
        self.allowed: list[DeltaFinding] = []

    def take(self, txn: Txn) -> None:
        """Add the findings of the next transaction, and update the owners."""
        head = txn.header
        found = [change for change in changes(self._owned.take(txn)) if touches(change, self._chroot)]
        if head.type is TxnType.closeSession:
            self._close_session(head, sorted(change.path for change in found))
        elif head.type is TxnType.createSession:
            self._opened[head.session] = _finding(head, head.type, "")
        elif found:
            if opened := self._opened.pop(head.session, None):
                self.missing.append(opened)
            self.missing += (_finding(head, change.type, change.path) for change in found)

    def _close_session(self, head: TxnHeader, paths: list[str]) -> None:
        self._opened.pop(head.session, None)
        expiry = head.cxid == 0  # a server's own request has cxid 0, a client's has a number
        allowed = expiry and head.session in self._living and head.zxid > self._highest
        found = self.allowed if allowed else self.missing
        found += (_finding(head, head.type, path, expiry=expiry) for path in paths)


def _finding(head: TxnHeader, kind: TxnType, path: str, *, expiry: bool = False) -> DeltaFinding:
    return DeltaFinding(head.zxid, head.time_ms, kind.name, path, head.session, expiry)


def delta(
    directory: Directory,
    *,
    chroot: Chroot,
    after: int,
    upto: int | None,
    owners: Mapping[int, Collection[str]],
    living: Collection[int] = (),
    highest: int = 0,
    cursor: Cursor | None = None,
    max_record: int = MAX_RECORD,
) -> DeltaResult:
    """Make the delta proof over source's log after the zxid `after`.

    directory: the `version-2` of source's dataLogDir. after, highest: the lowest and the highest of the
    newest zxids of dest's hosts. An expiry at or below `highest` is in the log of some dest host but not of
    every one, so dest does not keep that session. upto: the leader's zxid S, which the log must reach; None
    reads to the end and requires only continuity.

    owners: the ephemerals of each session under the chroot, at the later of `after` and the cursor. ZooKeeper
    3.4 and 3.5 do not log the ephemerals with a closeSession. living: sessions that live on dest. cursor: the
    cursor of an earlier result, after which reading continues. It must be at or below `after`, or come from a
    delta that held from the same `after`.

    Damage and holes are reported as `unproved`; errors of the directory (OSError …) are raised.
    """
    if upto is not None and after >= upto:
        return DeltaResult(after, upto, after, 0, (), (), "", cursor)
    judge = Judge(chroot, owners, living, highest)
    start = after if cursor is None else max(after, cursor.zxid)
    last: int | None = cursor.zxid if cursor is not None else None
    records = 0
    unproved = ""
    steps: LogWalk | None = None
    try:
        steps = walk(directory, after=start, cursor=cursor, max_record=max_record)
        for record in steps:
            if record.zxid > start:
                missing = describe_gap(last, start, record.zxid)
                if missing and not unproved:
                    unproved = f"{record.file} at offset {record.offset}: {missing}"
                judge.take(record.txn())
                records += 1
            last = record.zxid
    except ZkDataError as error:
        unproved = unproved or str(error)
    unproved = unproved or missing_end(last, start, upto)
    return DeltaResult(
        after,
        upto,
        start if last is None else last,
        records,
        tuple(judge.missing),
        tuple(judge.allowed),
        unproved,
        cursor if steps is None else steps.cursor,
    )


def missing_end(last: int | None, start: int, upto: int | None) -> str:
    """Return why the log does not reach `upto`; "" if it does."""
    reached = start if last is None else max(last, start)
    if upto is None or reached >= upto:
        return ""
    if counter(upto) == 0 and last is not None:
        return ""  # the leader of a new epoch has proposed nothing yet
    return f"the log ends at {format_zxid(reached)}, but the leader is at {format_zxid(upto)}"
