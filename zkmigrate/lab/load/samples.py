"""Sample a Kafka cluster each second from its brokers and, if it has one, from its ZooKeeper.

Both kinds of samples are taken by separate clients and contain the same: the partitions that move or are
under-replicated, the replicas of each broker, and the throttle rates.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from zkmigrate.lab.kafka_login import PLAINTEXT, KafkaLogin
from zkmigrate.lab.load.config import LoadConfig
from zkmigrate.lab.load.json_lines import Recorder
from zkmigrate.lab.load.pace import Pace
from zkmigrate.lab.load.process import Orders
from zkmigrate.lab.login import Login

BROKERS, ZOOKEEPER = "brokers", "zookeeper"
"""The names of the two sources of samples."""
_ANSWER_S = 5.0
_RATES_EVERY = 5
"""One sample in this many contains the throttle rates.

Only the broker itself reports its rates, together with hundreds of other settings.
"""
_THROTTLES = ("throttled", "replica.alter.log.dirs.io.max")
"""The texts by which a throttle setting is recognised: its name contains one of them."""
_OWN = {ConfigSource.DYNAMIC_BROKER_CONFIG.value, ConfigSource.DYNAMIC_TOPIC_CONFIG.value}
_ERRORS = (KafkaException, KafkaError, KazooException, KazooTimeoutError, OSError, ValueError, KeyError)

Settings = dict[str, dict[str, str]]
"""Throttle settings: for each broker or topic (``broker-1`` or ``topic-a``), the values by key."""


@dataclass(frozen=True)
class Partition:
    """The state of one partition, as a source reports it.

    replicas: broker ids, including replicas that are being added. isr: the ids of brokers in sync. leader:
    the leader's id; -1 for none.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int


@dataclass(frozen=True)
class Sample:
    """The state of the cluster at one moment.

    partitions: the number of partitions. in_flight, under_replicated, offline: names of partitions, such as
    ``a-0``. lack_two: the under-replicated partitions that lack more than one replica. held: the number of
    replicas by broker id. rates: the throttle rates of brokers; None if this sample did not read them.
    """

    partitions: int
    in_flight: list[str]
    under_replicated: list[str]
    lack_two: list[str]
    offline: list[str]
    held: dict[str, int]
    rates: Settings | None


def sample(
    partitions: Mapping[str, Partition],
    in_flight: Iterable[str],
    adding: Mapping[str, Collection[int]],
    rates: Settings | None,
) -> Sample:
    """Make a sample from the given partitions.

    in_flight: the names of the partitions that move. adding: for each partition, the replicas that are being
    added now or were a moment ago. The sample, like Kafka's own count, does not count these as missing from
    the ISR.
    """
    held = Counter(broker for partition in partitions.values() for broker in partition.replicas)
    lack = {
        name: len(set(one.replicas) - set(adding.get(name, ()))) - len(one.isr)
        for name, one in partitions.items()
    }
    return Sample(
        len(partitions),
        sorted(in_flight),
        sorted(name for name, missed in lack.items() if missed > 0),
        sorted(name for name, missed in lack.items() if missed > 1),
        sorted(name for name, one in partitions.items() if one.leader < 0),
        {str(broker): count for broker, count in sorted(held.items())},
        rates,
    )


class Source(Protocol):
    """A way to read the state of the cluster. name: BROKERS or ZOOKEEPER."""

    name: str

    def look(self) -> Sample:
        """Take one sample."""

    def settings(self) -> Settings:
        """Return every throttle setting of the brokers and topics."""

    def close(self) -> None:
        """Close the connections."""


def _throttles(key: str) -> bool:
    return any(part in key for part in _THROTTLES)


@dataclass
class Brokers:
    """The cluster as its brokers report it."""

    bootstrap: str
    login: KafkaLogin = PLAINTEXT
    name: str = BROKERS
    _looks: int = 0
    _adding: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _whole: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The replicas of each partition when all were last in sync. Any further replica is being added."""
    _listing: KafkaAdminClient | None = None

    def __post_init__(self) -> None:
        self._admin = AdminClient({**self.login.librdkafka(self.bootstrap), "reconnect.backoff.max.ms": 1000})

    def partitions(self) -> dict[str, Partition]:
        """Return every partition by name."""
        topics = self._admin.list_topics(timeout=_ANSWER_S).topics.values()
        return {
            f"{topic.topic}-{number}": Partition(tuple(one.replicas), tuple(one.isrs), one.leader)
            for topic in topics
            for number, one in topic.partitions.items()
        }

    def in_flight(self) -> dict[str, tuple[int, ...]]:
        """Return for each moving partition the broker ids of the replicas that its reassignment adds."""
        if self._listing is None:
            self._listing = KafkaAdminClient(
                **self.login.kafka_python(self.bootstrap), request_timeout_ms=int(_ANSWER_S * 1000)
            )
        listed = self._listing.list_partition_reassignments()
        return {f"{at.topic}-{at.partition}": tuple(move["adding_replicas"]) for at, move in listed.items()}

    def look(self) -> Sample:
        """Take one sample.

        Partitions that look under-replicated are read a second time before they are reported. A short move
        may be in neither of two lists of reassignments, and a broker may report a move after its end.
        """
        seen = self._look()
        if not seen.under_replicated:
            return seen
        again = self._look()
        short, lack_two = {*again.under_replicated}, {*again.lack_two}
        return replace(
            seen,
            under_replicated=[name for name in seen.under_replicated if name in short],
            lack_two=[name for name in seen.lack_two if name in lack_two],
        )

    def _look(self) -> Sample:
        try:
            before = self.in_flight()
            partitions = self.partitions()
            after = self.in_flight()
        except (KafkaError, OSError):
            self.close()  # the next sample connects to the brokers that answer then
            raise
        adding = {
            name: {*before.get(name, ()), *after.get(name, ()), *self._adding.get(name, ())}
            | set(one.replicas).difference(self._whole.get(name, one.replicas))
            for name, one in partitions.items()
        }
        self._adding = after
        self._whole |= {n: one.replicas for n, one in partitions.items() if len(one.isr) == len(one.replicas)}
        rates = (
            self._throttle_settings(ResourceType.BROKER, self._ids())
            if self._looks % _RATES_EVERY == 0
            else None
        )
        self._looks += 1
        return sample(partitions, before if len(before) > len(after) else after, adding, rates)

    def settings(self) -> Settings:
        topics = self._admin.list_topics(timeout=_ANSWER_S).topics
        return self._throttle_settings(ResourceType.BROKER, self._ids()) | self._throttle_settings(
            ResourceType.TOPIC, topics
        )

    def _ids(self) -> list[str]:
        return [str(id) for id in self._admin.list_topics(timeout=_ANSWER_S).brokers]

    def _throttle_settings(self, kind: ResourceType, names: Iterable[str]) -> Settings:
        """Return the throttle settings of those brokers or topics whose settings can be read."""
        found: Settings = {}
        resources = [ConfigResource(kind, name) for name in names]
        alone = kind is ResourceType.BROKER  # a request about two brokers fails as a whole
        calls = [[one] for one in resources] if alone else [resources] if resources else []
        answers = [self._admin.describe_configs(call, request_timeout=_ANSWER_S) for call in calls]
        for resource, answer in (one for per_call in answers for one in per_call.items()):
            with suppress(KafkaException):
                own = {
                    key: str(entry.value)
                    for key, entry in answer.result(2 * _ANSWER_S).items()
                    if _throttles(key) and entry.source in _OWN
                }
                if own:
                    found[f"{kind.name.lower()}-{resource.name}"] = own
        return found

    def close(self) -> None:
        if self._listing is not None:
            self._listing.close()
            self._listing = None


@dataclass
class ZooKeeper:
    """The cluster as its ZooKeeper stores it.

    servers: the connect string with the chroot. login: how the client logs in.
    """

    servers: str
    login: Login
    name: str = ZOOKEEPER
    _adding: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._client = self.login.client(self.servers, timeout=10, read_only=True)
        self._client.start(timeout=30)

    def look(self) -> Sample:
        topics = self._contents({name: f"/brokers/topics/{name}" for name in self._names("/brokers/topics")})
        sets: dict[str, list[int]] = {}
        adding: dict[str, tuple[int, ...]] = {}
        flying: set[str] = set()
        places = {}
        for topic, body in topics.items():
            for number, replicas in body["partitions"].items():
                name = f"{topic}-{number}"
                sets[name] = replicas
                places[name] = f"/brokers/topics/{topic}/partitions/{number}/state"
                new, old = (body.get(f"{way}_replicas", {}).get(number) for way in ("adding", "removing"))
                adding |= {name: tuple(new)} if new else {}
                flying |= {name} if new or old else set()
        states = self._contents(places)
        partitions = {
            name: Partition(tuple(sets[name]), tuple(state["isr"]), state["leader"])
            for name, state in states.items()
        }
        recent = {
            name: {*adding.get(name, ()), *self._adding.get(name, ())} for name in {*adding, *self._adding}
        }
        self._adding = adding
        return sample(partitions, flying, recent, self._throttles("broker"))

    def settings(self) -> Settings:
        return self._throttles("broker") | self._throttles("topic")

    def _throttles(self, kind: str) -> Settings:
        bodies = self._contents(
            {f"{kind}-{name}": f"/config/{kind}s/{name}" for name in self._names(f"/config/{kind}s")}
        )
        found = {
            target: {key: str(value) for key, value in body["config"].items() if _throttles(key)}
            for target, body in bodies.items()
        }
        return {target: own for target, own in found.items() if own}

    def _names(self, path: str) -> list[str]:
        try:
            return list(self._client.get_children(path))
        except NoNodeError:
            return []

    def _contents(self, paths: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Return the JSON content of these znodes by name, without znodes that do not exist.

        paths: the path of each znode by name. All znodes are requested at once.
        """
        requests = {name: self._client.get_async(path) for name, path in paths.items()}
        found = {}
        for name, answer in requests.items():
            with suppress(NoNodeError):
                found[name] = json.loads(answer.get(timeout=2 * _ANSWER_S)[0])
        return found

    def close(self) -> None:
        self._client.stop()
        self._client.close()


def run(config: LoadConfig, record: Recorder, orders: Orders) -> dict[str, Any]:
    """Take samples once per second until the stop signal. Return the number of samples by source.

    All throttle settings are read once at the beginning and once at the end.
    """
    sources: list[Source] = [Brokers(config.bootstrap, config.kafka_login)]
    if config.cluster_zookeeper:
        sources.append(ZooKeeper(config.cluster_zookeeper, config.login))
    counts = dict.fromkeys((source.name for source in sources), 0)
    _settings(sources, record, "first")
    pace = Pace(1.0, time.monotonic_ns())
    while not orders.stopping:
        if not pace.take(time.monotonic_ns()):
            orders.wait(max(0.0, (pace.next_ns - time.monotonic_ns()) / 1e9))
            continue
        for source in sources:
            began = time.monotonic()
            try:
                seen = source.look()
            except _ERRORS as error:
                record.write("unseen", source=source.name, error=repr(error))
                continue
            counts[source.name] += 1
            took_s = round(time.monotonic() - began, 3)
            record.write("sample", source=source.name, took_s=took_s, **asdict(seen))
    record.write("stopping")
    _settings(sources, record, "last")
    for source in sources:
        source.close()
    return counts


def _settings(sources: Iterable[Source], record: Recorder, moment: str) -> None:
    for source in sources:
        try:
            record.write("settings", source=source.name, moment=moment, throttles=source.settings())
        except _ERRORS as error:
            record.write("unseen", source=source.name, error=repr(error))
