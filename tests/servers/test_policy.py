"""Our CreateTopicPolicy on real brokers: what it refuses, and that it reads its file at each creation."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError, PolicyViolationError

from tests.servers.test_reassign import IDS, Brokers, excluded
from zkmigrate.cluster.removal.rules import OWN_POLICY, POLICY
from zkmigrate.kafka.clients import reassignments
from zkmigrate.runbook.model.fact import Seen

AUTOMATIC: dict[str, Any] = {"num_partitions": 1, "replication_factor": 1}
EXPLICIT: dict[str, Any] = {"replica_assignments": {0: [3]}}


def test_x2_x7_the_policy_refuses_what_its_file_says(brokers_at_work: Brokers) -> None:
    addresses, file = list(brokers_at_work.at.values()), excluded(brokers_at_work.folder)
    loaded = reassignments.broker_settings(addresses, POLICY, IDS)
    assert isinstance(loaded, Seen)
    for id in IDS:
        own = loaded.value[id]
        assert isinstance(own, Seen)
        assert own.value.value == OWN_POLICY
    try:
        with closing(KafkaAdminClient(bootstrap_servers=addresses)) as client:
            refusals(client, addresses, file)
    finally:
        file.unlink(missing_ok=True)


def refusals(client: KafkaAdminClient, addresses: list[str], file: Path) -> None:
    made: list[str] = []

    def create(kind: dict[str, Any]) -> str:
        """What the broker says against a topic; empty where it makes it."""
        made.append(f"t{len(made)}")
        try:
            client.create_topics([NewTopic(made[-1], **kind)])
        except PolicyViolationError as error:
            return str(error)
        return ""

    def produced(topic: str, limit_ms: int = 4000) -> bool:
        """Whether a producer that names a topic makes it within this time."""
        with closing(KafkaProducer(bootstrap_servers=addresses, max_block_ms=limit_ms)) as producer:
            try:
                return bool(producer.partitions_for(topic))
            except KafkaError:
                return False

    assert (create(AUTOMATIC), create(EXPLICIT)) == ("", ""), "no file"

    file.write_text("removal=r1\nbrokers=6,3\n")
    assert f"Partition t{len(made)}-0 cannot be on broker 3, which is being removed (removal r1)" in create(
        EXPLICIT
    )
    assert create(AUTOMATIC) == "", "where it lands is not known to a policy"

    file.write_text("removal=r1\nbrokers=6\nclosed_s=300\n")
    assert f"Topic t{len(made)} cannot be created now: a broker stops (removal r1)" in create(AUTOMATIC)
    assert create(EXPLICIT) == ""
    assert not produced("auto")
    assert "auto" not in client.list_topics()

    then = time.time() - 301
    os.utime(file, (then, then))
    assert create(AUTOMATIC) == "", "the seconds are over"
    assert produced("auto", 120_000)

    for wrong in ("brokers=6,x\n", "brokers=6\nclosed\n", "brokers=6\nbrokers=7\n", "closed_s=soon\n"):
        file.write_text(wrong)
        for kind in (AUTOMATIC, EXPLICIT):
            assert f"No topic can be created: {file} is wrong" in create(kind), wrong
    file.unlink()
    assert (create(AUTOMATIC), create(EXPLICIT)) == ("", ""), "no file again"
