"""The delta proof: nothing in source's log after dest's zxid concerns our part of the tree.

Over the log of source's leader, for the zxids after D (`after`) up to S (`upto`): every transaction that
changes a path at or under the chroot or deletes an ancestor of it, and the opening and closing of sessions
that own ephemerals there. Only the expiry of a session that lives on dest is allowed, and only where no
dest host has it in its log: dest keeps that session and its ephemerals. The claim needs the log to be
continuous from D on; a hole makes it unproved, which is not the same as false.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from zkmigrate.zookeeper.data.effect import Owned, changes, touches
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.logdir import LogWalk, hole, walk
from zkmigrate.zookeeper.data.reader import Directory
from zkmigrate.zookeeper.data.txn import Txn, TxnHeader, TxnType
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD, Cursor
from zkmigrate.zookeeper.data.zxid import counter, format_zxid


@dataclass(frozen=True, slots=True)
class DeltaFinding:
    """One change that dest lacks. path is "" for the opening of a session. expiry: the server ended the
    session (cxid 0), no client asked for it."""

    zxid: int
    time_ms: int
    type: str
    path: str
    session: int
    expiry: bool = False


@dataclass(frozen=True, slots=True)
class DeltaResult:
    """missing: what must not be there. allowed: expiries of sessions that live on dest. unproved: names the
    hole (or the damage) that leaves the claim open, "" when the log was continuous. last: the last zxid
    read; records: how many were read after D. cursor: where to go on; None when no record was read and no
    cursor given."""

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
        """As `judged`."""
        return judged(len(self.missing), self.unproved)


def judged(missing: int, unproved: str) -> bool | None:
    """The claim. True: proved. False: something is missing on dest, whatever else is unproved. None: cannot
    say."""
    if missing:
        return False
    return None if unproved else True


def due(zxid: int) -> int | None:
    """How far a log must reach for the zxid that its server is at. None: only to its end, where the leader of
    a new epoch has proposed nothing yet."""
    return zxid if counter(zxid) else None


class Judge:
    """Collects the findings, and keeps who owns what under the chroot as the log goes on. Arguments as of
    `delta`."""

    def __init__(
        self, chroot: str, owners: Mapping[int, Collection[str]], living: Collection[int], highest: int
    ) -> None:
        self._chroot = chroot
        self._highest = highest
        self._owned = Owned.of(owners, chroot)
        self._living = frozenset(living)
        self._opened: dict[int, DeltaFinding] = {}
        self.missing: list[DeltaFinding] = []
        self.allowed: list[DeltaFinding] = []

    def take(self, txn: Txn) -> None:
        """The next transaction behind `after`."""
        head = txn.header
        found = [change for change in changes(self._owned.take(txn)) if touches(change, self._chroot)]
        if head.type is TxnType.closeSession:
            self._closed(head, sorted(change.path for change in found))
        elif head.type is TxnType.createSession:
            self._opened[head.session] = _finding(head, head.type, "")
        elif found:
            if opened := self._opened.pop(head.session, None):
                self.missing.append(opened)
            self.missing += (_finding(head, change.type, change.path) for change in found)

    def _closed(self, head: TxnHeader, paths: list[str]) -> None:
        self._opened.pop(head.session, None)
        expiry = head.cxid == 0  # the server asks for it with cxid 0, a client's request has its own number
        allowed = expiry and head.session in self._living and head.zxid > self._highest
        found = self.allowed if allowed else self.missing
        found += (_finding(head, head.type, path, expiry=expiry) for path in paths)


def _finding(head: TxnHeader, kind: TxnType, path: str, *, expiry: bool = False) -> DeltaFinding:
    return DeltaFinding(head.zxid, head.time_ms, kind.name, path, head.session, expiry)


def delta(
    directory: Directory,
    *,
    chroot: str,
    after: int,
    upto: int | None,
    owners: Mapping[int, Collection[str]],
    living: Collection[int] = (),
    highest: int = 0,
    cursor: Cursor | None = None,
    max_record: int = MAX_RECORD,
) -> DeltaResult:
    """Judge source's log (`version-2` of its dataLogDir) after `after`.

    after: dest's newest zxid, the lowest over its hosts. highest: the highest over its hosts; an expiry at or
    below it is in the log of one host and not of another, so dest does not keep that session. upto: the
    leader's zxid S that the log must reach; None reads to the end and asks for no more than continuity.
    owners: session → its ephemerals under the chroot, as they stood at the later of `after` and the cursor:
    what 3.4 and 3.5 do not log with a closeSession. living: sessions that live on dest. cursor: an earlier
    result's place; only the rest is read. It must stand at or below `after`, or be the cursor of a delta that
    held from the same `after`. Damage and holes do not raise: they are `unproved`. Errors of the directory
    itself (OSError …) do.
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
                missing = hole(last, start, record.zxid)
                if missing and not unproved:
                    unproved = f"{record.file} at offset {record.offset}: {missing}"
                judge.take(record.txn())
                records += 1
            last = record.zxid
    except ZkDataError as error:
        unproved = unproved or str(error)
    unproved = unproved or short(last, start, upto)
    place = cursor if steps is None else steps.cursor
    found, allowed = tuple(judge.missing), tuple(judge.allowed)
    return DeltaResult(after, upto, start if last is None else last, records, found, allowed, unproved, place)


def short(last: int | None, start: int, upto: int | None) -> str:
    """Why the log does not reach `upto`, "" when it does."""
    reached = start if last is None else max(last, start)
    if upto is None or reached >= upto:
        return ""
    if counter(upto) == 0 and last is not None:
        return ""  # a leader elected into a new epoch that has proposed nothing in it yet
    return f"the log ends at {format_zxid(reached)}, the leader is at {format_zxid(upto)}"
