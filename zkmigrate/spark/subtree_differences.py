"""Find where two subtrees differ, by `zookeeper.data.tree.differences`, and in which fields."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from zkmigrate.spark.input import only
from zkmigrate.spark.subtree_at import FIELDS, Subtree, znode
from zkmigrate.zookeeper.data.tree import Difference, differences

ONLY_SOURCE, ONLY_DEST = "only on source", "only on dest"


@dataclass(frozen=True)
class Comparison:
    """The differences between two subtrees.

    znodes: the number of znodes of each side, source first. count: how many paths differ. frame: the paths
    that differ, with source and dest (the znode, null if absent) and `kinds`: the names of the fields that
    differ, or the text that only one side has the znode.
    """

    znodes: tuple[int, int]
    count: int
    frame: DataFrame


def compare_subtrees(source: Subtree, dest: Subtree) -> Comparison:
    """Compare two subtrees. Raises PySparkException if a tree cannot be read."""
    left, right = (
        tree.nodes.select("path", F.struct(*FIELDS).alias(side))
        for tree, side in ((source, "source"), (dest, "dest"))
    )
    both = left.join(right, "path", "full_outer")
    kinds = F.when(F.col("dest").isNull(), F.array(F.lit(ONLY_SOURCE))).when(
        F.col("source").isNull(), F.array(F.lit(ONLY_DEST))
    )
    unlike = {name: ~F.col(f"source.{name}").eqNullSafe(F.col(f"dest.{name}")) for name in FIELDS}
    differing = F.array(*(F.when(differs, F.lit(name)) for name, differs in unlike.items()))
    found = both.withColumn("kinds", kinds.otherwise(F.array_compact(differing)))
    found = found.persist(StorageLevel.DISK_ONLY)
    differs = F.size("kinds") > 0
    row = only(found.agg(F.count("source"), F.count("dest"), F.count_if(differs)))
    return Comparison((row[0], row[1]), row[2], found.filter(differs))


def first(found: DataFrame, limit: int) -> list[Difference]:
    """Return the first paths that differ, each with the first field that differs. The left side is source.

    found: the frame of a `Comparison`.
    """
    rows = found.orderBy("path").limit(limit).collect()
    source, dest = (
        {row.path: znode(row[side]) for row in rows if row[side] is not None} for side in ("source", "dest")
    )
    return list(differences(source, dest))
