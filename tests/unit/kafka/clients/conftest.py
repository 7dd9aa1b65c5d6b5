"""The fake cluster that the clients reach instead of a Kafka cluster."""

from __future__ import annotations

import pytest

from tests.unit.kafka.clients.fake_cluster import FakeCluster
from zkmigrate.kafka.clients import admin, connections


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Three brokers without topics, which answer every question in time."""
    cluster = FakeCluster()
    monkeypatch.setattr(connections, "KafkaAdminClient", cluster.connected)
    for module in (admin, connections):
        monkeypatch.setattr(module, "releases_of", cluster.answering)
    return cluster
