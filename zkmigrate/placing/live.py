"""The cluster as ZooKeeper shows it, with the peer's metrics: reads only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from kazoo.exceptions import NoNodeError

from zkmigrate.errors import UsageError
from zkmigrate.placement import peer_metrics
from zkmigrate.placement.cluster import Assigned, Cluster
from zkmigrate.placement.cluster_file import load_json
from zkmigrate.placement.plan import Refused
from zkmigrate.zookeeper.clients.ensemble import ANSWER_S, connected, named
from zkmigrate.zookeeper.disks.servers import parse_servers

_IN_FLIGHT = 500
_NAME = "ZooKeeper"


class Client(Protocol):
    """What of kazoo's client is used. An answer's ``get(timeout=)`` waits for it."""

    def get_async(self, path: str) -> Any: ...
    def get_children_async(self, path: str) -> Any: ...


def read(address: str, prefix: str, metrics_prefix: str, minutes: int, now_ms: int) -> Cluster | Refused:
    """The cluster below ``HOST:PORT,…/CHROOT``. prefix: of Kafka's znodes; metrics_prefix: of the metrics',
    beside it. minutes: how old metrics may be. Raises UsageError, HostError."""
    servers, chroot = parse_servers(address)
    below = chroot.rstrip("/")
    with connected(_NAME, servers) as client, named(_NAME, "reading brokers and topics"):
        kafka, metrics = (f"{below}/{part.strip('/')}".rstrip("/") for part in (prefix, metrics_prefix))
        return cluster(client, kafka, metrics, minutes, now_ms)


def cluster(client: Client, kafka: str, metrics: str, minutes: int, now_ms: int) -> Cluster | Refused:
    """The same with an open session. kafka, metrics: paths without a ``/`` at the end."""
    found = [*_got(client, [f"{metrics}/{name}" for name in _METRICS])]
    if old := peer_metrics.too_old([stat.mtime for _, stat in found], now_ms, minutes):
        return old
    sizes = peer_metrics.parse(*(data for data, _ in found))
    ids = sorted(_children(client, f"{kafka}/brokers/ids"))
    racks: dict[int, str] = {}
    hosts: dict[int, str] = {}
    for id_, (data, _) in zip(ids, _got(client, [f"{kafka}/brokers/ids/{id_}" for id_ in ids]), strict=True):
        told = _object(data, f"broker {id_}")
        racks[int(id_)], hosts[int(id_)] = told.get("rack") or "", told.get("host") or ""
    topics = sorted(_children(client, f"{kafka}/brokers/topics"))
    paths = [f"{kafka}/brokers/topics/{topic}" for topic in topics]
    sets = {
        (topic, int(number)): tuple(replicas)
        for topic, (data, _) in zip(topics, _got(client, paths), strict=True)
        for number, replicas in _partitions(data, f"topic {topic}").items()
    }
    if not racks or not sets:
        seen = "no broker" if not racks else "no topic"
        raise UsageError(f"seen {seen} below {kafka or '/'}; needed: Kafka's znodes. Next: see --zk-prefix")
    return peer_metrics.cluster(Assigned(racks, sets, hosts), sizes)


_METRICS = (peer_metrics.PARTITION_META, peer_metrics.BROKER_METRICS)


def _object(data: bytes, what: str) -> dict[str, Any]:
    found = load_json(data, what, "JSON as Kafka writes it")
    if not isinstance(found, dict):
        raise UsageError(f"{what}: seen {json.dumps(found)[:60]}; needed: an object, as Kafka writes it")
    return found


def _partitions(data: bytes, what: str) -> dict[str, list[int]]:
    found = _object(data, what).get("partitions")
    if not isinstance(found, dict) or not all(
        number.isdigit() and isinstance(ids, list) and ids and all(type(id_) is int for id_ in ids)
        for number, ids in found.items()
    ):
        raise UsageError(f"{what}: seen {json.dumps(found)[:60]}; needed: replicas by partition")
    return found


def _children(client: Client, path: str) -> list[str]:
    found: list[str] = _answer(client.get_children_async(path), path)
    return found


def _answer(sent: Any, path: str) -> Any:
    try:
        return sent.get(timeout=ANSWER_S)
    except NoNodeError:
        raise UsageError(f"no znode {path}. Next: see --zk-prefix and --zk-metrics-prefix") from None


def _got(client: Client, paths: Sequence[str]) -> Iterator[tuple[bytes, Any]]:
    """Data and stat of each znode; ``_IN_FLIGHT`` reads run at once."""
    for at in range(0, len(paths), _IN_FLIGHT):
        sent = {path: client.get_async(path) for path in paths[at : at + _IN_FLIGHT]}
        for path, answer in sent.items():
            yield _answer(answer, path)
