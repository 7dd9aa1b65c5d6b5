"""Read the log directories of brokers and their replicas, through the brokers.

kafka-python's ``describe_log_dirs`` drops a broker's top-level error, so a refusal looks like no directories.
For that reason this module sends the request itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka.protocol.admin import DescribeLogDirsRequest

from zkmigrate.kafka.clients.each_broker import of_each
from zkmigrate.kafka.clients.library import send
from zkmigrate.kafka.error_text import describe_error
from zkmigrate.kafka.questions import LogDir, LogDirs, ReplicaLog
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown

_DENIED = 31
"""CLUSTER_AUTHORIZATION_FAILED."""


def log_dirs(
    brokers: Sequence[str], ids: Sequence[int], partitions: Mapping[str, Sequence[int]] | None
) -> Reading[Mapping[int, LogDirs]]:
    """Return the log directories of the brokers with these ids, by broker id.

    brokers: those of the cluster, ``host:port``. partitions: the partitions to list, by topic; None for all.
    """

    def question(admin: Any, id: int) -> LogDirs:
        return _directories(id, send(admin, _request(partitions), id))

    return of_each(brokers, ids, question)


def _request(partitions: Mapping[str, Sequence[int]] | None) -> DescribeLogDirsRequest:
    named = None
    if partitions is not None:
        named = [
            DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=list(numbers))
            for topic, numbers in partitions.items()
        ]
    return DescribeLogDirsRequest(topics=named)


def _directories(id: int, answer: Mapping[str, Any]) -> LogDirs:
    """Return the log directories in an answer, by path.

    Brokers before 3.2 refuse with an answer without directories; every broker has at least one.
    """
    code = answer.get("error_code", 0) or (0 if answer["results"] else _DENIED)
    if code:
        return Unknown(
            "denied" if code == _DENIED else "failed",
            f"log directories of broker {id}: {describe_error(code)}",
        )
    return Seen({result["log_dir"]: _directory(id, result) for result in answer["results"]})


def _directory(id: int, result: Mapping[str, Any]) -> Reading[LogDir]:
    """Return one log directory; raises ValueError for an impossible size."""
    if code := result["error_code"]:
        return Unknown("failed", f"broker {id}, {result['log_dir']}: {describe_error(code)}")
    replicas = tuple(
        ReplicaLog(
            topic["name"], p["partition_index"], p["partition_size"], p["offset_lag"], p["is_future_key"]
        )
        for topic in result["topics"]
        for p in topic["partitions"]
    )
    if odd := [r for r in replicas if r.size < 0 or r.lag < -1]:
        raise ValueError(f"{odd[0].topic}-{odd[0].partition}: {odd[0].size} bytes, lag {odd[0].lag}")
    total, usable = (None if (n := result.get(key, -1)) < 0 else n for key in ("total_bytes", "usable_bytes"))
    return Seen(LogDir(replicas, total, usable, bool(result.get("is_cordoned", False))))
