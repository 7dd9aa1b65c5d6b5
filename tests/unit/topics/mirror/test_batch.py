"""Record batches: what is read, refused and rewritten."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from tests.unit.topics.mirror.batches import at, built, in_transaction, marker, sent
from zkmigrate.topics.mirror.rules.batch import (
    APPEND_TIME,
    TRANSACTIONAL,
    BatchError,
    Head,
    bare,
    head,
    next_sequence,
    parse,
    produced,
    visible,
)

ONE = built(3)


@given(st.lists(st.integers(1, 5), max_size=4), st.integers(0, 1 << 40))
def test_what_is_encoded_is_read_back(counts: list[int], offset: int) -> None:
    batches = []
    for count in counts:
        batches.append(at(built(count), offset))
        offset = batches[-1].next_offset
    assert parse(sent(*batches)) == batches


def test_a_last_batch_that_is_cut_short_is_left_out() -> None:
    data = sent(ONE, at(ONE, 3))
    for length in range(len(data) // 2, len(data)):
        assert parse(data[:length]) == [ONE]
    for length in range(1, len(data) // 2):
        with pytest.raises(BatchError, match="length: the first batch") as caught:
            parse(data[:length])
        assert caught.value.at == 0
    assert parse(b"") == []


def test_a_batch_that_compaction_has_emptied_is_read() -> None:
    empty = replace(ONE, count=0, payload=b"")
    assert parse(sent(empty, at(ONE, 3))) == [empty, at(ONE, 3)]
    assert head(sent(empty)) == Head(0, empty.SIZE)


def test_a_bare_batch_is_one_without_its_payload() -> None:
    second = replace(at(ONE, 3), leader_epoch=5)
    assert bare(sent(ONE, second), len(sent(ONE))) == replace(second, payload=b"")


def test_the_first_batch_may_begin_before_the_offset_asked_for_and_none_overlaps_the_last() -> None:
    assert parse(sent(ONE), 2) == [ONE]
    with pytest.raises(BatchError, match="order: offsets 2 to 4 arrived, but 3 was needed") as caught:
        parse(sent(ONE, at(ONE, 2)))
    assert caught.value.at == len(sent(ONE))


@pytest.mark.parametrize(("offset", "asked"), [(-3, 0), (-1, 0), (0, 3), (4, 8)])
def test_a_batch_below_the_offset_that_was_asked_for_is_named(offset: int, asked: int) -> None:
    with pytest.raises(BatchError, match=f"order: .* but {asked} was needed"):
        parse(sent(at(ONE, offset)), asked)
    assert parse(sent(at(ONE, asked)), asked) == [at(ONE, asked)]


@given(st.data())
def test_no_flipped_bit_passes(data: st.DataObject) -> None:
    """A change in the base offset or in the leader's epoch is outside the CRC: Kafka's format."""
    good = sent(ONE)
    place = data.draw(st.integers(8, len(good) - 1).filter(lambda n: not 12 <= n < 16))
    bad = bytearray(good)
    bad[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BatchError):
        parse(bytes(bad))


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"count": 4}, "count"),
        ({"count": -1}, "count"),
        ({"last_delta": -1, "count": 0}, "count"),
    ],
)
def test_impossible_counts_are_named(wrong: dict[str, int], what: str) -> None:
    with pytest.raises(BatchError) as caught:
        parse(sent(replace(ONE, **wrong)))  # type: ignore[arg-type]
    assert caught.value.what == what


def test_a_damaged_record_an_old_format_a_length_and_an_order_are_named() -> None:
    good = sent(ONE)
    damaged = good[:-1] + bytes([good[-1] ^ 1])
    old = good[:16] + b"\1" + good[17:]
    short = good[:8] + b"\0\0\0\1" + good[12:]
    for data, what in ((damaged, "CRC"), (old, "magic"), (short, "length"), (sent(ONE, ONE), "order")):
        with pytest.raises(BatchError) as caught:
            parse(data)
        assert caught.value.what == what


@pytest.mark.parametrize("attributes", [0, TRANSACTIONAL, 0x40])
def test_a_produced_batch_has_the_mirrors_producer_and_no_other_bits(attributes: int) -> None:
    batch = replace(at(ONE, 1000), attributes=attributes, leader_epoch=5)
    told = DefaultRecordBatch(produced(batch, 1 << 62, 17))
    assert told.validate_crc()
    assert (told.producer_id, told.producer_epoch, told.base_sequence) == (1 << 62, 0, 17)
    assert (told.base_offset, told.leader_epoch, told.attributes) == (0, -1, 0)
    assert produced(batch, 1 << 62, 17)[61:] == ONE.payload


def test_sequence_numbers_go_round() -> None:
    last = (1 << 31) - 1
    assert [next_sequence(last, 1), next_sequence(last - 1, 1), next_sequence(last, 3)] == [0, last, 2]


def test_only_aborted_transactions_and_markers_are_left_out() -> None:
    one, two = in_transaction(at(ONE, 0), 1), in_transaction(at(ONE, 3), 2)
    plain = at(ONE, 6)
    ended = [marker(9, 1, commit=False), marker(10, 2, commit=True)]
    again = in_transaction(at(ONE, 11), 1)
    last = marker(14, 1, commit=True)
    batches = [one, two, plain, *ended, again, last]
    assert visible(batches, [(1, 0)], [9]) == [two, plain, again]
    assert visible(batches, [], []) == [one, two, plain, again]
    assert visible([again, last], [(1, 12)], []) == [], "a fetch that begins inside an aborted transaction"
    later = [in_transaction(at(ONE, 15), 1), marker(18, 1, commit=False)]
    assert visible([again, last, *later], [(1, 15)], [18]) == [again], "it was committed before"
    assert visible([plain], [(plain.producer_id, 0)], []) == [plain], "it is in no transaction"


def test_aborted_transactions_count_in_the_order_of_their_offsets() -> None:
    first = in_transaction(at(ONE, 0), 2)
    assert visible([first], [(1, 15), (2, 0)], []) == []


def test_a_transaction_that_begins_right_behind_the_abort_of_the_last_one_is_aborted_by_itself() -> None:
    batches = [in_transaction(at(ONE, 0), 1), marker(3, 1, commit=False)]
    batches += [in_transaction(at(ONE, 4), 1), marker(7, 1, commit=False)]
    assert visible(batches, [(1, 0), (1, 4)], [3, 7]) == []


def test_the_brokers_clock_is_told() -> None:
    assert replace(ONE, attributes=APPEND_TIME).append_time
    assert not ONE.append_time
