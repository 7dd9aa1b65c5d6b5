"""Which files `analyze partitions` reads of a folder that `collect --broker-dirs` has filled."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkmigrate.errors import UsageError
from zkmigrate.spark.jobs.partitions import _newest_days, _older
from zkmigrate.spark.request import Place
from zkmigrate.zookeeper.disks.manifest import Entry, Manifest


def filled(folder: Path, *days: tuple[str, str]) -> Path:
    """A folder whose manifest has these days of brokers."""
    entries = [Entry(name, f"{day}.parquet", "host:/data", 1, "", "whole", 1, 0) for name, day in days]
    Manifest(folder, {}, {entry.key: entry for entry in entries}).save()
    return folder


def test_the_newest_day_of_each_broker_is_read(tmp_path: Path) -> None:
    filled(tmp_path, ("7", "2026-11-24"), ("7", "2026-11-25"), ("8", "2026-10-31"))
    found = _newest_days(Place("", str(tmp_path)))
    assert found == [str(tmp_path / "7" / "2026-11-25.parquet"), str(tmp_path / "8" / "2026-10-31.parquet")]


def test_brokers_that_collect_has_not_reached_since_are_told() -> None:
    assert _older(["b/7/2026-11-25.parquet", "b/8/2026-10-31.parquet"]) == {
        "b/8/2026-10-31.parquet": "2026-10-31"
    }
    assert _older(["b/7/2026-11-25.parquet", "b/8/2026-11-25.parquet"]) == _older([]) == {}


def test_a_day_is_read_itself_wherever_it_is() -> None:
    for path in ("brokers/7/2026-11-24.parquet", "s3://bucket/7/2026-11-24.parquet"):
        assert _newest_days(Place("", path)) == [path]


def test_anything_else_is_a_log_directory(tmp_path: Path) -> None:
    for path in (str(tmp_path), "s3://bucket/kafka", "2026-11-24.parquet.part"):
        assert _newest_days(Place("7", path)) == []


def test_a_name_for_several_brokers_and_a_folder_without_any_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="without a name"):
        _newest_days(Place("7", str(filled(tmp_path, ("7", "2026-11-24")))))
    with pytest.raises(UsageError, match="without a name"):
        _newest_days(Place("7", "2026-11-24.parquet"))
    with pytest.raises(UsageError, match="Needed: collect --broker-dirs"):
        _newest_days(Place("", str(filled(tmp_path))))
