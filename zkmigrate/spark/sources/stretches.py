"""Read a transaction log as stretches of complete, checked records, in parts without gap or overlap.

Records are found by their lengths, one after the other, and their checksums are checked. If the next bytes
are not a complete record, `zookeeper.data.txnlog` alone decides whether they are the log's end or damage.

A log is cut into parts at the beginning of a record, which is found by a search. A payload may hold complete
records, so a record that the search finds is accepted only if more records follow it for longer than the
largest payload. The part before must end exactly there; otherwise it is refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from zkmigrate.spark.sources.operations import Stretch
from zkmigrate.zookeeper.data import txnlog
from zkmigrate.zookeeper.data.errors import CorruptError
from zkmigrate.zookeeper.data.reader import RandomReader
from zkmigrate.zookeeper.data.tail import data_end
from zkmigrate.zookeeper.data.txn import HEADER_SIZE, KNOWN_TYPES
from zkmigrate.zookeeper.data.txnlog import END_MARK, FILE_HEADER_SIZE, FRAME, FRAME_SIZE, MAX_RECORD

BLOCK = 8 << 20
CHAIN = 4 << 20
"""The number of bytes for which records must follow a found record, to show that it is not in a payload.

A default server's largest record has 2 MB.
"""
_NEAR = 1 << 20
_FIRST_BLOCK = 1 << 20
"""The size of the first block in bytes. Later blocks grow, so that a short read reads little."""
_AT_ZXID = 12 + 12
_AT_TYPE = 12 + 28


@dataclass(frozen=True)
class Part:
    """A part of a log: the records that begin at or after `start` and before `stop`.

    stop: None for the log's end.
    """

    file: str
    start: int = FILE_HEADER_SIZE
    stop: int | None = None


def record_starts(
    data: bytes, at: int = 0, limit: int | None = None, max_record: int = MAX_RECORD
) -> tuple[list[int], int]:
    """Return where complete records begin in `data`, and the end of the last one.

    at, limit: the first possible start, and the end of possible starts. max_record: the size of the largest
    record in bytes.
    """
    starts: list[int] = []
    unpack, adler, view = FRAME.unpack_from, zlib.adler32, memoryview(data)
    last = len(data) - 1
    limit = len(data) if limit is None else limit
    while at < limit and at + FRAME_SIZE <= last + 1:
        crc, length = unpack(data, at)
        end = at + 12 + length
        if not HEADER_SIZE <= length <= max_record or end > last or data[end] != END_MARK:
            break
        if adler(view[at + 12 : end]) != crc:
            break
        starts.append(at)
        at = end + 1
    return starts, at


def _needed(data: bytes, max_record: int) -> int:
    """Return the size in bytes of the record at the beginning of the data; 0 for an impossible length."""
    length: int = FRAME.unpack_from(data)[1] if len(data) >= 12 else 0
    return length + FRAME_SIZE if HEADER_SIZE <= length <= max_record else 0


class Stretches(Iterator[Stretch]):
    """An iterator over the stretches of one part of a log, in order.

    At the end of a log, `end` says how the log ended. server: the log's server in the rows. full: as for
    LogScan. Iteration raises the errors of LogScan, and CorruptError for a part that does not end where the
    next part begins.
    """

    def __init__(
        self,
        reader: RandomReader,
        server: str,
        part: Part,
        *,
        max_record: int = MAX_RECORD,
        block: int = BLOCK,
        full: bool = True,
    ) -> None:
        self._reader, self._server, self._part = reader, server, part
        self._full, self._max_record = full, max_record
        self._block, self._largest_block = min(block, _FIRST_BLOCK), block
        self._last: int | None = None
        self.offset = part.start
        self.end: txnlog.LogEnd | None = None

    def __next__(self) -> Stretch:
        part = self._part
        if self.offset == FILE_HEADER_SIZE and self._last is None:
            txnlog.check_header(self._reader.read(0, FILE_HEADER_SIZE), part.file)
        size = self._block
        while self.end is None and (part.stop is None or self.offset < part.stop):
            data = self._reader.read(self.offset, size)
            limit = None if part.stop is None else part.stop - self.offset
            starts, used = record_starts(data, 0, limit, self._max_record)
            if starts:
                self._block = min(2 * self._block, self._largest_block)
                return self._take(Stretch(self._server, part.file, self.offset, data, starts), used)
            needed = _needed(data, self._max_record)
            if len(data) == size < needed:
                size = needed
            else:
                self._end_or_raise()
        raise StopIteration

    def _take(self, found: Stretch, used: int) -> Stretch:
        zxids = found.zxids
        first = txnlog.log_zxid(self._part.file) if self.offset == FILE_HEADER_SIZE else None
        rising = bool((zxids[1:] > zxids[:-1]).all())
        if not rising or (self._last is not None and zxids[0] <= self._last) or first not in (None, zxids[0]):
            self._raise_order(used)
        self.offset += used
        self._last = int(zxids[-1])
        stop = self._part.stop
        if stop is not None and self.offset > stop:
            raise CorruptError(
                f"a record ends at {self.offset}, after the start of the next part. Next: read this log as "
                "one part (option splitMB=0)",
                self._part.file,
                stop,
            )
        return found

    def _scan(self) -> txnlog.LogScan:
        cursor = None
        if self._last is not None or self.offset > FILE_HEADER_SIZE:
            cursor = txnlog.Cursor(self._part.file, self.offset, self._last or 0)
        return txnlog.LogScan(
            self._reader, self._part.file, cursor, full=self._full, max_record=self._max_record
        )

    def _end_or_raise(self) -> None:
        """Set `end` if the log ends here, or raise an error for damage.

        Does nothing if a complete record is here now, because the log has grown.
        """
        scan = self._scan()
        if next(scan, None) is None:
            self.end = scan.end
            if self._part.stop is not None:
                raise CorruptError(
                    f"the log ends here, although its next part begins at {self._part.stop}",
                    self._part.file,
                    self.offset,
                )

    def _raise_order(self, used: int) -> None:
        """Raise an error for zxids that are not in order, with the text of LogScan if it raises one too."""
        for record in self._scan():
            if record.end >= self.offset + used:
                break
        raise CorruptError("zxids do not increase", self._part.file, self.offset)


def find(reader: RandomReader, at: int, stop: int, block: int = 64 << 10) -> tuple[int, int] | None:
    """Return the place and zxid of the first record from `at` on and before `stop`; None if there is none.

    The search looks for an end mark followed by the zeros of a checksum. Then it requires a complete record
    of a known type there, and records that follow it for CHAIN bytes or up to `stop`.
    """
    for base in range(at - 1, stop, block):
        data = reader.read(base, block + len(txnlog.FRAME_START) - 1)
        hit = -1
        while (hit := data.find(txnlog.FRAME_START, hit + 1)) >= 0:
            begin = base + hit + 1
            if begin >= stop:
                return None
            zxid = _chained(reader, begin, stop)
            if zxid is not None:
                return begin, zxid
        if len(data) < block:
            return None
    return None


def _chained(reader: RandomReader, begin: int, stop: int) -> int | None:
    """Return the zxid of the record at `begin`; None if no record there meets the rules of `find`."""
    head = reader.read(begin, 12 + HEADER_SIZE)
    if len(head) < 12 + HEADER_SIZE:
        return None
    length = FRAME.unpack_from(head)[1]
    kind = int.from_bytes(head[_AT_TYPE : _AT_TYPE + 4], "big", signed=True)
    if not HEADER_SIZE <= length <= MAX_RECORD or kind not in KNOWN_TYPES:
        return None
    at, size = begin, _FIRST_BLOCK
    while at < stop and at - begin < CHAIN:
        data = reader.read(at, size)
        _, used = record_starts(data, 0, stop - at)
        at += used
        if used:
            size = _FIRST_BLOCK
            continue
        needed = _needed(data, MAX_RECORD)
        if needed <= size or len(data) < size:
            return None
        size = needed
    return int.from_bytes(head[_AT_ZXID : _AT_ZXID + 8], "big")


def parts(
    reader: RandomReader, name: str, at_least: int, start: int = FILE_HEADER_SIZE, stop: int | None = None
) -> list[Part]:
    """Cut a log, from a record's start to a record's end, into parts of at least `at_least` bytes each.

    If at_least is 0, or the log is not much longer, there is one part. start, stop: the bounds in bytes.
    """
    size = (reader.size() if stop is None else stop) - start
    if not at_least or size < 2 * at_least:
        return [Part(name, start, stop)]
    end = data_end(reader) if stop is None else stop
    count = (end - start) // at_least
    begins = [start]
    for number in range(1, count):
        found = find(reader, max(begins[-1] + 1, start + number * (end - start) // count), end)
        if found is None:
            break
        begins.append(found[0])  # behind the one before: find begins there
    return [Part(name, begin, stop) for begin, stop in zip(begins, [*begins[1:], stop], strict=True)]


def span(reader: RandomReader, zxids: tuple[int, int], first: int) -> tuple[int, int | None]:
    """Return the range of bytes in a log that holds the transactions within bounds.

    The range begins with a record a little before the first of these transactions and ends behind the last
    one; an end of None is the log's end. zxids: the lowest and the highest zxid. first: the log's first zxid.

    The search alternates between two guesses. The first halves the range, because zxids rise. The second
    assumes that the records after the nearest known record are as long, on average, as the records before it.
    """
    low, high = FILE_HEADER_SIZE, data_end(reader)
    end, stop = high, None
    known, ahead, length, count = first, high - low, 0, 1
    by_halves = True
    while high - low > _NEAR and ahead > _NEAR:
        expected = low + ahead - _NEAR // 2
        at = (low + high) // 2 if by_halves or expected >= high else expected
        by_halves = not by_halves
        found = find(reader, at, end)
        if found is not None:
            length, count = found[0] - FILE_HEADER_SIZE, max(1, found[1] - first)
            if found[1] > zxids[1]:
                stop = found[0]
        if found is None or found[1] > zxids[0] or found[0] >= high:
            high = at
        else:
            low, known = found
        ahead = (zxids[0] - known) * length // count
    behind = low + (zxids[1] - known) * length // count + _NEAR
    if behind < (end if stop is None else stop) - _NEAR:
        found = find(reader, behind, end)
        if found is not None and found[1] > zxids[1]:
            stop = found[0]
    return low, stop
