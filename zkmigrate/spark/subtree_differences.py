"""Where two subtrees differ, as `zookeeper.data.tree.differences` says it, and in which of all fields."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from zkmigrate.spark.input import only
from zkmigrate.spark.subtree_at import FIELDS, Subtree, znode
from zkmigrate.zookeeper.data.tree import Difference, Znode, differences

ONLY_SOURCE, ONLY_DEST = "only on source", "only on dest"


@dataclass(frozen=True)
class Comparison:
    """znodes: how many each side has, source first. count: how many paths differ. frame: those, with path,
    source and dest (the znode, null where it is not there), and `kinds`: all fields that differ, or that it
    is only on one side."""

    znodes: tuple[int, int]
    count: int
    frame: DataFrame


def compare_subtrees(source: Subtree, dest: Subtree) -> Comparison:
    """Raises PySparkException where a tree cannot be read."""
    left, right = (
        rolled.nodes.select("path", F.struct(*FIELDS).alias(side))
        for rolled, side in ((source, "source"), (dest, "dest"))
    )
    both = left.join(right, "path", "full_outer")
    kinds = F.when(F.col("dest").isNull(), F.array(F.lit(ONLY_SOURCE))).when(
        F.col("source").isNull(), F.array(F.lit(ONLY_DEST))
    )
    differing = F.array(*(F.when(_differs(name), F.lit(name)) for name in FIELDS))
    found = both.withColumn("kinds", kinds.otherwise(F.array_compact(differing)))
    found = found.persist(StorageLevel.DISK_ONLY)
    differs = F.size("kinds") > 0
    row = only(found.agg(F.count("source"), F.count("dest"), F.count_if(differs)))
    return Comparison((row[0], row[1]), row[2], found.filter(differs))


def _differs(name: str) -> Column:
    return ~F.col(f"source.{name}").eqNullSafe(F.col(f"dest.{name}"))


def first(found: DataFrame, limit: int) -> list[Difference]:
    """The first paths of `compare_subtrees`, each with the first field that differs. left is source."""
    rows = found.orderBy("path").limit(limit).collect()
    return list(differences(_side(rows, "source"), _side(rows, "dest")))


def _side(rows: list[Row], side: str) -> dict[str, Znode]:
    return {row.path: znode(row[side]) for row in rows if row[side] is not None}
