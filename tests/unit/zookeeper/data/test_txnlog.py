"""Logs: real directories of each server version, built ones, and damaged ones."""

from __future__ import annotations

import json

import pytest

from tests.memory_files import BytesDirectory, BytesReader
from tests.unit.zkdata_fixtures import VERSIONS, build_log, create_payload, log_from, payload, recorded
from zkmigrate.zookeeper.data.effect import touched_paths
from zkmigrate.zookeeper.data.errors import CorruptError, CursorError, ForeignFileError, TruncatedHeaderError
from zkmigrate.zookeeper.data.logdir import strays, walk
from zkmigrate.zookeeper.data.txn import CloseSessionTxn, ErrorTxn, MultiTxn, TxnType
from zkmigrate.zookeeper.data.txnlog import Cursor, EndKind, cursor_from_json, cursor_to_json, log_zxid, scan


@pytest.mark.parametrize("version", VERSIONS)
def test_every_recorded_log_decodes_whole_and_in_order(version: str) -> None:
    logs = walk(recorded(version, "standalone"), full=True)
    records = list(logs)
    assert [r.zxid for r in records] == list(range(1, records[-1].zxid + 1))
    assert logs.gaps == []
    assert {end.kind for end in logs.ends.values()} == {EndKind.PADDING}
    kinds = {r.txn().header.type for r in records}
    wanted = {"create", "delete", "setData", "setACL", "multi", "error", "createSession", "closeSession"}
    if not version.startswith("3.4"):
        wanted |= {"create2", "createContainer", "deleteContainer", "createTTL"}
    assert wanted <= {kind.name for kind in kinds}
    digests = {r.txn().digest is not None for r in records if r.txn().header.type is TxnType.create}
    assert digests == {version >= "3.6"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_failed_multi_touches_nothing_and_a_good_one_every_part(version: str) -> None:
    multis = [r.txn() for r in walk(recorded(version, "standalone")) if r.type == TxnType.multi]
    bodies = [txn.body for txn in multis if isinstance(txn.body, MultiTxn)]
    assert [body.failed for body in bodies] == [False, True]
    good = touched_paths(multis[0])
    assert good[:3] == ("/kafka/multi", "/kafka/multi/child", "/kafka/brokers")
    assert len(good) == 4  # the check is no change
    assert touched_paths(multis[1]) == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_close_session_names_its_paths_from_3_6_on_and_cxid_0_means_expiry(version: str) -> None:
    closes = [r.txn() for r in walk(recorded(version, "standalone")) if r.type == TxnType.closeSession]
    paths = [txn.body.paths for txn in closes if isinstance(txn.body, CloseSessionTxn)]
    if version < "3.6":
        assert set(paths) == {None}
    else:
        assert {frozenset(p) for p in paths if p} == {
            frozenset({"/kafka/brokers/ids/closed", "/other/closed"}),
            frozenset({"/kafka/brokers/ids/expired"}),
        }
        by_path = {p[0]: txn.header.cxid for txn, p in zip(closes, paths, strict=True) if p}
        assert by_path.pop("/kafka/brokers/ids/expired") == 0
        assert all(by_path.values())


def test_error_transactions_carry_their_code() -> None:
    errors = [r.txn() for r in walk(recorded("3.5.8", "standalone")) if r.type == TxnType.error]
    assert -103 in {txn.body.err for txn in errors if isinstance(txn.body, ErrorTxn)}  # BadVersion


@pytest.mark.parametrize(
    "name", ["log.1.bak", "log.", "log.G", "log.1 ", "LOG.1", "log.0x1", "snapshot.1", "log.A"]
)
def test_only_real_log_names_count(name: str) -> None:
    assert log_zxid(name) is None


def test_ends_are_told_apart() -> None:
    whole = build_log(5, 3)
    cases = {
        EndKind.EXACT: (whole, ""),
        EndKind.PADDING: (whole + b"\0" * 5000, ""),
        EndKind.TORN: (whole[:-1] + b"\0" * 5000, "instead of 0x42"),
    }
    for kind, (data, detail) in cases.items():
        log = scan(BytesReader(data), "log.5", full=True)
        zxids = [r.zxid for r in log]
        assert log.end is not None
        assert log.end.kind is kind
        assert detail in log.end.detail
        assert zxids == ([5, 6] if kind is EndKind.TORN else [5, 6, 7])


def test_every_cut_of_a_log_ends_torn_or_exact_never_wrong() -> None:
    whole = build_log(5, 3)
    bounds = {r.end: r.zxid for r in scan(BytesReader(whole), "log.5")}
    for cut in range(16, len(whole)):
        log = scan(BytesReader(whole[:cut]), "log.5", full=True)
        zxids = [r.zxid for r in log]
        assert zxids == [z for end, z in bounds.items() if end <= cut]
        assert log.end is not None
        clean = cut in bounds or cut == 16
        zeros_only = not whole[max([16, *[e for e in bounds if e <= cut]]) : cut].strip(b"\0")
        assert (log.end.kind is EndKind.TORN) == (not clean and not zeros_only)


def test_a_checksum_that_fails_at_the_end_is_torn_in_the_middle_corrupt() -> None:
    whole = build_log(5, 3)
    ends = [r.end for r in scan(BytesReader(whole), "log.5")]
    last = bytearray(whole)
    last[ends[2] - 5] ^= 1
    log = scan(BytesReader(bytes(last) + b"\0" * 100), "log.5")
    assert [r.zxid for r in log] == [5, 6]
    assert log.end is not None
    assert log.end.bad_checksum
    middle = bytearray(whole)
    middle[ends[1] - 5] ^= 1
    with pytest.raises(CorruptError, match=rf"log\.5 at offset {ends[0]}: .*checksum.*data follows at"):
        list(scan(BytesReader(bytes(middle)), "log.5"))


def test_zeros_in_the_middle_are_seen_by_a_full_scan_only() -> None:
    whole = build_log(5, 3)
    ends = [r.end for r in scan(BytesReader(whole), "log.5")]
    holed = whole[: ends[0]] + b"\0" * (ends[1] - ends[0]) + whole[ends[1] :]
    assert [r.zxid for r in scan(BytesReader(holed), "log.5")] == [5]
    with pytest.raises(CorruptError, match="zeros that end a log start here, but data follows at"):
        list(scan(BytesReader(holed), "log.5", full=True))


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", TruncatedHeaderError),
        (b"ZKL", TruncatedHeaderError),
        (b"ZKLG\0\0\0\x02", TruncatedHeaderError),
        (b"PK\3\4", ForeignFileError),
        (b"\0" * 5000, ForeignFileError),
        (b"ZKSN" + b"\0" * 40, ForeignFileError),
        (b"ZKLG\0\0\0\x03" + b"\0" * 40, ForeignFileError),
    ],
)
def test_what_is_no_log_is_named(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^log\.5 at offset"):
        scan(BytesReader(data), "log.5")


def test_lengths_out_of_bounds_and_a_first_zxid_unlike_the_name_are_corrupt() -> None:
    with pytest.raises(CorruptError, match="a record has -1 bytes"):
        list(scan(BytesReader(build_log(5, 0) + b"\0" * 8 + b"\xff" * 4 + b"\0" * 50), "log.5"))
    with pytest.raises(CorruptError, match="but 1 to 100 are allowed"):
        list(scan(BytesReader(log_from([create_payload(5, "/a", b"x" * 200)])), "log.5", max_record=100))
    with pytest.raises(CorruptError, match="first record is 0x5, which is not the zxid in the file's name"):
        list(scan(BytesReader(build_log(5, 2)), "log.4"))


def test_holes_are_listed_new_epochs_are_none_and_falling_zxids_are_corrupt() -> None:
    epoch2 = (2 << 32) | 1
    log = scan(BytesReader(log_from([create_payload(z, "/a") for z in (5, 6, epoch2, epoch2 + 2)])), "log.5")
    list(log)
    assert [(g.before, g.after) for g in log.gaps] == [(epoch2, epoch2 + 2)]
    log = scan(BytesReader(log_from([create_payload(z, "/a") for z in (5, epoch2 + 1)])), "log.5")
    list(log)
    assert [(g.before, g.after) for g in log.gaps] == [(5, epoch2 + 1)]
    with pytest.raises(CorruptError, match="0x5 comes after 0x6"):
        list(scan(BytesReader(log_from([create_payload(z, "/a") for z in (5, 6, 5)])), "log.5"))


def test_small_blocks_read_the_same() -> None:
    data = log_from([create_payload(5 + n, "/a", bytes([n]) * (n * 37)) for n in range(40)]) + b"\0" * 300
    whole = list(scan(BytesReader(data), "log.5", full=True))
    assert list(scan(BytesReader(data), "log.5", full=True, block=64)) == whole
    assert len(whole) == 40


def test_a_cursor_reads_only_the_rest_and_notices_new_files() -> None:
    first = build_log(5, 3)
    files = {"log.5": first + b"\0" * 100}
    begun = walk(BytesDirectory(files))
    assert [r.zxid for r in begun] == [5, 6, 7]
    cursor = begun.cursor
    assert cursor == Cursor("log.5", len(first), 7)
    assert list(walk(BytesDirectory(files), cursor=cursor)) == []
    files["log.5"] = build_log(5, 4) + b"\0" * 50
    files["log.9"] = build_log(9, 2)
    files["log.b"] = b""
    rest = walk(BytesDirectory(files), cursor=cursor)
    assert [r.zxid for r in rest] == [8, 9, 10]
    assert rest.gaps == []
    assert rest.cursor == Cursor("log.9", len(files["log.9"]), 10)


def test_a_cursor_that_no_longer_fits_is_refused() -> None:
    data = build_log(5, 3)
    with pytest.raises(CursorError, match="no longer exists"):
        walk(BytesDirectory({"log.9": data}), cursor=Cursor("log.5", len(data), 7))
    with pytest.raises(CursorError, match="was truncated"):
        list(walk(BytesDirectory({"log.5": data[:100]}), cursor=Cursor("log.5", len(data), 7)))
    with pytest.raises(CursorError, match="no record ends"):
        list(walk(BytesDirectory({"log.5": data}), cursor=Cursor("log.5", len(data) - 3, 6)))


def test_files_are_ordered_by_number_and_holes_between_them_are_listed() -> None:
    files = {"log.9": build_log(9, 7), "log.10": build_log(16, 2), "log.14": build_log(20, 1)}
    log = walk(BytesDirectory(files))
    assert [r.zxid for r in log] == [9, 10, 11, 12, 13, 14, 15, 16, 17, 20]
    assert [(g.file, g.before, g.after) for g in log.gaps] == [("log.14", 17, 20)]
    with pytest.raises(CorruptError, match="of an older file"):
        list(walk(BytesDirectory({"log.9": build_log(9, 7), "log.a": build_log(10, 1)})))


def test_a_bad_checksum_is_an_error_in_a_log_that_is_not_the_newest() -> None:
    broken = bytearray(build_log(5, 2))
    broken[-5] ^= 1
    with pytest.raises(CorruptError, match="not the newest"):
        list(walk(BytesDirectory({"log.5": bytes(broken), "log.6": build_log(6, 1)})))


def test_walk_after_starts_in_the_file_that_holds_the_zxid() -> None:
    files = {"log.5": build_log(5, 3), "log.8": build_log(8, 3), "log.b": build_log(11, 1)}
    assert [r.zxid for r in walk(BytesDirectory(files), after=8)] == [8, 9, 10, 11]
    assert [r.zxid for r in walk(BytesDirectory(files), after=7)] == [8, 9, 10, 11]
    assert [r.zxid for r in walk(BytesDirectory(files), after=6)] == [5, 6, 7, 8, 9, 10, 11]
    assert [r.zxid for r in walk(BytesDirectory(files), after=1)] == [5, 6, 7, 8, 9, 10, 11]


def test_strays_are_reported() -> None:
    names = ["log.1", "log.1.bak", "snapshot.0", "snapshot.5.tmp", "snapshot.5.gz", "currentEpoch", "readme"]
    directory = BytesDirectory(dict.fromkeys(names, b""))
    assert strays(directory) == ("log.1.bak", "readme", "snapshot.5.tmp")


def test_a_record_that_does_not_decode_names_file_and_offset() -> None:
    record = next(scan(BytesReader(log_from([payload(5, 99, b"")])), "log.5"))
    with pytest.raises(ValueError, match=r"log\.5 at offset 56: the transaction type 99 is unknown"):
        record.txn()


class GrowingLog:
    """A log that a server goes on writing: each read sees one more part of it."""

    def __init__(self, versions: list[bytes]) -> None:
        self._versions = versions
        self._reads = 0

    def size(self) -> int:
        return len(self._versions[0])

    def read(self, offset: int, length: int) -> bytes:
        data = self._versions[min(self._reads, len(self._versions) - 1)]
        self._reads += 1
        return data[offset : offset + length]


@pytest.mark.parametrize("full", [True, False])
def test_a_log_that_grows_while_it_is_read_is_not_damaged(full: bool) -> None:
    whole = build_log(5, 4)
    ends = [r.end for r in scan(BytesReader(whole), "log.5")]
    for cut in range(ends[0], ends[1]):
        early = whole[:cut] + b"\0" * (len(whole) - cut)
        log = scan(GrowingLog([early, whole]), "log.5", full=full)
        zxids = [r.zxid for r in log]
        assert zxids in ([5], [5, 6, 7, 8])
        again = scan(BytesReader(whole), "log.5", log.cursor)
        assert zxids + [r.zxid for r in again] == [5, 6, 7, 8]


def test_a_cursor_is_kept_as_json_and_read_back_whole_or_not_at_all() -> None:
    for cursor in (None, Cursor("log.100000001", 4096, (1 << 63) - 1)):
        assert cursor_from_json(json.loads(json.dumps(cursor_to_json(cursor)))) == cursor
    kept = {"file": "log.1", "offset": 16, "zxid": "0x1"}
    for wrong in ({**kept, "offset": "far"}, {**kept, "zxid": "one"}, {"file": "log.1"}):
        with pytest.raises(ValueError, match=r"position in a log|invalid literal"):
            cursor_from_json(wrong)
