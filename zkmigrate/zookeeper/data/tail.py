"""Search for the newest durable zxid of a ZooKeeper directory.

The search takes O(1) reads if the newest log ends in a complete record. The result is
the newest valid snapshot, or the last valid record of the newest log with a record, whichever is newer.

Bisection over zero and non-zero windows finds the log's end, because the server grows the file with zeros
ahead of its writes. A backward search finds the last record: the frame whose length ends exactly there and
whose checksum matches.

A payload may itself contain complete records. If the outer record was torn just after an inner record,
the inner record looks like the last one. So the bytes before are searched for a frame that would enclose the
last record, as far back as such a frame can begin (`enclosing_span`).

If the search fails, the file is read forward, from its start or from a proved cursor. The causes are a torn
last write, zeros in a payload that misled the bisection, or a possible enclosing frame. Only reading forward
distinguishes a record from a copy of one.

The tail is a fast answer, not a complete proof. The search does not see a hole of zeros, or damage, in the
middle of the log with complete records after it. The result may then be a later record than ZooKeeper would
recover. A scan
with `full=True` refuses such a log.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass

from zkmigrate.zookeeper.data.errors import CursorError, NoDataError
from zkmigrate.zookeeper.data.jute import JUTE_MAXBUFFER
from zkmigrate.zookeeper.data.logdir import LogFile, log_files, strays
from zkmigrate.zookeeper.data.reader import CountingReader, Directory, Listed, RandomReader
from zkmigrate.zookeeper.data.seal import check_snapshot
from zkmigrate.zookeeper.data.snapname import snapshot_files
from zkmigrate.zookeeper.data.txn import HEADER_SIZE, KNOWN_TYPES
from zkmigrate.zookeeper.data.txnlog import (
    END_MARK,
    FILE_HEADER_SIZE,
    FRAME_SIZE,
    MAX_RECORD,
    TXN_HEADER,
    Cursor,
    EndKind,
    LogScan,
    check_header,
)

WINDOW = 4096  # the least padding that the server keeps while it pre-allocates
_STOP_WIDTH = 256 << 10  # bisection ends here: reading this much more costs less than another round trip

_ZEROS = bytes(WINDOW)
_END_MARK = bytes([END_MARK])
_FAR = 64 << 10  # the length in a frame farther off has one of its two high bytes set
_FRAME = re.compile(rb"B\0\0\0\0")
_FRAME_OF_A_LARGE = re.compile(rb"B\0\0\0\0.{4}(?!\0\0)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Tail:
    """The newest durable transaction of a directory.

    zxid: the transaction's zxid. source: "log" or "snapshot". file, offset: where the transaction is (offset
    of the record, 0 for a snapshot). end: where the log's next record would start, 0 for a snapshot. torn:
    whether the newest log ends in an incomplete write.

    bytes_read, reads: the bytes and the reads that the search took. skipped: logs without a record, and
    snapshots that are not valid. strays: see `logdir.strays`.
    """

    zxid: int
    source: str
    file: str
    offset: int
    end: int
    torn: bool
    bytes_read: int
    reads: int
    skipped: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()

    @property
    def cursor(self) -> Cursor | None:
        """The place after the record of the transaction; None if the transaction comes from a snapshot."""
        return Cursor(self.file, self.end, self.zxid) if self.source == "log" else None


@dataclass(frozen=True, slots=True)
class _Last:
    """The last record of one log. zxid: None if the log holds no record."""

    zxid: int | None
    offset: int
    end: int
    torn: bool


def newest(
    data: Directory,
    log: Directory | None = None,
    *,
    cursor: Cursor | None = None,
    max_record: int = MAX_RECORD,
    jute_maxbuffer: int = JUTE_MAXBUFFER,
    check: bool = True,
) -> Tail:
    """Return the newest durable zxid in the `version-2` of a dataDir and dataLogDir.

    log: None if it is the same directory as `data`. cursor: a proved place; records are read from this place
    on, so that bytes inside a payload cannot mislead. jute_maxbuffer: the servers' limit, from which
    `enclosing_span` follows. check: whether to verify the seals of the deciding snapshot, which reads the
    snapshot completely. Without check, the snapshot passes only the server's own quick test.

    Raises NoDataError for a directory without data, CursorError if nothing at or after the cursor is left,
    and the errors of LogScan if the newest log is damaged.
    """
    data = Listed(data)
    logs = data if log is None else Listed(log)
    cost = _Cost()
    skipped: list[str] = []
    last = _Last(None, 0, 0, False)
    name, torn = "", False
    for file in reversed(log_files(logs)):
        last = _last_of(logs, file, cursor, (max_record, enclosing_span(jute_maxbuffer)), cost)
        torn = torn or last.torn
        if last.zxid is not None:
            name = file.name
            break
        skipped.append(file.name)
    floor = -1 if last.zxid is None else last.zxid
    if cursor is not None and floor < cursor.zxid:
        raise CursorError("no record at or after the cursor remains", cursor.file, cursor.offset)
    snapshot = _snapshot_above(data, floor, check, cost, skipped)
    if snapshot is None and last.zxid is None:
        raise NoDataError("this directory has neither a usable snapshot nor a transaction")
    unknown = strays(data) if log is None else tuple(sorted({*strays(data), *strays(logs)}))
    figures = (torn, cost.bytes_read, cost.reads, tuple(skipped), unknown)
    if snapshot is not None:
        return Tail(snapshot[1], "snapshot", snapshot[0], 0, 0, *figures)
    return Tail(floor, "log", name, last.offset, last.end, *figures)


def enclosing_span(jute_maxbuffer: int) -> int:
    """Return the size in bytes of the largest record that may hold other records as data.

    A server refuses a request larger than jute.maxbuffer, and logs all others. The largest setData of 3.5.8
    made a record of 1.00002 times that size. The largest multi of sequential creates, whose names become
    longer in the log, made a record of 1.2 times that size.

    One case is not covered: a multi that holds records and thousands of creates with an ACL by "auth". Each
    of these creates takes on all identities of the session (2.05 times with one identity).
    """
    return (jute_maxbuffer + 1) * 5 // 4


class _Cost:
    """The number of all reads, and of the bytes that they returned."""

    def __init__(self) -> None:
        self._readers: list[CountingReader] = []

    def open(self, directory: Directory, name: str) -> CountingReader:
        reader = CountingReader(directory.open(name))
        self._readers.append(reader)
        return reader

    @property
    def reads(self) -> int:
        return sum(reader.reads for reader in self._readers)

    @property
    def bytes_read(self) -> int:
        return sum(reader.bytes_read for reader in self._readers)


def _snapshot_above(
    data: Directory, floor: int, check: bool, cost: _Cost, skipped: list[str]
) -> tuple[str, int] | None:
    """Return the name of the newest valid snapshot above `floor`, and the zxid in the name; None if none.

    The snapshot's content is certain to hold everything up to this zxid.
    """
    for file in snapshot_files(data):
        if file.zxid <= floor:
            return None
        if not check_snapshot(cost.open(data, file.name), file.name, whole=check):
            return file.name, file.zxid
        skipped.append(file.name)
    return None


def _last_of(
    logs: Directory, file: LogFile, cursor: Cursor | None, limits: tuple[int, int], cost: _Cost
) -> _Last:
    max_record, before = limits
    if file.size == 0:
        return _Last(None, 0, 0, False)
    reader = cost.open(logs, file.name)
    if cursor is not None and cursor.file == file.name:
        return _walk(reader, file.name, cursor, max_record)
    check_header(reader.read(0, FILE_HEADER_SIZE), file.name)
    if cursor is not None:
        return _walk(reader, file.name, None, max_record)
    ending = _ending(reader, before)
    if ending.end <= FILE_HEADER_SIZE:
        return _Last(None, FILE_HEADER_SIZE, FILE_HEADER_SIZE, False)
    last = _last_record(reader, ending, file.zxid, max_record)
    if last is None or _may_be_enclosed(reader, ending, last, limits, file.zxid):
        return _walk(reader, file.name, None, max_record)
    return last


class _Ending:
    """The end of a file.

    data: its bytes from offset `base` on, some zeros included. end: the offset after the last byte that is
    not zero.
    """

    def __init__(self, base: int, data: bytes) -> None:
        self.base = base
        self.data = data
        self.end = base + _unpadded(data)

    def extend(self, reader: RandomReader, base: int) -> None:
        """Also read the bytes from `base` on."""
        if base < self.base:
            self.data = reader.read(base, self.base - base) + self.data
            self.base = base


def _may_be_enclosed(
    reader: RandomReader, ending: _Ending, last: _Last, limits: tuple[int, int], least_zxid: int
) -> bool:
    """Return whether the last record may be part of another record's payload.

    That is possible if an earlier frame claims to reach at least the end of the last record, and the payload
    of that frame begins as a transaction does.
    """
    max_record, before = limits
    if last.offset == FILE_HEADER_SIZE:
        return False
    first = max(FILE_HEADER_SIZE, last.offset - before)
    # The frame and header of a record there may themselves reach into the last record.
    ending.extend(reader, first - 1)
    base, data = ending.base, ending.data

    def encloses(offset: int) -> bool:
        at = offset - base
        length = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        reaches = length <= max_record and offset + length + FRAME_SIZE >= last.end
        return reaches and _begins(data, at + 12, least_zxid)

    if first == FILE_HEADER_SIZE and encloses(first):  # no end mark before it
        return True
    near = max(first, last.offset - _FAR) - 1
    stops = near + 10, last.offset + 3  # so that no pattern that begins before them is cut
    for pattern, start, stop in ((_FRAME_OF_A_LARGE, first - 1, stops[0]), (_FRAME, near, stops[1])):
        hit = pattern.search(data, start - base, stop - base)
        while hit is not None:
            if encloses(base + hit.start() + 1):
                return True
            hit = pattern.search(data, hit.start() + 1, stop - base)
    return False


def _begins(data: bytes, at: int, least_zxid: int) -> bool:
    """Return whether a transaction's header may start at `at`.

    Numbers inside a record sometimes look like a frame (a cxid and a zxid that end in 0x4200). In that case
    no known transaction type follows.
    """
    zxid, kind = struct.unpack_from(">q", data, at + 12)[0], struct.unpack_from(">i", data, at + 28)[0]
    return zxid >= least_zxid and kind in KNOWN_TYPES


def _walk(reader: CountingReader, name: str, cursor: Cursor | None, max_record: int) -> _Last:
    """Read forward to the end, as the server does.

    Raises CorruptError for damage at which the server would refuse to start or would lose transactions.
    """
    scan = LogScan(reader, name, cursor, max_record=max_record)
    offset = 0 if cursor is None else cursor.offset
    for record in scan:
        offset = record.offset
    torn = scan.end is not None and scan.end.kind is EndKind.TORN
    return _Last(scan.last_zxid, offset, scan.offset, torn)


def data_end(reader: RandomReader) -> int:
    """Return the offset after the last non-zero byte, found by bisection.

    The offset is exact unless a window inside the data is all zeros.
    """
    return _ending(reader, 0).end


def _ending(reader: RandomReader, before: int) -> _Ending:
    """Return the end of the data, together with `before` bytes more than the bisection needs."""
    low, high = 0, max(0, reader.size() - WINDOW)  # data at or after low; only zeros seen from high on
    last = reader.read(high, WINDOW)
    if _unpadded(last):
        ending = _Ending(high, last)
        ending.extend(reader, max(0, high - before))
        return ending
    while high - low > _STOP_WIDTH:
        middle = (low + high) // 2
        if _unpadded(reader.read(middle, WINDOW)):
            low = middle
        else:
            high = middle
    base = max(0, low - before)
    return _Ending(base, reader.read(base, high - base))


def _unpadded(data: bytes) -> int:
    """Return the length without the zeros at the end."""
    end = len(data)
    while end > 0:
        start = max(0, end - WINDOW)
        block = data[start:end]
        if block != _ZEROS[: end - start]:
            return start + len(block.rstrip(b"\0"))
        end = start
    return 0


def _last_record(reader: RandomReader, ending: _Ending, least_zxid: int, max_record: int) -> _Last | None:
    """Return the complete record that ends at the data's end; None if there is none within `max_record`."""
    end = ending.end
    if ending.data[end - ending.base - 1 : end - ending.base] != _END_MARK:
        return None
    least = max(FILE_HEADER_SIZE, end - max_record - FRAME_SIZE)
    while (found := _frame_in(ending.data, end - ending.base, least_zxid)) is None:
        if ending.base <= least:
            return None
        ending.extend(reader, max(least, end - 4 * (end - ending.base)))
    return _Last(found[1], ending.base + found[0], end, False)


def _frame_in(data: bytes, end: int, least_zxid: int) -> tuple[int, int] | None:
    """Return the position in `data` and the zxid of the nearest record that ends exactly at `end`."""
    high = end - FRAME_SIZE - HEADER_SIZE
    while high >= 0:
        at = data.rfind(b"\0\0\0\0", 0, high + 4)
        if at < 0:
            return None
        if int.from_bytes(data[at + 8 : at + 12], "big") == end - at - FRAME_SIZE:
            payload = data[at + 12 : end - 1]
            _session, _cxid, zxid, _time, kind = TXN_HEADER.unpack_from(payload)
            crc = int.from_bytes(data[at + 4 : at + 8], "big")
            if kind in KNOWN_TYPES and zxid >= least_zxid and zlib.adler32(payload) == crc:
                return at, zxid
        high = at - 1
    return None
