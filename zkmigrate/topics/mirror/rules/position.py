"""Decide from both logs alone where a copier continues, and with which producer id.

The producer id is derived from an offset of target's log. It is far above the ids that brokers assign from 0
in blocks of a thousand. Two copiers that see the same log therefore use the same id and the same next
sequence number, and a broker appends each of their batches only once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zkmigrate.topics.mirror.rules.batch import Batch, next_sequence
from zkmigrate.topics.mirror.rules.stand import FIRST_ID, Stand, foreign_id

FIRST_FILLING_ID = FIRST_ID + (1 << 61)
"""The first producer id of batches that fill offsets whose records source has deleted."""

WINDOW = 4
"""The most batches of one producer in flight. A broker remembers the last five batches."""


@dataclass(frozen=True)
class Ends:
    """The log start offset of a partition, and the end of its log.

    end: the high watermark or the last stable offset, depending on the request.
    """

    start: int
    end: int


@dataclass(frozen=True)
class Failed:
    """The reason why a partition cannot be copied further."""

    why: str


@dataclass(frozen=True)
class Producer:
    """A producer id, and the sequence number of its next record."""

    id: int
    sequence: int

    def after(self, count: int) -> Producer:
        """Return the same producer id with the sequence number after ``count`` more records."""
        return Producer(self.id, next_sequence(self.sequence, count))


@dataclass(frozen=True)
class Begin:
    """The offset at which a copier begins to copy a partition, and the way in which it begins.

    offset: the end of target's log. start: the first offset to fetch from source. drops: whether the offsets
    between ``offset`` and ``start`` are filled with empty records that are then deleted; otherwise end
    markers fill them. note: a text about records that could not be compared.
    """

    offset: int
    start: int
    producer: Producer
    drops: bool
    note: str = ""


@dataclass(frozen=True)
class Sides:
    """The bounds of a partition's log on both clusters.

    source, target: the log start offset and the high watermark. stable: the last stable offsets of source and
    of target. A copier writes no transactions, and only records that source has committed.
    """

    source: Ends
    target: Ends
    stable: tuple[int, int]


def begin(sides: Sides, last: Sequence[Batch], *, deletes: bool) -> Begin | Failed:
    """Return where a copier continues, or why it cannot continue.

    last: the last data batches of target, one more than a copier has in flight. So they include a write of
    another producer that made the copier fail. Batches of other producers are accepted if source has the same
    records, because target may have been the source before a switch.

    deletes: whether the topic has the cleanup policy delete. Then retention may have deleted such records on
    source first, so that they cannot be compared.
    """
    source, target = sides.source, sides.target
    committed, own_stable = sides.stable
    if target.end > committed:
        return Failed(
            f"target ends at {target.end}, source's committed records at {committed}; needed: a target that "
            "is not ahead. Another producer wrote to target, or source lost records or was created again"
        )
    if own_stable < target.end:
        return Failed(
            f"a transaction is open on target from offset {own_stable} on. Another producer wrote to target"
        )
    note = ""
    for one in last:
        if others(one) and one.base_offset < source.start:
            note = (
                f"{_wrote(one)}. Source has deleted its records below offset {source.start}, so they were "
                "not compared"
            )
            if not deletes:
                return Failed(
                    f"{note}. Without the cleanup policy delete, retention cannot have deleted them. Needed: "
                    "records to compare. Next: find out who deleted them, or delete target's topic and copy "
                    "it again"
                )
        if one.producer_id >= FIRST_FILLING_ID and one.next_offset > source.start:
            return Failed(
                f"target's empty records go up to offset {one.next_offset}, and source's log begins at "
                f"{source.start}. Another producer wrote to target before them, or source was created again"
            )
    filling = bool(last) and last[-1].producer_id >= FIRST_FILLING_ID
    drops = filling or (deletes and target.end < source.start)
    own = fresh(target.end, filling=drops)
    if last and filling == drops and not others(last[-1]):
        own = Producer(last[-1].producer_id, last[-1].base_sequence).after(last[-1].count)
    return Begin(target.end, max(source.start, target.end), own, drops, note)


def fresh(end: int, *, filling: bool = False) -> Producer:
    """Return a new producer for batches that begin at offset ``end`` of target's log.

    filling: whether the batches fill offsets whose records source has deleted.
    """
    return Producer((FIRST_FILLING_ID if filling else FIRST_ID) + end, 0)


def others(batch: Batch) -> bool:
    """Return whether a producer other than a copier wrote a batch."""
    return foreign_id(batch.producer_id)


def _wrote(batch: Batch) -> str:
    return f"another producer (id {batch.producer_id}) wrote target's batch at offset {batch.base_offset}"


def unequal(wrong: Stand) -> Failed:
    """Return a failure with a text about the first offset where target's log differs from source's log.

    wrong: the content of target's log at that offset.
    """
    if wrong.read is None:
        return Failed(
            f"target's offset {wrong.offset} holds the end or the aborted record of a transaction (producer "
            f"id {wrong.producer_id}), and source has a record there, which target lacks. Another producer "
            "wrote to target"
        )
    if foreign_id(wrong.producer_id):
        return Failed(
            f"another producer (id {wrong.producer_id}) wrote target's record at offset {wrong.offset}, and "
            "source does not have it there"
        )
    return Failed(
        f"target's record at offset {wrong.offset} differs from source's. Another producer wrote to target, "
        "or the topic was created again"
    )


def foreign(seen: int, needed: int) -> Failed:
    """Return a failure with a text that target's log does not end where the copier left it.

    seen: the end of target's log. needed: the offset where the copier left it.
    """
    return Failed(
        f"target's log continues at offset {seen}; needed: {needed}. Another producer wrote to the log"
    )
