"""analyze placement: one row for each cluster and what-if, whatever is wrong with a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from zkmigrate.cluster.placement.what_if import BY_DEFAULT, WhatIf, parse, tried
from zkmigrate.errors import UsageError
from zkmigrate.spark.input import Input
from zkmigrate.spark.jobs import placement
from zkmigrate.spark.request import Request
from zkmigrate.spark.section import Section

GB = 10**9
BROKERS = [
    {"broker": 1, "rack": "a", "storage_free": 10 * GB},
    {"broker": 2, "rack": "b", "storage_free": 90 * GB},
    {"broker": 3, "rack": "a", "storage_free": 95 * GB},
]
PARTITIONS = [
    {"topic": "t", "partition": number, "replicas": [1, 2], "size": (20 - number) * GB} for number in range(3)
]
WHAT_IFS = parse(
    json.dumps([
        {"name": "rebalance", "verb": "rebalance"},
        {"name": "without 1", "verb": "rebuild", "remove": [1], "clusters": ["good", "nobody"]},
        {"name": "scale", "verb": "scale", "clusters": ["good"]},
    ]).encode(),
    "w",
)  # fmt: skip


def lines(cluster: str, rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps({"cluster": cluster, **row}) + "\n" for row in rows)


def run(spark: SparkSession, partitions: Path, brokers: Path, what_ifs: tuple[WhatIf, ...] = ()) -> Section:
    asked = Request((), fleet_partitions=str(partitions), fleet_brokers=str(brokers), what_ifs=what_ifs)
    return placement.run(Input(spark, asked))


@pytest.fixture
def fleet(tmp_path: Path) -> tuple[Path, Path]:
    """Two good clusters, one with a bad size, one without brokers, and a line of no cluster."""
    partitions, brokers = tmp_path / "partitions.jsonl", tmp_path / "brokers.jsonl"
    bad = [PARTITIONS[0] | {"size": "large"}, *PARTITIONS[1:]]
    partitions.write_text(
        lines("good", PARTITIONS) + lines("also good", PARTITIONS) + lines("bad", bad)
        + lines("bare", PARTITIONS) + "\n{no JSON\n"
    )  # fmt: skip
    brokers.write_text(lines("good", BROKERS) + lines("bad", BROKERS) + lines("also good", BROKERS))
    return partitions, brokers


def test_a_row_for_each_cluster_and_what_if(spark: SparkSession, fleet: tuple[Path, Path]) -> None:
    found = run(spark, *fleet, WHAT_IFS)
    rows = {(row["cluster"], row["what_if"]): row for row in found.figures["outcomes"]}
    assert list(rows) == [
        ("", "rebalance"), ("also good", "rebalance"), ("bad", "rebalance"), ("bare", "rebalance"),
        ("good", "rebalance"), ("good", "scale"), ("good", "without 1"), ("nobody", "without 1"),
    ]  # fmt: skip
    assert {key: row["error"] for key, row in rows.items() if row["error"]} == {
        ("", "rebalance"): "a row has no cluster, such as {no JSON. Needed: the cluster as text",
        ("bad", "rebalance"): (
            'bad: partitions[0] (topic "t", partition 0).size: seen "large"; needed: whole bytes as a number '
            f"from 0 to {2**63 - 1}"
        ),
        ("bare", "rebalance"): "bare: brokers: seen {}; needed: an object: the brokers by their ids",
        (
            "nobody",
            "without 1",
        ): "nobody has no row in the tables. Needed: partitions and brokers of the cluster",
    }
    assert rows["good", "scale"]["refused"][0].startswith("placement.no-new-broker: ")
    by_hand = tried("good", map(json.dumps, PARTITIONS), map(json.dumps, BROKERS), BY_DEFAULT[0])
    for cluster in ("good", "also good"):
        row = rows[cluster, "rebalance"]
        assert (row["moves"], row["bytes"], row["eta"]) == (by_hand.moves, by_hand.bytes, by_hand.eta)
        assert (row["range_before"], row["range_after"]) == (85 * GB, by_hand.range_after)
    assert rows["good", "without 1"]["bytes"] == 57 * GB
    assert found.answer.startswith("4 clusters, 3 what-ifs: 3 plans that copy ")
    assert "1 refused, 4 errors." in found.answer
    assert [row.what_if for row in found.frames["outcomes"].collect() if row.cluster == "good"] == [
        "rebalance", "scale", "without 1",
    ]  # fmt: skip
    assert [table.id for table in found.tables] == ["plans", "none"]
    assert len(found.tables[1].rows) == 5


def test_parquet_says_the_same_and_what_cannot_be_planned_is_refused(
    spark: SparkSession, fleet: tuple[Path, Path], tmp_path: Path
) -> None:
    as_lines = run(spark, *fleet)
    columns = (
        "cluster string, topic string, partition int, replicas array<int>, size long, rate double",
        "cluster string, broker int, rack string, storage_free long",
    )
    for path, schema in zip(fleet, columns, strict=True):
        good = spark.read.schema(schema).json(str(path)).filter("cluster IN ('good', 'also good')")
        good.write.parquet(f"{path}.parquet")
    partitions, brokers = (path.with_name(f"{path.name}.parquet") for path in fleet)
    as_parquet = run(spark, partitions, brokers)
    wanted = [row for row in as_lines.figures["outcomes"] if not row["error"]]
    assert len(wanted) == 2
    assert as_parquet.figures["outcomes"] == wanted

    partitions, brokers = fleet
    with pytest.raises(UsageError, match="Needed: --fleet-partitions FILE and --fleet-brokers FILE"):
        placement.run(Input(spark, Request((), fleet_partitions=str(partitions))))
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(UsageError, match=r"has no row\. Needed: partitions with their cluster"):
        run(spark, tmp_path / "empty", tmp_path / "empty")
    with pytest.raises(UsageError, match="no cluster can be planned"):
        run(spark, partitions, tmp_path / "empty")
    spark.range(1).write.parquet(str(tmp_path / "other.parquet"))
    with pytest.raises(UsageError, match=r"has the columns id\. Needed: a column named cluster"):
        run(spark, tmp_path / "other.parquet", brokers)
