"""Compare source's subtree with the subtree of each dest server at one zxid.

The job ``diff`` counts znodes by kind of difference and by subtree, and shows the first znodes of each kind.
A znode that differs in several fields is counted for each field. The trees are those of the digest proof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from zkmigrate.runbook.model.report import Table
from zkmigrate.spark.charts import Bar, bars
from zkmigrate.spark.ensembles import Sides
from zkmigrate.spark.input import Input
from zkmigrate.spark.jobs.tenants import subtree
from zkmigrate.spark.plain_rows import table
from zkmigrate.spark.section import Picture, Section
from zkmigrate.spark.subtree_at import FIELDS, Subtree, znode
from zkmigrate.spark.subtree_differences import ONLY_DEST, ONLY_SOURCE, compare_subtrees
from zkmigrate.spark.verb import AnalysisError, reason
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.tree import format_value
from zkmigrate.zookeeper.data.zxid import format_zxid

KINDS = (ONLY_SOURCE, ONLY_DEST, *FIELDS)
_SAMPLES = 5
"""The largest number of sample znodes of each kind; --top may lower it."""


@dataclass(frozen=True)
class _Diff:
    """The differences between source and one dest server.

    znodes: the number of znodes on source and on dest. differing: how many paths differ. counts: the number
    of znodes by kind of difference. frame: a row for each path and kind.
    """

    zxid: int
    znodes: tuple[int, int]
    differing: int
    counts: Mapping[str, int]
    subtrees: Sequence[Row]
    samples: Sequence[Mapping[str, str]]
    frame: DataFrame


def run(input: Input) -> Section:
    """Run the job. Raises AnalysisError if a tree cannot be read at the zxid."""
    sides = Sides(input)
    made: dict[str, _Diff] = {}
    for dest in sides.dests:
        try:
            zxid = sides.comparison_zxid(sides.reach(dest))
            made[dest.server] = _diff(input, sides.tree(zxid), sides.tree_of(dest, zxid))
        except (PySparkException, ZkDataError) as error:
            raise AnalysisError(f"diff: {dest.server}: {reason(error)}") from error
    return _section(input, sides.source.server, made)


def _diff(input: Input, source: Subtree, dest: Subtree) -> _Diff:
    found = compare_subtrees(source, dest)
    request = input.request
    below = subtree(F.col("path"), request.depth_below)
    each = found.frame.withColumns({"kind": F.explode("kinds"), "subtree": below})
    counts = {row.kind: row["count"] for row in each.groupBy("kind").count().collect()}
    by_subtree = each.groupBy("subtree", "kind").count().orderBy(F.desc("count"), "subtree", "kind")
    number = F.row_number().over(Window.partitionBy("kind").orderBy("path"))
    some = each.withColumn("number", number).filter(F.col("number") <= min(_SAMPLES, request.top))
    rows = sorted(some.collect(), key=lambda row: (KINDS.index(row.kind), row.number))
    return _Diff(
        source.zxid,
        found.znodes,
        found.count,
        {kind: counts[kind] for kind in KINDS if kind in counts},
        by_subtree.limit(request.top).collect(),
        [_sample(row) for row in rows],
        each.select("path", "subtree", "kind", "source", "dest"),
    )


def _sample(row: Row) -> dict[str, str]:
    values = {
        side: format_value(row.kind, getattr(znode(row[side]), row.kind)) if row.kind in FIELDS else ""
        for side in ("source", "dest")
    }
    return {"path": row.path, "kind": row.kind, **values}


def _section(input: Input, source: str, made: Mapping[str, _Diff]) -> Section:
    figures = {
        **input.request.chroot.body(),
        "source": source,
        "dests": {name: _figures(one) for name, one in made.items()},
    }
    kinds = [(name, kind, count) for name, one in made.items() for kind, count in one.counts.items()]
    subtrees = [row.asDict() | {"at": name} for name, one in made.items() for row in one.subtrees]
    samples = [{"at": name, **sample} for name, one in made.items() for sample in one.samples]
    tables = (
        Table("kinds", "Znodes by kind of difference", ("dest", "kind", "znodes"),
              tuple((name, kind, str(count)) for name, kind, count in kinds)),
        table("by-subtree", "By subtree", subtrees,
              [("dest", "at"), ("subtree", "subtree"), ("kind", "kind"), ("znodes", "count")], wide=(1,)),
        table("samples", "First of each kind", samples,
              [("dest", "at"), ("path", "path"), ("kind", "kind"), ("source", "source"), ("dest's", "dest")],
              wide=(1,)),
    )  # fmt: skip
    pictures = tuple(
        Picture(
            bars(f"{name}: znodes that differ", [Bar(*kind) for kind in one.counts.items()]),
            "A znode is counted for each field that differs.",
        )
        for name, one in made.items()
        if one.counts
    )
    answer = "; ".join(_answer(name, one) for name, one in made.items())
    frames = {f"differences-{name}": one.frame for name, one in made.items()}
    equal = f"The subtree {input.request.chroot} of {source} was compared with each dest server. "
    return Section("Differences", equal + answer + ".", figures, tables if kinds else (), pictures, frames)


def _figures(one: _Diff) -> dict[str, Any]:
    return {
        "zxid": format_zxid(one.zxid),
        "znodes_on_source": one.znodes[0],
        "znodes": one.znodes[1],
        "differing": one.differing,
        "kinds": dict(one.counts),
        "subtrees": [row.asDict() for row in one.subtrees],
        "samples": list(one.samples),
    }


def _answer(name: str, one: _Diff) -> str:
    if not one.differing:
        return f"{name}: equal, {one.znodes[0]} znodes at {format_zxid(one.zxid)}"
    kinds = ", ".join(f"{kind} {count}" for kind, count in one.counts.items())
    return f"{name}: {one.differing} of {one.znodes[0]} znodes differ at {format_zxid(one.zxid)}: {kinds}"
