"""The newest durable zxid: real directories, and the traps of zk-formats."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from pathlib import Path

import pytest

from tests.memory_files import BytesDirectory
from tests.unit.zkdata_fixtures import (
    VERSIONS,
    build_log,
    create_payload,
    log_from,
    pack_snappy,
    payload,
    record,
    recorded,
    recorded_files,
    text,
)
from zkmigrate.zookeeper.data.errors import CorruptError, CursorError, ForeignFileError, NoDataError
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.tail import newest
from zkmigrate.zookeeper.data.txnlog import Cursor

PADDING = b"\0" * (64 << 10)


def snapshot(body: bytes = b"anything") -> bytes:
    data = b"ZKSN" + struct.pack(">iq", 2, -1) + body
    return data + struct.pack(">q", zlib.adler32(data)) + b"\0\0\0\x01/"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["standalone", "observer"])
def test_recorded_logs_end_where_a_forward_walk_ends(version: str, kind: str) -> None:
    directory = recorded(version, kind)
    tail = newest(directory)
    *_, last = walk(directory, full=True)
    assert (tail.zxid, tail.source, tail.file, tail.offset, tail.torn) == (
        last.zxid,
        "log",
        last.file,
        last.offset,
        False,
    )
    assert tail.end == last.end


@pytest.mark.parametrize("version", VERSIONS)
def test_an_observer_that_joined_by_snapshot_has_its_zxid_in_a_snapshot_only(version: str) -> None:
    files = recorded_files(version, "observer-snap")
    assert not [name for name in files if name.startswith("log.")]
    tail = newest(BytesDirectory(files))
    assert tail.source == "snapshot"
    assert tail.zxid == max(int(n.split(".")[1], 16) for n in files if n.startswith("snapshot."))
    assert tail.zxid > 0
    assert tail.cursor is None


def test_the_same_few_reads_whatever_the_size(tmp_path: Path) -> None:
    costs = []
    for size in (1 << 20, 64 << 20, 5 << 30):
        home = tmp_path / str(size)
        home.mkdir()
        with (home / "log.5").open("wb") as file:
            file.write(build_log(5, 500))
            file.truncate(size)
        tail = newest(FileDirectory(home))
        assert tail.zxid == 504
        costs.append((tail.reads, tail.bytes_read))
    assert max(reads for reads, _ in costs) <= 24
    assert max(read for _, read in costs) <= 400_000


def test_long_last_records_and_zero_payloads_are_found() -> None:
    for size in (10, 5_000, 70_000, 900_000):
        for data in (b"x" * size, b"\0" * size, b"B\0\0\0\0" * (size // 5)):
            payloads = [create_payload(5, "/a"), create_payload(6, "/big", data)]
            for padding in (b"", PADDING):
                tail = newest(BytesDirectory({"log.5": log_from(payloads) + padding}))
                assert (tail.zxid, tail.torn) == (6, False)


def test_header_only_and_empty_logs_are_skipped_for_older_ones() -> None:
    files = {"log.5": build_log(5, 3) + PADDING, "log.8": build_log(8, 0) + PADDING, "log.9": b""}
    tail = newest(BytesDirectory(files))
    assert (tail.zxid, tail.file, tail.skipped) == (7, "log.5", ("log.9", "log.8"))


def test_a_torn_first_record_of_the_newest_log_is_said_with_the_record_before_it() -> None:
    files = {"log.5": build_log(5, 3) + PADDING, "log.8": build_log(8, 1)[:-5] + PADDING}
    tail = newest(BytesDirectory(files))
    assert (tail.zxid, tail.file, tail.skipped, tail.torn) == (7, "log.5", ("log.8",), True)


@pytest.mark.parametrize("cut", [1, 5, 13, 40, 60])
def test_a_torn_tail_is_walked_and_said(cut: int) -> None:
    tail = newest(BytesDirectory({"log.5": build_log(5, 3)[:-cut]}))
    assert (tail.zxid, tail.torn) == (6, True)
    padded = newest(BytesDirectory({"log.5": build_log(5, 3)[:-cut] + PADDING}))
    assert (padded.zxid, padded.torn) == (6, True)


def test_a_payload_that_holds_records_does_not_fool_a_torn_tail() -> None:
    forged = record(create_payload(900, "/forged")) + record(create_payload(901, "/forged"))
    outer = record(create_payload(6, "/a", b"x" * 50 + forged + b"y" * 100))
    log = build_log(5, 1) + outer
    inside = log.index(forged) + len(forged)
    for data in (log[:inside], log[:inside] + PADDING):
        tail = newest(BytesDirectory({"log.5": data}), cursor=Cursor("log.5", len(build_log(5, 1)), 5))
        assert (tail.zxid, tail.torn) == (5, True)
        found = newest(BytesDirectory({"log.5": data}))
        assert (found.zxid, found.torn) == (5, True)


@pytest.mark.parametrize("before", [0, 60_000, 70_000, 800_000, 1_040_000])
def test_an_enclosing_record_is_found_near_and_far(before: int) -> None:
    forged = record(create_payload(900, "/forged"))
    outer = record(create_payload(6, "/a", b"B" + b"x" * before + b"B" + forged + b"y" * 10))
    log = log_from([create_payload(5, "/a", b"x" * 3000)]) + outer
    data = log[: log.index(forged) + len(forged)]
    found = newest(BytesDirectory({"log.5": data + PADDING}))
    assert (found.zxid, found.torn) == (5, True)


def test_an_enclosing_record_is_looked_for_as_far_back_as_the_servers_take_one() -> None:
    forged = record(create_payload(900, "/forged"))
    outer = record(create_payload(6, "/a", b"x" * 2_000_000 + forged))
    data = build_log(5, 1) + outer[: outer.index(forged) + len(forged)] + PADDING
    found = newest(BytesDirectory({"log.5": data}), jute_maxbuffer=2_500_000)
    assert (found.zxid, found.torn) == (5, True)


def test_a_crafted_last_payload_does_not_fool_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outer record's own closing bytes (a version, 0x42) complete an inner record: only a walk tells."""
    path = b"\0\0\0\x02/a"
    inner_head = create_payload(999, "/forged", b"")[:32]
    inner_body = (
        inner_head + b"\0\0\0\x07/forged" + struct.pack(">i", 3)
    )  # the last int is the outer's version
    frame = struct.pack(">qi", zlib.adler32(inner_body), len(inner_body))
    data = frame + inner_body[:-4]
    head = struct.pack(">qiqqi", 1, 1, 6, 1000, 5)
    outer = record(head + path + struct.pack(">i", len(data)) + data + struct.pack(">i", 3))
    log = build_log(5, 1)
    for cursor in (None, Cursor("log.5", len(log), 5)):
        assert newest(BytesDirectory({"log.5": log + outer}), cursor=cursor).zxid == 6
    monkeypatch.setattr("zkmigrate.zookeeper.data.tail.enclosing_span", lambda _jute_maxbuffer: 0)
    assert newest(BytesDirectory({"log.5": log + outer})).zxid == 999  # what the search is for


def test_a_snapshot_above_the_log_wins_when_whole_and_is_skipped_when_not() -> None:
    log = {"log.5": build_log(5, 3) + PADDING}
    good = snapshot()
    tail = newest(BytesDirectory({**log, "snapshot.9": good, "snapshot.5": good}))
    assert (tail.zxid, tail.source, tail.file) == (9, "snapshot", "snapshot.9")
    for bad in (good[:-1], good[:-20], b"", b"ZKSN", good[:20] + b"?" + good[21:], good + b"x"):
        tail = newest(BytesDirectory({**log, "snapshot.9": bad, "snapshot.8": good}))
        assert (tail.zxid, tail.file, tail.skipped) == (8, "snapshot.8", ("snapshot.9",))
    tail = newest(BytesDirectory({**log, "snapshot.9": b""}))
    assert (tail.zxid, tail.source) == (7, "log")


def test_compressed_snapshots() -> None:
    good = gzip.compress(snapshot())
    assert newest(BytesDirectory({"snapshot.9.gz": good})).zxid == 9
    for bad in (good[:-3], good[: len(good) // 2], good + b"x", snapshot()):
        with pytest.raises(NoDataError):
            newest(BytesDirectory({"snapshot.9.gz": bad}))
    packed = pack_snappy(snapshot())
    assert newest(BytesDirectory({"snapshot.9.snappy": packed})).zxid == 9
    for bad in (packed[:-3], packed[:20], packed[:8], packed + b"x", snapshot()):
        with pytest.raises(NoDataError):
            newest(BytesDirectory({"snapshot.9.snappy": bad}))


def test_the_quick_snapshot_check_is_the_servers_own() -> None:
    damaged = bytearray(snapshot())
    damaged[20] ^= 1
    assert newest(BytesDirectory({"snapshot.9": bytes(damaged)}), check=False).zxid == 9
    with pytest.raises(NoDataError):
        newest(BytesDirectory({"snapshot.9": bytes(damaged)}))
    with pytest.raises(NoDataError):
        newest(BytesDirectory({"snapshot.9": bytes(damaged[:-1])}), check=False)


def test_data_and_log_directories_may_differ() -> None:
    data = BytesDirectory({"snapshot.4": snapshot()})
    log = BytesDirectory({"log.5": build_log(5, 3)})
    assert newest(data, log).zxid == 7
    assert newest(data, BytesDirectory({})).zxid == 4


def test_nothing_there_is_an_error_and_strays_give_no_zxid() -> None:
    with pytest.raises(NoDataError):
        newest(BytesDirectory({}))
    tail = newest(
        BytesDirectory({"log.5": build_log(5, 1), "log.9.bak": build_log(9, 1), "snapshot.9.tmp": snapshot()})
    )
    assert tail.zxid == 5
    assert tail.strays == ("log.9.bak", "snapshot.9.tmp")
    with pytest.raises(ForeignFileError):
        newest(BytesDirectory({"log.5": b"not a log, but long enough to be one"}))


def test_damage_in_the_middle_is_an_error_when_the_walk_meets_it() -> None:
    data = bytearray(build_log(5, 4))
    data[150] ^= 1
    with pytest.raises(CorruptError):
        newest(BytesDirectory({"log.5": bytes(data[:-5])}))


def test_a_cursor_below_which_the_log_was_cut_is_refused() -> None:
    whole = build_log(5, 4)
    with pytest.raises(CursorError):
        newest(BytesDirectory({"log.5": whole[:150]}), cursor=Cursor("log.5", len(whole), 8))
    with pytest.raises(CursorError):
        newest(BytesDirectory({"log.1": build_log(1, 2)}), cursor=Cursor("log.5", len(whole), 8))


def test_torn_and_flipped_logs_agree_with_a_forward_walk() -> None:
    rng = random.Random(3)
    for _ in range(1500):
        count = rng.randrange(1, 12)
        payloads = [create_payload(5 + n, "/a", rng.randbytes(rng.randrange(0, 300))) for n in range(count)]
        data = bytearray(log_from(payloads))
        if rng.random() < 0.5:
            del data[rng.randrange(17, len(data)) :]
        data += b"\0" * rng.choice([0, 1, 100, 4096, 9000, 70000])
        if rng.random() < 0.5:
            data[rng.randrange(16, len(data))] ^= 1 << rng.randrange(8)
        directory = BytesDirectory({"log.5": bytes(data)})
        try:
            scanned = [r.zxid for r in walk(directory, full=True)]
        except CorruptError:
            continue  # damage in the middle: the tail may stand behind it; the full scan is the proof
        if scanned:
            assert newest(directory).zxid == scanned[-1]


def test_numbers_inside_a_record_that_look_like_a_frame_do_not_make_it_walk() -> None:
    """A cxid 0x4200 and a zxid 0x4201 read as an end mark, a checksum and a length of 16 MB."""
    body = text("/kafka/n") + struct.pack(">i", 9000) + bytes([7]) * 9000 + struct.pack(">i", 1)
    zxids = range(0x4001, 0x4281)
    log = log_from(payload(zxid, 5, body, cxid=zxid - 1, time_ms=0x1A201CA7158) for zxid in zxids)
    assert b"\x42\0\0\0\0\0\0\0\x42\x01\0\0\x01" in log
    tail = newest(BytesDirectory({"log.4001": log + PADDING}))
    assert tail.zxid == zxids[-1]
    assert tail.bytes_read < len(log) / 2
