"""Reader of the transaction logs of one directory in order, from the start, a zxid, or a cursor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zkmigrate.zookeeper.data.errors import CorruptError, CursorError
from zkmigrate.zookeeper.data.reader import Directory
from zkmigrate.zookeeper.data.snapname import snapshot_zxid
from zkmigrate.zookeeper.data.txnlog import (
    FILE_HEADER_SIZE,
    MAX_RECORD,
    Cursor,
    Gap,
    LogEnd,
    LogScan,
    Record,
    log_zxid,
)
from zkmigrate.zookeeper.data.zxid import counter, follows, format_zxid

_FIRST_OF_AN_ENSEMBLE = (1 << 32) | 1
_OTHER_NAMES = frozenset({"acceptedEpoch", "currentEpoch", "acceptedEpoch.tmp", "currentEpoch.tmp"})


@dataclass(frozen=True, slots=True)
class LogFile:
    """A transaction log file. zxid: the zxid in its name. size: in bytes."""

    name: str
    zxid: int
    size: int


def log_files(directory: Directory) -> tuple[LogFile, ...]:
    """Return the log files of a directory, oldest first, empty files included."""
    found = [
        LogFile(name, zxid, size)
        for name, size in directory.names_with_sizes().items()
        if size >= 0 and (zxid := log_zxid(name)) is not None
    ]
    return tuple(sorted(found, key=lambda file: file.zxid))


def is_log_or_snapshot(name: str) -> bool:
    """Return whether a file of this name is a log or a snapshot."""
    return log_zxid(name) is not None or snapshot_zxid(name) is not None


def strays(directory: Directory) -> tuple[str, ...]:
    """Return the names of all entries that are neither log nor snapshot nor epoch file.

    Some servers (3.6 to 3.9) read `log.X.bak` or `snapshot.X.tmp` as a real log or snapshot, other servers do
    not. A directory with a log's name stops every server.
    """
    return tuple(
        sorted(
            name
            for name, size in directory.names_with_sizes().items()
            if size < 0 or (not is_log_or_snapshot(name) and name not in _OTHER_NAMES)
        )
    )


class LogWalk(Iterator[Record]):
    """An iterator over the records of several logs in order.

    after: start in the newest file whose zxid in the name is not above after + 1. The file's records at or
    below `after` are included, because they show continuity. cursor: continue where an earlier walk stopped,
    including new files.

    `gaps` lists holes after `after`, inside a file or between two files; the caller knows whether a snapshot
    covers them. `ends` has the end of each finished file. Raises the errors of LogScan, CorruptError if zxids
    do not rise from file to file, and CursorError if the cursor's file no longer exists.
    """

    def __init__(
        self,
        directory: Directory,
        *,
        after: int | None = None,
        cursor: Cursor | None = None,
        full: bool = False,
        max_record: int = MAX_RECORD,
    ) -> None:
        self._directory = directory
        self._full = full
        self._max_record = max_record
        self._known = -1 if after is None else after + 1
        self.cursor = cursor
        """The place after the last record read, or where this walk began; None before any record."""
        self._pending = self._choose(log_files(directory), after, cursor)
        self._scan: LogScan | None = None
        self._last: int | None = None if cursor is None else cursor.zxid
        self._resume = cursor
        self.gaps: list[Gap] = []
        self.ends: dict[str, LogEnd] = {}

    @staticmethod
    def _choose(files: tuple[LogFile, ...], after: int | None, cursor: Cursor | None) -> list[LogFile]:
        if cursor is not None:
            if cursor.file not in {file.name for file in files}:
                raise CursorError("the cursor's file no longer exists", cursor.file, cursor.offset)
            start = log_zxid(cursor.file) or 0
        elif after is not None:
            start = max((f.zxid for f in files if f.zxid <= after + 1 and f.size > 0), default=0)
        else:
            start = 0
        return [file for file in files if file.zxid >= start]

    def __next__(self) -> Record:
        while True:
            scan = self._scan
            if scan is None:
                if not self._pending:
                    raise StopIteration
                self._scan = self._open(self._pending.pop(0))
                continue
            known_gaps = len(scan.gaps)
            first = scan.last_zxid is None
            record = next(scan, None)
            if record is None:
                self._close(scan)
                self._scan = None
                continue
            self.gaps.extend(gap for gap in scan.gaps[known_gaps:] if gap.after > self._known)
            if first:
                self._join(record)
            self._last = record.zxid
            self.cursor = scan.cursor
            return record

    def _open(self, file: LogFile) -> LogScan | None:
        if file.size == 0:
            return None
        cursor, self._resume = self._resume, None
        reader = self._directory.open(file.name)
        return LogScan(reader, file.name, cursor, full=self._full, max_record=self._max_record)

    def _close(self, scan: LogScan) -> None:
        end, name = scan.end, scan.cursor.file
        if end is not None:
            self.ends[name] = end
            if end.bad_checksum and any(file.size > FILE_HEADER_SIZE for file in self._pending):
                raise CorruptError(f"{end.detail}, in a log that is not the newest one", name, end.offset)

    def _join(self, record: Record) -> None:
        """Check the first record of a file against the last record of the file before."""
        if self._last is None:
            return
        if record.zxid <= self._last:
            raise CorruptError(
                f"{format_zxid(record.zxid)} comes after {format_zxid(self._last)} of an older file",
                record.file,
                record.offset,
            )
        if not follows(self._last, record.zxid):
            self.gaps.append(Gap(record.file, record.offset, self._last, record.zxid))


walk = LogWalk
"""Walk the logs of a directory in order."""


def records_after(directory: Directory, after: int, *, max_record: int = MAX_RECORD) -> Iterator[Record]:
    """Yield the records with a zxid above `after`.

    Raises CorruptError if there is a hole between `after` and the last record, and the errors of LogWalk.
    """
    last: int | None = None
    for record in walk(directory, after=after, max_record=max_record):
        if record.zxid > after:
            if missing := describe_gap(last, after, record.zxid):
                raise CorruptError(missing, record.file, record.offset)
            yield record
        last = record.zxid


def describe_gap(last: int | None, start: int, zxid: int) -> str:
    """Return why the record `zxid` leaves a hole in a log that must be continuous after `start`; "" if none.

    start: the zxid up to which the state is known (from dest, a snapshot or a cursor). last: the zxid of the
    record read before; None if the log shows nothing at or below `start`.

    Records missing below `start` are no gap, because their effect is known: a server that was away and
    received a snapshot continues in the same log. A step into a new epoch is proved only by a log that shows
    the record before it. A `start` with counter 0 is the beginning of an epoch: no transaction has this zxid.
    """
    if zxid == start + 1:
        return ""
    before = start if last is None or (last < start and counter(start) == 0) else last
    if zxid == before + 1 or (last is not None and follows(before, zxid)):
        return ""
    if before == 0 and zxid == _FIRST_OF_AN_ENSEMBLE:
        return ""
    seen = "nothing" if last is None else format_zxid(last)
    return f"{format_zxid(zxid)} follows {seen}, but the log must be continuous from {format_zxid(before)}"
