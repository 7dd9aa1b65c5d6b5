"""Join small batches into larger ones, because each batch that is sent adds to the cost of a request.

A producer that does not wait for more records sends batches of one record. Consumers see the same records at
the same offsets after the joining.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from zkmigrate.topics.mirror.rules.batch import Batch, BatchError
from zkmigrate.topics.mirror.rules.gaps import Append, Step
from zkmigrate.topics.mirror.rules.records import read_varint, varint

FEW = 16
"""The most records of a batch that is joined with others.

A record costs 5 µs of CPU time, and a batch of its own costs 0.17 ms.
"""
JOINED_BYTES = 128 << 10
"""The most bytes of a batch that was joined from small batches."""


def joined(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield the steps, with consecutive small uncompressed batches joined into one batch.

    steps: the steps that ``gaps.steps`` yields, so that each step begins where the one before it ended.
    Raises BatchError.
    """
    run: list[Batch] = []
    size = 0
    for step in steps:
        if isinstance(step, Append) and not step.batch.codec and step.count <= FEW:
            batch = step.batch
            size += step.size
            if run and size > JOINED_BYTES:
                yield Append(_one(run))
                run, size = [], step.size
            run.append(batch)
            continue
        if run:
            yield Append(_one(run))
            run, size = [], 0
        yield step
    if run:
        yield Append(_one(run))


def _one(run: Sequence[Batch]) -> Batch:
    first = run[0]
    if len(run) == 1:
        return first
    parts: list[bytes | memoryview] = []
    delta = 0
    for batch in run:
        _shifted(batch, delta, batch.base_ms - first.base_ms, parts)
        delta += batch.count
    return replace(
        first,
        attributes=0,
        last_delta=delta - 1,
        max_ms=max(batch.max_ms for batch in run),
        count=delta,
        payload=b"".join(parts),
    )


def _shifted(batch: Batch, delta: int, ms: int, parts: list[bytes | memoryview]) -> None:
    """Append the encoded records of a whole batch to ``parts``, with other offsets and timestamps.

    delta, ms: what is added to the offset and to the timestamp (in milliseconds) of each record.
    """
    data, at = batch.payload, 0
    view = memoryview(data)
    try:
        for number in range(batch.count):
            length, begun = read_varint(data, at)
            end = begun + length
            ms_delta, body = read_varint(data, begun + 1)
            place, body = read_varint(data, body)
            if place != number or not body <= end <= len(data):
                raise BatchError("order", f"the batch at offset {batch.base_offset} is damaged inside")
            head = data[begun : begun + 1] + varint(ms_delta + ms) + varint(delta + number)
            parts += varint(len(head) + end - body), head, view[body:end]
            at = end
    except IndexError:
        raise BatchError("count", f"the batch at offset {batch.base_offset} is cut short inside") from None
    if at != len(data):
        raise BatchError("count", f"bytes follow the last record of the batch at offset {batch.base_offset}")
