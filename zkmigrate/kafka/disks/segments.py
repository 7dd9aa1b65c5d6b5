"""Read Kafka log segments from the headers of their first and last record batches.

Of a long segment only the headers at its beginning and its end are read; the offset index shows where the end
begins. Formats 0 and 1 (before Kafka 0.11) and 2 have the magic at the same place.

`reading` yields the reads that it needs and does not read itself, so a caller may read many segments at once.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from zkmigrate.zookeeper.data.reader import RandomReader

_BATCH = struct.Struct(">qiibIhiqq")
"""baseOffset, batchLength, partitionLeaderEpoch, magic, crc, attributes, lastOffsetDelta, baseTimestamp,
maxTimestamp: the beginning of a batch of format 2."""
_MESSAGE = struct.Struct(">qiIbbq")
"""offset, size, crc, magic, attributes and timestamp: the beginning of a message of format 1. In format 0
the last field is the key."""
_LENGTH_END, _MAGIC_AT = 12, 16
_LEAST = {0: 14, 1: 22, 2: 49}
"""The shortest possible length of a batch, by magic."""
_APPEND_TIME, _DELETE_HORIZON = 1 << 3, 1 << 6
BLOCK = 1 << 16
"""Bytes per read while headers are followed near the end, and the bytes at the end that are searched for a
header."""
_STEP = 1 << 12
"""Bytes per read while headers are followed far from the end."""
FOLLOWED = 64 << 20
"""The most bytes through which every header is followed. By default a leader's offset index has an entry
every 4 KB, and a follower's before Kafka 4.0 one per fetch (1 MB)."""
LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: a later time is a producer's mistake, and Python has no such date."""
_POSITION = struct.Struct(">ii")
_TIME = struct.Struct(">qi")
_SEGMENT = re.compile(r"(\d{20})\.log(\.deleted)?")
_FOLDER = re.compile(r"(.+)-(\d{1,9})")
_MOVED = re.compile(r"(.+)-(\d{1,9})\.[0-9a-f]{32}-(delete|future|stray)")
_STATES = {"delete": "deleted", "future": "future", "stray": "stray"}


@dataclass(frozen=True)
class Folder:
    """A partition's folder.

    state: current, deleted (waits for deletion), future (being moved here from another directory of the
    broker) or stray (the controller no longer assigns it to the broker).
    """

    topic: str
    partition: int
    state: str


def folder(name: str) -> Folder | None:
    """Return the partition and state in a folder's name, or None if it is not a partition's folder."""
    moved = _MOVED.fullmatch(name)
    if moved:
        return Folder(moved[1], int(moved[2]), _STATES[moved[3]])
    plain = _FOLDER.fullmatch(name)
    return Folder(plain[1], int(plain[2]), "current") if plain else None


def segment(name: str) -> tuple[int, bool] | None:
    """Return the base offset in a file's name and whether the segment waits for deletion.

    Returns None if the file is not a segment.
    """
    found = _SEGMENT.fullmatch(name)
    return (int(found[1]), bool(found[2])) if found else None


@dataclass(frozen=True)
class Segment:
    """The times and offsets read from one segment.

    first_ms, last_ms: milliseconds since the epoch of the first batch and the newest of all batches; None if
    no header has a time. evidence: the source of last_ms: batches (headers up to the end, and the time index
    for those before), timeindex (its last entry), or empty.

    end: bytes up to the end of the last whole batch. next_offset: the offset after it. Both are None if the
    end was not reached. rest: what follows: zeros, torn, or empty. corrupt: why the segment cannot be read,
    or empty.
    """

    first_ms: int | None = None
    last_ms: int | None = None
    evidence: str = ""
    end: int | None = None
    next_offset: int | None = None
    rest: str = ""
    corrupt: str = ""


@dataclass(frozen=True)
class _Batch:
    at: int
    end: int
    next_offset: int
    first_ms: int | None
    last_ms: int | None


File = Literal["log", "index", "timeindex"]


class Read(NamedTuple):
    """A request for `length` bytes from `offset` of one of a segment's files, fewer only at the end."""

    file: File
    offset: int
    length: int


def read_segment(
    log: RandomReader,
    base_offset: int,
    index: RandomReader | None,
    timeindex: RandomReader | None,
    followed: int = FOLLOWED,
) -> Segment:
    """Read one segment; damage is reported in the result.

    index, timeindex: None if missing. followed: as for `reading`. Raises OSError.
    """
    files: dict[File, RandomReader | None] = {"log": log, "index": index, "timeindex": timeindex}
    sizes = {name: file.size() for name, file in files.items() if file is not None}
    steps = reading(sizes, base_offset, followed)
    data: bytes | None = None
    while True:
        try:
            one = steps.send(cast(bytes, data))  # the first send starts it, and must be None
        except StopIteration as end:
            return cast(Segment, end.value)
        file = files[one.file]
        assert file is not None
        data = file.read(one.offset, one.length)


def reading(
    sizes: Mapping[File, int], base_offset: int, followed: int = FOLLOWED
) -> Generator[Read, bytes, Segment]:
    """Yield the reads needed for one segment, receive their bytes, and return the segment.

    sizes: bytes of each of its files, without missing ones. followed: the largest distance in bytes between
    the last entry of the offset index and the end of the file through which all headers are followed; at
    least BLOCK. At a larger distance headers are followed for less than BLOCK bytes, and then a header is
    searched for in the last BLOCK bytes.
    """
    size = sizes["log"]
    if not size:
        return Segment(end=0, next_offset=base_offset)
    walk = _Walk(size, base_offset)
    first = yield from walk.batch(0)
    if first is None and walk.corrupt:
        return Segment(corrupt=walk.corrupt)
    if first is None:
        return Segment(end=0, next_offset=base_offset, rest=walk.rest)
    newest = yield from _newest(sizes)
    start = yield from _last_position(sizes)
    last = (yield from walk.batch(start)) if start else first
    if last is None:  # the index is of another segment, or damaged
        walk, last = _Walk(size, base_offset), first
    times = [first.last_ms, newest, last.last_ms]
    walk.came = 0
    while last.end < size:
        far = size - last.end > followed
        walk.block = _STEP if far else BLOCK
        if far and walk.came + _STEP >= BLOCK:
            found = yield from _at_end(size, base_offset)
            if not found:
                return Segment(first.first_ms, newest, "timeindex" if newest is not None else "")
            times += [one.last_ms for one in found]
            last = found[-1]
            break
        one = yield from walk.batch(last.end)
        if one is None:
            break
        last = one
        times.append(one.last_ms)
    known = [ms for ms in times if ms is not None]
    return Segment(
        first_ms=first.first_ms,
        last_ms=max(known, default=None),
        evidence="batches" if known else "",
        end=last.end,
        next_offset=last.next_offset,
        rest=walk.rest,
        corrupt=walk.corrupt,
    )


class _Walk:
    """A reader that follows the batch headers of one file.

    block: bytes per read, far from the end of the file. came: bytes read so far. rest, corrupt: why the last
    call of `batch` found none.
    """

    def __init__(self, size: int, base_offset: int) -> None:
        self._size, self._least = size, base_offset
        self._at, self._block = 0, b""
        self.block, self.came = _BATCH.size, 0
        self.rest, self.corrupt = "", ""

    def batch(self, at: int) -> Generator[Read, bytes, _Batch | None]:
        """Read the header of the batch that begins at this position; return None if there is none."""
        head = yield from self._bytes(at, _BATCH.size)
        if len(head) <= _MAGIC_AT or not head.strip(b"\0"):
            self.rest = "torn" if head.strip(b"\0") else "zeros"
            return None
        offset, length = struct.unpack_from(">qi", head)
        magic = head[_MAGIC_AT]
        if magic not in _LEAST or length < _LEAST[magic] or offset < self._least:
            self.corrupt = f"no record batch at {at}: offset {offset}, length {length}, magic {magic}"
            return None
        end = at + _LENGTH_END + length
        if end > self._size:
            self.rest = "torn"
            return None
        return _batch(head, at, end) if magic == 2 else _message(head, at, end)

    def _bytes(self, at: int, length: int) -> Generator[Read, bytes, bytes]:
        if not self._at <= at <= at + length <= self._at + len(self._block):
            left = max(0, self._size - at)
            self._at = at
            self._block = yield Read("log", at, left if left <= BLOCK else self.block)
            self.came += len(self._block)
        return self._block[at - self._at : at - self._at + length]


def _at_end(size: int, base_offset: int) -> Generator[Read, bytes, list[_Batch]]:
    """Return the batches in the last BLOCK that follow each other up to exactly the end of the file.

    A record's payload may contain whole batches, but in format 2 other bytes follow them in the record.
    """
    at = size - BLOCK
    data = yield Read("log", at, BLOCK)
    # Offsets of one segment differ by less than 2 ** 31.
    upper = [(base_offset >> 32) + n for n in (0, 1)]
    begins = sorted(begin for one in upper for begin in _all(data, one.to_bytes(4, "big")))
    return next((found for begin in begins if (found := _chain(data, begin, at, base_offset))), [])


def _all(data: bytes, wanted: bytes) -> Iterator[int]:
    begin = data.find(wanted)
    while begin >= 0:
        yield begin
        begin = data.find(wanted, begin + 1)


def _chain(data: bytes, begin: int, at: int, least: int) -> list[_Batch]:
    """Return the batches from `begin` to the end of the data; empty if any of them is invalid.

    at: position of the data in the file.
    """
    found: list[_Batch] = []
    while begin + _MAGIC_AT < len(data):
        head = data[begin : begin + _BATCH.size]
        offset, length = struct.unpack_from(">qi", head)
        magic, end = head[_MAGIC_AT], begin + _LENGTH_END + length
        if magic not in _LEAST or length < _LEAST[magic] or offset < least or end > len(data):
            return []
        one = _batch(head, at + begin, at + end) if magic == 2 else _message(head, at + begin, at + end)
        found.append(one)
        begin, least = end, one.next_offset
    return found if begin == len(data) else []


def _batch(head: bytes, at: int, end: int) -> _Batch:
    offset, _, _, _, _, attributes, delta, first, last = _BATCH.unpack(head)
    # With LogAppendTime the broker sets maxTimestamp only; a delete horizon replaces baseTimestamp.
    if attributes & (_APPEND_TIME | _DELETE_HORIZON):
        first = last
    return _Batch(at, end, offset + max(delta, 0) + 1, _known(first), _known(last))


def _message(head: bytes, at: int, end: int) -> _Batch:
    """Parse a message of format 0 or 1.

    A compressed message holds others and has the offset of the last of them.
    """
    offset, _, _, magic, _, time = _MESSAGE.unpack_from(head)
    at_ms = _known(time) if magic == 1 else None
    return _Batch(at, end, offset + 1, at_ms, at_ms)


def _known(ms: int) -> int | None:
    return ms if 0 <= ms <= LATEST_MS else None


def _last_position(sizes: Mapping[File, int]) -> Generator[Read, bytes, int]:
    """Return the position of the last batch in the offset index; 0 if it names none inside the file."""
    found = yield from _last_entry("index", sizes, _POSITION)
    position = int(found[1]) if found else 0
    return position if 0 < position < sizes["log"] else 0


def _newest(sizes: Mapping[File, int]) -> Generator[Read, bytes, int | None]:
    found = yield from _last_entry("timeindex", sizes, _TIME)
    return _known(int(found[0])) if found and found[0] else None


def _last_entry(
    file: File, sizes: Mapping[File, int], entry: struct.Struct
) -> Generator[Read, bytes, tuple[int, ...] | None]:
    """Return the last entry of an index file.

    Zeros fill the rest of the index of an active segment. The last entry is found by binary search.
    """
    used, unused = 0, sizes.get(file, 0) // entry.size + 1  # used <= entries < unused
    last, at = None, unused - 1
    while at > used:
        raw = yield Read(file, (at - 1) * entry.size, entry.size)
        if len(raw) == entry.size and raw.strip(b"\0"):
            used, last = at, raw
        else:
            unused = at
        at = (used + unused) // 2
    return entry.unpack(last) if last else None
