"""Kafka metadata changes through the brokers: topic creations and topic config changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from zkmigrate.lab.load.config import LoadConfig
from zkmigrate.lab.load.pace import Pace
from zkmigrate.lab.load.process import Orders
from zkmigrate.lab.load.record import Recorder

_REQUEST_LIMIT_S = 15.0
_VERIFY_LIMIT_S = 60.0
_CREATE_EVERY = 5
_TICK_S = 0.1
_SETTING = "retention.ms"
_LEAST_RETENTION_MS = 86_400_000
# The request may have taken effect although the answer was bad or missing.
_UNKNOWN = {
    KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT_QUEUE,
    KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION, KafkaError.UNKNOWN,
}  # fmt: skip


@dataclass
class _Changes:
    config: LoadConfig
    record: Recorder
    counts: dict[str, int] = field(default_factory=lambda: {"ok": 0, "failed": 0, "unknown": 0})
    made: list[str] = field(default_factory=list)
    settings: dict[str, int] = field(default_factory=dict)
    tried: dict[str, int] = field(default_factory=dict)
    asked: int = 0

    def __post_init__(self) -> None:
        self.admin = AdminClient(
            {"bootstrap.servers": self.config.bootstrap, "reconnect.backoff.max.ms": 1000}
        )
        self.prefix = f"meta-{time.time_ns() // 1_000_000}"

    def step(self) -> None:
        """One change: every fifth creates a topic, the others turn a setting of the newest one."""
        self.asked += 1
        if not self.made or self.asked % _CREATE_EVERY == 0:
            self._create(f"{self.prefix}-{self.asked}")
        else:
            self._alter(self.made[-1], _LEAST_RETENTION_MS + self.asked)

    def _create(self, topic: str) -> None:
        new = NewTopic(topic, 1, self.config.replication_factor)
        limit = {"operation_timeout": _REQUEST_LIMIT_S, "request_timeout": _REQUEST_LIMIT_S}
        outcome = self._ask("create_topic", topic, 1, lambda: self.admin.create_topics([new], **limit)[topic])
        if outcome == "ok":
            self.made.append(topic)

    def _alter(self, topic: str, value: int) -> None:
        entry = ConfigEntry(_SETTING, str(value), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.tried[topic] = value

        def request() -> Future[Any]:
            asked = self.admin.incremental_alter_configs([resource], request_timeout=_REQUEST_LIMIT_S)
            return next(iter(asked.values()))

        if self._ask("alter_config", topic, value, request) == "ok":
            self.settings[topic] = value

    def _ask(self, op: str, topic: str, value: int, request: Callable[[], Future[Any]]) -> str:
        started = time.monotonic_ns()
        outcome, text = "ok", ""
        try:
            request().result(_REQUEST_LIMIT_S + 5)
        except KafkaException as error:
            outcome = "unknown" if error.args[0].code() in _UNKNOWN else "failed"
            text = str(error.args[0].str())
        except FutureTimeout:
            outcome, text = "unknown", "no answer from the client library"
        self.counts[outcome] += 1
        self.record.write(
            "op", op=op, topic=topic, value=value, outcome=outcome, error=text, started_mono_ns=started
        )
        return outcome

    # --- reading back ---------------------------------------------------------------------------------------

    def verify(self) -> dict[str, Any]:
        """Read every acknowledged change back from the brokers."""
        try:
            listed = set(self.admin.list_topics(timeout=_VERIFY_LIMIT_S).topics)
            missing = [topic for topic in self.made if topic not in listed]
            wrong = self._wrong_settings([topic for topic in self.settings if topic in listed])
        except (KafkaException, FutureTimeout) as error:
            return {"complete": False, "missing_topics": [], "wrong_configs": [], "error": str(error)}
        return {"complete": True, "missing_topics": missing, "wrong_configs": wrong, "error": ""}

    def _wrong_settings(self, topics: list[str]) -> list[str]:
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        if not resources:
            return []
        wrong = []
        answers = self.admin.describe_configs(resources, request_timeout=_VERIFY_LIMIT_S)
        for resource, answer in answers.items():
            seen = int(answer.result(_VERIFY_LIMIT_S)[_SETTING].value)
            topic = resource.name
            # values only rise; one whose answer was lost may have been applied after the acknowledged one
            if not self.settings[topic] <= seen <= self.tried[topic]:
                wrong.append(f"{topic}: {_SETTING} seen {seen}, acknowledged {self.settings[topic]}")
        return wrong


def run(config: LoadConfig, record: Recorder, orders: Orders) -> dict[str, Any]:
    """Change metadata at the configured rate, one request at a time, until told to stop; then read back."""
    changes = _Changes(config, record)
    pace = Pace(config.metadata_rate, time.monotonic_ns())
    while not orders.stopping:
        if pace.take(time.monotonic_ns()):
            changes.step()
        else:
            orders.wait(min(_TICK_S, max(0.0, (pace.next_ns - time.monotonic_ns()) / 1e9)))
    record.write("stopping")
    record.write("verified", **changes.verify())
    return changes.counts
