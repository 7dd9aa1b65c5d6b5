"""Read and write the records of a batch, and split batches so that no offset is missing.

Compaction leaves batches with missing offsets, and a broker refuses such batches from a client. Key, value
and headers are not decoded here. The format is that of Kafka's ``DefaultRecord``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, Protocol

from zkmigrate.topics.mirror.rules.batch import Batch, BatchError

FILL = 100_000
"""How many empty records one filler batch has. It fills offsets whose records were deleted on source."""
GZIP = 1
MAX_RECORDS = 1_000_000
"""The most records of a batch that is unpacked. Each unpacked record takes about 200 bytes of memory."""
_MS_END = 1 << 63


class Codecs(Hashable, Protocol):
    """Compresses and decompresses batches. A codec is Kafka's number of a compression type.

    ``pack`` may use another codec than requested, and returns the number of the codec. ``unpack`` raises
    BatchError.
    """

    def pack(self, codec: int, payload: bytes) -> tuple[int, bytes]: ...
    def unpack(self, codec: int, payload: bytes) -> bytes: ...


class Record(NamedTuple):
    """A record of a batch.

    ms_delta: its timestamp minus the batch's ``base_ms``, in milliseconds. delta: its offset minus the
    batch's ``base_offset``. body: its key, value and headers in wire format.
    """

    attributes: int
    ms_delta: int
    delta: int
    body: bytes


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode the zigzag varint at position ``at``. Return the number and the position after it.

    Raises BatchError or IndexError.
    """
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise BatchError("length", "a number in a record is incomplete")


def varint(value: int) -> bytes:
    """Encode a number as a zigzag varint."""
    value = (value << 1) ^ (value >> 63)
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read(payload: bytes, count: int) -> list[Record]:
    """Return the records of a payload that is not compressed.

    Raises BatchError if the payload does not contain exactly ``count`` records, or if ``count`` is too high.
    """
    if count > MAX_RECORDS:
        raise BatchError("count", f"the batch has {count} records; needed: at most {MAX_RECORDS}")
    found: list[Record] = []
    at = 0
    try:
        for _ in range(count):
            length, at = read_varint(payload, at)
            end = at + length
            attributes = payload[at]
            ms_delta, body = read_varint(payload, at + 1)
            delta, body = read_varint(payload, body)
            if not body <= end <= len(payload):
                raise BatchError("length", f"record {len(found)} of {count} does not fit into its batch")
            found.append(Record(attributes, ms_delta, delta, payload[body:end]))
            at = end
    except IndexError:
        raise BatchError("count", f"the batch ends after {len(found)} of {count} records") from None
    if at != len(payload):
        raise BatchError("count", f"{len(payload) - at} bytes follow after the last of {count} records")
    return found


def write(records: list[Record]) -> bytes:
    """Return the payload that contains these records, without compression."""
    out = bytearray()
    for one in records:
        head = bytes([one.attributes]) + varint(one.ms_delta) + varint(one.delta)
        out += varint(len(head) + len(one.body)) + head + one.body
    return bytes(out)


def opened(batch: Batch, codecs: Codecs) -> list[Record]:
    """Return the records of a batch.

    Raises BatchError unless their offsets increase and are within those of the batch.
    """
    found = read(codecs.unpack(batch.codec, batch.payload), batch.count)
    last = -1
    for one in found:
        if not last < one.delta <= batch.last_delta:
            raise BatchError(
                "order",
                f"the batch at offset {batch.base_offset} has a record with offset delta {one.delta} after "
                f"one with {last}; needed: rising deltas, up to {batch.last_delta}",
            )
        last = one.delta
    return found


def seen(batch: Batch, codecs: Codecs) -> Iterator[tuple[int, int, bytes]]:
    """Yield each record of a batch as its offset, its timestamp in milliseconds, and its body.

    Raises BatchError.
    """
    for one in opened(batch, codecs):
        yield batch.base_offset + one.delta, _ms(batch, one), one.body


def _ms(batch: Batch, record: Record) -> int:
    return batch.max_ms if batch.append_time else batch.base_ms + record.ms_delta


def split(batch: Batch, start: int, codecs: Codecs) -> list[Batch]:
    """Return the records of a batch from offset ``start`` on, in batches without missing offsets.

    The records have the timestamps that consumers see. Raises BatchError.
    """
    runs: list[list[Record]] = []
    for one in opened(batch, codecs):
        if batch.base_offset + one.delta < start:
            continue
        if runs and runs[-1][-1].delta + 1 == one.delta:
            runs[-1].append(one)
        else:
            runs.append([one])
    return [_whole(batch, run, codecs) for run in runs]


def _whole(batch: Batch, run: list[Record], codecs: Codecs) -> Batch:
    first, times = run[0], [_ms(batch, one) for one in run]
    if not -_MS_END <= min(times) <= max(times) < _MS_END:
        raise BatchError(
            "time",
            f"a record at offset {batch.base_offset + first.delta} or later has a timestamp that does not "
            "fit in 64 bits",
        )
    moved = [
        one._replace(delta=n, ms_delta=ms - times[0])
        for n, (one, ms) in enumerate(zip(run, times, strict=True))
    ]
    codec, payload = codecs.pack(batch.codec, write(moved))
    return replace(
        batch,
        base_offset=batch.base_offset + first.delta,
        attributes=codec,
        last_delta=len(run) - 1,
        base_ms=times[0],
        max_ms=max(times),
        count=len(run),
        payload=payload,
    )


@lru_cache(2)
def _filling(count: int, codecs: Codecs) -> tuple[int, bytes]:
    # The key is empty but present, because a compacted topic refuses records without a key.
    one = varint(0) + varint(-1) + varint(0)
    return codecs.pack(GZIP, write([Record(0, 0, delta, one) for delta in range(count)]))


def filling(offset: int, count: int, ms: int, codecs: Codecs) -> Batch:
    """Return a batch of ``count`` empty records, which fill offsets and which no consumer should see.

    offset: the offset of the first record. ms: the timestamp of all records, in milliseconds since the epoch.
    """
    codec, payload = _filling(count, codecs)
    return Batch(offset, -1, codec, count - 1, ms, ms, -1, -1, -1, count, payload)


def aborts(batch: Batch, codecs: Codecs) -> bool:
    """Return whether a control batch aborts its transaction.

    The key of its record holds a version and a type, which is 0 for an abort.
    """
    return any(body[:1] == varint(4) and body[3:5] == b"\0\0" for _, _, body in seen(batch, codecs))
