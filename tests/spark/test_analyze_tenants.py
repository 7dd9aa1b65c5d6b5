"""analyze tenants, on what real servers left."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.unit.zkdata_fixtures import VERSIONS
from zkmigrate.analyze.asked import Asked, Place
from zkmigrate.analyze.input import Input
from zkmigrate.analyze.jobs import tenants
from zkmigrate.zkdata.reader import FileDirectory, FileReader
from zkmigrate.zkdata.snapname import snapshot_files
from zkmigrate.zkdata.snapshot import read_snapshot


@pytest.mark.parametrize("version", VERSIONS)
def test_each_znode_of_the_newest_snapshot_belongs_to_one_subtree(
    version: str, spark: SparkSession, recorded: Path
) -> None:
    folder = recorded / version
    asked = Asked((Place("a", str(folder / "standalone")), Place("b", str(folder / "observer-snap"))))
    given = Input(spark, asked)
    found = tenants.run(given)
    snapshot = next(
        FileReader(kind / "version-2" / file.name)
        for kind in sorted(folder.iterdir())
        for file in snapshot_files(FileDirectory(kind / "version-2"))
        if file.name == given.snapshot.name
    )
    wanted: Counter[str] = Counter()
    data: Counter[str] = Counter()
    for node in read_snapshot(snapshot, given.snapshot.name):
        top = "/" + node.path.split("/")[1]
        wanted[top] += 1
        data[top] += len(node.data or b"")
    rows = {row["subtree"]: row for row in found.figures["subtrees"]}
    assert {name: row["znodes"] for name, row in rows.items() if row["znodes"]} == wanted
    assert {name: row["bytes"] for name, row in rows.items() if row["znodes"]} == {
        name: data[name] for name in wanted
    }
    assert rows["/kafka"]["writes"] > rows["/other"]["writes"] > 0


def test_a_znode_near_jute_maxbuffer_is_named(spark: SparkSession, recorded: Path) -> None:
    place = Place("", str(recorded / "3.8.4/standalone"))
    found = tenants.run(Input(spark, Asked((place,), jute_maxbuffer=25_000)))
    assert found.figures["near_jute_maxbuffer"] == ["/kafka/big: 20000 bytes"]
    assert "/kafka/big: 20000 bytes" in found.answer
