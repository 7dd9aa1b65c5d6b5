"""The copier between two clusters in memory: killed, unheard, doubled, written past."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, count, repeat
from math import inf
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.topics.mirror.batches import at, built, in_transaction, marker, without
from tests.unit.topics.mirror.model_cluster import Killed, Log, ModelCluster
from zkmigrate.errors import HostError, LockedError
from zkmigrate.topics.mirror.clients import copier
from zkmigrate.topics.mirror.clients.cluster import Fetched, Part
from zkmigrate.topics.mirror.clients.codecs import KafkaCodecs
from zkmigrate.topics.mirror.clients.copier import Copier
from zkmigrate.topics.mirror.clients.owners import Owner
from zkmigrate.topics.mirror.clients.partition import Partition
from zkmigrate.topics.mirror.clients.survey import Mirrored, places
from zkmigrate.topics.mirror.rules import gaps, small_batches
from zkmigrate.topics.mirror.rules.batch import Batch, encode
from zkmigrate.topics.mirror.verbs.compare import _compared

PLAIN, HOLES, CUT = ("plain", 0), ("holes", 0), ("cut", 0)


@pytest.fixture(autouse=True, scope="module")
def _no_waiting() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SETTLE_S", "RETRY_S", "LOOK_S"):
            patch.setattr(copier, name, 0.0)
        patch.setattr(gaps, "FILL", 4)
        patch.setattr(small_batches, "FEW", 0)  # several batches are to be in flight
        yield


def source() -> ModelCluster:
    """Plain batches; transactions and holes of compaction; a log that begins at 11."""
    plain, holes, cut = Log(), Log(), Log(start=11)
    for n in range(7):
        plain.append(built(1 + n % 3, first_value=n))
    left = [
        without(built(5), [1, 3]),
        in_transaction(built(2, first_value=20), 5),
        marker(0, 5, commit=False),
        in_transaction(built(2, first_value=30), 5),
        marker(0, 5, commit=True),
        built(3, first_value=40),
        marker(0, 6, commit=True),
    ]
    for one in left:
        holes.append(one)
    holes.aborted = [(5, 5, 7)]
    holes.batches.append(at(built(1, first_value=50), holes.end + 6))
    for n in range(4):
        cut.append(built(2, first_value=n))
    return ModelCluster("source", {PLAIN: plain, HOLES: holes, CUT: cut})


def empty() -> ModelCluster:
    return ModelCluster("target", {PLAIN: Log(), HOLES: Log(), CUT: Log()})


def copying(here: ModelCluster, there: ModelCluster) -> Copier:
    deletes = {topic for topic, _ in here.logs}
    return Copier(cast(Any, here), cast(Any, there), here.logs, deletes, KafkaCodecs(), lambda _: None)


def copied(here: ModelCluster, there: ModelCluster) -> Copier:
    """A copier after its work."""
    made = copying(here, there)
    rounds = count()
    made.copy(lambda: next(rounds) > 300, lambda: None, once=True)
    return made


def assert_equal(here: ModelCluster, there: ModelCluster) -> None:
    for part, log in here.logs.items():
        assert there.logs[part].read() == log.read(), part
        assert (there.logs[part].start, there.logs[part].end) == (log.start, log.end)


def writes(here: ModelCluster) -> int:
    """How many writes a copier needs that nothing disturbs."""
    there, done = empty(), []
    there.fault = lambda: done.append(1) or ""  # type: ignore[func-returns-value]
    made = copied(here, there)
    assert [p.failed for p in made.partitions.values()] == [""] * 3
    assert_equal(here, there)
    return len(done)


def faults(kind: str, place: int) -> Iterator[str]:
    """One fault at the n-th write."""
    yield from [""] * place
    yield kind
    while True:
        yield ""


@pytest.mark.parametrize("few", [0, 2])
@pytest.mark.parametrize("kind", ["killed", "killed after", "late"])
def test_h8_killed_at_any_write_the_next_copier_goes_on(
    kind: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late write arrives while the next copier waits for target to stand still."""
    monkeypatch.setattr(small_batches, "FEW", few)
    here = source()
    for place in range(writes(here)):
        there, told = empty(), faults(kind, place)
        there.fault = lambda told=told: next(told)  # type: ignore[misc]
        with pytest.raises(Killed):
            copied(here, there)
        monkeypatch.setattr(time, "sleep", there.arrive)
        copied(here, there)
        assert_equal(here, there)


def clock(monkeypatch: pytest.MonkeyPatch, then: Callable[[float], object]) -> list[float]:
    """A clock that only waiting moves on. then: told each time."""
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds or 0.1
        then(now[0])

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(copier, "SETTLE_S", 2.5)
    return now


def test_h8_a_position_is_read_after_a_former_copiers_last_write(monkeypatch: pytest.MonkeyPatch) -> None:
    here = source()
    for place in range(writes(here)):
        there, told, died = empty(), faults("late", place), [inf]

        def arrives(now: float, there: ModelCluster = there, died: list[float] = died) -> None:
            if now - died[-1] > 2.4:
                there.arrive()

        with monkeypatch.context() as patch:
            now = clock(patch, arrives)
            there.fault = lambda told=told: next(told)  # type: ignore[misc]
            with pytest.raises(Killed):
                copied(here, there)
            died.append(now[0])
            copied(here, there)
        assert_equal(here, there)


def test_h4_others_go_on_while_a_partition_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = source(), empty()
    now = clock(monkeypatch, lambda _: None)
    made = copying(here, there)
    for part in (HOLES, CUT):
        del made.partitions[part]
    made.copy(lambda: there.logs[PLAIN].end == here.logs[PLAIN].end, lambda: None)
    begun = now[0]
    made.add([HOLES])
    here.logs[PLAIN].append(built(3))
    made.copy(lambda: there.logs[PLAIN].end == here.logs[PLAIN].end, lambda: None)
    assert (now[0], there.logs[HOLES].end) == (begun, 0)
    now[0] += 2.5
    made.copy(lambda: False, lambda: None, once=True)
    assert there.logs[HOLES].read() == here.logs[HOLES].read()


@given(
    st.lists(st.sampled_from(["", "", "", "moved", "lost", "unheard"]), max_size=40),
    st.integers(1, 5),
    st.booleans(),
)
@settings(deadline=None, max_examples=examples(40))
def test_h6_leaders_that_move_on_either_side_cost_nothing(kinds: list[str], every: int, silent: bool) -> None:
    here, there, asked = source(), empty(), count(1)

    def away() -> bool:
        return (n := next(asked)) < 50 and n % (every + 1) == 0

    here.silent, here.away = (away, lambda: False) if silent else (lambda: False, away)
    told = chain(kinds, repeat(""))
    there.fault = lambda: next(told)
    copied(here, there)
    assert_equal(here, there)


@pytest.mark.parametrize("kind", ["lost", "unheard"])
def test_h6_an_answer_that_does_not_come_neither_doubles_nor_loses(kind: str) -> None:
    here = source()
    for place in range(writes(here)):
        there, told = empty(), faults(kind, place)
        there.fault = lambda told=told: next(told)  # type: ignore[misc]
        copied(here, there)
        assert_equal(here, there)


@pytest.mark.parametrize("dark", ["fetch", "source", "target"])
def test_h6_one_partition_whose_position_cannot_be_read_stops_no_other(dark: str) -> None:
    """Its broker tells the ends and nothing else, or does not know the topic yet."""
    here, there = source(), empty()
    copied(here, there)
    for part in (PLAIN, HOLES):
        here.logs[part].append(built(2, first_value=70))
    told = there.fetched

    def fetched(asked: Any) -> dict[Part, Fetched]:
        if PLAIN in asked:
            raise HostError("target: no answer of broker 3")
        return told(asked)

    if dark == "fetch":
        there.fetched = fetched  # type: ignore[method-assign]
    else:
        side = here if dark == "source" else there
        side.leaders = lambda topics: {  # type: ignore[method-assign]
            name: {0: 1} for name in topics if name != PLAIN[0]
        }
    made = copied(here, there)
    assert there.logs[HOLES].read() == here.logs[HOLES].read()
    assert not any(p.failed for p in made.partitions.values())
    why = "target: no answer of broker 3" if dark == "fetch" else "LEADER_NOT_AVAILABLE"
    assert made.partitions[PLAIN].why == why
    found = [Mirrored(name, 1, 1, 1, {}, {}, {}, "") for name in ("plain", "holes")]
    states = {one.part: one.state for one in places(cast(Any, here), cast(Any, there), found)}
    assert states == {PLAIN: "unknown", HOLES: "equal"}
    one = places(cast(Any, here), cast(Any, there), found)[0]
    assert _compared(cast(Any, here), cast(Any, there), one).state == "unknown"


def test_what_kafka_refuses_has_kafkas_name_whatever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, fail in (("take", lambda names: dict.fromkeys(names, 55)), ("drop", lambda *_: 55)):
        here, there = source(), empty()
        monkeypatch.setattr(there, name, fail)
        failed = {p.failed for p in copied(here, there).partitions.values()} - {""}
        assert failed == {"Kafka's error OPERATION_NOT_ATTEMPTED"}, name


def test_h6_a_broker_that_does_not_answer_stops_only_what_it_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others need not wait until the position of its partitions is read anew."""
    here, there = source(), empty()
    led = {PLAIN: 1, HOLES: 2, CUT: 2}
    here.leaders = lambda topics: {name: {0: led[name, 0]} for name in topics}  # type: ignore[method-assign]
    told = here.fetched
    done = list[tuple[str, int]]()

    def fetched(asked: Any) -> dict[Part, Fetched]:
        if PLAIN in asked and HOLES not in asked and there.logs[HOLES].end < here.logs[HOLES].end:
            done.append(PLAIN)
            raise HostError("gone")
        return told(asked)

    here.fetched = fetched  # type: ignore[method-assign]
    made = copying(here, there)
    opened = list[object]()
    begin = made._begin

    def begun(p: Partition, *rest: Any) -> None:
        opened.append(p.part)
        begin(p, *rest)

    monkeypatch.setattr(made, "_begin", begun)
    rounds = count()
    made.copy(lambda: next(rounds) > 300, lambda: None, once=True)
    assert done
    assert (opened.count(HOLES), opened.count(CUT)) == (1, 1)
    assert opened.count(PLAIN) == 1 + len(done)
    assert_equal(here, there)


def test_h8_the_older_of_two_copiers_stops_at_its_next_question(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = source(), empty()
    older = copying(here, there)
    rounds = count()
    older.copy(lambda: next(rounds) > 2, lambda: None)
    copied(here, there)
    monkeypatch.setattr(copier, "LEASE_S", -1.0)
    with pytest.raises(LockedError, match="taken over"):
        older.copy(lambda: next(rounds) > 50, lambda: None)
    assert_equal(here, there)


def test_h8_who_loses_a_partition_goes_on_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer copier has a share of the partitions only."""
    here, there = source(), empty()
    told = list[Partition]()
    older = Copier(cast(Any, here), cast(Any, there), here.logs, {"cut"}, KafkaCodecs(), told.append)
    rounds = count()
    older.copy(lambda: next(rounds) > 2, lambda: None)
    newer = Copier(cast(Any, here), cast(Any, there), [HOLES], (), KafkaCodecs(), told.append)
    rounds = count()
    newer.copy(lambda: next(rounds) > 100, lambda: None, once=True)
    monkeypatch.setattr(copier, "LEASE_S", -1.0)
    rounds = count()
    with pytest.raises(LockedError, match=r"taken over holes-0\. This copier"):
        older.copy(lambda: next(rounds) > 100, lambda: None, once=True)
    assert [(p.part, p.taken) for p in told] == [(HOLES, True)]
    assert_equal(here, there)


def test_h8_who_lost_a_partition_does_not_take_it_back_when_its_leader_moves() -> None:
    here, there = source(), empty()
    older = copying(here, there)
    rounds = count()
    older.copy(lambda: next(rounds) > 1, lambda: None)
    newer = there.take(["zkmigrate-mirror-plain-0"])["zkmigrate-mirror-plain-0"]
    older.partitions[PLAIN].again("moved")
    rounds = count()
    with pytest.raises(LockedError, match="taken over plain-0"):
        older.copy(lambda: next(rounds) > 100, lambda: None, once=True)
    assert there.owners["zkmigrate-mirror-plain-0"] == newer


def test_h8_the_lease_begins_before_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer may be late, and somebody else may have taken over meanwhile."""
    here, there = source(), empty()
    now = [100.0]
    monkeypatch.setattr(copier, "LEASE_S", 2.0)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    made = copying(here, there)
    take, asked = there.take, list[float]()

    def late(names: Sequence[str]) -> dict[str, Owner]:
        now[0] += 2.1
        return take(names)

    monkeypatch.setattr(there, "take", late)
    ended = there.ended

    def told(owners: Sequence[Owner]) -> dict[str, int]:
        asked.append(now[0])
        now[0] += 2.1
        return ended(owners)

    monkeypatch.setattr(there, "ended", told)
    rounds = count()
    made.copy(lambda: next(rounds) > 2, lambda: None)
    assert len(asked) > 1, "each lease was over when its answer came"


def test_h8_an_older_copiers_batches_are_not_appended_twice() -> None:
    """It goes on within its lease, from the position that both have."""
    here, there = source(), empty()
    older, newer = copying(here, there), copying(here, there)
    begun = [count(), count()]
    older.copy(lambda: next(begun[0]) > 0, lambda: None)
    newer.copy(lambda: next(begun[1]) > 0, lambda: None)
    for n in range(20):
        ends = chain((False, False), repeat(True))
        try:
            (older if n % 2 else newer).copy(ends.__next__, lambda: None, once=True)
        except LockedError:  # of the older, at a marker
            break
    copied(here, there)
    assert there.logs[PLAIN].read() == here.logs[PLAIN].read()


def test_h8_markers_of_a_former_copier_are_refused_after_the_first_of_the_next() -> None:
    here, there = source(), empty()
    former = there.take(["zkmigrate-mirror-holes-0"])["zkmigrate-mirror-holes-0"]
    copied(here, there)
    log = there.logs[HOLES]
    end = log.end
    assert log.mark(former) == 47
    assert log.end == end


@pytest.mark.parametrize("late", [0.0, 2.1])
def test_h8_no_marker_is_written_without_asking_who_may_once_the_lease_is_over(
    late: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that takes long lies between the copier's question and the next marker."""
    here, there = source(), empty()
    now = clock(monkeypatch, lambda _: None)
    monkeypatch.setattr(copier, "LOOK_S", -1.0)
    made = copying(here, there)
    for part in (PLAIN, CUT):
        del made.partitions[part]
    p, ends, taken = made.partitions[HOLES], there.ends, list[int]()

    def slow(parts: Any, *, committed: bool = False) -> Any:
        at_rest = p.open and there.logs[HOLES].end == p.position
        if at_rest and p.steps and isinstance(p.steps[0], gaps.Gap) and not taken:
            taken.append(there.logs[HOLES].end)
            there.take(["zkmigrate-mirror-holes-0"])
            now[0] += late
        return ends(parts, committed=committed)

    monkeypatch.setattr(there, "ends", slow)
    rounds = count()
    with suppress(LockedError):
        made.copy(lambda: next(rounds) > 100 or (taken != [] and not late), lambda: None)
    assert taken
    assert p.taken == (late > 0)
    assert (there.logs[HOLES].end == taken[0]) == (late > 0), "within its lease it may go on"


def test_only_committed_records_are_copied() -> None:
    here, there = source(), empty()
    here.logs[PLAIN].append(in_transaction(built(2, first_value=70), 5))
    stable = here.logs[PLAIN].stable
    here.logs[PLAIN].append(built(1, first_value=80))
    copied(here, there)
    assert there.logs[PLAIN].end == stable == here.logs[PLAIN].end - 3
    here.logs[PLAIN].append(marker(0, 5, commit=False))
    copied(here, there)
    assert_equal(here, there)


def test_h6_a_fetch_that_source_refuses_is_read_anew_and_no_end_of_the_log() -> None:
    here, there = source(), empty()
    told, asks = here.fetched, count()

    def fetched(asked: Any) -> Any:
        found = told(asked)
        if PLAIN in found and next(asks) == 0:
            found[PLAIN] = replace(found[PLAIN], error=29, records=b"")
        return found

    here.fetched = fetched  # type: ignore[method-assign]
    made = copied(here, there)
    assert made.partitions[PLAIN].failed == "Kafka's error TOPIC_AUTHORIZATION_FAILED"
    assert there.logs[HOLES].read() == here.logs[HOLES].read()


def foreign() -> Batch:
    return built(1, first_value=99)


def test_h2_a_write_at_rest_is_named_at_the_next_look() -> None:
    here, there = source(), empty()
    made = copied(here, there)
    end = there.logs[PLAIN].end
    there.logs[PLAIN].append(foreign())
    rounds = count()
    made.copy(lambda: next(rounds) > 3, lambda: None)
    assert f"offset {end + 1}; needed: {end}" in made.partitions[PLAIN].failed
    assert made.partitions[HOLES].failed == ""


def test_h6_records_that_target_lost_are_copied_again_while_source_is_idle() -> None:
    """By an unclean election. Else the copier would say that nothing lags, until the next record."""
    here, there = source(), empty()
    made, rounds = copied(here, there), count()
    del there.logs[PLAIN].batches[-2:]
    there.logs[PLAIN].producers.clear()

    def ended() -> bool:
        return next(rounds) > 100 or there.logs[PLAIN].end == here.logs[PLAIN].end

    made.copy(ended, lambda: None)
    assert [p.failed for p in made.partitions.values()] == [""] * 3
    assert_equal(here, there)


@pytest.mark.parametrize("part", [PLAIN, HOLES])
def test_h2_a_write_in_between_is_named_by_the_answer(part: tuple[str, int]) -> None:
    """Wherever it lands, the partition fails, and no later copier goes on."""
    here = source()
    for place in range(1, writes(here)):
        there, told = empty(), faults("foreign", place)

        def fault(there: ModelCluster = there, told: Iterator[str] = told) -> str:
            if next(told) == "foreign":
                there.logs[part].append(foreign())
            return ""

        there.fault = fault
        made = copied(here, there)
        if made.partitions[part].failed == "":  # it came after the last write to this partition
            assert there.logs[part].end == here.logs[part].end + 1
        for _ in range(3):
            here.logs[part].append(built(2, first_value=70))
        assert copied(here, there).partitions[part].failed != ""
        del here.logs[part].batches[-3:]


def test_h17_after_a_switch_the_copy_turns_round_at_the_common_end() -> None:
    """What was source has records of producers, also of aborted transactions. Nothing is copied twice."""
    here, there = source(), empty()
    copied(here, there)
    for again in range(3):
        front, back = (there, here) if again % 2 == 0 else (here, there)
        ends = {part: log.end for part, log in front.logs.items()}
        for part, log in front.logs.items():
            log.append(built(2, first_value=80 + again))
            log.append(built(1, first_value=90 + again))
            assert back.logs[part].end == ends[part]
        made = copied(front, back)
        assert [p.failed for p in made.partitions.values()] == [""] * 3
        assert_equal(front, back)


@pytest.mark.parametrize("odd", [built(2, first_value=99), marker(0, 9, commit=False)])
def test_h17_turned_round_it_refuses_what_the_other_side_has_otherwise_or_not_at_all(odd: Batch) -> None:
    here, there = source(), empty()
    copied(here, there)
    here.logs[PLAIN].append(built(2, first_value=70))
    there.logs[PLAIN].append(odd)
    there.logs[PLAIN].append(built(2, first_value=80))
    assert "another producer" in copied(there, here).partitions[PLAIN].failed


def test_h2_the_mirrors_own_batch_at_a_wrong_offset_is_named() -> None:
    """A marker too many before it, say of a frozen copier on another machine."""
    here, there = source(), empty()
    copied(here, there)
    log = there.logs[PLAIN]
    last = log.batches.pop()
    log.append(marker(0, 9, commit=False))
    log.append(last)
    here.logs[PLAIN].append(built(3, first_value=60))
    assert "producer id 9), and source has a record" in copied(here, there).partitions[PLAIN].failed


def test_batches_are_not_joined_where_target_takes_only_smaller_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_batches, "FEW", 4)
    here, there = source(), empty()
    largest = max(len(encode(one)) for one in here.logs[PLAIN].batches)
    copied(here, there)
    assert len(there.logs[PLAIN].batches) < len(here.logs[PLAIN].batches)
    there = empty()
    there.logs[PLAIN].largest = largest
    copied(here, there)
    assert_equal(here, there)
    assert max(len(encode(one)) for one in there.logs[PLAIN].batches) <= largest


def test_a_source_that_was_made_anew_fails() -> None:
    here, there = source(), empty()
    copied(here, there)
    here.logs[PLAIN] = Log()
    assert "not ahead" in copied(here, there).partitions[PLAIN].failed


def test_a_damaged_batch_of_source_is_named_and_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = source(), empty()
    fetched = here.fetched

    def damaged(asked: Any) -> Any:
        told = fetched(asked)
        for part, one in told.items():
            if part == PLAIN and one.records:
                data = one.records[:-1] + bytes([one.records[-1] ^ 1])
                told[part] = replace(one, records=data)
        return told

    monkeypatch.setattr(here, "fetched", damaged)
    made = copied(here, there)
    assert made.partitions[PLAIN].failed.startswith("source: CRC")
    assert there.logs[PLAIN].batches == []
    assert made.partitions[HOLES].failed == ""


def test_an_older_source_that_has_deleted_more_is_followed() -> None:
    """The copier was away for longer than source keeps records."""
    here, there = source(), empty()
    copied(here, there)
    log = here.logs[PLAIN]
    log.append(built(3, first_value=60))
    log.append(built(3, first_value=63))
    log.start = log.batches[-1].base_offset
    del log.batches[:-1]
    copied(here, there)
    assert_equal(here, there)
