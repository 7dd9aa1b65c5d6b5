"""What stands at the offsets of two logs, and the first that is wrong on target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.topics.mirror.batches import at, built, in_transaction, marker, without
from zkmigrate.topics.mirror.clients.codecs import KafkaCodecs
from zkmigrate.topics.mirror.rules.batch import Batch
from zkmigrate.topics.mirror.rules.stand import FIRST_ID, Stand, first_wrong, stands

OWN, OTHER = FIRST_ID, 7


def record(offset: int, body: bytes = b"a", *, ms: int = 1, by: int = OWN) -> Stand:
    return Stand(offset, offset + 1, (ms, body), by)


def hidden(offset: int, count: int = 1, by: int = OTHER) -> Stand:
    return Stand(offset, offset + count, None, by)


@pytest.mark.parametrize(
    ("source", "target", "wrong"),
    [
        ([record(0), record(1)], [record(0), record(1)], None),
        ([record(0, by=OTHER)], [record(0)], None),
        ([record(0), record(1, b"b")], [record(0), record(1, b"c")], 1),
        ([record(0, ms=1)], [record(0, ms=2)], 0),
        ([record(0), record(1)], [record(0), hidden(1)], 1),
        ([record(0), record(1)], [record(0), hidden(1, by=OWN)], 1),
        ([hidden(0), record(1)], [record(0), record(1)], 0),
        ([hidden(0, 3), record(3)], [hidden(0), hidden(1), hidden(2), record(3)], None),
        ([hidden(0), hidden(1), record(2), record(3)], [hidden(0, 4)], 2),
        ([hidden(0, 2), record(3)], [hidden(0, 3), record(3)], None),
        ([hidden(0), record(2)], [hidden(0, 4)], 2),
        ([hidden(0, 4)], [hidden(0), record(2, by=OWN)], 2),
        ([record(0), record(2)], [record(0), record(1), record(2)], None),
        ([record(0), record(2)], [record(0), record(1, by=OTHER), record(2)], 1),
        ([record(0), record(2)], [record(0), hidden(1), record(2)], None),
        ([record(0), record(1), record(2, b"b")], [record(0), record(2, b"c")], 2),
        ([], [hidden(0), record(1)], None),
        ([], [record(1, by=-1)], 1),
        ([record(0)], [], None),
    ],
)
def test_the_first_offset_at_which_target_has_something_else(
    source: list[Stand], target: list[Stand], wrong: int | None
) -> None:
    """Compaction may have emptied an offset on either side."""
    found = first_wrong(source, target)
    assert (None if found is None else found.offset) == wrong


def told(*batches: Batch, aborted: tuple[tuple[int, int], ...] = ()) -> list[tuple[int, int, bool, int]]:
    found = stands(batches, aborted, KafkaCodecs())
    return [(one.offset, one.next, one.read is not None, one.producer_id) for one in found]


def test_markers_and_aborted_records_are_hidden_and_compacted_ones_are_not_there() -> None:
    assert told(
        replace(without(built(3), [1]), producer_id=OWN),
        at(in_transaction(built(2), 5), 3),
        at(in_transaction(built(1), 6), 5),
        marker(6, 5, commit=False),
        marker(7, 6, commit=True),
        Batch(8, 0, 0, 3, 0, 0, OTHER, 0, 0, 0, b""),
        aborted=((5, 3),),
    ) == [
        (0, 1, True, OWN),
        (2, 3, True, OWN),
        (3, 5, False, 5),
        (5, 6, True, 6),
        (6, 7, False, 5),
        (7, 8, False, 6),
    ]


def test_an_emptied_batch_of_an_aborted_transaction_is_not_there() -> None:
    emptied = replace(in_transaction(built(2), 5), count=0, payload=b"")
    assert told(emptied, marker(2, 5, commit=False), aborted=((5, 0),)) == [(2, 3, False, 5)]
