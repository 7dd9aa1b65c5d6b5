"""What a task of ``analyze placement`` makes of the lines of a cluster, without Spark."""

from __future__ import annotations

import json

from pyspark.sql import Row

from zkmigrate.cluster.placement.request import Rebalance
from zkmigrate.cluster.placement.what_if import BY_DEFAULT, WhatIf
from zkmigrate.spark.jobs import placement


def test_only_a_line_feed_ends_a_line() -> None:
    """JSON may hold other separators of lines inside a text."""
    brokers = [{"broker": id_, "storage_free": 9, "host": f"a\u2028b\u0085{id_}"} for id_ in (1, 2)]
    partition = {"topic": "t", "partition": 0, "replicas": [1], "size": 1}
    row = Row(
        cluster="c",
        place=0,
        partitions=json.dumps(partition),
        brokers="\n".join(json.dumps(one, ensure_ascii=False) for one in brokers) + "\n",
    )
    found = placement._in_task(BY_DEFAULT)(row)
    assert (found.error, found.brokers, found.partitions) == (None, 2, 1)


def test_a_cluster_that_a_what_if_names_twice_is_planned_once() -> None:
    what_ifs = (*BY_DEFAULT, WhatIf("again", Rebalance(), clusters=("b", "b", "c", "c")))
    units, absent = placement._units(["a", "b"], what_ifs)
    assert units == [(0, "a", 0), (1, "b", 0), (2, "b", 1)]
    assert [(one.cluster, one.what_if) for one in absent] == [("c", "again")]
