"""What to append to target so that every record keeps its offset.

Offsets that a read_committed consumer does not see are filled: holes of compaction, control records, aborted
records. A log that begins above 0 gets empty records, and then the records below its start are deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from zkmigrate.topics.mirror.rules.batch import Batch, visible
from zkmigrate.topics.mirror.rules.position import Begin, Failed
from zkmigrate.topics.mirror.rules.records import FILL, Codecs, aborts, filling, split

MAX_GAP = 5_000_000
"""The most offsets that end markers fill in one gap: 78 bytes each, some thousands a second."""


@dataclass(frozen=True)
class Gap:
    """``count`` offsets to fill with end markers of empty transactions."""

    offset: int
    count: int


@dataclass(slots=True)
class Append:
    """A whole batch to append at its ``base_offset``. Nobody changes it, as with a batch."""

    batch: Batch

    @property
    def offset(self) -> int:
        return self.batch.base_offset

    @property
    def count(self) -> int:
        return self.batch.count

    @property
    def size(self) -> int:
        """Bytes."""
        return Batch.SIZE + len(self.batch.payload)


@dataclass(frozen=True)
class Drop:
    """The records below ``offset`` to delete."""

    offset: int


Step = Gap | Append | Drop


def steps(
    position: int, batches: Sequence[Batch], aborted: Sequence[tuple[int, int]], codecs: Codecs
) -> Iterator[Step]:
    """The steps from target's end ``position`` to the end of these batches of source. aborted: producer id
    and first offset of each aborted transaction. BatchError."""
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
    """The steps up to the offset at which copying begins. ms: the time of empty records."""
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
    """Why a gap is not filled, if it is not."""
    if gap.count <= MAX_GAP:
        return None
    return Failed(f"a gap of {gap.count} offsets. Needed: at most {MAX_GAP}")
