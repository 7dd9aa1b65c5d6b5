"""Track PRODUCE requests whose outcome the client does not know, because the client may send them again.

A broker recognizes the retry of an idempotent producer. The brokers of the other cluster do not: after a
switch the retry would add the records a second time. So no application leaves its cluster while such an
outcome is open. An outcome is settled once the same batch, or a later one of its producer, was answered, or
when clients have given up. Only the headers of batches are read, not their records.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right, insort_right
from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

from zkmigrate.clean import inline
from zkmigrate.topics.gateway.rules.layout import MOST_TEXT, FrameError, Walk
from zkmigrate.topics.gateway.rules.seen import LONGEST

DELIVERY_S = 300.0
"""The seconds after which every client has given up a record, which is librdkafka's message.timeout.ms.

Java's delivery.timeout.ms is 120 s.
"""
MOST_OPEN, MOST_PARTS, MOST_TOLD = 10_000, 250, 5
"""Three limits: open outcomes of an application, parts read of one request, and names in the status."""
_UNSURE = frozenset({7, 20})
"""The error codes REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND.

The records are in the log nevertheless, and the client retries.
"""
_SETTLED = frozenset({0, 46})
"""The error codes for no error and for DUPLICATE_SEQUENCE_NUMBER, which clients treat as success."""
_COMPACT, _RECORD_ERRORS, _LOG_START = 9, 8, 5
"""The first versions of PRODUCE with compact types, with errors of single records, and with the log start."""
_HEADER, _MAGIC_AT, _MAGIC = 61, 16, 2
_BATCH = struct.Struct(">17xI2xi16xqhi4x")
"""The format of a batch's header: CRC, last offset delta, producer id, epoch and first sequence number."""
_MOST_TAGS = 8
"""The most tagged fields in one place of a PRODUCE whose batches are read. Kafka defines none."""
_INT, _ONE, _SEQUENCES = struct.Struct(">i"), b"\0\0\0\1", 1 << 31


class Written(NamedTuple):
    """A batch of records that a client sent.

    producer, epoch, first: the producer id, its epoch and the first sequence number, each -1 for a producer
    that is not idempotent. last: the last sequence number. crc: the checksum of the batch.
    """

    topic: str
    partition: int
    producer: int
    epoch: int
    first: int
    last: int
    crc: int

    def __str__(self) -> str:
        where = f"{inline(self.topic)}-{self.partition}"
        if self.producer < 0:
            return f"a producer without an id, {where}, {self.last - self.first + 1} records"
        return f"producer {self.producer} epoch {self.epoch}, {where}, sequences {self.first} to {self.last}"


Errors = Mapping[tuple[str, int], int]
"""Kafka's error codes by topic and partition."""


class Headers:
    """A reader that collects the headers of batches from a PRODUCE request that arrives in pieces.

    found: the batches read so far. whole: whether all batches of the request were read.
    """

    def __init__(self, version: int, message: bytes = b"") -> None:
        self.found: list[Written] = []
        self.whole = self._over = False
        self._kept = b""
        self._reading = _reading(version >= _COMPACT, self.found)
        self._wanted = next(self._reading)
        self.feed(message)

    def feed(self, data: bytes | memoryview) -> None:
        """Read the next piece of the request."""
        at = 0
        try:
            while not self._over:
                if self._wanted < 0:  # bytes to skip
                    skipped = min(-self._wanted, len(data) - at)
                    at += skipped
                    if self._wanted + skipped < 0:
                        self._wanted += skipped
                        return
                    self._wanted = self._reading.send(b"")
                    continue
                end = at + self._wanted - len(self._kept)
                if end > len(data):
                    self._kept += data[at:]
                    return
                told, self._kept, at = self._kept + data[at:end], b"", end
                self._wanted = self._reading.send(told)
        except StopIteration as end_of_message:
            self._over, self.whole = True, bool(end_of_message.value)
        except FrameError:
            self._over = True


def single(version: int, message: bytes) -> bool:
    """Return True if the first bytes of a PRODUCE request certainly hold the headers of all its batches.

    This is the case if the request has one partition and no transactional id. Returns False also if the first
    bytes do not show whether this is the case.
    """
    if version >= _COMPACT:
        name = message[8] if message[:1] == b"\0" and message[7:8] == b"\2" else 0
        return 0 < name < 0x80 and message[8 + name : 9 + name] == b"\2"
    if message[:2] != b"\xff\xff" or message[8:12] != _ONE:
        return False
    end = 14 + int.from_bytes(message[12:14], "big")
    return message[end : end + 4] == _ONE


def part_to_remember(version: int, message: bytes, left: int) -> bytes | Headers:
    """Return the part of a PRODUCE request that is remembered until the request is answered.

    message: the first bytes of the request after its header. left: how many bytes follow.
    """
    return message if not left or single(version, message) else Headers(version, message)


def headers(version: int, kept: bytes | Headers) -> Headers:
    """Return the batch headers in the result of :func:`part_to_remember`."""
    if isinstance(kept, Headers):
        return kept
    found = Headers(version, kept)
    found.whole = found.whole or (single(version, kept) and len(found.found) == 1)
    return found


_Reading = Generator[int, bytes, Any]
"""A generator that yields how many bytes it needs next; a negative number means bytes to skip."""


def _reading(compact: bool, found: list[Written]) -> _Reading:
    """Read the message of a PRODUCE request, and append its batches to ``found``.

    compact: whether the version has compact types. Returns True if all of the message was read.
    """
    yield from _text(compact)  # the transactional id
    yield -6  # acks and timeout
    read = 0
    for _ in range((yield from _length(compact, 4))):
        topic = (yield from _text(compact)).decode(errors="replace")
        read += 1
        if read > MOST_PARTS:
            return False
        for _ in range((yield from _length(compact, 4))):
            read += 1
            if read > MOST_PARTS:
                return False
            (partition,) = _INT.unpack((yield 4))
            size = yield from _length(compact, 4)
            begin = (yield min(size, _HEADER)) if size > 0 else b""
            if len(begin) == _HEADER and begin[_MAGIC_AT] == _MAGIC:
                if len(topic) > LONGEST:
                    return False
                crc, delta, producer, epoch, first = _BATCH.unpack(begin)
                found.append(Written(topic, partition, producer, epoch, first, first + delta, crc))
            if size > _HEADER:
                yield _HEADER - size
            if compact:
                yield from _tags()
        if compact:
            yield from _tags()
    if compact:
        yield from _tags()
    return True


def _text(compact: bool) -> _Reading:
    size = yield from _length(compact, 2)
    if size > MOST_TEXT:
        raise FrameError("length", f"a text has {size} bytes; needed: at most {MOST_TEXT}")
    return (yield size) if size > 0 else b""


def _length(compact: bool, size: int) -> _Reading:
    if compact:
        return (yield from _varint()) - 1
    told = yield size
    return int.from_bytes(told, "big", signed=True)


def _varint() -> _Reading:
    value = 0
    for n in range(5):
        (byte,) = yield 1
        value |= (byte & 0x7F) << 7 * n
        if byte < 0x80:
            return value
    raise FrameError("number", "a number has more than 5 bytes")


def _tags() -> _Reading:
    count = yield from _varint()
    if count > _MOST_TAGS:
        raise FrameError("count", f"the message has {count} tagged fields; needed: at most {_MOST_TAGS}")
    for _ in range(count):
        yield from _varint()
        size = yield from _varint()
        if size:
            yield -size


def unsure(version: int, frame: bytes | bytearray) -> bool:
    """Return True if an answer to PRODUCE makes the client resend records that are in the log already.

    frame: the answer from its correlation id on.
    """
    if 7 not in frame and 20 not in frame:  # most answers end here: a search for one byte is fast
        return False
    return not _UNSURE.isdisjoint(errors(version, frame).values())


def errors(version: int, frame: bytes | bytearray) -> Errors:
    """Return the error codes in an answer to PRODUCE by topic and partition.

    frame: the answer from its correlation id on, or the first bytes of the answer. Partitions after these
    bytes are left out.
    """
    compact, found = version >= _COMPACT, dict[tuple[str, int], int]()
    walk = Walk(frame, _nowhere, 4)
    try:
        if compact:
            walk.tags()
        for _ in range(walk.length(compact=compact, wide=True)):
            topic = _read_text(walk, compact)
            for _ in range(walk.length(compact=compact, wide=True)):
                partition, error = walk.number(), walk.short()
                found[topic, partition] = error
                walk.take(24 if version >= _LOG_START else 16)
                if version >= _RECORD_ERRORS:
                    for _ in range(walk.length(compact=compact, wide=True)):
                        walk.take(4)
                        _read_text(walk, compact)
                        if compact:
                            walk.tags()
                    _read_text(walk, compact)
                if compact:
                    walk.tags()
            if compact:
                walk.tags()
    except (FrameError, struct.error, IndexError):
        pass
    return found


def _read_text(walk: Walk, compact: bool) -> str:
    begun = walk.take(max(0, walk.length(compact=compact, wide=False)))
    return walk.data[begun : walk.at].decode(errors="replace")


def _nowhere(_node: int) -> tuple[str, int]:
    raise AssertionError("the message has no address")


class Outcomes:
    """The open outcomes of an application: batches of which clients do not know whether they were written.

    delivery_s: the seconds after which clients have given up a batch. All times are seconds of the same
    clock.
    """

    def __init__(self, delivery_s: float = DELIVERY_S) -> None:
        self._delivery_s = delivery_s
        self.clear()

    def __bool__(self) -> bool:
        return bool(self._open or self._unread)

    def record_lost(self, client: str, wrote: Headers | None, now: float, told: Errors | None = None) -> None:
        """Record that a client does not know the outcome of a request.

        client: the client id. wrote: the batches of the request, or None if they were not read. told: the
        error codes in an answer that the client did not receive. If the broker rejected a batch in that
        answer, the batch was not written, so its outcome is not open.
        """
        for one in wrote.found if wrote is not None else ():
            error = 0 if told is None else told.get((one.topic, one.partition), 0)
            if error in _SETTLED or error in _UNSURE:
                self._lose(client, one, now)
        if wrote is None or not wrote.whole:
            self._miss(client, now)

    def record_answer(self, client: str, wrote: Headers | None, told: Errors, now: float) -> None:
        """Record that a client has received the answer to a request.

        client: the client id. wrote: the batches of the request, or None if they were not read. told: the
        error codes in the answer.
        """
        for one in wrote.found if wrote is not None else ():
            error = told.get((one.topic, one.partition))
            if error in _SETTLED:
                self._settle(one)
            elif error in _UNSURE:
                self._lose(client, one, now)
        unread = wrote is None or not wrote.whole
        if unread and not _UNSURE.isdisjoint(told.values()):
            self._miss(client, now)

    def clear(self) -> None:
        """Forget all open outcomes."""
        self._open: dict[tuple[str, int, int], dict[Written, float]] = {}
        self._sorted: dict[tuple[str, int, int, int], list[Written]] = {}
        """The batches with an open outcome by their key from :func:`_line`, each list sorted by sequence
        number."""
        self._count = 0
        self._unread: dict[str, float] = {}

    def names(self, now: float) -> list[str]:
        """Return a description of each open outcome."""
        self._expire(now)
        unread = [f"client {name!r}, a request that could not be read" for name in self._unread]
        return [*(str(one) for batches in self._open.values() for one in batches), *unread]

    def body(self, now: float) -> dict[str, Any]:
        """Return the open outcomes as a dict for JSON.

        The value left_s is the number of seconds until all outcomes are closed, because clients have given up
        by then.
        """
        names = self.names(now)
        times = [*(at for batches in self._open.values() for at in batches.values()), *self._unread.values()]
        left_s = max(times) + self._delivery_s - now if times else 0.0
        return {"open": len(names), "names": names[:MOST_TOLD], "left_s": round(left_s, 3)}

    def _lose(self, client: str, one: Written, now: float) -> None:
        if self._count >= MOST_OPEN:
            self._miss(client, now)
            return
        batches = self._open.setdefault(one[:3], {})
        if one not in batches:
            self._count += 1
            insort_right(self._sorted.setdefault(_line(one), []), one, key=_place)
        batches[one] = now

    def _miss(self, client: str, now: float) -> None:
        name = client if client in self._unread or len(self._unread) < MOST_PARTS else "(more)"
        self._unread[name] = now

    def _settle(self, one: Written) -> None:
        """Close the outcomes that are known because a batch was answered.

        These are the outcome of the batch itself, if it is a retry, and those of earlier batches of its
        producer, because a producer sends in order. Without a producer id, only the outcome of a batch with
        the same bytes is closed.
        """
        line = self._sorted.get(_line(one), [])
        if one.producer < 0:
            spans = [(0, len(line))]
        else:
            last = _place(one)
            first = last - _SEQUENCES // 2 + 1
            spans = [_span(line, max(first, 0), last)]
            if first < 0:  # the sequence number after the highest is 0
                spans.insert(0, _span(line, first + _SEQUENCES, _SEQUENCES))
        for begin, end in spans:
            self._forget(line[begin:end])
            del line[begin:end]
        if not line:
            self._sorted.pop(_line(one), None)

    def _expire(self, now: float) -> None:
        old = now - self._delivery_s
        closed = [one for batches in self._open.values() for one, at in batches.items() if at <= old]
        self._forget(closed)
        for line in {_line(one) for one in closed}:
            left = [one for one in self._sorted.pop(line) if one in self._open.get(one[:3], ())]
            if left:
                self._sorted[line] = left
        self._unread = {name: at for name, at in self._unread.items() if at > old}

    def _forget(self, closed: list[Written]) -> None:
        for one in closed:
            batches = self._open[one[:3]]
            del batches[one]
            self._count -= 1
            if not batches:
                del self._open[one[:3]]


def _line(one: Written) -> tuple[str, int, int, int]:
    """Return the key that a batch shares with all batches whose answers can close its outcome.

    The key consists of topic, partition, producer id and epoch. Without a producer id, the CRC takes the
    place of the epoch.
    """
    return *one[:3], one.crc if one.producer < 0 else one.epoch


def _place(one: Written) -> int:
    return one.first % _SEQUENCES


def _span(line: list[Written], first: int, last: int) -> tuple[int, int]:
    """Return the start and the end of the slice of ``line`` with sequence numbers from ``first`` to ``last``.

    line: batches sorted by sequence number.
    """
    return bisect_left(line, first, key=_place), bisect_right(line, last, key=_place)
