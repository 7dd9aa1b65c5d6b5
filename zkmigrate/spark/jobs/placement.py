"""Plan a fleet of clusters, for the job ``placement``.

Each what-if is tried on each cluster, in a separate task, by :mod:`zkmigrate.cluster.placement`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from zkmigrate.cluster.placement.what_if import BY_DEFAULT, Outcome, WhatIf, tried
from zkmigrate.errors import UsageError
from zkmigrate.runbook.model.report import counted, size
from zkmigrate.spark.input import Input
from zkmigrate.spark.plain_rows import Cell, table
from zkmigrate.spark.reading import local_frame
from zkmigrate.spark.section import Section

_TASKS_PER_CORE = 8
"""The number of tasks for each core. Clusters take different times, so many tasks keep all cores busy."""

OUTCOMES = pa.schema([
    ("cluster", pa.string()), ("what_if", pa.string()), ("verb", pa.string()), ("brokers", pa.int64()),
    ("partitions", pa.int64()), ("range_before", pa.int64()), ("range_after", pa.int64()),
    ("moves", pa.int64()), ("bytes", pa.int64()), ("lower_bound", pa.int64()), ("eta", pa.float64()),
    ("limited", pa.string()), ("refusing", pa.list_(pa.string())), ("notices", pa.list_(pa.string())),
    ("refused", pa.list_(pa.string())), ("error", pa.string()),
])  # fmt: skip
"""The columns of the table of results, which has a row for each cluster and what-if.

See :class:`zkmigrate.cluster.placement.what_if.Outcome`.
"""

_PARTITIONS, _BROKERS = "partitions", "brokers"


def run(input: Input) -> Section:
    """Run the job.

    Raises UsageError if the tables are missing or have no cluster, and if no cluster can be planned.
    """
    request = input.request
    if not request.fleet_partitions or not request.fleet_brokers:
        raise UsageError(
            "placement reads clusters from two tables. Needed: --fleet-partitions FILE and "
            "--fleet-brokers FILE"
        )
    what_ifs = request.what_ifs or BY_DEFAULT
    clusters = _clusters(input.spark, request.fleet_partitions, request.fleet_brokers).persist()
    names = sorted(row.cluster for row in clusters.select("cluster").collect())
    units, outcomes = _units(names, what_ifs)
    if not units:
        if names:
            seen, needed = (
                f"only the clusters {', '.join(names[:10])}",
                "a what-if for one of them, or for all clusters",
            )
        else:
            seen, needed = "no row", "partitions with their cluster"
        raise UsageError(f"{request.fleet_partitions} has {seen}. Needed: {needed}")
    shares = min(len(units), _TASKS_PER_CORE * input.spark.sparkContext.defaultParallelism)
    trials = input.spark.createDataFrame(units, "number int, cluster string, place int")
    # Spark keeps a given number of shares, where it would join small ones to a single task.
    shared = clusters.join(F.broadcast(trials), "cluster").repartitionByRange(shares, "number")
    # applyInArrow needs pandas as well.
    outcomes += shared.rdd.map(_in_task(what_ifs)).collect()
    outcomes.sort(key=lambda one: (one.cluster, one.what_if))
    return _section(input, outcomes, sum(map(bool, names)), len(what_ifs))


def _clusters(spark: SparkSession, partitions: str, brokers: str) -> DataFrame:
    """Return a row for each cluster, with its partitions and brokers as texts of one JSON object per line."""
    both = _lines(spark, partitions, _PARTITIONS).unionByName(_lines(spark, brokers, _BROKERS))
    texts = (
        F.concat_ws("\n", F.collect_list(F.when(F.col("kind") == kind, F.col("line")))).alias(kind)
        for kind in (_PARTITIONS, _BROKERS)
    )
    return both.groupBy("cluster").agg(*texts)


def _lines(spark: SparkSession, path: str, kind: str) -> DataFrame:
    """Return a table as lines of JSON: the columns cluster, kind and line.

    A row without a cluster has the cluster name "". path: a Parquet table if it ends in ``.parquet``,
    otherwise a file with one JSON object per line.
    """
    if path.rstrip("/").endswith(".parquet"):
        read = spark.read.parquet(path)
        if "cluster" not in read.columns:
            raise UsageError(
                f"{path} has the columns {', '.join(read.columns)}. Needed: a column named cluster"
            )
        cluster, line = F.col("cluster").cast("string"), F.to_json(F.struct("*"))
    else:
        read = spark.read.text(path).filter(F.trim("value") != "")
        cluster, line = F.get_json_object("value", "$.cluster"), F.col("value")
    named = F.coalesce(cluster, F.lit(""))
    return read.select(named.alias("cluster"), F.lit(kind).alias("kind"), line.alias("line"))


def _units(
    names: Sequence[str], what_ifs: Sequence[WhatIf]
) -> tuple[list[tuple[int, str, int]], list[Outcome]]:
    """Return the trials to run, and an outcome with an error for each trial of an unknown cluster.

    A trial is a number, the cluster's name, and the index of the what-if.
    """
    units: list[tuple[int, str, int]] = []
    absent: list[Outcome] = []
    known = set(names)
    for place, one in enumerate(what_ifs):
        for name in dict.fromkeys(one.clusters) or names:
            if name in known:
                units.append((len(units), name, place))
            else:
                error = f"{name} has no row in the tables. Needed: partitions and brokers of the cluster"
                absent.append(Outcome(name, one.name, one.verb, error=error))
    return units, absent


def _in_task(what_ifs: Sequence[WhatIf]) -> Callable[[Row], Outcome]:
    def one(row: Row) -> Outcome:
        what_if = what_ifs[row.place]
        if row.cluster:
            return tried(row.cluster, _split(row.partitions), _split(row.brokers), what_if)
        first = min(_split(row.partitions) + _split(row.brokers))[:60]
        error = f"a row has no cluster, such as {first}. Needed: the cluster as text"
        return Outcome("", what_if.name, what_if.verb, error=error)

    return one


def _split(text: str) -> list[str]:
    """Split a text into lines at line feeds only, because JSON may contain other separators."""
    return [line for line in text.split("\n") if line]


def _section(input: Input, outcomes: Sequence[Outcome], clusters: int, tried_on_each: int) -> Section:
    rows = [asdict(one) for one in outcomes]
    failed = [row for row in rows if row["error"]]
    refused = [row for row in rows if row["refused"]]
    plans = [row for row in rows if row["moves"] is not None]
    if len(failed) == len(rows):
        raise UsageError(f"no cluster can be planned. The first: {failed[0]['error']}")
    refusing = [row for row in plans if row["refusing"]]
    moved = sum(row["bytes"] for row in plans)
    answer = (
        f"{counted(clusters, 'cluster')}, {counted(tried_on_each, 'what-if')}: {counted(len(plans), 'plan')} "
        f"that {'copies' if len(plans) == 1 else 'copy'} {size(moved)} in all, {len(refused)} refused, "
        f"{counted(len(failed), 'error')}."
    )
    if refusing:
        answer += f" {counted(len(refusing), 'plan')} would need --ignore-warnings."
    top = input.request.top
    tables = [
        table(
            "plans",
            "Plans",
            plans[:top],
            _PLAN_COLUMNS,
            "range: the most free bytes of a broker minus the fewest.",
        ),
        table("none", "Without a plan", [*failed, *refused][:top], _NONE_COLUMNS, wide=(3,)),
    ]
    figures = {
        "clusters": clusters, "what_ifs": tried_on_each, "plans": len(plans), "refused": len(refused),
        "errors": len(failed), "bytes": moved, "outcomes": rows,
    }  # fmt: skip
    shown = tuple(one for one in tables if one.rows or one.id == "plans")
    frames = {"outcomes": local_frame(input.spark, pa.Table.from_pylist(rows, OUTCOMES))}
    return Section("Placement", answer, figures, shown, frames=frames)


_WHICH: list[tuple[str, Cell]] = [("cluster", "cluster"), ("what-if", "what_if"), ("verb", "verb")]
_PLAN_COLUMNS: list[tuple[str, Cell]] = [
    *_WHICH, ("brokers", "brokers"), ("partitions", "partitions"),
    ("range before", lambda row: size(row["range_before"])),
    ("range after", lambda row: size(row["range_after"])), ("moves", "moves"),
    ("copied", lambda row: size(row["bytes"])),
    ("share of bound", lambda row: "" if row["eta"] is None else f"{row['eta']:.2f}"),
    ("warnings", lambda row: ", ".join(one.partition(":")[0] for one in row["refusing"])),
]  # fmt: skip
_NONE_COLUMNS: list[tuple[str, Cell]] = [
    *_WHICH, ("why", lambda row: "; ".join((row["error"] or "").splitlines() or row["refused"])),
]  # fmt: skip
