"""What is appended: every record at its offset, everything else filled."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from tests.unit.topics.mirror.batches import MS, at, built, in_transaction, marker, without
from zkmigrate.topics.mirror.clients.codecs import KafkaCodecs
from zkmigrate.topics.mirror.rules import records
from zkmigrate.topics.mirror.rules.batch import APPEND_TIME, Batch, BatchError, produced
from zkmigrate.topics.mirror.rules.gaps import MAX_GAP, Append, Drop, Gap, Step, first, steps, too_wide
from zkmigrate.topics.mirror.rules.position import Begin, Producer

CODECS = KafkaCodecs()
LZ4 = 3
PRODUCER = Producer(1, 0)


def applied(position: int, todo: Sequence[Step]) -> tuple[int, dict[int, tuple[int, bytes]]]:
    """Target's end after the steps, and its records. A broker takes only whole batches at its end."""
    found = dict[int, tuple[int, bytes]]()
    for step in todo:
        assert not isinstance(step, Drop)
        assert step.offset == position
        assert step.count > 0
        position += step.count
        if isinstance(step, Append):
            assert step.batch.whole
            assert DefaultRecordBatch(produced(step.batch, 1, 0)).validate_crc()
            found |= {offset: (ms, body) for offset, ms, body in records.seen(step.batch, CODECS)}
    return position, found


def seen(batches: Sequence[Batch]) -> dict[int, tuple[int, bytes]]:
    return {at: (ms, body) for one in batches for at, ms, body in records.seen(one, CODECS)}


@st.composite
def logs(draw: st.DrawFn) -> list[Batch]:
    """Plain batches with holes inside and between them, a few of them compressed."""
    offset, found = draw(st.integers(0, 50)), []
    for _ in range(draw(st.integers(1, 5))):
        count = draw(st.integers(1, 6))
        gone = draw(st.sets(st.integers(0, count - 1)))
        batch = at(built(count, first_value=offset), offset)
        codec = draw(st.sampled_from([0, 1, 2, 3, 4]))
        batch = without(batch, sorted(gone))
        _, payload = CODECS.pack(codec, batch.payload)
        batch = replace(batch, attributes=codec, payload=payload)
        found.append(batch)
        offset = batch.next_offset + draw(st.integers(0, 4))
    return found


@given(logs(), st.data())
def test_every_record_keeps_its_offset_time_and_bytes(batches: list[Batch], data: st.DataObject) -> None:
    end = batches[-1].next_offset
    position = data.draw(st.integers(0, end))
    left = [one for one in batches if one.next_offset > position]
    reached, found = applied(position, list(steps(position, left, [], CODECS)))
    assert reached == end
    assert found == {offset: one for offset, one in seen(batches).items() if offset >= position}


def test_whole_batches_stay_as_they_are() -> None:
    batches = [at(built(3), 5), at(built(2), 8)]
    assert list(steps(5, batches, [], CODECS)) == [Append(one) for one in batches]


def test_markers_and_aborted_records_become_gaps() -> None:
    aborted, committed = in_transaction(at(built(3), 0), 1), in_transaction(at(built(2), 4), 1)
    batches = [aborted, marker(3, 1, commit=False), committed, marker(6, 1, commit=True)]
    assert list(steps(0, batches, [(1, 0)], CODECS)) == [Gap(0, 4), Append(committed), Gap(6, 1)]


def test_a_commit_does_not_end_an_aborted_transaction_of_another() -> None:
    batches = [
        in_transaction(at(built(1), 0), 2),
        marker(1, 1, commit=True),
        in_transaction(at(built(1), 2), 2),
    ]
    assert list(steps(0, batches, [(2, 0)], CODECS)) == [Gap(0, 3)]


def test_the_brokers_time_becomes_each_records_own() -> None:
    batch = replace(at(built(3), 4), attributes=APPEND_TIME, max_ms=MS + 99)
    [step] = steps(4, [batch], [], CODECS)
    assert isinstance(step, Append)
    assert not step.batch.append_time
    assert [ms for _, ms, _ in records.seen(step.batch, CODECS)] == [MS + 99] * 3


@pytest.mark.parametrize(("offset", "more"), [(0, 0), (3, 7), (5, 2 * records.FILL + 1)])
def test_a_deleted_prefix_is_filled_and_dropped(offset: int, more: int) -> None:
    *fill, last = first(Begin(offset, offset + more, PRODUCER, drops=True), MS, CODECS)
    assert last == Drop(offset + more)
    counts = [one.count for one in fill if isinstance(one, Append)]
    assert sum(counts) == more
    assert all(count <= records.FILL for count in counts), "no batch needs more memory"
    places = [one.offset for one in fill]
    assert places == sorted(places)
    assert all(isinstance(one, Append) and len(one.batch.payload) < 300_000 for one in fill)


def test_empty_records_have_an_empty_key_and_no_value() -> None:
    batch = records.filling(7, 3, MS, CODECS)
    told = list(DefaultRecordBatch(produced(batch, 1, 0)))
    assert [(one.offset, one.timestamp, one.key, one.value) for one in told] == [
        (n, MS, b"", None) for n in range(3)
    ]


def test_where_nothing_may_be_deleted_the_prefix_is_a_gap() -> None:
    assert list(first(Begin(3, 10, PRODUCER, drops=False), MS, CODECS)) == [Gap(3, 7)]
    assert list(first(Begin(3, 3, PRODUCER, drops=False), MS, CODECS)) == []


def test_a_gap_that_is_too_wide_is_refused() -> None:
    assert too_wide(Gap(0, MAX_GAP)) is None
    assert too_wide(Gap(0, MAX_GAP + 1)) is not None


@pytest.mark.parametrize("codec", range(5))
def test_compressed_records_are_read_back(codec: int) -> None:
    number, payload = CODECS.pack(codec, b"record " * 5000)
    assert CODECS.unpack(number, payload) == b"record " * 5000
    assert number == codec


@pytest.mark.parametrize(
    "plain", [b"", b"a", b"ab" * 100_000, b"x" * (64 << 10), random.Random(7).randbytes(70_000)]
)
def test_lz4_is_written_in_blocks_that_stand_alone(plain: bytes) -> None:
    """Kafka reads no others."""
    codec, frame = CODECS.pack(LZ4, plain)
    assert (codec, CODECS.unpack(codec, frame)) == (LZ4, plain)
    assert frame[4] & 0x20, "the flag of blocks that do not depend on each other"
    found, at = b"", 7
    while size := int.from_bytes(frame[at : at + 4], "little"):
        at += 4
        end = at + (size & 0x7FFF_FFFF)
        block = frame[at:end]
        most = min(64 << 10, len(plain) - len(found))
        found += block if size >> 31 else bytes(cramjam.lz4.decompress_block(block, output_len=most))
        at = end
    assert (found, frame[at:]) == (plain, bytes(4))


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 7])
def test_damaged_compression_is_named(codec: int) -> None:
    with pytest.raises(BatchError, match="compress"):
        CODECS.unpack(codec, b"\x82SNAPPY\0" + b"\0" * 8 + b"\0\0\0\x09garbage")


@given(st.binary(max_size=60), st.integers(0, 5))
def test_garbled_records_are_refused_and_never_hang(payload: bytes, count: int) -> None:
    with suppress(BatchError):
        assert len(records.read(payload, count)) == count
