"""Logs as stretches and parts: every record once, damage as the reader of one record at a time tells it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.memory_files import BytesReader
from tests.unit.zkdata_fixtures import create_payload, log_from, record, set_payload
from zkmigrate.spark.sources import stretches
from zkmigrate.spark.sources.stretches import Part, Stretches, find, parts, record_starts, span
from zkmigrate.zookeeper.data.errors import CorruptError, ZkDataError
from zkmigrate.zookeeper.data.txnlog import FILE_HEADER_SIZE, EndKind, LogScan

NAME = "log.1"


def log(count: int, data: bytes = b"d" * 60, padding: int = 4096) -> bytes:
    return log_from(create_payload(zxid, f"/n{zxid}", data) for zxid in range(1, count + 1)) + bytes(padding)


def zxids(content: bytes, part: Part | None = None, block: int = 1 << 20, name: str = NAME) -> list[int]:
    found = Stretches(BytesReader(content), "s", part or Part(name), block=block)
    return [stretch.record(start).zxid for stretch in found for start in stretch.starts]


class Counted(BytesReader):
    """Counts the bytes that are read."""

    total = 0

    def read(self, offset: int, length: int) -> bytes:
        found = super().read(offset, length)
        self.total += len(found)
        return found


@pytest.mark.parametrize("block", [64, 100, 1000, 1 << 20])
def test_every_record_once_whatever_is_read_at_a_time(block: int) -> None:
    assert zxids(log(300), block=block) == list(range(1, 301))


def test_a_record_longer_than_a_block_is_read_whole() -> None:
    content = log_from([create_payload(1, "/a", bytes(5000)), create_payload(2, "/b")])
    assert zxids(content, block=100) == [1, 2]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (log(3), EndKind.PADDING),
        (log(3, padding=0), EndKind.EXACT),
        (log(3, padding=0)[:-5], EndKind.TORN),
        (log(0), EndKind.PADDING),
    ],
)
def test_how_a_log_ends(content: bytes, kind: EndKind) -> None:
    found = Stretches(BytesReader(content), "s", Part(NAME))
    list(found)
    assert found.end is not None
    assert found.end.kind is kind


# --- damage

WHOLE = log(40, padding=64)


def _read(begin: Callable[[], Iterable[int]]) -> tuple[list[int], str]:
    """The zxids up to the error, and the error."""
    seen: list[int] = []
    try:
        seen.extend(begin())
    except ZkDataError as error:
        return seen, f"{type(error).__name__} {error}"
    return seen, ""


@settings(max_examples=examples(2000), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(WHOLE) - 1), st.sampled_from([0, 1, 0x42, 0x7F, 0xFF])), max_size=4
    ),
    st.integers(0, 200),
    st.sampled_from([80, 700, 1 << 20]),
)
def test_damage_is_told_as_the_scan_tells_it(changes: list[tuple[int, int]], cut: int, block: int) -> None:
    content = bytearray(WHOLE[: len(WHOLE) - cut])
    for at, value in changes:
        if at < len(content):
            content[at] = value
    reader = BytesReader(bytes(content))
    by_scan = _read(lambda: (one.zxid for one in LogScan(reader, NAME, full=True)))
    found = Stretches(reader, "s", Part(NAME), block=block)
    by_stretches = _read(lambda: (one.record(start).zxid for one in found for start in one.starts))
    assert by_stretches[1] == by_scan[1]
    assert by_stretches[0] == by_scan[0][: len(by_stretches[0])]
    assert by_scan[1] or by_stretches[0] == by_scan[0]


def test_zxids_that_do_not_rise_are_told() -> None:
    content = log_from([create_payload(1, "/a"), create_payload(3, "/b"), create_payload(2, "/c")])
    with pytest.raises(CorruptError, match="0x2 comes after 0x3; zxids must increase"):
        zxids(content)


def test_a_first_zxid_that_is_not_the_names_is_told() -> None:
    with pytest.raises(CorruptError, match="not the zxid in the file's name"):
        zxids(log_from([create_payload(5, "/a")]), name="log.1")


# --- parts


@pytest.fixture
def short_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "CHAIN", 2000)
    monkeypatch.setattr(stretches, "_NEAR", 300)


@pytest.mark.usefixtures("short_chain")
@pytest.mark.parametrize("at_least", [1, 500, 5000, 20_000])
def test_parts_join_without_gap_or_overlap(at_least: int) -> None:
    content = log(400)
    cut = parts(BytesReader(content), NAME, at_least)
    assert len(cut) > 1
    assert cut[0].start == FILE_HEADER_SIZE
    assert [part.stop for part in cut] == [*[part.start for part in cut[1:]], None]
    assert [zxid for part in cut for zxid in zxids(content, part)] == list(range(1, 401))


@pytest.mark.parametrize("at_least", [0, 1 << 20])
def test_a_log_that_is_not_to_be_cut_is_one_part(at_least: int) -> None:
    assert parts(BytesReader(log(50)), NAME, at_least) == [Part(NAME)]


@pytest.mark.usefixtures("short_chain")
def test_records_inside_a_payload_are_no_place_to_cut() -> None:
    """Whole, in order, with zxids of the future, and at last zeros as at the end of a log."""
    inside = b"B" + b"".join(record(create_payload(1000 + n, f"/fake{n}")) for n in range(15)) + bytes(500)
    made = [create_payload(1, "/a"), create_payload(2, "/b", inside)]
    made += [set_payload(zxid, "/a", b"x" * 40) for zxid in range(3, 200)]
    content = log_from(made) + bytes(100)
    where = content.index(b"/fake0")
    found = find(BytesReader(content), where - 60, len(content) - 100)
    assert found is not None
    assert found[1] == 3
    for at_least in (60, 100, 700):
        cut = parts(BytesReader(content), NAME, at_least)
        assert [zxid for part in cut for zxid in zxids(content, part)] == list(range(1, 200))


def test_a_part_that_does_not_end_where_the_next_begins_is_refused() -> None:
    content = log(10)
    starts, _ = record_starts(content, FILE_HEADER_SIZE)
    with pytest.raises(CorruptError, match="splitMB=0"):
        zxids(content, Part(NAME, FILE_HEADER_SIZE, starts[4] + 7))
    with pytest.raises(CorruptError, match="the log ends here, although its next part begins at"):
        zxids(content, Part(NAME, starts[4], len(content) - 3))


@pytest.mark.usefixtures("short_chain")
@pytest.mark.parametrize("first", [0, 1, 2, 199, 200, 399, 400, 1000])
@pytest.mark.parametrize("last", [0, 1, 3, 200, 210, 399, 400, 1 << 62])
def test_where_to_read_for_some_zxids(first: int, last: int) -> None:
    content = log(400)
    start, stop = span(BytesReader(content), (first, last), 1)
    seen = zxids(content, Part(NAME, start, stop)) if stop is None or start < stop else []
    wanted = range(max(1, first), min(400, last) + 1)
    assert set(wanted) <= set(seen)
    assert seen == list(range(seen[0], seen[0] + len(seen))) if seen else not wanted
    assert len(seen) <= len(wanted) + 60


@pytest.mark.usefixtures("short_chain")
def test_records_of_unlike_lengths_are_searched_as_well() -> None:
    """Long ones first, then short ones: nothing stands where it would be expected."""
    made = [set_payload(zxid, "/a", b"x" * (3000 if zxid < 100 else 10)) for zxid in range(1, 1500)]
    content = log_from([create_payload(1, "/a"), *made[1:]])
    for first in range(1, 1500, 37):
        start, stop = span(BytesReader(content), (first, first + 5), 1)
        assert set(range(first, min(1500, first + 6))) <= set(zxids(content, Part(NAME, start, stop)))


def test_a_search_reads_little() -> None:
    content = log_from(set_payload(zxid, "/a", b"x" * 200) for zxid in range(1, 200_000))
    reader = Counted(content)
    start, stop = span(reader, (150_000, 151_000), 1)
    assert stop is not None
    assert stop - start < 5 << 20
    assert reader.total < 5 * stretches.CHAIN < len(content)


def test_nothing_is_found_where_nothing_is() -> None:
    assert find(BytesReader(bytes(1000)), 1, 1000) is None
    assert find(BytesReader(b"B\0\0\0\0" * 200), 1, 1000) is None
    assert find(BytesReader(b"B" + struct.pack(">qi", 0, 1 << 30) + bytes(900)), 1, 900) is None
