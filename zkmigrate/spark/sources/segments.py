"""Segments of Kafka's log: the headers of their first and last record batches.

Of a long segment only the headers of its beginning and its end are read; the offset index tells where the end
begins. Formats 0 and 1 (before Kafka 0.11) and 2 have the magic at the same place."""

from __future__ import annotations

import re
import struct
from bisect import bisect_left
from dataclasses import dataclass

from zkmigrate.zookeeper.data.reader import RandomReader

_BATCH = struct.Struct(">qiibIhiqq")
"""baseOffset, batchLength, partitionLeaderEpoch, magic, crc, attributes, lastOffsetDelta, baseTimestamp,
maxTimestamp: the beginning of a batch of format 2."""
_MESSAGE = struct.Struct(">qiIbbq")
"""offset, size, crc, magic, attributes, timestamp of formats 0, where the last is the key, and 1."""
_LENGTH_END, _MAGIC_AT = 12, 16
_LEAST = {0: 14, 1: 22, 2: 49}
"""By magic, the shortest possible length of a batch."""
_APPEND_TIME, _DELETE_HORIZON = 1 << 3, 1 << 6
_BLOCK = 1 << 16
FOLLOWED = 64 << 20
"""Most bytes through which headers are followed: an offset index has an entry every 4 KB by default."""
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
    """A partition's folder. state: current, deleted (waits for deletion), future (being moved here from
    another directory of the broker) or stray (the controller no longer assigns it to the broker)."""

    topic: str
    partition: int
    state: str


def folder(name: str) -> Folder | None:
    """Of a folder's name; None if it is not a partition's."""
    moved = _MOVED.fullmatch(name)
    if moved:
        return Folder(moved[1], int(moved[2]), _STATES[moved[3]])
    plain = _FOLDER.fullmatch(name)
    return Folder(plain[1], int(plain[2]), "current") if plain else None


def segment(name: str) -> tuple[int, bool] | None:
    """Base offset, and whether it waits for deletion; None if it is not a segment."""
    found = _SEGMENT.fullmatch(name)
    return (int(found[1]), bool(found[2])) if found else None


@dataclass(frozen=True)
class Segment:
    """first_ms, last_ms: milliseconds since the epoch, of the first batch and the newest of all; None if no
    header tells. evidence: the source of last_ms: batches (headers up to the end, and the time index for
    those before), timeindex (its last entry), or empty. end: bytes up to the end of the last whole batch;
    next_offset: after it; None if the end was not reached. rest: what follows: zeros, torn, or empty.
    corrupt: why it cannot be read, or empty."""

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


def read_segment(
    log: RandomReader,
    base_offset: int,
    index: RandomReader | None,
    timeindex: RandomReader | None,
    followed: int = FOLLOWED,
) -> Segment:
    """One segment. index, timeindex: None if missing. followed: bytes, see FOLLOWED. Damage is in the answer;
    raises OSError."""
    size = log.size()
    if not size:
        return Segment(end=0, next_offset=base_offset)
    walk = _Walk(log, size, base_offset)
    first = walk.batch(0)
    if first is None and walk.corrupt:
        return Segment(corrupt=walk.corrupt)
    if first is None:
        return Segment(end=0, next_offset=base_offset, rest=walk.rest)
    newest = _newest(timeindex)
    start = _last_position(index, size)
    last = walk.batch(start) if start else first
    if last is None:  # the index is of another segment, or damaged
        walk, last = _Walk(log, size, base_offset), first
    if size - last.end > followed:
        return Segment(first.first_ms, newest, "timeindex" if newest is not None else "")
    times = [first.last_ms, newest, last.last_ms]
    while last.end < size and (one := walk.batch(last.end)):
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
    """Headers of one file, read a block at a time. rest, corrupt: why the last call of `batch` found none."""

    def __init__(self, log: RandomReader, size: int, base_offset: int) -> None:
        self._log, self._size, self._least = log, size, base_offset
        self._at, self._block = 0, b""
        self.rest, self.corrupt = "", ""

    def batch(self, at: int) -> _Batch | None:
        """The batch that begins here."""
        head = self._bytes(at, _BATCH.size)
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

    def _bytes(self, at: int, length: int) -> bytes:
        if not self._at <= at <= at + length <= self._at + len(self._block):
            self._at, self._block = at, self._log.read(at, min(_BLOCK, max(0, self._size - at)))
        return self._block[at - self._at : at - self._at + length]


def _batch(head: bytes, at: int, end: int) -> _Batch:
    offset, _, _, _, _, attributes, delta, first, last = _BATCH.unpack(head)
    # With LogAppendTime the broker sets maxTimestamp only; a delete horizon replaces baseTimestamp.
    if attributes & (_APPEND_TIME | _DELETE_HORIZON):
        first = last
    return _Batch(at, end, offset + max(delta, 0) + 1, _known(first), _known(last))


def _message(head: bytes, at: int, end: int) -> _Batch:
    """A message of format 0 or 1, or a compressed one that holds others and has the offset of the last."""
    offset, _, _, magic, _, time = _MESSAGE.unpack_from(head)
    at_ms = _known(time) if magic == 1 else None
    return _Batch(at, end, offset + 1, at_ms, at_ms)


def _known(ms: int) -> int | None:
    return ms if 0 <= ms <= LATEST_MS else None


def _last_position(index: RandomReader | None, size: int) -> int:
    """Where the last batch that the offset index names begins; 0 where it names none inside the file."""
    found = _last_entry(index, _POSITION)
    position = int(found[1]) if found else 0
    return position if 0 < position < size else 0


def _newest(timeindex: RandomReader | None) -> int | None:
    found = _last_entry(timeindex, _TIME)
    return _known(int(found[0])) if found and found[0] else None


def _last_entry(index: RandomReader | None, entry: struct.Struct) -> tuple[int, ...] | None:
    """The last entry of an index; zeros fill the rest of an active segment's."""
    if index is None:
        return None

    def unused(number: int) -> bool:
        raw = index.read(number * entry.size, entry.size)
        return len(raw) < entry.size or not raw.strip(b"\0")

    used = bisect_left(range(index.size() // entry.size), True, key=unused)
    return entry.unpack(index.read((used - 1) * entry.size, entry.size)) if used else None
