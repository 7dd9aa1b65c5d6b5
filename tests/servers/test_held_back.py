"""Records that a leader acknowledged while too few replicas were in sync, as real brokers tell of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from tests.answers import Mirrored
from tests.servers.kraft import broker, two_brokers
from tests.servers.test_mirror import ran
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.topics.mirror.questions import ClusterAt
from zkmigrate.topics.topic_move.rules import check_in_sync

TOPIC, PART = "orders", ("orders", 0)
WAIT_S = 120


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker("3.9.1", tmp_path_factory.mktemp("target"), 7) as address:
        yield address


def send(address: str, first: int, count: int) -> None:
    with closing(KafkaProducer(bootstrap_servers=[address], acks=1, enable_idempotence=False)) as producer:
        for number in range(first, first + count):
            producer.send(TOPIC, b"%d" % number).get(30)


@pytest.mark.parametrize("release", ["3.9.1", "4.3.1"])
def test_records_that_nobody_can_read_are_not_called_equal(release: str, target: str, tmp_path: Path) -> None:
    with two_brokers(release, tmp_path) as (source, other):
        pair = source, target
        with closing(KafkaAdminClient(bootstrap_servers=[target])) as admin:
            if TOPIC in admin.list_topics():
                admin.delete_topics([TOPIC])
        new = NewTopic(TOPIC, replica_assignments={0: [1, 2]}, topic_configs={"min.insync.replicas": "2"})
        with closing(KafkaAdminClient(bootstrap_servers=[source])) as admin:
            admin.create_topics([new])
        send(source, 0, 10)
        assert ran(pair, "run", [TOPIC], "--once")[0] == 0
        assert ran(pair, "status", [TOPIC])[0] == 0
        with closing(Mirrored(ClusterAt((source,)), ClusterAt((target,)))) as look:
            other.kill()

            def in_sync() -> str | None:
                told = look.ends([TOPIC])
                return None if isinstance(told, Seen) and told.value[PART].below else str(told)

            wait_until("the other replica has left", in_sync, WAIT_S)
            send(source, 10, 3)
            held = (
                "source's log ends at 13, but consumers can read only up to 10; in sync: 1 of replicas 1, 2"
            )
            why = f"{held}, min.insync.replicas: 2"
            told = look.ends([TOPIC])
            assert isinstance(told, Seen)
            one = told.value[PART]
            assert (one.source, one.stable, one.target, one.held) == (13, 10, 10, why)
            assert [found.id for found in check_in_sync(told.value)] == ["switch.in-sync"]
        code, text = ran(pair, "status", [TOPIC], "--json")
        [place] = json.loads(text)["partitions"]
        assert (code, place["state"], place["why"], place["lag"]) == (11, "held", why, 3)
        code, text = ran(pair, "compare", [TOPIC])
        assert code == 11
        assert f"{TOPIC}-0: behind: 3 offsets of source's log cannot be read yet" in text
        code, text = ran(pair, "run", [TOPIC], "--once")
        assert (code, held in text) == (11, True), text
