"""Scan a segment of a broker's log for its end, its transactions, and positions where reading can begin.

Only the headers of batches are read, and the payloads of control batches. Consumers read up to the last
stable offset, which is the first offset of the oldest transaction that no marker has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zkmigrate.topics.mirror.rules.batch import Batch, BatchError, bare, head, parse
from zkmigrate.topics.mirror.rules.records import Codecs, aborts
from zkmigrate.zookeeper.data.reader import RandomReader

BLOCK = 1 << 18
"""The number of bytes that one read takes when headers are read."""
MARK = 4 << 20
"""The approximate number of bytes between two positions where reading can begin."""


class Aborted(NamedTuple):
    """An aborted transaction.

    first: its first offset. marker: the offset of the marker that aborts it.
    """

    producer_id: int
    first: int
    marker: int


@dataclass(frozen=True)
class Transactions:
    """The transactions in a part of a log.

    ended: by producer id, the offset of its first marker and whether that marker aborts the transaction.
    begun: by producer id, the first offset of its transaction that is still open at the end of the part.
    """

    aborted: tuple[Aborted, ...] = ()
    ended: Mapping[int, tuple[int, bool]] = field(default_factory=dict)
    begun: Mapping[int, int] = field(default_factory=dict)

    def then(self, later: Transactions) -> Transactions:
        """Return the transactions of this part of a log and the next part together.

        later: the transactions of the next part.
        """
        across = [
            Aborted(producer, first, later.ended[producer][0])
            for producer, first in self.begun.items()
            if later.ended.get(producer, (0, False))[1]
        ]
        open_ = {producer: first for producer, first in self.begun.items() if producer not in later.ended}
        return Transactions(
            (*self.aborted, *across, *later.aborted), {**later.ended, **self.ended}, {**later.begun, **open_}
        )


@dataclass(frozen=True)
class Scanned:
    """The result of the scan of a segment file.

    base_offset: the offset in the file's name.
    end: the position in bytes after the last whole batch.
    next_offset: the offset after the last whole batch.
    rest: what follows the last whole batch: zeros (preallocated), torn (cut off, or being written now), or
    empty.
    marks: the base offset of a batch and its position in bytes, about every ``MARK`` bytes.
    """

    base_offset: int
    end: int
    next_offset: int
    rest: str
    marks: tuple[tuple[int, int], ...]
    transactions: Transactions


def scan(reader: RandomReader, base_offset: int, codecs: Codecs) -> Scanned:
    """Read the headers of the batches in a segment file.

    base_offset: the offset in the file's name. Raises BatchError with the position in bytes, or OSError.
    """
    size, at, next_offset = reader.size(), 0, base_offset
    block, begun, rest = b"", 0, ""
    marks: list[tuple[int, int]] = []
    aborted: list[Aborted] = []
    ended: dict[int, tuple[int, bool]] = {}
    open_: dict[int, int] = {}
    while at < size:
        if at + Batch.SIZE > begun + len(block):
            begun, block = at, reader.read(at, BLOCK)
        rest = _rest(block, at - begun, at, size)
        if rest:
            break
        batch = bare(block, at - begun)
        if batch.base_offset < next_offset:
            raise BatchError(
                "order", f"the batch at offset {batch.base_offset} follows offset {next_offset}", at
            )
        if not marks or at - marks[-1][1] >= MARK:
            marks.append((batch.base_offset, at))
        length = head(block, at - begun).size
        if batch.control:
            abort = _aborts(reader.read(at, length), at, codecs)
            ended.setdefault(batch.producer_id, (batch.base_offset, abort))
            first = open_.pop(batch.producer_id, None)
            if abort and first is not None:
                aborted.append(Aborted(batch.producer_id, first, batch.base_offset))
        elif batch.transactional:
            open_.setdefault(batch.producer_id, batch.base_offset)
        at, next_offset = at + length, batch.next_offset
    transactions = Transactions(tuple(aborted), ended, open_)
    return Scanned(base_offset, at, next_offset, rest, tuple(marks), transactions)


def _rest(block: bytes, here: int, at: int, size: int) -> str:
    """Return zeros or torn if no whole batch begins at a position; an empty text if one begins there.

    here: the position in the block. at: the position in the file. size: the size of the file. All are in
    bytes.
    """
    header = block[here : here + Batch.SIZE]
    if not header.strip(b"\0"):
        return "zeros"
    if len(header) < Batch.SIZE:
        return "torn"
    try:
        return "torn" if at + head(header).size > size else ""
    except BatchError as error:
        error.at += at
        raise


def _aborts(data: bytes, at: int, codecs: Codecs) -> bool:
    """Return whether a control batch aborts a transaction.

    Compaction leaves control batches without a record, which abort nothing.
    """
    try:
        return any(one.count and aborts(one, codecs) for one in parse(data))
    except BatchError as error:
        error.at += at
        raise
