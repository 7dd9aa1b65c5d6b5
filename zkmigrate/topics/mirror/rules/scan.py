"""A segment of a broker's log by the headers of its batches: its end, its transactions, places to begin at.

Payloads are left out, except those of control batches. Consumers read up to the last stable offset: the first
offset of the oldest transaction that no marker has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zkmigrate.topics.mirror.rules.batch import Batch, BatchError, bare, head, parse
from zkmigrate.topics.mirror.rules.records import Codecs, aborts
from zkmigrate.zookeeper.data.reader import RandomReader

BLOCK = 1 << 18
"""Bytes of one read of headers."""
MARK = 4 << 20
"""Bytes between two places to begin at."""


class Aborted(NamedTuple):
    """A transaction: its first offset, and that of the marker that aborts it."""

    producer_id: int
    first: int
    marker: int


@dataclass(frozen=True)
class Transactions:
    """Of a stretch of a log. ended: by producer id, the offset of its first marker and whether that aborts;
    begun: the first offset of its transaction that is open at the end."""

    aborted: tuple[Aborted, ...] = ()
    ended: Mapping[int, tuple[int, bool]] = field(default_factory=dict)
    begun: Mapping[int, int] = field(default_factory=dict)

    def then(self, later: Transactions) -> Transactions:
        """Of this stretch and the one that follows."""
        across = [
            Aborted(producer, first, later.ended[producer][0])
            for producer, first in self.begun.items()
            if later.ended.get(producer, (0, False))[1]
        ]
        open_ = {producer: first for producer, first in self.begun.items() if producer not in later.ended}
        return Transactions(
            (*self.aborted, *across, *later.aborted),
            {**later.ended, **self.ended},
            {**later.begun, **open_},
        )


@dataclass(frozen=True)
class Scanned:
    """A segment. base_offset: of its name. end: bytes up to the end of its last whole batch; next_offset:
    after it. rest: what follows: zeros (preallocated), torn (cut off, or being written now) or empty. marks:
    batches about every MARK bytes, by base offset and byte."""

    base_offset: int
    end: int
    next_offset: int
    rest: str
    marks: tuple[tuple[int, int], ...]
    transactions: Transactions


def scan(reader: RandomReader, base_offset: int, codecs: Codecs) -> Scanned:
    """Read the headers of a segment. base_offset: of its name. BatchError with the byte, OSError."""
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
            raise BatchError("order", f"the batch at offset {batch.base_offset} follows {next_offset}", at)
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
    """What the file ends with, if no whole batch begins here: zeros or torn. here: of the block; at: of the
    file."""
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
    """Whether a control batch is an abort's marker. One without a record is what compaction left."""
    try:
        return any(one.count and aborts(one, codecs) for one in parse(data))
    except BatchError as error:
        error.at += at
        raise
