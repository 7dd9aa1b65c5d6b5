"""Sizes and free bytes as ``topicmappr`` reads them from ZooKeeper, below ``/topicmappr``.

``partitionmeta`` is ``{"TOPIC": {"0": {"Size": BYTES}}}``, ``brokermetrics`` is
``{"1001": {"StorageFree": BYTES}}``; plain, or compressed by gzip. They contain no time, so their age is that
of the older znode.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from zkmigrate.cluster.placement.cluster import Assigned, Broker, Cluster, Partition
from zkmigrate.cluster.placement.cluster_file import ClusterFileError, load_json
from zkmigrate.cluster.placement.plan import Notice, Refused

PARTITION_META, BROKER_METRICS = "partitionmeta", "brokermetrics"
"""The names of the znodes below the prefix of the metrics."""

MOST_BYTES = 256 << 20
"""The most bytes of an uncompressed znode. A znode of 1 MB can unpack to a thousand times as much."""

_GZIP = b"\x1f\x8b"
_WITH_GZIP_HEADER = 31
_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Metrics:
    """Sizes and free bytes in bytes.

    size: the size of each partition's largest replica. free: the free bytes of each broker.
    """

    size: Mapping[tuple[str, int], int]
    free: Mapping[int, int]


def too_old(changed_ms: Iterable[int], now_ms: int, minutes: int) -> Refused | None:
    """Return a refusal if a znode with metrics has not changed for more than ``minutes``, else None.

    changed_ms: when each znode was last written, in milliseconds since the epoch, as ``now_ms``.
    """
    age_ms = now_ms - min(changed_ms)
    if age_ms <= minutes * _MINUTE_MS:
        return None
    text = (
        f"the metrics in ZooKeeper are {age_ms // _MINUTE_MS} minutes old; needed: at most {minutes} "
        "minutes. Next: start the program that writes the metrics, or raise --metrics-age"
    )
    return Refused((Notice("placement.metrics-old", text),))


def parse(partition_meta: bytes, broker_metrics: bytes) -> Metrics:
    """Return the metrics in the data of both znodes. Raises ClusterFileError."""
    size: dict[tuple[str, int], int] = {}
    for topic, numbers in _object(_read(partition_meta, PARTITION_META), PARTITION_META).items():
        for number, meta in _object(numbers, f"{PARTITION_META}.{topic}").items():
            place = f"{PARTITION_META}.{topic}.{number}"
            size[topic, _whole_number(number, place)] = math.ceil(_bytes(meta, "Size", place))
    free: dict[int, int] = {}
    for broker, metric in _object(_read(broker_metrics, BROKER_METRICS), BROKER_METRICS).items():
        place = f"{BROKER_METRICS}.{broker}"
        free[_whole_number(broker, place)] = math.floor(_bytes(metric, "StorageFree", place))
    return Metrics(size, free)


def cluster(assigned: Assigned, metrics: Metrics) -> Cluster | Refused:
    """Return the cluster made of assignments and metrics; a partition without a size keeps none.

    Returns Refused if free bytes of a registered broker are missing.
    """
    silent = sorted(set(assigned.racks) - set(metrics.free))
    if silent:
        text = (
            f"{BROKER_METRICS} has no StorageFree of the registered brokers {', '.join(map(str, silent))}; "
            "needed: the free bytes of each. Next: write the metrics for all brokers"
        )
        return Refused((Notice("placement.metrics-missing", text),))
    return Cluster.of(
        (
            Broker(
                id_,
                rack,
                metrics.free[id_],
                new=id_ not in assigned.holding,
                host=assigned.hosts.get(id_, ""),
            )
            for id_, rack in assigned.racks.items()
        ),
        (
            Partition(topic, number, replicas, metrics.size.get((topic, number)))
            for (topic, number), replicas in assigned.sets.items()
        ),
    )


def unmeasured(assigned: Assigned, why: str) -> tuple[Cluster, tuple[Notice, ...]]:
    """Return the cluster without sizes, where every broker has 0 bytes free, and a notice that says why."""
    brokers = (
        Broker(id_, rack, 0, new=id_ not in assigned.holding, host=assigned.hosts.get(id_, ""))
        for id_, rack in assigned.racks.items()
    )
    partitions = (Partition(*name, replicas, None) for name, replicas in assigned.sets.items())
    text = (
        f"The plan does not use sizes and free bytes, and a rebuild by count does not need them. Cause: {why}"
    )
    return Cluster.of(brokers, partitions), (Notice("placement.metrics-unused", text),)


def _read(data: bytes, name: str) -> Any:
    if data.startswith(_GZIP):
        unpacking = zlib.decompressobj(_WITH_GZIP_HEADER)
        try:
            data = unpacking.decompress(data, MOST_BYTES)
        except zlib.error as error:
            raise ClusterFileError(f"{name}: seen damaged gzip ({error}); needed: gzip or JSON") from None
        if not unpacking.eof:
            more = "more than 256 MiB" if unpacking.unconsumed_tail else "truncated gzip"
            raise ClusterFileError(f"{name}: seen {more}; needed: whole gzip of at most 256 MiB, or JSON")
    return load_json(data, name, "JSON as topicmappr's metricsfetcher writes it")


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ClusterFileError(f"{place}: seen {json.dumps(value)[:60]}; needed: an object")
    return value


def _whole_number(text: str, place: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise ClusterFileError(f"{place}: seen {json.dumps(text)[:60]}; needed: a whole number as a key")
    return int(text)


def _bytes(value: Any, key: str, place: str) -> float:
    found = _object(value, place).get(key)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 2**63:
        seen = "nothing" if found is None else json.dumps(found)[:60]
        raise ClusterFileError(f"{place}.{key}: seen {seen}; needed: bytes as a number from 0 on")
    return found
