"""The fake cluster that the clients reach instead of a Kafka cluster."""

from __future__ import annotations

import pytest

from tests.unit.kafka.clients.fake_cluster import FakeCluster
from zkmigrate.kafka.clients import admin as kafka


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Three brokers without topics, which answer every question in time."""
    cluster = FakeCluster()
    monkeypatch.setattr(kafka, "KafkaAdminClient", cluster.connected)
    monkeypatch.setattr(kafka, "_answering", cluster.answering)
    return cluster
