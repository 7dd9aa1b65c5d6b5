"""Elect the preferred leaders of partitions, and wait until every broker knows them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka.errors import ElectionNotNeededError, KafkaError, for_code
from kafka.protocol.admin.topics import ElectionType

from zkmigrate.kafka.changes import ElectLeaders
from zkmigrate.kafka.clients.cluster_view import parse_partitions
from zkmigrate.kafka.clients.library import metadata
from zkmigrate.kafka.error_text import describe_error

ELECTION_S, _KNOWN_S = 60.0, 20.0
"""Seconds to wait for the answer to an election, and then until every broker knows the new leaders."""


def elect(admin: Any, change: ElectLeaders) -> str:
    """Elect preferred replicas with ElectLeaders (KIP-460, Kafka 2.2), and wait until brokers know them.

    Returns why Kafka refused; empty if Kafka accepted. If every partition is elected, Kafka's refusal of some
    is no refusal: it skips those whose preferred replica is not in sync.
    """
    by_topic: dict[str, list[int]] = {}
    for topic, number in change.partitions:
        by_topic.setdefault(topic, []).append(number)
    answer = admin.elect_leaders(ElectionType.PREFERRED, by_topic or None, raise_errors=False).to_dict()
    elected, left = _read_election(answer)
    _wait_until_known(admin, elected, tuple(by_topic) or None)
    return ", ".join(left[:5]) if change.partitions else ""


def _read_election(answer: Mapping[str, Any]) -> tuple[set[tuple[str, int]], list[str]]:
    """Return the partitions that were elected, and why others were not.

    Raises KafkaError if Kafka refused all.
    """
    if code := answer.get("error_code", 0):  # brokers before 2.4 have no top-level error
        raise for_code(code)
    results = [
        (topic["topic"], p["partition_id"], p["error_code"])
        for topic in answer["replica_election_results"]
        for p in topic["partition_result"]
    ]
    elected = {(topic, partition) for topic, partition, code in results if code == 0}
    left = [
        f"{topic}-{partition}: {describe_error(code)}"
        for topic, partition, code in results
        if code not in (0, ElectionNotNeededError.errno)
    ]
    return elected, left


def _wait_until_known(
    admin: Any, elected: Collection[tuple[str, int]], topics: Sequence[str] | None = None
) -> None:
    """Wait until every broker knows the elected leaders, or until ``_KNOWN_S`` seconds have passed.

    topics: the topics to ask about; None for all.
    """
    end = time.monotonic() + _KNOWN_S
    while elected and _led_by_others(admin, topics).intersection(elected) and time.monotonic() < end:
        time.sleep(_KNOWN_S / 100)


def _led_by_others(admin: Any, topics: Sequence[str] | None) -> set[tuple[str, int]]:
    """Return the partitions that, as any broker reports, have another leader than their preferred replica."""
    found = set()
    for broker in metadata(admin, None)["brokers"]:
        with suppress(KafkaError):  # it went down meanwhile
            answer = parse_partitions(metadata(admin, broker["node_id"], topics)["topics"])
            partitions = answer if isinstance(answer, list) else []
            found |= {(p.topic, p.partition) for p in partitions if p.leader != p.replicas[0]}
    return found
