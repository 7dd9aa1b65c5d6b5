"""A Kafka cluster behind kafka-python's admin client, with answers in the library's own types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.admin import ConfigResourceType
from kafka.errors import RequestTimedOutError
from kafka.protocol.admin import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.admin.topics import ElectionType
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.metadata import MetadataRequest

from zkmigrate.kafka.clients.connections import NoBrokerError

CLUSTER_ID, KEY = "I" * 22, "retention.ms"


class Told(dict[str, Any]):
    """An answer as the library's types tell it."""

    def to_dict(self) -> Mapping[str, Any]:
        return self


class FakeCluster:
    """What a KafkaAdminClient answers and was asked. An answer that is an error is raised.

    addresses, topics: what every broker says; of_topics, names: what the broker of an id says instead.
    described, of_disks: a config by topic, log directories by broker id. configs: of describe_configs by kind
    of resource and name; about a name in silent no broker answers. outcomes: of an alteration,
    by topic. hanging: ``host:port`` that does not answer; unreachable: why no client can be made.
    asked: each request's broker id, and the topics, partitions or None for all.
    """

    def __init__(self) -> None:
        self._manager = self.cluster = self
        self.release = (2, 8)
        self.hanging: set[str] = set()
        self.unreachable: Exception | None = None
        self.trouble: Exception | None = None
        self.settings: dict[str, Any] = {}
        self.made = self.closed = 0
        self.controller = 1
        self._controller_id: int | None = None
        self.addresses: dict[int, tuple[str, int, str | None]] = {
            n: (f"10.0.0.{n}", 9092, None) for n in (1, 2, 3)
        }
        self.topics: list[dict[str, Any]] = []
        self.of_topics: dict[int, list[dict[str, Any]] | Exception] = {}
        self.names: dict[int, set[int]] = {}
        self.described: dict[str, Any] = {}
        self.of_disks: dict[int, Any] = {}
        self.configs: dict[str, dict[str, Any]] = {}
        self.silent: set[str] = set()
        self.moving: list[Any] | Exception = []
        self.election: Any = None
        self.outcomes: dict[str, str | Exception] = {}
        self.altered: list[tuple[list[str], object]] = []
        self.asked: list[tuple[int | None, Any]] = []

    def connected(self, **settings: Any) -> FakeCluster:
        self.made, self.settings = self.made + 1, settings
        if self.unreachable:
            raise self.unreachable
        return self

    @property
    def broker_version_data(self) -> BrokerVersionData:
        """What requests its brokers take, as the library keeps it."""
        return BrokerVersionData(self.release)

    def answering(self, brokers: Sequence[str]) -> dict[str, str]:
        answering = {broker: "2.8" for broker in brokers if broker not in self.hanging}
        if not answering:
            raise NoBrokerError(f"no broker of {', '.join(brokers)} answered in 3 s")
        return answering

    def brokers(self) -> list[SimpleNamespace]:
        """Those that a client has heard of."""
        return [SimpleNamespace(node_id=id, host=at[0], port=at[1]) for id, at in self.addresses.items()]

    def close(self) -> None:
        self.closed += 1

    def run(self, question: Any, admin: object, *rest: Any) -> Any:
        assert admin is self
        coroutine = question(self, *rest)
        with pytest.raises(StopIteration) as ended:
            coroutine.send(None)
        return ended.value.value

    async def send(self, request: Any, node_id: int | None = None) -> Any:
        if self.trouble:
            raise self.trouble
        BrokerVersionData(self.release).api_version(request)
        if isinstance(request, MetadataRequest):
            return self._metadata(request, node_id)
        if isinstance(request, DescribeConfigsRequest):
            kinds, names, keys = zip(*request.resources, strict=True)
            assert (set(kinds), set(map(tuple, keys))) == ({ConfigResourceType.TOPIC}, {(KEY,)})
            self.asked.append((node_id, list(names)))
            results = [self.described[name] for name in names]
            return DescribeConfigsResponse(version=2, throttle_time_ms=0, results=results)
        assert isinstance(request, DescribeLogDirsRequest)
        named = None if request.topics is None else {t.topic: t.partitions for t in request.topics}
        self.asked.append((node_id, named))
        assert node_id is not None
        return _raised(self.of_disks[node_id])

    def _metadata(self, request: MetadataRequest, id: int | None) -> Told:
        assert request.allow_auto_topic_creation is False
        wanted = None if request.topics is None else [topic.name for topic in request.topics]
        self.asked.append((id, wanted))
        said = _raised(self.of_topics.get(id or 0, self.topics if wanted != [] else []))
        brokers = [
            {"node_id": n, "host": host, "port": port, "rack": rack}
            for n, (host, port, rack) in self.addresses.items()
            if n in self.names.get(id or 0, self.addresses)
        ]
        cluster = {"cluster_id": CLUSTER_ID, "controller_id": self.controller}
        return Told({**cluster, "brokers": brokers, "topics": said})

    def describe_configs(self, resources: Sequence[Any], config_filter: str) -> dict[str, Any]:
        assert config_filter == "all"
        [kind] = {r.resource_type.name.lower() for r in resources}
        names = {r.name for r in resources}
        if names & self.silent:
            raise RequestTimedOutError()
        return {kind: {name: self.configs[kind][name] for name in names}}

    def list_partition_reassignments(self) -> dict[Any, object]:
        return {partition: {} for partition in _raised(self.moving)}

    def elect_leaders(self, kind: object, partitions: object, *, raise_errors: bool) -> Any:
        assert (kind, partitions, raise_errors) == (ElectionType.PREFERRED, None, False)
        return _raised(self.election)

    def alter_configs(
        self,
        resources: Sequence[Any],
        *,
        raise_on_unknown: bool,
        incremental: bool,
    ) -> Mapping[str, Mapping[str, str]]:
        assert (raise_on_unknown, incremental) == (False, True), "only the key that is named is altered"
        assert {r.resource_type for r in resources} == {ConfigResourceType.TOPIC}
        BrokerVersionData(self.release).api_version(IncrementalAlterConfigsRequest)
        names = [r.name for r in resources]
        self.altered.append((names, resources[0].configs))
        return {"topic": {name: _raised(self.outcomes.get(name, "OK")) for name in names}}


def _raised(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer
