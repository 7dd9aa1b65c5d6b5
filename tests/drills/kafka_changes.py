"""Change Kafka's metadata as an administrator, and check whether the brokers still have the changes.

``python -m tests.drills.kafka_changes make|seen BOOTSTRAP`` must run in a network that reaches the brokers.
``make`` creates a topic, adds partitions and a setting to it, and deletes another topic. ``seen`` prints what
the brokers report about them, as JSON; it must be ``EXPECTED``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from zkmigrate.lab.lab import Lab
from zkmigrate.lab.spec import KAFKA_PORT, Role

TOPIC, GONE = "after-open", "after-open-gone"
PARTITIONS, SETTING, VALUE = 6, "retention.ms", "123456789"
EXPECTED = {"partitions": PARTITIONS, "value": VALUE, "gone": True}
_LIMIT_S = 30


def run_in_lab(lab: Lab, what: str) -> dict[str, Any]:
    """Run ``make`` or ``seen`` in the operator's network and return its JSON. Raises LabError if it fails."""
    bootstrap = ",".join(f"{host.address}:{KAFKA_PORT}" for host in lab.role(Role.BROKER))
    output = lab.run_module("tests.drills.kafka_changes", what, bootstrap, timeout_s=6 * _LIMIT_S)
    found: dict[str, Any] = json.loads(output)
    return found


def make(admin: Any) -> dict[str, Any]:
    """Make the changes one by one, each after the acknowledgement of the one before."""
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewPartitions,
        NewTopic,
        ResourceType,
    )

    limit = {"operation_timeout": _LIMIT_S, "request_timeout": _LIMIT_S}
    new = [NewTopic(TOPIC, 2, 3), NewTopic(GONE, 1, 3)]
    for answer in admin.create_topics(new, **limit).values():
        answer.result()
    admin.create_partitions([NewPartitions(TOPIC, PARTITIONS)], **limit)[TOPIC].result()
    entry = ConfigEntry(SETTING, VALUE, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([resource], request_timeout=_LIMIT_S)[resource].result()
    admin.delete_topics([GONE], **limit)[GONE].result()
    return {}


def seen(admin: Any) -> dict[str, Any]:
    """Return what the brokers report now, by the keys of ``EXPECTED``."""
    from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

    topics = admin.list_topics(timeout=_LIMIT_S).topics
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    settings = admin.describe_configs([resource], request_timeout=_LIMIT_S)[resource].result()
    return {
        "partitions": len(topics[TOPIC].partitions) if TOPIC in topics else 0,
        "value": settings[SETTING].value,
        "gone": GONE not in topics,
    }


def main(what: str, bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    print(json.dumps({"make": make, "seen": seen}[what](admin)))


if __name__ == "__main__":
    main(*sys.argv[1:])
