"""The newest durable zxid of a ZooKeeper directory, in O(1) reads where the newest log ends in a whole
record.

newest = max(newest valid snapshot, last valid record of the newest log that holds one). The log's end is
found by bisection over zero / non-zero windows (the server grows the file with zeros ahead of its writes),
then the last record by searching backward for the frame whose length ends exactly there and whose checksum
holds. A payload may hold whole records, and where the outer record was torn just behind one of them it
looks like the last; so the bytes before are searched for a frame that would enclose it. Where any of this
fails (a torn last write, zeros in a payload that fooled the bisection, a possible enclosing frame) the file
is walked forward, from its start or from a cursor already proved: only such a walk tells a record from a
copy of one.

What this cannot see, which is why the tail is the fast answer and never the whole proof: a hole of zeros,
or damage, in the middle of the log with whole records behind it. Then it may name a later record than
ZooKeeper would recover. A scan with `full=True` refuses such a log.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass

from zkmigrate.zkdata.errors import CursorError, NoDataError
from zkmigrate.zkdata.logdir import LogFile, log_files, strays
from zkmigrate.zkdata.reader import CountingReader, Directory, Listed, RandomReader
from zkmigrate.zkdata.seal import check_snapshot
from zkmigrate.zkdata.snapname import snapshot_files
from zkmigrate.zkdata.txn import HEADER_SIZE, KNOWN_TYPES
from zkmigrate.zkdata.txnlog import (
    END_MARK,
    FILE_HEADER_SIZE,
    FRAME_SIZE,
    MAX_RECORD,
    Cursor,
    EndKind,
    LogScan,
    check_header,
)

WINDOW = 4096  # the server keeps at least this much padding while it pre-allocates
ENCLOSING = 2 << 20  # a default server's largest record: jute.maxbuffer and as much extra
_STOP_WIDTH = 32 << 10  # bisection ends here: one read of this size is cheaper than three more round trips
_FIRST_SEARCH = 64 << 10

_END_MARK = bytes([END_MARK])
_FAR = 64 << 10  # a frame farther off than this must have a length with one of its high two bytes set
_FRAME = re.compile(rb"B\0\0\0\0")
_FRAME_OF_A_LARGE = re.compile(rb"B\0\0\0\0.{4}(?!\0\0)", re.DOTALL)
_TXN_HEADER = struct.Struct(">qiqqi")


@dataclass(frozen=True, slots=True)
class Tail:
    """zxid: the newest durable one. source: "log" or "snapshot"; file and offset: where it stands (offset
    of the record, 0 for a snapshot). torn: the newest log ends in a write that was not whole. end: where
    the next record of the log would start, 0 for a snapshot. bytes_read and reads: what it cost. skipped:
    logs without a record and snapshots that did not pass; strays: names no ZooKeeper of ours wrote (see
    logdir.strays)."""

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
        """The log cursor after this record; None when the zxid came from a snapshot."""
        return Cursor(self.file, self.end, self.zxid) if self.source == "log" else None


@dataclass(frozen=True, slots=True)
class _Last:
    """The last record of one log; zxid is None when the log holds none."""

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
    enclosing: int = ENCLOSING,
    check: bool = True,
) -> Tail:
    """The newest durable zxid of a dataDir's and dataLogDir's `version-2` (the same one when `log` is None).

    cursor: a proved place; records are read from there on, so that nothing inside a payload can mislead.
    enclosing: how many bytes before the last record are searched for a frame that encloses it; as much as a
    record can have with the servers' jute.maxbuffer. check: verify every seal of the snapshot that decides
    (reads it whole); without it, the server's own quick test. Raises NoDataError, and what LogScan raises
    where the newest log is damaged.
    """
    data = Listed(data)
    logs = data if log is None else Listed(log)
    cost = _Cost()
    skipped: list[str] = []
    last = _Last(None, 0, 0, False)
    name, torn = "", False
    for file in reversed(log_files(logs)):
        last = _last_of(logs, file, cursor, (max_record, enclosing), cost)
        torn = torn or last.torn
        if last.zxid is not None:
            name = file.name
            break
        skipped.append(file.name)
    floor = -1 if last.zxid is None else last.zxid
    if cursor is not None and floor < cursor.zxid:
        raise CursorError("no record at or after the cursor is left", cursor.file, cursor.offset)
    snapshot = _snapshot_above(data, floor, check, cost, skipped)
    if snapshot is None and last.zxid is None:
        raise NoDataError("neither a usable snapshot nor a transaction in this directory")
    unknown = strays(data) if log is None else tuple(sorted({*strays(data), *strays(logs)}))
    figures = (torn, cost.bytes_read, cost.reads, tuple(skipped), unknown)
    if snapshot is not None:
        return Tail(snapshot[1], "snapshot", snapshot[0], 0, 0, *figures)
    return Tail(floor, "log", name, last.offset, last.end, *figures)


class _Cost:
    """Adds up the readers' figures."""

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
    """The newest snapshot that passes and stands above `floor`, with its zxid.

    Only the name counts, not the lastProcessedZxid of 3.9: what the name says is surely in the content.
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
    max_record, _ = limits
    if file.size == 0:
        return _Last(None, 0, 0, False)
    reader = cost.open(logs, file.name)
    if cursor is not None and cursor.file == file.name:
        return _walk(reader, file.name, cursor, max_record)
    check_header(reader.read(0, FILE_HEADER_SIZE), file.name)
    if cursor is not None:
        return _walk(reader, file.name, None, max_record)
    end, block = data_end(reader)
    if end <= FILE_HEADER_SIZE:
        return _Last(None, FILE_HEADER_SIZE, FILE_HEADER_SIZE, False)
    last = _last_record(reader, end, block, file.zxid, max_record)
    if last is None or _may_be_enclosed(reader, last, limits, file.zxid):
        return _walk(reader, file.name, None, max_record)
    return last


def _may_be_enclosed(reader: RandomReader, last: _Last, limits: tuple[int, int], least_zxid: int) -> bool:
    """Whether some frame in the bytes before the record claims to go on at least to the record's end, and its
    payload to begin as a transaction does. limits: as of `_last_of`."""
    max_record, reach = limits
    if last.offset == FILE_HEADER_SIZE:
        return False
    base = max(FILE_HEADER_SIZE - 1, last.offset - reach)
    # The frame of a record inside `data`, and its header, may themselves reach into the last record.
    data = reader.read(base, last.offset + 12 + HEADER_SIZE - base)
    if base == FILE_HEADER_SIZE - 1:
        data = _END_MARK + data[1:]  # the first record follows the header as the others follow an end mark
    near = max(0, last.offset - base - 1 - _FAR)
    ends = len(data) - HEADER_SIZE
    for pattern, start, stop in ((_FRAME_OF_A_LARGE, 0, near + 16), (_FRAME, near, ends)):
        hit = pattern.search(data, start, stop)
        while hit is not None:
            at = base + hit.start() + 1
            length = int.from_bytes(data[hit.start() + 9 : hit.start() + 13], "big", signed=True)
            reaches = length <= max_record and at + length + FRAME_SIZE >= last.end
            if at < last.offset and reaches and _begins(data, hit.start() + 13, least_zxid):
                return True
            hit = pattern.search(data, hit.start() + 1, stop)
    return False


def _begins(data: bytes, at: int, least_zxid: int) -> bool:
    """Whether a transaction's header may stand here. Numbers inside a record look like a frame now and then,
    for example a cxid and a zxid that end in 0x4200; then no type follows that there is."""
    zxid, kind = struct.unpack_from(">q", data, at + 12)[0], struct.unpack_from(">i", data, at + 28)[0]
    return zxid >= least_zxid and kind in KNOWN_TYPES


def _walk(reader: CountingReader, name: str, cursor: Cursor | None, max_record: int) -> _Last:
    """The server's own way: forward to the end. Raises CorruptError for what the server would refuse or
    lose."""
    scan = LogScan(reader, name, cursor, max_record=max_record)
    offset = 0 if cursor is None else cursor.offset
    for record in scan:
        offset = record.offset
    torn = scan.end is not None and scan.end.kind is EndKind.TORN
    return _Last(scan.last_zxid, offset, scan.offset, torn)


def data_end(reader: RandomReader) -> tuple[int, bytes]:
    """The offset after the last non-zero byte, by bisection, and some bytes that end there (at least one
    unless the file is all zeros). Exact unless a window inside the data is all zeros."""
    size = reader.size()
    low, high = 0, max(0, size - WINDOW)  # data at or after low; from high on zeros, as far as was looked
    last = reader.read(high, WINDOW).rstrip(b"\0")
    if last:
        return high + len(last), last
    while high - low > _STOP_WIDTH:
        middle = (low + high) // 2
        if reader.read(middle, WINDOW).strip(b"\0"):
            low = middle
        else:
            high = middle
    block = reader.read(low, high - low).rstrip(b"\0")
    return low + len(block), block


def _last_record(
    reader: RandomReader, end: int, block: bytes, least_zxid: int, max_record: int
) -> _Last | None:
    """The whole record that ends at `end`, searched backward from `block`, which ends there; None when
    there is none within `max_record`."""
    limit = min(end - FILE_HEADER_SIZE, max_record + FRAME_SIZE)
    data = block[-limit:]
    while data[-1:] == _END_MARK:
        found = _frame_in(data, least_zxid)
        if found is not None:
            at, zxid = found
            return _Last(zxid, end - len(data) + at, end, False)
        if len(data) == limit:
            return None
        reach = min(max(len(data) * 4, _FIRST_SEARCH), limit)
        more = reader.read(end - reach, reach - len(data))
        if len(more) + len(data) < reach:
            return None
        data = more + data
    return None


def _frame_in(data: bytes, least_zxid: int) -> tuple[int, int] | None:
    """Position in `data` and zxid of a record that ends exactly at its end, nearest to the end first."""
    high = len(data) - FRAME_SIZE - HEADER_SIZE
    while high >= 0:
        at = data.rfind(b"\0\0\0\0", 0, high + 4)
        if at < 0:
            return None
        if int.from_bytes(data[at + 8 : at + 12], "big") == len(data) - at - FRAME_SIZE:
            payload = data[at + 12 : -1]
            _session, _cxid, zxid, _time, kind = _TXN_HEADER.unpack_from(payload)
            crc = int.from_bytes(data[at + 4 : at + 8], "big")
            if kind in KNOWN_TYPES and zxid >= least_zxid and zlib.adler32(payload) == crc:
                return at, zxid
        high = at - 1
    return None
