"""The table of partitions as Parquet: one file, Spark's folder, damage, and other columns."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from zkmigrate.cluster.placement.measured import Measured
from zkmigrate.cluster.placing.partitions import read
from zkmigrate.errors import UsageError

AT = datetime(2026, 9, 21, 14, 13, 20, 500, tzinfo=UTC)
AT_MS = 1_790_000_000_000
SCHEMA = pa.schema([
    ("broker", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("segments", pa.int64()),
    ("bytes", pa.int64()), ("per_second_day", pa.float64()), ("until", pa.timestamp("us", "UTC")),
])  # fmt: skip


def row(**other: Any) -> dict[str, Any]:
    usual = {"broker": "1", "topic": "t", "partition": 0, "segments": 3, "bytes": 20, "per_second_day": 2.5}
    return usual | {"until": AT} | other


def written(path: Path, *rows: dict[str, Any], schema: pa.Schema = SCHEMA) -> Path:
    parquet.write_table(pa.Table.from_pylist(list(rows), schema), path)
    return path


def test_u1_a_file_and_sparks_folder_say_the_same(tmp_path: Path) -> None:
    rows = [row(), row(broker="2", bytes=21), row(topic="u")]
    file = written(tmp_path / "p.parquet", *rows)
    folder = tmp_path / "partitions.parquet"
    folder.mkdir()
    for name in ("_SUCCESS", "_metadata.parquet", ".part-0.parquet.crc", ".x.parquet"):
        (folder / name).write_text("no Parquet")
    written(folder / "part-00000.parquet", *rows[:2])
    # As Spark writes times by default: nanoseconds without a zone.
    old = SCHEMA.set(6, pa.field("until", pa.timestamp("ns")))
    written(folder / "part-00001.parquet", rows[2] | {"until": AT.replace(tzinfo=None)}, schema=old)
    wanted = Measured({("t", 0): {1: (20, 2.5), 2: (21, 2.5)}, ("u", 0): {1: (20, 2.5)}}, AT_MS)
    assert read(file) == wanted
    assert read(folder) == wanted


def test_a_bad_row_is_told_by_file_and_number(tmp_path: Path) -> None:
    for part in ("part-0.parquet", "part-1.parquet"):
        written(tmp_path / part, row(topic=part), row(bytes=-1))
    with pytest.raises(UsageError) as told:
        read(tmp_path)
    assert str(told.value).splitlines() == [
        f"{tmp_path}: {part} row 2: t-0 on broker 1: bytes: seen -1; needed: bytes from 0 on"
        for part in ("part-0.parquet", "part-1.parquet")
    ]
    with pytest.raises(UsageError, match=r"part-1\.parquet: row 2: t-0"):
        read(tmp_path / "part-1.parquet")


@pytest.mark.parametrize(
    ("column", "kind", "said"),
    [
        ("bytes", pa.string(), "column bytes is string; needed: a whole number as bytes"),
        ("bytes", pa.float64(), "column bytes is double"),
        ("broker", pa.int64(), "column broker is int64; needed: text as broker"),
        ("per_second_day", pa.int64(), "column per_second_day is int64; needed: a number"),
        ("until", pa.int64(), "column until is int64; needed: a time"),
        ("until", None, "no column until"),
        ("topic", None, "no column topic"),
    ],
)
def test_other_columns_are_refused(tmp_path: Path, column: str, kind: Any, said: str) -> None:
    at = SCHEMA.get_field_index(column)
    schema = SCHEMA.set(at, pa.field(column, kind)) if kind else SCHEMA.remove(at)
    parquet.write_table(
        pa.table({field.name: pa.array([], field.type) for field in schema}, schema), tmp_path / "p"
    )
    with pytest.raises(UsageError, match=f"p: seen {said}") as told:
        read(tmp_path / "p")
    assert "Needed: partitions.parquet of analyze partitions --out" in str(told.value)


def test_what_is_no_parquet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="absent: no such file; needed: partitions"):
        read(tmp_path / "absent")
    with pytest.raises(UsageError, match="a folder without a Parquet file"):
        read(tmp_path)
    (tmp_path / "text").write_text("broker,topic\n1,t\n" * 9)
    with pytest.raises(UsageError, match=r"text: .*; needed: partitions\.parquet"):
        read(tmp_path / "text")
    whole = written(tmp_path / "whole", *(row(partition=number) for number in range(999)))
    content = bytearray(whole.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    (tmp_path / "damaged").write_bytes(content)
    with pytest.raises(UsageError, match=r"damaged: .*; needed: partitions\.parquet"):
        read(tmp_path / "damaged")


def test_without_pyarrow_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pyarrow.*Needed: pyarrow, of setup/requirements-spark\.txt"):
        read(tmp_path)
