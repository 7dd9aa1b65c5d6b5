"""The tables that jobs read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.unit.zkdata_fixtures import create_payload, log_from
from zkmigrate.spark.disk import disks
from zkmigrate.spark.input import Input, shared
from zkmigrate.spark.request import Place, Request
from zkmigrate.spark.sources.files import File
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD


@pytest.mark.parametrize(
    ("sizes_mb", "split_mb"), [([], 16), ([20, 20], 20), ([64, 128], 96), ([300, 300], 256), ([1], 16)]
)
def test_logs_are_shared_by_the_cores(sizes_mb: list[int], split_mb: int, spark: SparkSession) -> None:
    """Of which this Spark has two."""
    logs = [File("zk", f"log.{n}", mb << 20) for n, mb in enumerate(sizes_mb)]
    assert shared(spark, logs) == {"splitMB": str(split_mb)}


def test_a_log_that_is_worth_it_is_read_by_both(
    spark: SparkSession, tmp_path: Path, read_here: Callable[[int], None]
) -> None:
    """Where it is too large for this process."""
    read_here(1 << 20)
    many = [create_payload(zxid, f"/kafka/{zxid}", bytes(900_000)) for zxid in range(1, 41)]
    (tmp_path / "log.1").write_bytes(log_from(many))
    place = Place("zk", str(tmp_path))
    by_disk = disks([place], MAX_RECORD)[0].log(spark)
    assert by_disk is not None
    for frame in (Input(spark, Request((place,))).log("zxid"), by_disk):
        assert frame.rdd.getNumPartitions() == 2
        assert sorted(row.zxid for row in frame.select("zxid").collect()) == list(range(1, 41))
