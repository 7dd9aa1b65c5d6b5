"""Forward reader of one transaction log. The package docstring describes the format.

A scan reports how a file ends (`EndKind`), and raises for damage that no crash explains. `Record.txn()`
decodes a payload.
"""

from __future__ import annotations

import enum
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from zkmigrate.zookeeper.data.errors import (
    CorruptError,
    CursorError,
    ForeignFileError,
    TruncatedHeaderError,
    ZkDataError,
)
from zkmigrate.zookeeper.data.reader import RandomReader
from zkmigrate.zookeeper.data.txn import HEADER_SIZE, Txn, decode_txn
from zkmigrate.zookeeper.data.zxid import follows, format_zxid

LOG_NAME = re.compile(r"log\.([0-9a-f]+)\Z")
MAGIC = b"ZKLG"
FILE_HEADER_SIZE = 16
FRAME_SIZE = 13  # crc, length, end mark
END_MARK = 0x42
MAX_RECORD = 64 << 20
BLOCK = 256 << 10

_BAD_CHECKSUM = "the record's checksum does not match"
_FILE_HEADER = struct.Struct(">4siq")
FRAME = struct.Struct(">qi")
FRAME_START = b"B\0\0\0\0"  # an end mark, then the high half of the next checksum
TXN_HEADER = struct.Struct(">qiqqi")


class EndKind(enum.Enum):
    """How a log file ends. TORN: the last write is incomplete, and everything before it is valid."""

    EXACT = "exact"
    PADDING = "padding"
    TORN = "torn"


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a log file.

    offset: where the next record would start. detail: why the end is torn, otherwise empty. bad_checksum:
    whether the torn record is complete except for a wrong checksum. A server refuses to start on a wrong
    checksum, except in the newest log.
    """

    kind: EndKind
    offset: int
    detail: str = ""
    bad_checksum: bool = False


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a directory of logs; everything before it was read and checked.

    offset: the end of the last good record in `file`. zxid: the zxid of this record, or of the record before
    the file if the file has none yet.
    """

    file: str
    offset: int
    zxid: int


def cursor_to_json(cursor: Cursor | None) -> dict[str, Any] | None:
    """Convert a cursor to JSON values."""
    if cursor is None:
        return None
    return {"file": cursor.file, "offset": cursor.offset, "zxid": hex(cursor.zxid)}


def cursor_from_json(body: object) -> Cursor | None:
    """Convert JSON values to a cursor; the inverse of :func:`cursor_to_json`. Raises ValueError."""
    match body:
        case None:
            return None
        case {"file": str(file), "offset": int(offset), "zxid": str(zxid)} if not isinstance(offset, bool):
            return Cursor(file, offset, int(zxid, 16))
    raise ValueError("a position in a log needs a file, an offset and a zxid")


@dataclass(frozen=True, slots=True)
class Gap:
    """A hole in the zxids.

    The record at file and offset has zxid `after`; the one before it has zxid `before`.
    """

    file: str
    offset: int
    before: int
    after: int

    def __str__(self) -> str:
        return (
            f"{self.file} at offset {self.offset}: {format_zxid(self.after)} comes directly after "
            f"{format_zxid(self.before)}"
        )


class Record(NamedTuple):
    """One complete record with a correct checksum.

    offset, end: where the record begins and ends in `file`, in bytes. payload: the undecoded bytes. The other
    fields are those of the transaction's header.
    """

    file: str
    offset: int
    end: int
    session: int
    cxid: int
    zxid: int
    time_ms: int
    type: int
    payload: bytes

    def txn(self) -> Txn:
        """Decode the payload. Raises MalformedError, which names file and offset."""
        try:
            return decode_txn(self.payload)
        except ZkDataError as error:
            error.offset = self.offset + FRAME_SIZE - 1 + (error.offset or 0)
            error.file = self.file
            raise


def _is_record(data: bytes, at: int) -> bool:
    """Return whether a complete record starts at `at`."""
    if len(data) - at < FRAME_SIZE:
        return False
    crc: int
    length: int
    crc, length = FRAME.unpack_from(data, at)
    end = at + 12 + length
    if length < HEADER_SIZE or end >= len(data) or data[end] != END_MARK:
        return False
    return zlib.adler32(data[at + 12 : end]) == crc


def log_zxid(name: str) -> int | None:
    """Return the zxid in a log's name; None for any other name (`log.1.bak` included)."""
    match = LOG_NAME.match(name)
    return int(match[1], 16) if match else None


def check_header(data: bytes, name: str) -> None:
    """Check a log's first 16 bytes. Raises TruncatedHeaderError or ForeignFileError."""
    if not MAGIC.startswith(data[:4]):
        reason = f"the file starts with {data[:4]!r}, but a transaction log starts with {MAGIC!r}"
        raise ForeignFileError(reason, name, 0)
    if len(data) < FILE_HEADER_SIZE:
        reason = f"the file has only {len(data)} bytes, but a transaction log starts with 16"
        raise TruncatedHeaderError(reason, name, 0)
    _magic, version, _dbid = _FILE_HEADER.unpack_from(data)
    if version != 2:
        raise ForeignFileError(f"the transaction log has version {version}, but must have 2", name, 4)


class LogScan(Iterator[Record]):
    """An iterator over the records of one log.

    Afterwards `end` says how the file ended, and `gaps` lists holes in the log's zxids.

    cursor: start there instead of at the file's header. full: also read the bytes after the end, and raise
    CorruptError if they are not all zeros. Without full, a length of zero ends the scan, as it does for the
    server.

    `next` raises TruncatedHeaderError, ForeignFileError, CorruptError or CursorError, each with file and
    offset. The scan reads `block` bytes at a time; its memory is bounded by max_record + block.
    """

    def __init__(
        self,
        reader: RandomReader,
        name: str,
        cursor: Cursor | None = None,
        *,
        full: bool = False,
        max_record: int = MAX_RECORD,
        block: int = BLOCK,
    ) -> None:
        self._reader = reader
        self._name = name
        self._full = full
        self._max_record = max_record
        self._block = block
        self._buffer = b""
        self._base = 0  # offset of the buffer in the file
        self.gaps: list[Gap] = []
        self.end: LogEnd | None = None
        self.last_zxid: int | None = None if cursor is None else cursor.zxid
        self._first: int | None = log_zxid(name) if cursor is None else None
        self.offset = FILE_HEADER_SIZE
        if cursor is not None:
            self._start_at(cursor)
        else:
            check_header(self._view(0, FILE_HEADER_SIZE), name)

    def _start_at(self, cursor: Cursor) -> None:
        if cursor.file != self._name:
            raise CursorError(f"the cursor belongs to {cursor.file}", self._name)
        size = self._reader.size()
        if size < cursor.offset:
            raise CursorError(
                f"the file now has only {size} bytes; it was truncated", self._name, cursor.offset
            )
        if cursor.offset > FILE_HEADER_SIZE and self._view(cursor.offset - 1, 1) != bytes([END_MARK]):
            raise CursorError("no record ends at the cursor's offset", self._name, cursor.offset)
        self.offset = cursor.offset

    def _view(self, offset: int, length: int) -> bytes:
        """Return bytes of the file, through one buffered block; fewer at the end of the file."""
        at = offset - self._base
        if at < 0 or at + length > len(self._buffer):
            self._buffer = self._reader.read(offset, max(length, self._block))
            self._base, at = offset, 0
        return self._buffer[at : at + length]

    def __next__(self) -> Record:
        record = self._read_settled() if self.end is None else None
        if record is None:
            raise StopIteration
        self._check_order(record)
        self.last_zxid = record.zxid
        self.offset = record.end
        return record

    def _read_settled(self) -> Record | None:
        """Read the next record. If it looks damaged, read it a second time, without the buffer.

        A log that is being written may change between two reads.
        """
        try:
            return self._read_record()
        except CorruptError:
            self._buffer = b""
            return self._read_record()

    def _read_record(self) -> Record | None:
        """Return the record at `offset`. At the end of the log it sets `end` and returns None."""
        start = self.offset
        frame = self._view(start, 12)
        if len(frame) < 12:
            if frame.strip(b"\0"):
                self._tear(start, "the file ends inside a record's frame")
            else:
                self.end = LogEnd(EndKind.PADDING if frame else EndKind.EXACT, start)
            return None
        crc, length = FRAME.unpack(frame)
        if length == 0:
            self._stop_at_zero(start, crc)
            return None
        if length < 0 or length > self._max_record:
            raise self._corrupt(
                f"a record has {length} bytes, but 1 to {self._max_record} are allowed", start
            )
        end = start + length + FRAME_SIZE
        body = self._view(start + 12, length + 1)
        if len(body) <= length:
            self._refuse_if_continued(start, body)
            self._tear(start, f"the file ends {length + 1 - len(body)} bytes before the record does")
        elif body[length] != END_MARK:
            self._tear(start, f"the record ends in byte 0x{body[length]:02x} instead of 0x42", beyond=end)
        elif zlib.adler32(body[:length]) != crc:
            self._tear(start, _BAD_CHECKSUM, beyond=end)
        elif length < HEADER_SIZE:
            raise self._corrupt(f"a record has {length} bytes, but a transaction header alone has 32", start)
        else:
            payload = body[:length]
            session, cxid, zxid, time_ms, kind = TXN_HEADER.unpack_from(payload)
            return Record(self._name, start, end, session, cxid, zxid, time_ms, kind, payload)
        return None

    def _stop_at_zero(self, start: int, crc: int) -> None:
        """End the scan at a length of zero: the server stops here, whatever follows."""
        if crc:
            self._tear(start, "a record has a checksum, but no length", beyond=start + 12)
            return
        if self._full:
            self._require_zeros(start + 12, start)
        self.end = LogEnd(EndKind.PADDING, start)

    def _tear(self, start: int, detail: str, beyond: int | None = None) -> None:
        """End the scan here, because the last write is torn.

        Raises CorruptError if data follows the broken record, because the log is then damaged.
        """
        if beyond is not None:
            self._require_zeros(beyond, start, detail)
        self.end = LogEnd(EndKind.TORN, start, detail, bad_checksum=detail is _BAD_CHECKSUM)

    def _refuse_if_continued(self, start: int, body: bytes) -> None:
        """Raise CorruptError if later transactions follow a length that points past the end of the file.

        Without later transactions the record is a torn write. With them the length is damaged, and everything
        after it would be lost silently.
        """
        least = self.last_zxid if self.last_zxid is not None else (self._first or 0) - 1
        most = least + 1 + len(body) // (HEADER_SIZE + FRAME_SIZE)
        hit = body.find(FRAME_START)
        while hit >= 0:
            at = hit + 1
            if _is_record(body, at):
                zxid = TXN_HEADER.unpack_from(body, at + 12)[2]
                if least < zxid <= most or (zxid > most and follows(least, zxid)):
                    raise self._corrupt(
                        "the record's length goes beyond the end of the file, but a record with zxid "
                        f"{format_zxid(zxid)} is at {start + 12 + at}",
                        start,
                    )
            hit = body.find(FRAME_START, at)

    def _corrupt(self, reason: str, offset: int) -> CorruptError:
        return CorruptError(reason, self._name, offset)

    def _require_zeros(self, offset: int, start: int, detail: str = "") -> None:
        # A log ends with up to 64 MB of zeros: a comparison is much faster than a search for another byte.
        while block := self._reader.read(offset, self._block):
            if block != bytes(len(block)):
                at = offset + len(block) - len(block.lstrip(b"\0"))
                what = f"{detail}, and" if detail else "the zeros that end a log start here, but"
                raise self._corrupt(f"{what} data follows at {at}", start)
            offset += len(block)

    def _check_order(self, record: Record) -> None:
        before = self.last_zxid
        if before is None:
            if self._first is not None and record.zxid != self._first:
                raise self._corrupt(
                    f"the first record is {format_zxid(record.zxid)}, which is not the zxid in the "
                    "file's name",
                    record.offset,
                )
            return
        if record.zxid <= before:
            raise self._corrupt(
                f"{format_zxid(record.zxid)} comes after {format_zxid(before)}; zxids must increase",
                record.offset,
            )
        if not follows(before, record.zxid):
            self.gaps.append(Gap(self._name, record.offset, before, record.zxid))

    @property
    def cursor(self) -> Cursor:
        """The place after the last record read.

        Before any record the cursor is the start of the file, with the zxid of the file's name minus 1.
        """
        zxid = self.last_zxid
        if zxid is None:
            zxid = (log_zxid(self._name) or 1) - 1
        return Cursor(self._name, self.offset, zxid)


scan = LogScan
"""Scan one log from its header, or from a cursor."""
