"""Compressed snapshots: what real servers wrote reads as their plain ones, and every damage has its error."""

from __future__ import annotations

import gzip
import json
import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import pytest

from tests.memory_files import BytesDirectory, BytesReader
from tests.unit.zkdata_fixtures import RECORDED, pack_snappy, recorded_files, snapshot_of
from zkmigrate.zookeeper.data import snapstream
from zkmigrate.zookeeper.data.errors import CorruptError, ForeignFileError, TruncatedHeaderError, ZkDataError
from zkmigrate.zookeeper.data.reader import CountingReader
from zkmigrate.zookeeper.data.seal import check_snapshot
from zkmigrate.zookeeper.data.snapshot import SnapshotDigest, SnapshotNode, read_snapshot
from zkmigrate.zookeeper.data.snapstream import MAX_SNAPPY_BLOCK, SNAPPY_HEADER, raw_blocks
from zkmigrate.zookeeper.data.tail import newest
from zkmigrate.zookeeper.data.tree import load_tree

COMPRESSED = tuple(sorted(path.parent.name for path in RECORDED.glob("*/compressed.json")))
NAME = "snapshot.e"


def gz(data: bytes) -> bytes:
    """Compressed, and the same bytes at any time: a test is named after them."""
    return gzip.compress(data, mtime=0)


def nodes_of(files: dict[str, bytes], name: str) -> list[SnapshotNode]:
    return list(read_snapshot(BytesReader(files[name]), name))


def content(data: bytes, name: str) -> bytes:
    return b"".join(raw_blocks(BytesReader(data), name))


def expected_tree(version: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDED / version / "compressed.json").read_text())["tree"]
    return {path: stat for path, stat in found.items() if not path.startswith("/zookeeper")}


def test_every_minor_version_that_can_compress_is_recorded() -> None:
    assert [version.rpartition(".")[0] for version in COMPRESSED] == ["3.6", "3.7", "3.8", "3.9"]


@pytest.mark.parametrize("version", COMPRESSED)
def test_gzip_snappy_and_plain_of_one_tree_are_one_tree(version: str) -> None:
    files = recorded_files(version, "compressed")
    plain = nodes_of(files, NAME)
    assert nodes_of(files, f"{NAME}.gz") == plain
    assert nodes_of(files, f"{NAME}.snappy") == plain
    assert content(files[f"{NAME}.snappy"], f"{NAME}.snappy") == files[NAME]
    assert len(files[NAME]) > 3 * (32 << 10)  # several of the writer's blocks


@pytest.mark.parametrize("ending", ["", ".gz", ".snappy"])
@pytest.mark.parametrize("version", COMPRESSED)
def test_from_each_form_comes_the_tree_that_a_client_read(version: str, ending: str) -> None:
    files = recorded_files(version, "compressed")
    kept = {n: data for n, data in files.items() if n == NAME + ending or n.startswith("log.")}
    tree = load_tree(BytesDirectory(kept))
    assert tree.snapshot == NAME + ending
    wanted = expected_tree(version)
    assert {
        path: (n.data_sha256.hex(), n.data_length, n.mzxid, n.aversion) for path, n in tree.nodes.items()
    } == {
        path: (stat["sha256"], stat["length"], stat["mzxid"], stat["aversion"])
        for path, stat in wanted.items()
    }
    assert list(tree.owners.values()) == [("/bulk/living",)]


@pytest.mark.parametrize("version", COMPRESSED)
def test_a_compressed_snapshot_above_the_log_is_the_newest(version: str) -> None:
    files = recorded_files(version, "compressed")
    for ending in (".gz", ".snappy"):
        name = NAME + ending
        assert newest(BytesDirectory({name: files[name]})).zxid == 0xE
        assert check_snapshot(BytesReader(files[name]), name) == ""
        assert check_snapshot(BytesReader(files[name]), name, whole=False) == ""


@pytest.mark.parametrize("version", COMPRESSED)
def test_a_server_that_replayed_nothing_since_its_start_writes_an_empty_digest(version: str) -> None:
    """The first start replayed the log, the two after it only loaded a snapshot."""
    files = recorded_files(version, "compressed")
    seen = {}
    for name in (f"{NAME}.gz", f"{NAME}.snappy", NAME):
        snapshot = read_snapshot(BytesReader(files[name]), name)
        list(snapshot)
        seen[name] = snapshot.digest
    first = seen.pop(f"{NAME}.gz")
    assert first is not None
    assert (first.zxid, first.version) == (0xE, 2)
    assert set(seen.values()) == {SnapshotDigest(0, 2, 0)}


@pytest.mark.parametrize("ending", ["gz", "snappy"])
@pytest.mark.parametrize("version", COMPRESSED)
def test_every_cut_of_a_compressed_snapshot_is_found(version: str, ending: str) -> None:
    name = f"{NAME}.{ending}"
    good = recorded_files(version, "compressed")[name]
    cuts = {*range(40), *range(40, len(good), 211), *range(len(good) - 60, len(good))}
    for cut in cuts:
        damaged = BytesReader(good[:cut])
        assert check_snapshot(damaged, name), cut
        with pytest.raises(ZkDataError, match=rf"^{name} at offset \d+: "):
            list(read_snapshot(damaged, name))
    with pytest.raises(CorruptError):
        list(read_snapshot(BytesReader(good + b"\0\0\0\x01\0"), name))


def block(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


PACKED = block(bytes(cramjam.snappy.compress_raw(b"x" * 100)))
WIDE = b"\x80\x80\x80\x80\x08"  # a length of 2 GiB as a raw block declares it


@pytest.mark.parametrize(
    ("data", "error", "offset", "reason"),
    [
        (b"", TruncatedHeaderError, 0, "only 0 bytes, but a snappy stream starts with 16"),
        (SNAPPY_HEADER[:5], TruncatedHeaderError, 0, "5 bytes"),
        (SNAPPY_HEADER[:15], TruncatedHeaderError, 0, "15 bytes"),
        (b"ZKSN" + bytes(40), ForeignFileError, 0, "a snappy stream starts with"),
        (b"\xff\x06\0\0sNaPpY" + bytes(40), ForeignFileError, 0, "a snappy stream starts with"),
        (
            SNAPPY_HEADER[:8] + struct.pack(">ii", 2, 2) + PACKED,
            ForeignFileError,
            8,
            "version 2, compatible from 2",
        ),
        (
            SNAPPY_HEADER[:8] + struct.pack(">ii", 1, 0) + PACKED,
            ForeignFileError,
            8,
            "version 1, compatible from 0",
        ),
        (
            SNAPPY_HEADER + PACKED + struct.pack(">i", -1),
            CorruptError,
            16 + len(PACKED),
            "block has -1 bytes",
        ),
        (SNAPPY_HEADER + struct.pack(">i", 0), CorruptError, 16, "block has 0 bytes"),
        (SNAPPY_HEADER + struct.pack(">i", 0x7FFFFFFF), CorruptError, 16, "block has 2147483647 bytes"),
        (SNAPPY_HEADER + PACKED + SNAPPY_HEADER, CorruptError, 16 + len(PACKED), "block has -"),
        (
            SNAPPY_HEADER + PACKED + b"\0\0\0",
            CorruptError,
            16 + len(PACKED),
            "truncated inside a block's length",
        ),
        (SNAPPY_HEADER + PACKED[:-2], CorruptError, 16, "truncated: 2 bytes of a block are missing"),
        (SNAPPY_HEADER + block(WIDE), CorruptError, 20, "declares 2147483648 bytes"),
        (SNAPPY_HEADER + block(b"\0"), CorruptError, 20, "declares 0 bytes"),
        (SNAPPY_HEADER + block(b"\xff" * 9), CorruptError, 20, "snappy: corrupt input"),
        (SNAPPY_HEADER + block(b"\x05"), CorruptError, 20, "snappy: corrupt input"),
        (SNAPPY_HEADER + block(PACKED[4:] + b"x"), CorruptError, 20, "snappy: corrupt input"),
    ],
)
def test_what_is_wrong_with_a_snappy_stream_is_named(
    data: bytes, error: type[Exception], offset: int, reason: str
) -> None:
    with pytest.raises(error, match=rf"^snapshot\.5\.snappy at offset {offset}: .*{reason}"):
        content(data, "snapshot.5.snappy")


@pytest.mark.parametrize(
    ("data", "error", "offset", "reason"),
    [
        (b"", TruncatedHeaderError, 0, "only 0 bytes, but a gzip stream starts with 10"),
        (gz(b"x")[:9], TruncatedHeaderError, 0, "9 bytes"),
        (b"ZKSN" + bytes(40), ForeignFileError, 0, "a gzip stream starts with"),
        (gz(b"x" * 999)[:-1], CorruptError, 28, "truncated"),
        (gz(b"x" * 999) + b"\0", CorruptError, 29, "data follows the end"),
        (gz(b"x") + gz(b"y"), CorruptError, 21, "data follows the end"),
        (gz(b"x" * 999)[:-8] + bytes(8), CorruptError, 0, "gzip: "),
    ],
)
def test_what_is_wrong_with_a_gzip_stream_is_named(
    data: bytes, error: type[Exception], offset: int, reason: str
) -> None:
    with pytest.raises(error, match=rf"^snapshot\.5\.gz at offset {offset}: .*{reason}"):
        content(data, "snapshot.5.gz")


@pytest.mark.parametrize("name", ["snapshot.5", "snapshot.5.gz", "snapshot.5.snappy"])
def test_blocks_stay_small_and_a_file_is_read_once(name: str) -> None:
    """Four million equal bytes become a few thousand: what is held at a time must not grow with them."""
    whole = bytes(4 << 20)
    packed: dict[str, Callable[[bytes], bytes]] = {
        "gz": gz, "snappy": lambda data: pack_snappy(data, MAX_SNAPPY_BLOCK)
    }  # fmt: skip
    data = packed.get(name.rpartition(".")[2], bytes)(whole)
    reader = CountingReader(BytesReader(data))
    sizes = [len(part) for part in raw_blocks(reader, name)]
    assert sum(sizes) == len(whole)
    assert max(sizes) <= MAX_SNAPPY_BLOCK
    assert reader.bytes_read <= len(data) + len(SNAPPY_HEADER)


def test_blocks_larger_than_what_is_read_at_once_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapstream, "BLOCK", 64)
    monkeypatch.setattr(snapstream, "_LARGEST", 300)
    monkeypatch.setattr(snapstream, "_MAX_PACKED", 296)
    plain = snapshot_of({f"/n{n:03}": bytes([n]) * n for n in range(200)})
    assert content(pack_snappy(plain, 200), "snapshot.5.snappy") == plain
    assert content(gz(plain), "snapshot.5.gz") == plain
    assert content(plain, "snapshot.5") == plain


def test_an_offset_in_uncompressed_bytes_is_said_to_be_one() -> None:
    plain = bytearray(snapshot_of({"/a": b"x" * 300}))
    plain[-20] ^= 1
    at = len(plain) - 13
    for name, data in (("snapshot.5.gz", gz(bytes(plain))), ("snapshot.5.snappy", pack_snappy(bytes(plain)))):
        with pytest.raises(CorruptError, match=r"counts uncompressed bytes") as caught:
            list(read_snapshot(BytesReader(data), name))
        assert caught.value.offset in range(at - 60, at + 1)
    with pytest.raises(CorruptError) as caught:
        list(read_snapshot(BytesReader(bytes(plain)), "snapshot.5"))
    assert "uncompressed" not in str(caught.value)


def test_a_torn_compressed_snapshot_is_skipped_for_an_older_one() -> None:
    files = recorded_files("3.8.4", "compressed")
    good = load_tree(BytesDirectory({n: d for n, d in files.items() if n in ("snapshot.0", "log.1")}))
    for ending in (".gz", ".snappy"):
        name = NAME + ending
        torn = {"snapshot.0": files["snapshot.0"], "log.1": files["log.1"], name: files[name][:-40]}
        tree = load_tree(BytesDirectory(torn))
        assert tree.snapshot == "snapshot.0"
        assert name in tree.skipped
        assert tree.nodes == good.nodes


def test_an_unpacked_block_is_what_was_packed() -> None:
    for data in (b"a", b"ab" * 40_000, zlib.compress(b"noise") * 50):
        assert content(pack_snappy(data), "snapshot.5.snappy") == data


def bomb(sessions: int = 0, lists: int = 0, entries: int = 0, znodes: int = 0) -> bytes:
    """A snapshot that is well formed and holds the same item again and again."""
    one_list = struct.pack(">qi", 1, entries) + struct.pack(">iii", 31, 0, 0) * entries
    node = struct.pack(">i", 2) + b"/a" + struct.pack(">iq", 0, -1) + bytes(60)
    body = struct.pack(">4siq", b"ZKSN", 2, -1) + struct.pack(">i", sessions) + bytes(12) * sessions
    body += struct.pack(">i", lists) + one_list * lists + node * znodes + struct.pack(">i", 1) + b"/"
    return body + struct.pack(">q", zlib.adler32(body)) + struct.pack(">i", 1) + b"/"


@pytest.mark.parametrize(
    ("ending", "items", "said"),
    [
        ("gz", {"sessions": 300_000}, "300000 sessions make 300000 items; a file of "),
        ("snappy", {"sessions": 300_000}, "300000 sessions make 300000 items; a file of "),
        ("gz", {"lists": 300_000}, "300000 access lists make 300000 items; a file of "),
        (
            "gz",
            {"lists": 1, "entries": 300_000},
            "300000 entries of access lists make 300001 items; a file of ",
        ),
        ("gz", {"znodes": 200_000}, "1 znodes make "),
    ],
)
def test_a_small_file_never_makes_millions_of_items(ending: str, items: dict[str, int], said: str) -> None:
    plain = bomb(**items)
    data = gz(plain) if ending == "gz" else pack_snappy(plain, 1 << 20)
    most = max(10_000, len(data))
    with pytest.raises(CorruptError) as caught:
        list(read_snapshot(BytesReader(data), f"snapshot.1.{ending}"))
    assert said in str(caught.value)
    assert f"a file of {len(data)} bytes holds at most {most}" in str(caught.value)


def test_a_count_that_the_file_cannot_hold_is_refused_before_anything_is_read() -> None:
    data = struct.pack(">4siqi", b"ZKSN", 2, -1, 1 << 30) + bytes(1 << 16)
    reader = CountingReader(BytesReader(data))
    with pytest.raises(CorruptError, match="1073741824 sessions make 1073741824 items"):
        read_snapshot(reader, "snapshot.1")
    assert reader.bytes_read <= len(data)


def test_a_few_items_are_never_too_many_and_many_different_ones_are_read() -> None:
    few = gz(bomb(znodes=9_999))
    assert len(few) < 9_999
    assert len(nodes_of({"snapshot.1.gz": few}, "snapshot.1.gz")) == 9_999
    many = snapshot_of({f"/node-{n:08d}": b"" for n in range(30_000)})
    packed = gzip.compress(many, 9)
    assert len(nodes_of({"snapshot.1.gz": packed}, "snapshot.1.gz")) == 30_001


def test_a_small_gzip_file_never_makes_gigabytes() -> None:
    """Without one item more: what comes out is bounded by the file's size."""
    mib = 1 << 20
    bursts = gz(bytes(70 * mib))
    came: list[int] = []
    with pytest.raises(CorruptError, match=rf"{len(bursts)} bytes of gzip expand to more than {64 * mib}"):
        came.extend(map(len, raw_blocks(BytesReader(bursts), "snapshot.5.gz")))
    assert 63 * mib < sum(came) <= 64 * mib
    large = gz(random.Random(1).randbytes(mib // 2) + bytes(80 * mib))
    assert sum(map(len, raw_blocks(BytesReader(large), "snapshot.5.gz"))) > 80 * mib, "as files go it is fine"


def test_a_field_longer_than_a_record_is_refused() -> None:
    data = snapshot_of({"/a": b"x" * 200})
    with pytest.raises(CorruptError, match="a field has 200 bytes, but at most 100 are allowed"):
        list(read_snapshot(BytesReader(data), "snapshot.1", max_record=100))
