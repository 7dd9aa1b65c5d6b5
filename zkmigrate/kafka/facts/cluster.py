"""Read Kafka's state in ZooKeeper through one ZooKeeper host.

Each function reads in the operator's client session on that host. The JSON formats are Kafka's
(``kafka.zk.ZkData``): ``/cluster/id`` {"version", "id"}, ``/brokers/ids/N`` {"host", "port", …},
``/controller`` {"brokerid"}; ``/controller_epoch`` is decimal text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zkmigrate import json_text
from zkmigrate.kafka.questions import DescribeCluster, KafkaView
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context
from zkmigrate.zookeeper.questions import ReadZnode, Znode


@dataclass(frozen=True)
class Controller:
    """The registered controller: its broker id, its ephemeral znode and its epoch."""

    broker: int
    owner: int
    czxid: int
    epoch: int


def kafka_view(c: Context, look: Look) -> Reading[KafkaView]:
    """Return the cluster as its brokers report it, without retired brokers."""
    reading = look.ask(DescribeCluster())
    return Seen(reading.value.without([r.id for r in c.retired])) if isinstance(reading, Seen) else reading


def cluster_id(look: Look, via: str, prefix: str) -> Reading[str]:
    """Return the cluster id under the chroot; Absent if the chroot or the znode does not exist."""
    node = look.ask(ReadZnode(via, f"{prefix}/cluster/id"))
    if not isinstance(node, Seen):
        return node
    value = _json(node.value).get("id")
    return Seen(value) if isinstance(value, str) else _garbled(f"{prefix}/cluster/id", node.value)


def controller(look: Look, via: str, prefix: str) -> Reading[Controller]:
    """Return the registered controller; Absent if there is none."""
    node, epoch = (
        look.ask(ReadZnode(via, f"{prefix}/controller")),
        look.ask(ReadZnode(via, f"{prefix}/controller_epoch")),
    )
    if not isinstance(node, Seen):
        return node
    if not isinstance(epoch, Seen):
        return epoch
    broker = _json(node.value).get("brokerid")
    if not isinstance(broker, int):
        return _garbled(f"{prefix}/controller", node.value)
    if not epoch.value.data.isdigit():
        return _garbled(f"{prefix}/controller_epoch", epoch.value)
    return Seen(
        Controller(
            broker, node.value.ephemeral_owner, node.value.czxid, int(epoch.value.data.decode("ascii"))
        )
    )


def _json(node: Znode) -> dict[str, Any]:
    try:
        value = json_text.loads(node.data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _garbled(path: str, node: Znode) -> Unknown:
    return Unknown("garbled", f"cannot parse the content of {path}: {node.data[:80]!r}")
