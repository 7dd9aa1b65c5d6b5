"""Small batches in one: the same records at the same offsets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.topics.mirror.batches import at, built, in_transaction
from tests.unit.topics.mirror.test_gaps import CODECS, applied, seen
from zkmigrate.topics.mirror.rules import small_batches
from zkmigrate.topics.mirror.rules.batch import Batch, BatchError
from zkmigrate.topics.mirror.rules.gaps import Append, Gap, Step, steps
from zkmigrate.topics.mirror.rules.records import Record, write
from zkmigrate.topics.mirror.rules.small_batches import FEW, JOINED_BYTES, joined


@st.composite
def logs(draw: st.DrawFn) -> list[Batch]:
    offset, found = draw(st.integers(0, 50)), list[Batch]()
    for n in range(draw(st.integers(1, 12))):
        batch = at(built(draw(st.integers(1, FEW + 2)), first_value=n), offset)
        shift = draw(st.integers(-(10**9), 10**9))
        batch = replace(batch, base_ms=batch.base_ms + shift, max_ms=batch.max_ms + shift)
        if draw(st.booleans()):
            batch = in_transaction(batch, 5)
        if draw(st.integers(0, 4)) == 0:
            codec, payload = CODECS.pack(1, batch.payload)
            batch = replace(batch, attributes=codec, payload=payload)
        found.append(batch)
        offset = batch.next_offset + draw(st.sampled_from([0, 0, 0, 2]))
    return found


@given(logs())
def test_every_record_keeps_its_offset_time_and_bytes(batches: list[Batch]) -> None:
    begun = batches[0].base_offset
    plain = list(steps(begun, batches, [], CODECS))
    found = list(joined(plain))
    assert applied(begun, found) == (batches[-1].next_offset, seen(batches))
    assert len(found) <= len(plain)
    times = {one.base_offset: one.max_ms for one in batches}
    for step in found:
        if isinstance(step, Append):
            inside = [ms for offset, ms in times.items() if step.offset <= offset < step.batch.next_offset]
            assert step.batch.max_ms == max(inside)


def test_batches_of_one_record_become_one_and_no_larger_than_a_limit() -> None:
    few = [at(built(1, first_value=n), n) for n in range(50)]
    [one] = joined(Append(batch) for batch in few)
    assert isinstance(one, Append)
    assert one.count == 50
    large = replace(built(1), payload=write([Record(0, 0, 0, bytes(70_000))]))
    found = list(joined(Append(at(large, n)) for n in range(3)))
    assert [step.count for step in found if isinstance(step, Append)] == [1, 1, 1]
    assert all(len(step.batch.payload) < JOINED_BYTES for step in found if isinstance(step, Append))


def test_many_records_packed_ones_and_gaps_stay_as_they_are() -> None:
    codec, payload = CODECS.pack(1, built(2).payload)
    packed = Append(replace(at(built(2), FEW + 1), attributes=codec, payload=payload))
    many = Append(at(built(FEW + 1), 0))
    todo: list[Step] = [many, packed, Gap(FEW + 3, 2), Append(at(built(1), FEW + 5))]
    assert list(joined(todo)) == todo


@pytest.mark.parametrize(
    "payload",
    [
        built(2).payload[:-1],
        built(2).payload + b"x",
        built(1).payload,
        b"\1" * 9,
        write([Record(0, 0, 0, b"\1\1\0"), Record(0, 0, 0, b"\1\1\0")]),
    ],
)
def test_a_batch_that_is_damaged_inside_is_named(payload: bytes) -> None:
    broken = replace(built(2), payload=payload)
    with pytest.raises(BatchError):
        list(joined([Append(broken), Append(at(built(1), 2))]))


def test_a_batch_alone_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_batches, "_shifted", None)
    assert list(joined([Append(built(1))])) == [Append(built(1))]
