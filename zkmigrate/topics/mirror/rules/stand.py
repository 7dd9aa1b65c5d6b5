"""Read the content of a log at each offset, and find where target's log differs from source's log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from zkmigrate.topics.mirror.rules.batch import Batch, visible
from zkmigrate.topics.mirror.rules.records import Codecs, aborts, seen

FIRST_ID = 1 << 62
"""The first producer id of copied batches, far above the ids that brokers assign."""


class Stand(NamedTuple):
    """The content of a log from ``offset`` up to ``next``.

    read: a record's timestamp in milliseconds and its body, or None if read_committed consumers do not read
    anything there, because the offsets hold aborted records or the end of a transaction. producer_id: the
    producer of the batch.
    """

    offset: int
    next: int
    read: tuple[int, bytes] | None
    producer_id: int


def foreign_id(producer_id: int) -> bool:
    """Return whether a producer id cannot be the id of a copied batch.

    End markers have ids that brokers assigned.
    """
    return producer_id < FIRST_ID


def stands(batches: Sequence[Batch], aborted: Sequence[tuple[int, int]], codecs: Codecs) -> Iterator[Stand]:
    """Yield the content of these batches at each offset.

    Offsets that compaction removed are left out. aborted: the producer id and first offset of each aborted
    transaction. Raises BatchError.
    """
    ended = [one.base_offset for one in batches if one.control and one.count and aborts(one, codecs)]
    shown = {one.base_offset for one in visible(batches, aborted, ended)}
    for batch in batches:
        if batch.base_offset in shown:
            for offset, ms, body in seen(batch, codecs):
                yield Stand(offset, offset + 1, (ms, body), batch.producer_id)
        elif batch.count:
            yield Stand(batch.base_offset, batch.next_offset, None, batch.producer_id)


def first_wrong(source: Iterable[Stand], target: Iterable[Stand]) -> Stand | None:
    """Return the first entry of target that differs from source at the same offset; None if there is none.

    Compaction may have removed offsets on either side since they were copied. So an offset that only one side
    has is no difference. The exception is a record on target that another producer wrote and that source does
    not have.
    """
    ours, theirs = iter(source), iter(target)
    here, there = next(ours, None), next(theirs, None)
    while there is not None:
        if here is not None and here.next <= there.offset:
            here = next(ours, None)
            continue
        if here is None or there.next <= here.offset:
            if there.read is not None and foreign_id(there.producer_id):
                return there
        elif here.read != there.read:
            return there._replace(offset=max(here.offset, there.offset))
        elif here.next < there.next:
            here = next(ours, None)
            continue
        there = next(theirs, None)
    return None
