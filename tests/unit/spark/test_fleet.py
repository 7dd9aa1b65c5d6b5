"""What a task of ``analyze placement`` makes of the lines of a cluster, without Spark."""

from __future__ import annotations

import json

from pyspark.sql import Row

from zkmigrate.placement.what_if import BY_DEFAULT
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
