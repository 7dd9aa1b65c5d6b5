"""Batches for tests: made by kafka-python's own builder, so our reader is judged by another writer."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

from kafka.record.default_records import DefaultRecordBatchBuilder

from zkmigrate.topics.mirror.rules.batch import CONTROL, TRANSACTIONAL, Batch, encode, parse
from zkmigrate.topics.mirror.rules.records import read, write

MS = 1_700_000_000_000


def built(count: int, *, codec: int = 0, first_value: int = 0) -> Batch:
    """A batch of so many records with a key, a value and a header, at offset 0."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        batch_size=1 << 20,
    )
    for n in range(count):
        value = b"value %d" % (first_value + n)
        builder.append(n, MS + n, b"key %d" % n, value, [("h", b"%d" % n)])
    [batch] = parse(bytes(builder.build()))
    return batch


def at(batch: Batch, offset: int) -> Batch:
    """The same at an offset."""
    return replace(batch, base_offset=offset)


def without(batch: Batch, gone: Sequence[int]) -> Batch:
    """An unpacked batch as compaction leaves it: some records are gone, the offsets stay."""
    left = [one for one in read(batch.payload, batch.count) if one.delta not in gone]
    return replace(batch, count=len(left), payload=write(left))


def in_transaction(batch: Batch, producer: int) -> Batch:
    """The same as a part of a producer's transaction."""
    return replace(batch, attributes=batch.attributes | TRANSACTIONAL, producer_id=producer)


def marker(offset: int, producer: int, *, commit: bool) -> Batch:
    """The end of a producer's transaction."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0)
    body = bytes([2 * len(key)]) + key + bytes([2 * len(value)]) + value + b"\0"
    head = b"\0\0\0"
    payload = bytes([2 * (len(head) + len(body))]) + head + body
    return Batch(offset, 0, TRANSACTIONAL | CONTROL, 0, MS, MS, producer, 0, -1, 1, payload)


def sent(*batches: Batch) -> bytes:
    """The bytes of a fetch answer."""
    return b"".join(encode(one) for one in batches)
