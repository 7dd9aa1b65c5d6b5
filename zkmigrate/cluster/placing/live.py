"""Read the cluster from ZooKeeper, with topicmappr's metrics. This changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from kazoo.exceptions import NoNodeError

from zkmigrate.cluster.placement import live, peer_metrics
from zkmigrate.cluster.placement.cluster import Assigned, Cluster
from zkmigrate.cluster.placement.cluster_file import load_json
from zkmigrate.cluster.placement.plan import Notice, Refused
from zkmigrate.errors import UsageError
from zkmigrate.zookeeper.clients.ensemble import ANSWER_S, connect, named
from zkmigrate.zookeeper.clients.login import Credentials
from zkmigrate.zookeeper.data.chroot import parse_chroot
from zkmigrate.zookeeper.disks.servers import parse_servers

_IN_FLIGHT = 500
_NAME = "ZooKeeper"


class Client(Protocol):
    """The part of kazoo's client that this module uses. A result's ``get(timeout=)`` waits for it."""

    def get_async(self, path: str) -> Any: ...
    def get_children_async(self, path: str) -> Any: ...


Found: TypeAlias = tuple[Cluster, tuple[Notice, ...]]


def read(
    address: str,
    prefix: str,
    metrics_prefix: str,
    minutes: int,
    now_ms: int,
    credentials: Credentials,
    *,
    sized: bool,
) -> Found | Refused:
    """Return the cluster below ``HOST:PORT,…/CHROOT``.

    prefix: the prefix of Kafka's znodes. metrics_prefix: the prefix of the metrics' znodes, beside it.
    minutes: the highest age of the metrics.
    now_ms: the current time in milliseconds since the epoch. credentials: how to log in to ZooKeeper.
    sized: whether the call fails if the metrics are missing or too old.

    Raises UsageError and HostError.
    """
    servers, path = parse_servers(address)
    below = parse_chroot(path).prefix
    with connect(_NAME, servers, credentials) as client, named(_NAME, "reading brokers and topics"):
        kafka, metrics = (f"{below}/{part.strip('/')}".rstrip("/") for part in (prefix, metrics_prefix))
        return cluster(client, kafka, metrics, minutes, now_ms, sized=sized)


def cluster(
    client: Client, kafka: str, metrics: str, minutes: int, now_ms: int, *, sized: bool
) -> Found | Refused:
    """Return the cluster through an open session; the other parameters are those of :func:`read`.

    kafka, metrics: paths without a ``/`` at the end.
    """
    try:
        measured = _metrics(client, metrics, minutes, now_ms)
    except UsageError as error:
        if sized:
            raise
        measured = Refused((Notice("placement.metrics-missing", str(error)),))
    if sized and isinstance(measured, Refused):
        return measured
    ids = sorted(_children(client, f"{kafka}/brokers/ids"))
    racks: dict[int, str] = {}
    hosts: dict[int, str] = {}
    for id_, (data, _) in zip(ids, _got(client, [f"{kafka}/brokers/ids/{id_}" for id_ in ids]), strict=True):
        told = _object(data, f"broker {id_}")
        racks[int(id_)], hosts[int(id_)] = told.get("rack") or "", told.get("host") or ""
    topics = _topics(client, kafka)
    if moving := _moving(client, kafka, topics):
        return moving
    sets = {
        (topic, int(number)): tuple(replicas)
        for topic, told in topics.items()
        for number, replicas in _partitions(told, f"topic {topic}").items()
    }
    if not racks or not sets:
        seen = "no broker" if not racks else "no topic"
        raise UsageError(f"seen {seen} below {kafka or '/'}; needed: Kafka's znodes. Next: check --zk-prefix")
    assigned = Assigned(racks, sets, hosts)
    whole = measured if isinstance(measured, Refused) else peer_metrics.cluster(assigned, measured)
    if not isinstance(whole, Refused):
        return whole, ()
    return whole if sized else peer_metrics.unmeasured(assigned, whole.reasons[0].text)


def _metrics(client: Client, metrics: str, minutes: int, now_ms: int) -> peer_metrics.Metrics | Refused:
    """Return the sizes and free bytes, or a refusal if the metrics are too old. Raises UsageError."""
    found = [*_got(client, [f"{metrics}/{name}" for name in _METRICS])]
    if old := peer_metrics.too_old([stat.mtime for _, stat in found], now_ms, minutes):
        return old
    return peer_metrics.parse(*(data for data, _ in found))


_METRICS = (peer_metrics.PARTITION_META, peer_metrics.BROKER_METRICS)
_DELETIONS, _REASSIGNMENT = "/admin/delete_topics", "/admin/reassign_partitions"


def _topics(client: Client, kafka: str) -> dict[str, dict[str, Any]]:
    """Return the znode of each topic, in the order of the names.

    Topics that are being deleted, or that disappear meanwhile, are left out.
    """
    names = sorted(_children(client, f"{kafka}/brokers/topics"))
    paths = [f"{kafka}/brokers/topics/{name}" for name in names]
    found = dict(zip(names, _read_each(client, paths), strict=True))
    try:
        deleted = set(client.get_children_async(f"{kafka}{_DELETIONS}").get(timeout=ANSWER_S))
    except NoNodeError:
        deleted = set()
    return {
        name: _object(read[0], f"topic {name}")
        for name, read in found.items()
        if read and name not in deleted
    }


def _moving(client: Client, kafka: str, topics: Mapping[str, Mapping[str, Any]]) -> Refused | None:
    """Return a refusal if a reassignment is running, else None.

    While it runs, the replica list of a moving partition contains its old and its new brokers together.

    Kafka 2.4 and later keep the moving brokers in the topic's znode. Before that, and for a reassignment that
    was submitted through ZooKeeper, ``/admin/reassign_partitions`` exists while one runs.
    """
    moving = {
        (topic, str(number))
        for topic, told in topics.items()
        for key in ("adding_replicas", "removing_replicas")
        for number, ids in _object_or_empty(told.get(key)).items()
        if ids
    }
    path = f"{kafka}{_REASSIGNMENT}"
    for read in filter(None, _read_each(client, [path])):
        rows = _object(read[0], path).get("partitions")
        named = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        moving |= {(str(row.get("topic")), str(row.get("partition"))) for row in named}
        if not moving:
            return live.reassigning(f"a reassignment is in progress: znode {path} exists")
    return live.reassigning(live.moving_partitions(sorted(moving))) if moving else None


def _object_or_empty(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _object(data: bytes, what: str) -> dict[str, Any]:
    found = load_json(data, what, "JSON as Kafka writes it")
    if not isinstance(found, dict):
        raise UsageError(f"{what}: seen {json.dumps(found)[:60]}; needed: an object, as Kafka writes it")
    return found


def _partitions(told: Mapping[str, Any], what: str) -> dict[str, list[int]]:
    found = told.get("partitions")
    if not isinstance(found, dict) or not all(
        number.isdigit() and isinstance(ids, list) and ids and all(type(id_) is int for id_ in ids)
        for number, ids in found.items()
    ):
        raise UsageError(f"{what}: seen {json.dumps(found)[:60]}; needed: replicas by partition")
    return found


def _children(client: Client, path: str) -> list[str]:
    try:
        found: list[str] = client.get_children_async(path).get(timeout=ANSWER_S)
    except NoNodeError:
        raise _missing(path) from None
    return found


def _missing(path: str) -> UsageError:
    return UsageError(f"no znode {path}. Next: check --zk-prefix and --zk-metrics-prefix")


def _got(client: Client, paths: Sequence[str]) -> Iterator[tuple[bytes, Any]]:
    """Yield data and stat of each znode. Raises UsageError for a missing one."""
    for path, read in zip(paths, _read_each(client, paths), strict=True):
        if read is None:
            raise _missing(path)
        yield read


def _read_each(client: Client, paths: Sequence[str]) -> Iterator[tuple[bytes, Any] | None]:
    """Yield data and stat of each znode, or None for a missing one. ``_IN_FLIGHT`` reads run at once."""
    for at in range(0, len(paths), _IN_FLIGHT):
        for answer in [client.get_async(path) for path in paths[at : at + _IN_FLIGHT]]:
            try:
                yield answer.get(timeout=ANSWER_S)
            except NoNodeError:
                yield None
