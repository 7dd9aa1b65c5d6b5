"""Build the steps that append source's records to target at equal offsets.

Offsets that a read_committed consumer does not see are filled: holes after compaction, control records, and
aborted records. If source's log begins above 0, target gets empty records up to that offset, which are then
deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from zkmigrate.topics.mirror.rules.batch import Batch, visible
from zkmigrate.topics.mirror.rules.position import Begin, Failed
from zkmigrate.topics.mirror.rules.records import FILL, Codecs, aborts, filling, split

MAX_GAP = 5_000_000
"""The most offsets that end markers fill in one gap.

A marker has 78 bytes, and some thousands of markers are written each second.
"""


@dataclass(frozen=True)
class Gap:
    """A step that fills ``count`` offsets from ``offset`` on with end markers of empty transactions."""

    offset: int
    count: int


@dataclass(slots=True)
class Append:
    """A step that appends a whole batch at its ``base_offset``. A step must not be changed."""

    batch: Batch

    @property
    def offset(self) -> int:
        return self.batch.base_offset

    @property
    def count(self) -> int:
        return self.batch.count

    @property
    def size(self) -> int:
        """The size of the batch in bytes."""
        return Batch.SIZE + len(self.batch.payload)


@dataclass(frozen=True)
class Drop:
    """A step that deletes the records below ``offset``."""

    offset: int


Step = Gap | Append | Drop


def steps(
    position: int, batches: Sequence[Batch], aborted: Sequence[tuple[int, int]], codecs: Codecs
) -> Iterator[Step]:
    """Yield the steps that bring target's log from offset ``position`` to the end of batches of source.

    aborted: the producer id and first offset of each aborted transaction. Raises BatchError.
    """
    ended = [one.base_offset for one in batches if one.control and one.count and aborts(one, codecs)]
    for batch in visible(batches, aborted, ended):
        as_is = batch.whole and batch.base_offset >= position and not batch.append_time
        for part in [batch] if as_is else split(batch, position, codecs):
            if part.base_offset > position:
                yield Gap(position, part.base_offset - position)
            yield Append(part)
            position = part.next_offset
    if batches and batches[-1].next_offset > position:
        yield Gap(position, batches[-1].next_offset - position)


def first(begun: Begin, ms: int, codecs: Codecs) -> Iterator[Step]:
    """Yield the steps that bring target's log to the offset at which copying begins.

    ms: the timestamp of empty records, in milliseconds since the epoch.
    """
    offset = begun.offset
    if not begun.drops:
        if begun.start > offset:
            yield Gap(offset, begun.start - offset)
        return
    while offset < begun.start:
        count = min(FILL, begun.start - offset)
        yield Append(filling(offset, count, ms, codecs))
        offset += count
    yield Drop(begun.start)


def too_wide(gap: Gap) -> Failed | None:
    """Return a failure if a gap is too wide to be filled, else None."""
    if gap.count <= MAX_GAP:
        return None
    return Failed(f"source's log has a gap of {gap.count} offsets; needed: at most {MAX_GAP}")
