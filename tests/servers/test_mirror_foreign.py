"""What another producer wrote to a mirror while no copier ran, on real brokers: 2.8.2 to 4.3.1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaProducer

from tests.servers import kraft
from tests.servers.brokers import ALONE, Broker, serve
from tests.servers.test_mirror import make, ran, send
from tests.servers.test_versions import zookeeper
from zkmigrate.topics.mirror.clients.cluster import Cluster
from zkmigrate.topics.mirror.clients.owners import Owner

OLD, NEW = "2.8.2", "4.3.1"


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder: Path = tmp_path_factory.mktemp("foreign")
    source = Broker(OLD, ALONE)
    with zookeeper("3.5.8", folder) as port, serve(folder, port, source), kraft.broker(NEW, folder) as target:
        yield source.address, target


def marker(target: str, topic: str) -> None:
    """End a transaction that a producer of target's never began here."""
    with closing(Cluster("target", [target])) as site:
        other = site.take(["somebody"])["somebody"]
        assert isinstance(other, Owner)
        leader = site.leaders([topic])[topic][0]
        assert site.mark(leader, {(topic, 0): (1, other)}) == {(topic, 0): 0}


def transaction(target: str, topic: str, *, ends: bool) -> None:
    producer = KafkaProducer(bootstrap_servers=[target], transactional_id=f"foreign-{topic}")
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"foreign", partition=0).get(30)
        if ends:
            producer.abort_transaction()
    finally:
        producer.close(timeout=0)


WRITES: dict[str, tuple[Callable[[str, str], None], int]] = {
    "a-marker": (marker, 1),
    "aborted": (lambda target, topic: transaction(target, topic, ends=True), 2),
    "open": (lambda target, topic: transaction(target, topic, ends=False), 1),
}


@pytest.mark.parametrize("topic", WRITES)
def test_h2_a_foreign_write_at_rest_fails_a_mirror_whose_length_is_right(
    clusters: tuple[str, str], topic: str
) -> None:
    source, target = clusters
    write, taken = WRITES[topic]
    make(source, topic)
    send(source, topic, range(20))
    code, output = ran(clusters, "run", [topic], "--once")
    assert code == 0, output
    write(target, topic)
    send(source, topic, range(20, 20 + taken))
    for more in (0, 7):
        send(source, topic, range(50, 50 + more))
        code, output = ran(clusters, "status", [topic])
        assert (code, f"{topic}-0: failed" in output) == (10, True), output
        code, output = ran(clusters, "run", [topic], "--once")
        assert (code, f"FAILED {topic}-0" in output) == (8, True), output
        code, output = ran(clusters, "compare", [topic])
        assert (code, f"{topic}-0: different" in output) == (10, True), output
