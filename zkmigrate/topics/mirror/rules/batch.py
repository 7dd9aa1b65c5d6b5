"""Parse, check and write record batches of format 2 (Kafka 0.11 and later).

The records themselves stay packed. The format is that of Kafka's ``DefaultRecordBatch``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import crc32c

_HEADER = struct.Struct(">qiibIhiqqqhii")
_HEAD = struct.Struct(">qiib")
_LENGTH_END, _CRC_AT, _CRC_FROM = 12, 17, 21
_MAGIC = 2
HEAD = _HEAD.size
"""How many bytes at the beginning of a batch contain its offset, size and format."""

CODEC, APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
"""Bits of a batch's attributes field."""


class BatchError(ValueError):
    """Raised for a batch that must not be copied.

    what: the part that is wrong: length, magic, CRC, count, order or time. at: the position in bytes, in the
    parsed data, where the batch begins.
    """

    def __init__(self, what: str, text: str, at: int = 0) -> None:
        super().__init__(f"{what}: {text}")
        self.what, self.at = what, at


@dataclass(slots=True)
class Batch:
    """A record batch, which must not be changed.

    The class is not frozen, because creating a frozen object takes five times as long.

    last_delta: the last offset minus ``base_offset``; compaction may have removed the record there. base_ms,
    max_ms: milliseconds since the epoch. payload: the records, compressed by ``codec``.
    """

    base_offset: int
    leader_epoch: int
    attributes: int
    last_delta: int
    base_ms: int
    max_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    payload: bytes

    SIZE: ClassVar[int] = _HEADER.size

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC

    @property
    def append_time(self) -> bool:
        """Whether the broker's clock set the timestamps, so that each record has the timestamp ``max_ms``."""
        return bool(self.attributes & APPEND_TIME)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def whole(self) -> bool:
        """Whether each offset of the batch has a record."""
        return self.count == self.last_delta + 1


class Head(NamedTuple):
    """The offset and size of a batch, as its first bytes show them.

    size: the bytes of the whole batch.
    """

    base_offset: int
    size: int


def head(data: bytes, at: int = 0) -> Head:
    """Return the offset and size of the batch that begins at position ``at`` of the data.

    The data must contain at least the first ``HEAD`` bytes of the batch. Raises BatchError.
    """
    offset, length, _, magic = _HEAD.unpack_from(data, at)
    if magic != _MAGIC:
        raise BatchError("magic", f"the batch at offset {offset} has format {magic}; needed: {_MAGIC}", at)
    if length < _HEADER.size - _LENGTH_END:
        raise BatchError("length", f"the batch at offset {offset} has {length} bytes", at)
    return Head(offset, _LENGTH_END + length)


def bare(data: bytes, at: int) -> Batch:
    """Return the batch that begins at position ``at`` of the data, without its payload and unchecked."""
    offset, _, leader_epoch, _, _, *fields = _HEADER.unpack_from(data, at)
    fields.append(b"")
    return Batch(offset, leader_epoch, *fields)


def parse(data: bytes, begun: int = 0) -> list[Batch]:
    """Return the batches of a fetch response.

    If the response ends within the last batch, that batch is left out. begun: the requested offset. Raises
    BatchError.
    """
    found: list[Batch] = []
    at = 0
    while len(data) - at >= HEAD:
        offset, size = head(data, at)
        end = at + size
        if end > len(data):
            break
        batch = _batch(data, at, end)
        # Accepting a batch that ends before the requested offset would request that offset forever.
        if offset < (begun if found else 0) or batch.next_offset <= begun:
            raise BatchError(
                "order", f"offsets {offset} to {batch.next_offset - 1} arrived, but {begun} was needed", at
            )
        found.append(batch)
        begun, at = batch.next_offset, end
    if data and not found:  # a broker sends at least one whole batch
        raise BatchError("length", f"the first batch is longer than the response of {len(data)} bytes")
    return found


def _batch(data: bytes, at: int, end: int) -> Batch:
    offset, _, leader_epoch, _, crc, *fields = _HEADER.unpack_from(data, at)
    fields.append(data[at + _HEADER.size : end])
    batch = Batch(offset, leader_epoch, *fields)
    if crc32c.crc32c(data[at + _CRC_FROM : end]) != crc:
        raise BatchError("CRC", f"the batch at offset {offset} is damaged", at)
    if batch.last_delta < 0 or not 0 <= batch.count <= batch.last_delta + 1:
        raise BatchError(
            "count",
            f"the batch at offset {offset} has {batch.count} records in {batch.last_delta + 1} offsets",
            at,
        )
    return batch


def encode(batch: Batch) -> bytes:
    """Return the bytes of a batch, with a new CRC."""
    head = _HEADER.pack(
        batch.base_offset,
        _HEADER.size - _LENGTH_END + len(batch.payload),
        batch.leader_epoch,
        _MAGIC,
        0,
        batch.attributes,
        batch.last_delta,
        batch.base_ms,
        batch.max_ms,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.count,
    )
    crc = crc32c.crc32c(batch.payload, crc32c.crc32c(head[_CRC_FROM:]))
    return b"".join((head[:_CRC_AT], crc.to_bytes(4, "big"), head[_CRC_FROM:], batch.payload))


def produced(batch: Batch, producer_id: int, sequence: int) -> bytes:
    """Return the bytes to produce a batch as a given idempotent producer with epoch 0.

    The base offset is 0, because the broker then keeps compressed records as they are. The transactional bit
    and the delete horizon bit are cleared; target's log cleaner sets a horizon of its own.
    """
    return encode(
        replace(
            batch,
            base_offset=0,
            leader_epoch=-1,
            attributes=batch.codec,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
    )


def next_sequence(sequence: int, count: int) -> int:
    """Return the sequence number after ``count`` records.

    Sequence numbers go from 0 to 2**31 - 1 and then begin at 0 again.
    """
    return (sequence + count) & 0x7FFF_FFFF


def visible(
    batches: Sequence[Batch], aborted: Sequence[tuple[int, int]], aborts: Sequence[int]
) -> list[Batch]:
    """Return the batches that a read_committed consumer reads.

    aborted: the producer id and first offset of each aborted transaction. aborts: the offsets of the control
    batches that abort a transaction.
    """
    waiting = sorted(aborted, key=lambda one: one[1])
    ended, left, seen = set(aborts), set[int](), list[Batch]()
    for batch in batches:
        while waiting and waiting[0][1] < batch.next_offset:
            left.add(waiting.pop(0)[0])
        if batch.control:
            if batch.base_offset in ended:
                left.discard(batch.producer_id)
        elif not (batch.transactional and batch.producer_id in left):
            seen.append(batch)
    return seen
