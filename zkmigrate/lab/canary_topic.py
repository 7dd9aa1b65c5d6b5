"""Create the topic for the produce canary in a lab.

``python -m zkmigrate.lab.canary_topic LOGIN BOOTSTRAP ID …`` creates the topic through the brokers at
BOOTSTRAP. It must run in a network that reaches the brokers. Each broker ID becomes the preferred leader of
one partition.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from zkmigrate.lab.kafka_login import KafkaLogin
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.spec import KAFKA_PORT, Role

TOPIC = "zkmigrate-canary"
_REPLICAS = 3
_LIMIT_S = 60


def make(lab: Lab) -> str:
    """Create the topic in a lab whose brokers are up, and return the topic's name.

    Raises LabError if the topic cannot be created.
    """
    brokers = lab.role(Role.BROKER)
    bootstrap = ",".join(f"{host.address}:{KAFKA_PORT}" for host in brokers)
    ids = [str(lab.plans[host.name].number) for host in brokers]
    login = json.dumps(asdict(lab.kafka_login()))
    lab.run_module("zkmigrate.lab.canary_topic", login, bootstrap, *ids, timeout_s=3 * _LIMIT_S)
    return TOPIC


def assigned(ids: Sequence[int]) -> list[list[int]]:
    """Return the replicas of one partition for each broker, with that broker first: at most three brokers."""
    return [[*ids[n:], *ids[:n]][:_REPLICAS] for n in range(len(ids))]


def acknowledged(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of records that each broker acknowledged, by broker. rows: a run's samples."""
    counts: dict[str, int] = {}
    for row in rows:
        if row.get("kind") == "produce":
            for acks in row["acks"].values():
                for broker, _, _ in acks:
                    counts[broker] = counts.get(broker, 0) + 1
    return dict(sorted(counts.items()))


def main(login: str, bootstrap: str, *ids: str) -> None:
    """Create the topic through the brokers at `bootstrap`.

    login: the fields of KafkaLogin in JSON. ids: the broker ids.
    """
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    from zkmigrate.lab.kafka_metadata import wait_for_metadata

    own = KafkaLogin(**json.loads(login))
    wait_for_metadata(bootstrap, len(ids), _LIMIT_S, own)
    admin = AdminClient(own.librdkafka(bootstrap))
    settings = {"min.insync.replicas": "2" if len(ids) > 2 else "1", "retention.ms": "3600000"}
    replicas = assigned([int(id) for id in ids])
    topic = NewTopic(TOPIC, len(ids), replica_assignment=replicas, config=settings)
    made = admin.create_topics([topic], operation_timeout=_LIMIT_S, request_timeout=_LIMIT_S)
    made[TOPIC].result()


if __name__ == "__main__":
    main(*sys.argv[1:])
