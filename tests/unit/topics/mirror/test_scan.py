"""Segments by their headers: ends, transactions, damage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory_files import BytesReader
from tests.unit.kafka_segments import unpack
from tests.unit.topics.mirror.batches import at, built, in_transaction, marker, sent
from tests.unit.topics.mirror.logs import CODECS
from zkmigrate.topics.mirror.rules import scan as scanning
from zkmigrate.topics.mirror.rules.batch import Batch, BatchError
from zkmigrate.topics.mirror.rules.records import aborts
from zkmigrate.topics.mirror.rules.scan import Aborted, Scanned, Transactions, scan
from zkmigrate.zookeeper.data.reader import FileReader

ONE = built(3)


def scanned(data: bytes, base: int = 0) -> Scanned:
    return scan(BytesReader(data), base, CODECS)


def test_a_real_brokers_segments_end_where_kafka_says(tmp_path: Path) -> None:
    told = unpack(tmp_path)
    for name, wanted in told.items():
        found = scan(FileReader(tmp_path / name), int(Path(name).stem), CODECS)
        assert (found.end, found.next_offset, found.rest) == (wanted["bytes"], wanted["next"], ""), name
        assert found.transactions == Transactions()


def test_a_torn_end_and_zeros_are_told() -> None:
    good = sent(ONE)
    for length in range(1, len(good)):
        found = scanned(good + sent(at(ONE, 3))[:length])
        assert (found.end, found.next_offset, found.rest) == (len(good), 3, "torn" if length > 7 else "zeros")
    assert scanned(good + bytes(500)).rest == "zeros"
    assert scanned(b"", 7) == Scanned(7, 0, 7, "", (), Transactions())


def test_damage_is_named_with_its_byte() -> None:
    good = sent(ONE)
    ended = sent(marker(3, 1, commit=True))
    for more, what in (
        (good[:16] + b"\1" + good[17:], "magic"),
        (good[:8] + b"\0\0\0\1" + good[12:], "length"),
        (good, "order"),
        (ended[:-1] + b"\7", "CRC"),
    ):
        with pytest.raises(BatchError) as caught:
            scanned(good + more)
        assert (caught.value.what, caught.value.at) == (what, len(good))


def test_only_headers_and_markers_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "BLOCK", Batch.SIZE)
    damaged = replace(ONE, payload=bytes(len(ONE.payload)))
    data = sent(in_transaction(damaged, 1), marker(3, 1, commit=False))
    reads: list[int] = []

    class Counting(BytesReader):
        def read(self, offset: int, length: int) -> bytes:
            reads.append(length)
            return super().read(offset, length)

    assert scan(Counting(data), 0, CODECS).transactions.aborted == (Aborted(1, 0, 3),)
    assert sum(reads) < len(data)


@st.composite
def transactions(draw: st.DrawFn) -> list[Batch]:
    """Batches of three producers and their markers, in any order; compaction has emptied some markers."""
    found: list[Batch] = []
    for _ in range(draw(st.integers(1, 14))):
        offset = found[-1].next_offset if found else 0
        producer = draw(st.integers(1, 3))
        one = in_transaction(at(built(draw(st.integers(1, 2))), offset), producer)
        kind = draw(st.sampled_from(["data", "data", "commit", "abort", "plain"]))
        if kind in ("commit", "abort"):
            one = marker(offset, producer, commit=kind == "commit")
        found.append(at(ONE, offset) if kind == "plain" else one)
    return found


def by_hand(batches: Sequence[Batch]) -> tuple[set[Aborted], dict[int, int]]:
    """Aborted transactions, and those that are open at the end."""
    aborted, begun = set[Aborted](), dict[int, int]()
    for one in batches:
        if one.control:
            first = begun.pop(one.producer_id, None)
            if first is not None and aborts(one, CODECS):
                aborted.add(Aborted(one.producer_id, first, one.base_offset))
        elif one.transactional:
            begun.setdefault(one.producer_id, one.base_offset)
    return aborted, begun


@given(transactions(), st.sets(st.integers(1, 13)))
def test_segments_together_tell_what_one_would(batches: list[Batch], cuts: set[int]) -> None:
    bounds = sorted({0, *(cut for cut in cuts if cut < len(batches)), len(batches)})
    parts = [batches[one:other] for one, other in pairwise(bounds)]
    each = [scanned(sent(*part), part[0].base_offset).transactions for part in parts]
    found = reduce(Transactions.then, each, Transactions())
    aborted, begun = by_hand(batches)
    assert found.begun == begun
    # A transaction across segments may stand there a second time, from its first offset in a later one.
    assert aborted <= set(found.aborted)
    assert {(one.producer_id, one.marker) for one in found.aborted} == {
        (one.producer_id, one.marker) for one in aborted
    }
    whole = scanned(sent(*batches)).transactions
    assert (set(whole.aborted), whole.begun) == (aborted, begun)
    assert found.ended == whole.ended


def test_a_marker_that_compaction_emptied_aborts_nothing() -> None:
    empty = replace(marker(3, 1, commit=False), count=0, payload=b"")
    assert scanned(sent(in_transaction(ONE, 1), empty)).transactions.aborted == ()
