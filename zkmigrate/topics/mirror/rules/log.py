"""Join the segment files of a partition's log on disk, and read the committed batches of the log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from zkmigrate.topics.mirror.rules.batch import HEAD, Batch, BatchError, head, parse, visible
from zkmigrate.topics.mirror.rules.scan import Aborted, Scanned, Transactions
from zkmigrate.zookeeper.data.reader import RandomReader

CHUNK = 8 << 20
"""The bytes of one read. For a longer batch, more bytes are read."""
SLICE = 64 << 20
"""The bytes of source's log that are compared in one piece."""

Open = Callable[[str], RandomReader]


class LogError(ValueError):
    """Raised for a log that cannot be compared.

    path: the file. at: the position in the file, in bytes.
    """

    def __init__(self, path: str, at: int, why: object) -> None:
        super().__init__(f"{path}, byte {at}: {why}")


@dataclass(frozen=True)
class Segment:
    """A segment file of a log, with the result of its scan."""

    path: str
    scanned: Scanned


@dataclass(frozen=True)
class Log:
    """A partition's log on disk.

    segments: at least one, in the order of offsets. checkpoint: the log start offset in the broker's
    checkpoint, 0 if it has none. watermark: the high watermark in the broker's checkpoint, None if it has
    none.
    """

    segments: tuple[Segment, ...]
    transactions: Transactions
    checkpoint: int = 0
    watermark: int | None = None

    @property
    def start(self) -> int:
        """The first offset that consumers see.

        Kafka writes a log start offset to the checkpoint only if it differs from that of the first segment.
        """
        return max(self.checkpoint, self.segments[0].scanned.base_offset)

    @property
    def end(self) -> int:
        """The offset after the last whole batch."""
        return self.segments[-1].scanned.next_offset

    @property
    def stable(self) -> int:
        """The last stable offset, which is not above the high watermark.

        Records above the high watermark may not be on every replica.
        """
        known = self.end if self.watermark is None else min(self.end, self.watermark)
        return min((known, *self.transactions.begun.values()))

    @property
    def rest(self) -> str:
        """A description of the bytes after the last whole batch; empty if there are none."""
        last = self.segments[-1]
        return f"{last.path}: {last.scanned.rest} from byte {last.scanned.end}" if last.scanned.rest else ""


def chained(segments: Sequence[Segment], checkpoint: int = 0, watermark: int | None = None) -> Log:
    """Return the log of these segments.

    segments: at least one, in any order. Raises LogError if they do not follow each other.
    """
    ordered = sorted(segments, key=lambda one: one.scanned.base_offset)
    transactions = Transactions()
    for before, one in zip((None, *ordered), ordered, strict=False):
        if before is not None:
            end = before.scanned
            if end.rest:
                why = f"the batches of this segment end here ({end.rest}), but a later segment follows"
                raise LogError(before.path, end.end, why)
            if end.next_offset > one.scanned.base_offset:
                raise LogError(
                    one.path,
                    0,
                    f"the segment begins before offset {end.next_offset}, where {before.path} ends",
                )
        transactions = transactions.then(one.scanned.transactions)
    return Log(tuple(ordered), transactions, checkpoint, watermark)


def slices(log: Log, begin: int, end: int) -> list[tuple[int, int]]:
    """Divide the offsets from ``begin`` up to ``end`` into ranges of about ``SLICE`` bytes of this log.

    Returns for each range its first offset and the offset after its last.
    """
    bounds, taken = [begin], 0
    for segment in log.segments:
        at = 0
        for offset, place in segment.scanned.marks:
            taken, at = taken + place - at, place
            if taken >= SLICE and begin < offset < end:
                bounds.append(offset)
                taken = 0
        taken += segment.scanned.end - at
    return [(one, other) for one, other in zip(bounds, (*bounds[1:], end), strict=True) if one < other]


def committed(log: Log, begin: int, end: int, open_: Open) -> Iterator[Batch]:
    """Yield the batches that a read_committed consumer reads.

    The first batch contains offset ``begin``, and the last batch begins below ``end``. end: at most the last
    stable offset. open_: a function that opens a segment file. Raises LogError or OSError.
    """
    waiting = [one for one in log.transactions.aborted if one.marker >= begin]
    waiting.sort(key=lambda one: one.first, reverse=True)
    live: list[Aborted] = []
    for batches in _chunks(log, begin, end, open_):
        while waiting and waiting[-1].first < batches[-1].next_offset:
            live.append(waiting.pop())
        live = [one for one in live if one.marker >= batches[0].base_offset]
        begun = [(one.producer_id, one.first) for one in live]
        for batch in visible(batches, begun, [one.marker for one in live]):
            if batch.next_offset > begin and batch.base_offset < end:
                yield batch


def _chunks(log: Log, begin: int, end: int, open_: Open) -> Iterator[list[Batch]]:
    """Yield all batches in lists of about ``CHUNK`` bytes each.

    The first batch begins at or before offset ``begin``, and the last batch ends at or after offset ``end``.
    """
    bases = [one.scanned.base_offset for one in log.segments]
    for segment in log.segments[max(0, bisect_right(bases, begin) - 1) :]:
        reader, last = open_(segment.path), segment.scanned.end
        at = max((place for offset, place in segment.scanned.marks if offset <= begin), default=0)
        while at < last:
            data = reader.read(at, min(CHUNK, last - at))
            try:
                if len(data) >= HEAD and (size := head(data).size) > len(data):
                    data = reader.read(at, size)
                if len(data) < HEAD or len(data) < head(data).size:
                    raise LogError(segment.path, at + len(data), "the file ends here, and was longer before")
                batches = parse(data)
            except BatchError as error:
                raise LogError(segment.path, at + error.at, error) from error
            yield batches
            if batches[-1].next_offset >= end:
                return
            at += sum(Batch.SIZE + len(one.payload) for one in batches)
