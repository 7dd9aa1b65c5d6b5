"""What stands at each offset of a log, and where target's log holds something else than source's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from zkmigrate.mirror.rules.batch import Batch, visible
from zkmigrate.mirror.rules.records import Codecs, aborts, seen

FIRST_ID = 1 << 62
"""The producer ids of copied batches begin here, far above those that brokers hand out."""


class Stand(NamedTuple):
    """What stands at the offsets from ``offset`` up to ``next``. read: a record's time in milliseconds and
    body; None for what no read_committed consumer sees: the end of a transaction, or aborted records."""

    offset: int
    next: int
    read: tuple[int, bytes] | None
    producer_id: int


def foreign_id(producer_id: int) -> bool:
    """Whether it is not the id of a copier's batches. End markers have ids that brokers hand out."""
    return producer_id < FIRST_ID


def stands(batches: Sequence[Batch], aborted: Sequence[tuple[int, int]], codecs: Codecs) -> Iterator[Stand]:
    """Read what stands at the offsets of these batches; nothing stands where compaction took it away.
    aborted: producer id and first offset of each aborted transaction. BatchError."""
    ended = [one.base_offset for one in batches if one.control and one.count and aborts(one, codecs)]
    shown = {one.base_offset for one in visible(batches, aborted, ended)}
    for batch in batches:
        if batch.base_offset in shown:
            for offset, ms, body in seen(batch, codecs):
                yield Stand(offset, offset + 1, (ms, body), batch.producer_id)
        elif batch.count:
            yield Stand(batch.base_offset, batch.next_offset, None, batch.producer_id)


def first_wrong(source: Iterable[Stand], target: Iterable[Stand]) -> Stand | None:
    """Find the first offset at which target has something else than source; None without one.

    Compaction may have emptied offsets on either side since they were copied. So nothing is wrong where
    only one side has something, except another producer's record that source does not have.
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
