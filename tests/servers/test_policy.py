"""Our CreateTopicPolicy on real brokers: what it refuses, and that it reads its file at each creation."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError, PolicyViolationError

from tests.servers.process import ADDRESS, START_SECONDS, free_port, server, wait_for
from tests.servers.test_reassign import answering
from tests.servers.test_versions import zookeeper
from zkmigrate.kafka.clients import reassignments
from zkmigrate.lab import provision
from zkmigrate.lab.wait import wait_until
from zkmigrate.model.fact import Seen
from zkmigrate.removal.rules import OWN_POLICY, POLICY

AUTOMATIC: dict[str, Any] = {"num_partitions": 1, "replication_factor": 1}
EXPLICIT: dict[str, Any] = {"replica_assignments": {0: [7]}}


@pytest.mark.parametrize("version", ["2.8.2", "3.9.1"])
def test_x2_x7_the_policy_refuses_what_its_file_says(version: str, tmp_path: Path) -> None:
    config, log, file = (tmp_path / name for name in ("server.properties", "kafka.log", "excluded"))
    address = f"{ADDRESS}:{free_port()}"
    jars = (*provision.kafka_classpath(version), provision.policy_jar())
    with zookeeper("3.5.8", tmp_path) as port:
        config.write_text(
            f"broker.id=7\nlisteners=PLAINTEXT://{address}\nlog.dirs={tmp_path / 'log'}\n"
            f"zookeeper.connect={ADDRESS}:{port}/kafka\n{POLICY}={OWN_POLICY}\n"
            f"zkmigrate.excluded.brokers.file={file}\n"
        )
        with server("java", jars, ["-Xmx256m", "kafka.Kafka", str(config)], log) as process:
            wait_for(f"Kafka {version}", process, log, port, "dump", "/kafka/brokers/ids/7")
            wait_until(
                "the broker", lambda: None if answering({7: address}) == Seen(1) else "no", START_SECONDS
            )
            loaded = reassignments.broker_settings([address], POLICY, (7,))
            assert isinstance(loaded, Seen)
            assert isinstance(loaded.value[7], Seen)
            assert loaded.value[7].value.value == OWN_POLICY
            with closing(KafkaAdminClient(bootstrap_servers=[address])) as client:
                refusals(client, address, file)


def refusals(client: KafkaAdminClient, address: str, file: Path) -> None:
    made: list[str] = []

    def create(kind: dict[str, Any]) -> str:
        """What the broker says against a topic; empty where it makes it."""
        made.append(f"t{len(made)}")
        try:
            client.create_topics([NewTopic(made[-1], **kind)])
        except PolicyViolationError as error:
            return str(error)
        return ""

    def produced(topic: str) -> bool:
        """Whether a producer that names a topic makes it."""
        with closing(KafkaProducer(bootstrap_servers=[address], max_block_ms=4000)) as producer:
            try:
                return bool(producer.partitions_for(topic))
            except KafkaError:
                return False

    assert (create(AUTOMATIC), create(EXPLICIT)) == ("", ""), "no file"

    file.write_text("removal=r1\nbrokers=6,7\n")
    assert f"Partition t{len(made)}-0 cannot be on broker 7, which is being removed (removal r1)" in create(
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
    assert produced("auto")

    for wrong in ("brokers=6,x\n", "brokers=6\nclosed\n", "brokers=6\nbrokers=7\n", "closed_s=soon\n"):
        file.write_text(wrong)
        for kind in (AUTOMATIC, EXPLICIT):
            assert f"No topic can be created: {file} is wrong" in create(kind), wrong
    file.unlink()
    assert (create(AUTOMATIC), create(EXPLICIT)) == ("", ""), "no file again"
