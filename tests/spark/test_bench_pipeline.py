"""The ways that the benchmark compares answer alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.readings import Logs, Tree, answer_of, streamed, walked
from bench.tuples import TupleSource
from tests.unit.zkdata_fixtures import create_payload, log_from, payload, set_payload, text
from zkmigrate.zookeeper.data.txn import TxnType


@pytest.mark.parametrize("zxids", [None, (3, 9)])
def test_the_ways_of_counting_agree(
    zxids: tuple[int, int] | None, spark: SparkSession, tmp_path: Path
) -> None:
    made = [create_payload(1, "/a", b""), *(set_payload(zxid, "/a", b"x" * zxid) for zxid in range(2, 8))]
    made += [create_payload(8, "/b", b""), payload(9, TxnType.delete, text("/a"))]
    folders = (tmp_path / "one" / "version-2", tmp_path / "other" / "version-2")
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "log.1").write_bytes(log_from(made) + bytes(100))
    spark.dataSource.register(TupleSource)
    plain = walked(Logs(folders, zxids))
    wanted = {"create": (4, 8), "setData": (12, 7), "delete": (2, 9)}
    assert plain == (wanted if zxids is None else {"create": (2, 8), "setData": (10, 7), "delete": (2, 9)})
    assert answer_of(spark, Logs(folders, zxids)) == plain
    assert answer_of(spark, Logs(folders, zxids, "zktuples")) == plain


def test_the_ways_of_counting_znodes_agree(spark: SparkSession, recorded: Path) -> None:
    tree = Tree(recorded / "3.5.8" / "observer-snap" / "version-2")
    plain = streamed(tree)
    assert plain[0]
    assert answer_of(spark, tree) == plain
