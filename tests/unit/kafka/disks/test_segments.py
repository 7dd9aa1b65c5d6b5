"""Headers of Kafka's segments: a real broker's, hand-made ones, and damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.memory_files import BytesReader
from tests.unit.kafka_segments import batch, index, message, timeindex, unpack
from zkmigrate.kafka.disks.segments import (
    BLOCK,
    LATEST_MS,
    Folder,
    Segment,
    folder,
    read_segment,
    segment,
)
from zkmigrate.zookeeper.data.reader import CountingReader, FileReader

UUID = "f60c9836d10b4fb9b5763e8ede4aa9dc"


def read(log: bytes, base: int = 0, positions: bytes = b"", times: bytes = b"", **more: int) -> Segment:
    return read_segment(BytesReader(log), base, BytesReader(positions), BytesReader(times), **more)


def test_a_real_brokers_segments_are_read_as_kafka_reads_them(tmp_path: Path) -> None:
    told = unpack(tmp_path)
    assert len(told) > 8
    for name, wanted in told.items():
        file = tmp_path / name
        positions, times = FileReader(file.with_suffix(".index")), FileReader(file.with_suffix(".timeindex"))
        found = read_segment(FileReader(file), int(file.stem), positions, times)
        assert (found.end, found.next_offset) == (wanted["bytes"], wanted["next"]), name
        assert (found.last_ms, found.evidence) == (wanted["newest_ms"], "batches"), name
        assert (found.rest, found.corrupt) == ("", ""), name


def test_without_its_indexes_a_segment_reads_the_same() -> None:
    log = b"".join(batch(5 + n, 1000 + n) for n in range(50))
    wanted = Segment(1000, 1049, "batches", len(log), 55)
    assert read_segment(BytesReader(log), 5, None, None) == wanted
    assert read(log, 5, index((40, 4000)), timeindex((1040, 40))) == wanted


def test_the_newest_time_need_not_be_at_the_end() -> None:
    log = batch(0, 10, 900) + batch(1, 2000, 5000) + batch(2, 20) + batch(3, 30)
    assert read(log, 0, index((2, 200)) + bytes(80), timeindex((5000, 1)) + bytes(120)).last_ms == 5000


def test_only_the_ends_of_a_long_segment_are_read() -> None:
    log = b"".join(batch(n, 1000 + n, size=1000) for n in range(2000))
    counting = CountingReader(BytesReader(log))
    found = read_segment(counting, 0, BytesReader(index((1990, 1_990_000)) + bytes(800)), None)
    assert (found.next_offset, found.last_ms) == (2000, 2999)
    assert counting.bytes_read < 150_000


def near(log: bytes, base: int = 0, positions: bytes = b"", times: bytes = b"") -> tuple[Segment, int]:
    """As the ends alone give it, and the bytes of the log that came."""
    counting = CountingReader(BytesReader(log))
    found = read_segment(counting, base, BytesReader(positions), BytesReader(times), followed=BLOCK)
    return found, counting.bytes_read


@pytest.mark.parametrize("size", [70, 500, 16_000, 120_000])
@pytest.mark.parametrize("base", [0, 5, (7 << 32) - 2])
def test_the_end_of_a_followers_segment_is_found_behind_one_index_entry_for_a_whole_fetch(
    base: int, size: int
) -> None:
    count = (1 << 20) // size
    log = b"".join(batch(base + n, 1000 + n, size=size) for n in range(count + 3))
    positions, times = index((3, 3 * size)), timeindex((1002 + count, count))
    wanted = Segment(1000, 1002 + count, "batches", len(log), base + count + 3)
    assert read(log, base, positions, times) == wanted
    found, came = near(log, base, positions, times)
    assert (found, came < 2 * BLOCK) == (wanted, True)
    assert near(log, base, b"", times)[0] == wanted


def test_a_batch_inside_a_payload_is_not_taken_for_one_of_the_log() -> None:
    inner = batch(9_999, 5_000, size=300)
    outer = bytearray(batch(300, 1300, size=20_000))
    outer[-305:-5] = inner  # the record's own fields follow its value
    log = b"".join(batch(n, 1000 + n, size=5_000) for n in range(300)) + bytes(outer)
    assert near(log)[0] == read(log)
    assert near(log)[0].next_offset == 301


def test_preallocated_zeros_far_behind_the_last_batch_end_the_walk() -> None:
    log = batch(0, 1000) + batch(1, 2000) + bytes(10 * BLOCK)
    found, came = near(log)
    assert (found, came < BLOCK) == (Segment(1000, 2000, "batches", 200, 2, "zeros"), True)


def test_where_no_header_leads_to_the_end_the_time_index_tells() -> None:
    log = b"".join(batch(n, 1000 + n, size=500) for n in range(1000)) + batch(1000, 2000, size=3 * BLOCK)
    for torn in (log[:-1], log[:500_000] + log[-9:]):
        found, came = near(torn, 0, b"", timeindex((1017, 17)))
        assert found == Segment(first_ms=1000, last_ms=1017, evidence="timeindex")
        assert came < 2 * BLOCK
    assert near(log)[0] == Segment(first_ms=1000)


@pytest.mark.parametrize("used", [0, 1, 2, 63, 64, 1000])
@pytest.mark.parametrize("spare", [0, 1, 64, 100_000])
def test_the_last_entry_of_an_index_is_found_in_front_of_its_spare_zeros(used: int, spare: int) -> None:
    times = timeindex(*((2000 + n, n) for n in range(used))) + bytes(12 * spare)
    counting = CountingReader(BytesReader(times))
    found = read_segment(BytesReader(batch(0, 1000)), 0, None, counting)
    assert found.last_ms == (1999 + used if used else 1000)
    assert counting.reads <= (1 if used and not spare else (used + spare).bit_length() + 1)


def test_an_index_of_another_segment_does_not_mislead() -> None:
    log = b"".join(batch(n, 1000 + n) for n in range(4))
    for wrong in (index((2, 250)), index((9, 90_000)), index((2, -5)), b"\x01\x02\x03"):
        assert read(log, 0, wrong) == Segment(1000, 1003, "batches", 400, 4)


class Strict(BytesReader):
    """As a file that cannot be read in front of its beginning or behind its end."""

    def read(self, offset: int, length: int) -> bytes:
        assert 0 <= offset < offset + length <= self.size()
        return super().read(offset, length)


@pytest.mark.parametrize("position", [-5, 400, 90_000])
def test_nothing_outside_a_file_is_asked_for(position: int) -> None:
    log = b"".join(batch(n, 1000 + n) for n in range(4))
    found = read_segment(Strict(log), 0, Strict(index((2, position))), None)
    assert found == Segment(1000, 1003, "batches", 400, 4)


@pytest.mark.parametrize("kept", [1, 16, 17, 48, 99])
def test_a_torn_last_batch_is_not_counted(kept: int) -> None:
    log = batch(0, 1000) + batch(1, 2000)[:kept]
    assert read(log) == Segment(1000, 1000, "batches", 100, 1, "zeros" if kept == 1 else "torn")


def test_preallocated_zeros_are_no_records() -> None:
    assert read(batch(7, 1000) + bytes(5000), 7) == Segment(1000, 1000, "batches", 100, 8, "zeros")
    assert read(bytes(5000), 7) == Segment(end=0, next_offset=7, rest="zeros")
    assert read(b"", 7) == Segment(end=0, next_offset=7)
    assert read(b"\x00\x01", 7) == Segment(end=0, next_offset=7, rest="torn")


def test_what_is_no_batch_is_told_with_its_place() -> None:
    assert read(b"PK\x03\x04" * 40).corrupt.startswith("no record batch at 0: offset ")
    found = read(batch(0, 1000) + b"\xff" * 100)
    assert found.corrupt == "no record batch at 100: offset -1, length -1, magic 255"
    assert (found.end, found.next_offset, found.last_ms) == (100, 1, 1000)
    assert read(batch(3, 1000), 9).corrupt  # before the base offset


def test_old_formats_have_one_time_or_none() -> None:
    assert read(message(0, 0) + message(1, 0)) == Segment(end=120, next_offset=2)
    assert read(message(0, 1, 50) + message(1, 1, 40)) == Segment(50, 50, "batches", 120, 2)
    assert read(message(0, 1, 50) + batch(1, 60)) == Segment(50, 60, "batches", 160, 2)


def test_times_that_are_none_are_left_out() -> None:
    assert read(batch(0, -1)) == Segment(end=100, next_offset=1)
    assert read(batch(0, LATEST_MS + 1)).last_ms is None  # microseconds, by a producer's mistake
    append_time = batch(0, 5, 9000, attributes=1 << 3)
    delete_horizon = batch(0, 99_999, 9000, attributes=1 << 6)
    assert [read(one).first_ms for one in (append_time, delete_horizon)] == [9000, 9000]


def test_names() -> None:
    assert folder("a-b.c-12") == Folder("a-b.c", 12, "current")
    assert folder(f"gone-0.{UUID}-delete") == Folder("gone", 0, "deleted")
    assert folder(f"a-b-3.{UUID}-future") == Folder("a-b", 3, "future")
    assert folder(f"t-3.{UUID}-stray") == Folder("t", 3, "stray")
    assert [folder(name) for name in ("lost", "-1", "t-", "t-x", f"t.{UUID}-delete")] == [None] * 5
    assert segment("00000000000000000042.log") == (42, False)
    assert segment("00000000000000000042.log.deleted") == (42, True)
    assert segment("42.log") is None
