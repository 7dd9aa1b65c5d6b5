"""The columns of a snapshot say what the reader of one znode at a time says."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.memory_files import BytesReader
from tests.unit.pipeline_rows import access, plain
from tests.unit.zkdata_fixtures import RECORDED, pack_snappy, snapshot_of
from zkmigrate.spark.sources.nodes import NODES, SESSIONS, SnapshotTable, Sought
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.snapname import snapshot_zxid
from zkmigrate.zookeeper.data.snapshot import read_snapshot

FILES = sorted(RECORDED.glob("*/*/snapshot.*.gz"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def expected(content: bytes, name: str, *, data: bool) -> list[dict[str, Any]]:
    found = []
    for node in read_snapshot(BytesReader(content), name):
        stat = {key: getattr(node.stat, key) for key in node.stat.__slots__}
        for key in ("ctime", "mtime"):
            stat[key] = _EPOCH + timedelta(milliseconds=stat[key])
        found.append(
            {
                "server": "s",
                "file": name,
                "zxid": snapshot_zxid(name),
                "path": plain(node.path),
                "data_length": -1 if node.data is None else len(node.data),
                "data": node.data if data else None,
                "acl": None if node.acl is None else [access(acl) for acl in node.acl],
                "corrupt": None,
                **stat,
            }
        )
    return found


def rows(
    content: bytes, name: str, sought: Sought | None = None, block: int = 1 << 20
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    table = SnapshotTable(BytesReader(content), "s", name, block=block)
    sought = sought or Sought()
    for batch in table.nodes(sought):
        assert batch.schema.equals(sought.schema)
        batch.validate(full=True)
        found += batch.to_pylist()
    return found


@pytest.mark.parametrize("block", [100, 1 << 20])
@pytest.mark.parametrize("file", FILES, ids=[str(file.relative_to(RECORDED)) for file in FILES])
def test_the_snapshots_of_every_server_version(file: Path, block: int) -> None:
    name, content = file.name.removesuffix(".gz"), gzip.decompress(file.read_bytes())
    wanted = expected(content, name, data=True)
    assert rows(content, name, Sought(data=True), block) == wanted
    assert rows(content, name, block=block) == [{**row, "data": None} for row in wanted]
    below = [row for row in wanted if row["path"].startswith("/zoo")]
    assert below
    assert rows(content, name, Sought(data=True, prefix="/zoo"), block) == below
    sessions = SnapshotTable(BytesReader(content), "s", name).sessions()
    assert sessions.schema.equals(SESSIONS)
    assert {row["session"]: row["timeout_ms"] for row in sessions.to_pylist()} == read_snapshot(
        BytesReader(content), name
    ).sessions


@pytest.mark.parametrize("file", FILES, ids=[str(file.relative_to(RECORDED)) for file in FILES])
def test_columns_that_are_asked_for_are_as_among_the_others(file: Path) -> None:
    content, name = gzip.decompress(file.read_bytes()), file.name.removesuffix(".gz")
    every = rows(content, name, Sought(data=True))
    for names in (["path"], ["mtime", "version"], ["acl", "data"], ["zxid", "corrupt", "pzxid"]):
        schema = pa.schema([NODES.field(one) for one in names])
        some = rows(content, name, Sought(data=True, schema=schema))
        assert some == [{one: row[one] for one in names} for row in every]


def test_there_are_snapshots_of_every_server_version_and_kind() -> None:
    assert {file.relative_to(RECORDED).parts[0] for file in FILES} == {
        "3.4.14", "3.5.8", "3.6.4", "3.7.2", "3.8.4", "3.9.3"
    }  # fmt: skip
    assert {Path(file.stem).suffix for file in FILES} >= {".gz", ".snappy"}


def test_a_znode_longer_than_a_block() -> None:
    content = snapshot_of({"/a": b"d" * 5000, "/b": b""})
    assert rows(content, "snapshot.5", Sought(data=True), 64) == expected(content, "snapshot.5", data=True)


WHOLE = snapshot_of({"/a": b"1", "/a/b": bytes(40), "/c": b"x"})


@settings(max_examples=examples(500), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(WHOLE) - 1), st.sampled_from([0, 1, 0x2F, 0x7F, 0xFF])), max_size=3
    ),
    st.integers(0, 40),
    st.sampled_from(["", ".snappy", ".gz"]),
)
def test_damage_is_told_before_any_row(changes: list[tuple[int, int]], cut: int, codec: str) -> None:
    damaged = bytearray(WHOLE[: len(WHOLE) - cut])
    for at, value in changes:
        if at < len(damaged):
            damaged[at] = value
    content = bytes(damaged)
    if codec:
        content = gzip.compress(content) if codec == ".gz" else pack_snappy(content)
    name = f"snapshot.5{codec}"
    refused = _refused(content, name)
    if refused is None:
        assert rows(content, name, Sought(data=True), 64) == expected(content, name, data=True)
        return
    with pytest.raises(type(refused)) as raised:
        next(SnapshotTable(BytesReader(content), "s", name, block=64).nodes(Sought()))
    assert str(raised.value) == str(refused)


def _refused(content: bytes, name: str) -> ZkDataError | None:
    """As the reader of one znode at a time does."""
    try:
        for _ in read_snapshot(BytesReader(content), name):
            pass
    except ZkDataError as error:
        return error
    return None
