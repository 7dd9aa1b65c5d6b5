"""What target would not take of the records that are to be copied next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.unit.topics.mirror.batches import MS, built, without
from tests.unit.topics.mirror.model_cluster import Log, ModelCluster
from zkmigrate.topics.mirror.clients import ahead
from zkmigrate.topics.mirror.clients.cluster import Fetched, Part
from zkmigrate.topics.mirror.clients.survey import Mirrored, Place
from zkmigrate.topics.mirror.rules.batch import Batch
from zkmigrate.topics.mirror.rules.position import Ends
from zkmigrate.topics.mirror.rules.records import Record, read, varint, write
from zkmigrate.topics.mirror.rules.topic import AFTER, BEFORE, DIFFERENCE, NO_LIMIT

P = ("orders", 0)
HOUR, DAY = 3_600_000, 86_400_000
COMPACT = {"cleanup.policy": "compact"}


def later(batch: Batch, ms: int) -> Batch:
    return replace(batch, base_ms=batch.base_ms + ms, max_ms=batch.max_ms + ms)


def keyless(count: int) -> Batch:
    """The last record has no key."""
    made = built(count)
    *others, last = read(made.payload, count)
    bare = Record(last.attributes, last.ms_delta, last.delta, varint(-1) + varint(1) + b"v" + varint(0))
    return replace(made, payload=write([*others, bare]))


class Source(ModelCluster):
    """Also tells the first offset from a time on. asked: these times."""

    def __init__(self, *batches: Batch) -> None:
        super().__init__("source", {P: Log()})
        for one in batches:
            self.logs[P].append(one)
        self.asked: list[int] = []

    def first_at(self, _leader: int, part: tuple[str, int], ms: int) -> int:
        self.asked.append(ms)
        return next((one.base_offset for one in self.logs[part].batches if one.max_ms >= ms), -1)


@pytest.fixture(autouse=True)
def at_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records were made just now."""
    monkeypatch.setattr(ahead, "_now", lambda: MS + 1000)


def looked(source: Source, values: Mapping[str, str], target: int | None = None) -> Place:
    log = source.logs[P]
    state = "missing" if target is None else "behind"
    there = None if target is None else Ends(0, target)
    one = Place(P, Ends(log.start, log.end), log.end, there, state)
    topic = Mirrored("orders", 1, 0, 1, {}, {}, {}, "", values)
    [found] = ahead.looked(cast(Any, source), [topic], [one])
    return found


def why(source: Source, values: Mapping[str, str], target: int | None = None) -> str:
    found = looked(source, values, target)
    assert (found.state == "failed") is bool(found.why)
    return found.why


def test_a_record_without_a_key_is_found_wherever_it_stands_in_a_compacted_topic() -> None:
    source = Source(*(built(5) for _ in range(10)), keyless(3))
    no_key = (
        "target would refuse the next records: the record at offset 52 has no key, which a topic with cleanup"
    )
    assert why(source, COMPACT).startswith(no_key)
    assert why(source, {"cleanup.policy": "delete"}) == ""
    assert why(source, COMPACT, target=53) == "", "it is there already"


def test_what_was_not_looked_at_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "SCAN_BYTES", 100)
    source = Source(*(built(5) for _ in range(10)), keyless(3))
    note = "the search for records without a key reached offset 10 of 53"
    assert looked(source, COMPACT).note == note
    monkeypatch.setattr(ahead, "SCAN_BYTES", 1 << 20)
    monkeypatch.setattr(ahead, "SCAN_S", 0.0)
    assert looked(source, COMPACT).note == note


def test_a_broker_over_its_quota_sends_no_partition_and_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka 4 answers without an error and without records."""
    source = Source(built(5), keyless(3))
    fetched = source.fetched
    empty: list[dict[Part, Fetched]] = [{}, {}]
    monkeypatch.setattr(source, "fetched", lambda sent: empty.pop() if empty else fetched(sent))
    assert "the record at offset 7 has no key" in looked(source, COMPACT).why
    monkeypatch.setattr(source, "fetched", lambda _: {})
    monkeypatch.setattr(ahead, "SCAN_S", 0.0)
    place = looked(source, COMPACT)
    assert (place.state, place.why) == (
        "unknown",
        "source returned no records of orders-0 from offset 0 on",
    )


def test_records_that_source_refuses_to_send_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(built(5))
    refused = Fetched(29, -1, -1, (), b"")
    monkeypatch.setattr(source, "fetched", lambda _: {P: refused})
    place = looked(source, {})
    assert place.state == "unknown"
    assert place.why.startswith("source: orders-0: ")


@pytest.mark.parametrize(
    ("shift", "values", "said"),
    [
        (2 * HOUR, {AFTER: str(HOUR)}, f"later than {AFTER}={HOUR} allows"),
        (2 * HOUR, {AFTER: NO_LIMIT, DIFFERENCE: str(HOUR)}, f"later than {DIFFERENCE}={HOUR} allows"),
        (-2 * DAY, {BEFORE: str(DAY)}, f"earlier than {BEFORE}={DAY} allows"),
        (-2 * DAY, {DIFFERENCE: str(DAY)}, f"earlier than {DIFFERENCE}={DAY} allows"),
        (2 * HOUR, {AFTER: NO_LIMIT, BEFORE: NO_LIMIT}, ""),
        (2 * HOUR, {AFTER: str(3 * HOUR)}, ""),
        (-DAY // 2, {BEFORE: str(DAY), AFTER: str(HOUR)}, ""),
    ],
)
def test_a_record_whose_time_target_does_not_take_is_named_with_the_setting(
    shift: int, values: dict[str, str], said: str
) -> None:
    found = why(Source(built(3), later(built(3), shift)), values)
    assert (said in found and "the batch at offset 3 has a record of 20" in found) if said else found == ""


def test_source_finds_a_late_record_behind_those_that_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "PEEK_BYTES", 1)
    source = Source(*(built(3) for _ in range(9)), later(built(3), 2 * HOUR))
    assert "the batch at offset 27 has a record of" in why(source, {AFTER: str(HOUR)})
    assert source.asked == [MS + 1000 + HOUR]
    assert why(source, {}) == ""


def test_a_time_that_no_calendar_has_is_told_in_milliseconds() -> None:
    assert f"a record of {1 << 62} ms" in why(Source(later(built(1), (1 << 62) - MS)), {AFTER: "5"})


def test_a_batch_that_is_too_large_is_named() -> None:
    assert "bytes, more than max.message.bytes=70" in why(Source(built(3)), {"max.message.bytes": "70"})
    assert why(Source(built(3)), {"max.message.bytes": "1000"}) == ""


def test_a_batch_of_an_old_format_is_named() -> None:
    source = Source(built(3))
    fetched = source.fetched

    def old(asked: Any) -> Any:
        return {
            part: replace(one, records=one.records[:16] + b"\x01" + one.records[17:])
            for part, one in fetched(asked).items()
        }

    source.fetched = old  # type: ignore[method-assign]
    assert why(source, {}) == "source: magic: the batch at offset 0 has format 1; needed: 2"


def test_holes_and_equal_partitions_are_no_trouble() -> None:
    assert why(Source(without(built(5), [2])), COMPACT) == ""
    source = Source(built(3))
    equal = Place(P, Ends(0, 3), 3, Ends(0, 3), "equal")
    source.silent = lambda: True
    topic = Mirrored("orders", 1, 1, 1, {}, {}, {}, "", {})
    assert ahead.looked(cast(Any, source), [topic], [equal]) == [equal]
    assert looked(source, {}).state == "unknown"
