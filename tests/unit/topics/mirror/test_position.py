"""Where a copier goes on, and what the answers to it mean."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import for_code

from tests.unit.topics.mirror.batches import at, built
from zkmigrate.topics.mirror.rules.batch import Batch
from zkmigrate.topics.mirror.rules.outcome import (
    _NAMES,
    AGAIN,
    FENCED,
    NO_TRANSACTION,
    TRIES,
    Again,
    Appended,
    Fenced,
    answered,
    outcome,
    owns,
)
from zkmigrate.topics.mirror.rules.position import (
    FIRST_FILLING_ID,
    Begin,
    Ends,
    Failed,
    Producer,
    Sides,
    begin,
    fresh,
    unequal,
)
from zkmigrate.topics.mirror.rules.stand import FIRST_ID, Stand


def sides(source: Ends, target: Ends) -> Sides:
    """Both without an open transaction."""
    return Sides(source, target, (source.end, target.end))


def last(offset: int, id: int, sequence: int) -> list[Batch]:
    """A last batch of three records on target."""
    return [replace(at(built(3), offset), producer_id=id, producer_epoch=0, base_sequence=sequence)]


def test_an_empty_target_begins_as_a_producer_of_its_end() -> None:
    assert begin(sides(Ends(0, 9), Ends(0, 0)), [], deletes=True) == Begin(0, 0, Producer(FIRST_ID, 0), False)


def test_the_last_batch_tells_producer_and_sequence() -> None:
    told = begin(sides(Ends(0, 9), Ends(0, 8)), last(4, FIRST_ID + 2, 2), deletes=True)
    assert told == Begin(8, 8, Producer(FIRST_ID + 2, 5), False), "offset 7 is a gap that is filled"


def test_a_target_that_is_ahead_fails() -> None:
    assert isinstance(begin(sides(Ends(0, 9), Ends(0, 10)), [], deletes=True), Failed)


@pytest.mark.parametrize("id", [-1, 0, 7000, FIRST_ID - 1])
def test_after_another_producers_batch_a_producer_of_targets_end_goes_on(id: int) -> None:
    told = begin(sides(Ends(0, 9), Ends(0, 8)), last(5, id, 2), deletes=True)
    assert told == Begin(8, 8, Producer(FIRST_ID + 8, 0), False), "target was the source before a switch"
    own = begin(sides(Ends(0, 9), Ends(0, 8)), [*last(2, id, 0), *last(5, FIRST_ID + 5, 0)], deletes=True)
    assert own == Begin(8, 8, Producer(FIRST_ID + 5, 3), False)


NOT_COMPARED = (
    "another producer (id 7) wrote target's batch at offset 2. Source has deleted its records below "
    "offset 3, so they were not compared"
)


@pytest.mark.parametrize("source", [Ends(3, 9), Ends(3, 8)])
def test_another_producers_batch_that_retention_deleted_on_source_first_is_noted(source: Ends) -> None:
    batches = [*last(2, 7, 0), *last(5, FIRST_ID, 0)]
    told = begin(sides(source, Ends(0, 8)), batches, deletes=True)
    assert told == Begin(8, 8, Producer(FIRST_ID, 3), False, NOT_COMPARED)


def test_another_producers_batch_that_no_retention_can_have_deleted_on_source_fails() -> None:
    batches = [*last(2, 7, 0), *last(5, FIRST_ID, 0)]
    told = begin(sides(Ends(3, 9), Ends(0, 8)), batches, deletes=False)
    assert isinstance(told, Failed)
    assert told.why.startswith(f"{NOT_COMPARED}. Without the cleanup policy delete")


@pytest.mark.parametrize("id", [-1, 7000, FIRST_ID - 1])
def test_what_is_wrong_names_offset_and_producer(id: int) -> None:
    assert (
        f"another producer (id {id}) wrote target's record at offset 4"
        in unequal(Stand(4, 5, (1, b""), id)).why
    )
    assert unequal(Stand(5, 6, (1, b""), FIRST_ID)).why.startswith(
        "target's record at offset 5 differs from source's"
    )
    assert (
        f"offset 4 holds the end or the aborted record of a transaction (producer id {id})"
        in unequal(Stand(4, 5, None, id)).why
    )


def test_an_open_transaction_on_target_fails() -> None:
    told = begin(Sides(Ends(0, 9), Ends(0, 8), (9, 6)), [], deletes=True)
    assert isinstance(told, Failed)
    assert told.why.startswith("a transaction is open on target from offset 6 on")


def test_a_target_beyond_what_source_has_committed_fails() -> None:
    assert isinstance(begin(Sides(Ends(0, 9), Ends(0, 8), (7, 8)), [], deletes=True), Failed)
    assert isinstance(begin(Sides(Ends(0, 9), Ends(0, 8), (8, 8)), [], deletes=True), Begin)


def test_a_deleted_prefix_is_filled_by_an_id_of_its_own() -> None:
    source = Ends(100, 120)
    assert begin(sides(source, Ends(0, 0)), [], deletes=True) == Begin(
        0, 100, Producer(FIRST_FILLING_ID, 0), True
    )
    half = last(40, FIRST_FILLING_ID, 40)
    assert begin(sides(source, Ends(0, 43)), half, deletes=True) == Begin(
        43, 100, Producer(FIRST_FILLING_ID, 43), True
    )
    undropped = last(97, FIRST_FILLING_ID, 97)
    assert begin(sides(source, Ends(0, 100)), undropped, deletes=True) == Begin(
        100, 100, Producer(FIRST_FILLING_ID, 100), True
    )
    assert begin(sides(source, Ends(0, 0)), [], deletes=False) == Begin(0, 100, Producer(FIRST_ID, 0), False)


def test_after_records_that_were_copied_a_prefix_deleted_since_is_filled_by_its_own_id() -> None:
    """A copier that wrote it under the id of data would later take it for records of source."""
    told = begin(sides(Ends(100, 120), Ends(0, 8)), last(5, FIRST_ID + 5, 0), deletes=True)
    assert told == Begin(8, 100, Producer(FIRST_FILLING_ID + 8, 0), True)


def test_empty_records_beyond_the_begin_of_sources_log_fail() -> None:
    told = begin(sides(Ends(100, 120), Ends(0, 101)), last(98, FIRST_FILLING_ID, 98), deletes=True)
    assert isinstance(told, Failed)
    assert told.why.startswith("target's empty records go up to offset 101, and source's log begins at 100")


def test_records_that_source_has_deleted_meanwhile_stay_on_an_even_target() -> None:
    told = begin(sides(Ends(8, 8), Ends(0, 8)), last(5, FIRST_ID, 5), deletes=True)
    assert told == Begin(8, 8, Producer(FIRST_ID, 8), False)


@given(st.integers(0, 1 << 40), st.integers(1, 1000))
def test_ids_of_the_mirror_are_far_from_those_of_brokers_and_fit(end: int, count: int) -> None:
    for own in (fresh(end), fresh(end, filling=True)):
        assert FIRST_ID <= own.id < 1 << 63
        assert own.after(count) == Producer(own.id, count)


def test_only_the_needed_offset_is_an_append() -> None:
    assert answered(5, 0, 5) == Appended()
    for seen in (4, 6):
        told = answered(5, 0, seen)
        assert isinstance(told, Failed)
        assert f"offset {seen}; needed: 5" in told.why


def test_what_may_be_there_already_is_read_anew_a_few_times() -> None:
    for error in (45, 46, 59, -1, 1):
        assert isinstance(outcome(error, TRIES - 1), Again)
        assert isinstance(outcome(error, TRIES), Failed)
    assert isinstance(outcome(7, 1000), Again), "a broker may be away for long"


@pytest.mark.parametrize("error", [47, 52, 90])
def test_who_is_fenced_stops(error: int) -> None:
    assert outcome(error) == Fenced()
    assert owns(error) is False


def test_codes_have_kafkas_names() -> None:
    """kafka-python still has two by their former names."""
    fenced = ("INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED", "PRODUCER_FENCED")
    codes = {**AGAIN, **_NAMES, **dict(zip(sorted(FENCED), fenced, strict=True))}
    codes[NO_TRANSACTION] = "INVALID_TXN_STATE"
    renamed = {6: "NOT_LEADER_OR_FOLLOWER", 10: "MESSAGE_TOO_LARGE"}
    assert codes == {code: renamed.get(code, for_code(code).message) for code in codes}


def test_what_kafka_refuses_fails_by_kafkas_name() -> None:
    assert outcome(10) == Failed("Kafka's error MESSAGE_TOO_LARGE")
    assert outcome(9999) == Failed("Kafka's error 9999")


def test_an_id_that_has_expired_is_taken_anew() -> None:
    """Kafka forgets a transactional id a week after its last transaction; the copier never makes one."""
    assert isinstance(outcome(49), Again)
    assert owns(49) is None


def test_the_owner_hears_that_it_began_no_transaction() -> None:
    assert (owns(48), owns(0), owns(16)) == (True, True, None)
