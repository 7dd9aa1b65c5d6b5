"""Change Kafka metadata through the brokers: create topics and alter topic settings."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
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
from zkmigrate.lab.load.json_lines import Recorder
from zkmigrate.lab.load.pace import Pace
from zkmigrate.lab.load.process import Orders

_REQUEST_LIMIT_S = 15.0
_VERIFY_LIMIT_S = 60.0
_TICK_S = 0.1
_SETTING = "retention.ms"
_LEAST_RETENTION_MS = 86_400_000
# The request may have taken effect although the answer was bad or missing.
_UNKNOWN = {
    KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT_QUEUE,
    KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION, KafkaError.UNKNOWN,
}  # fmt: skip


@dataclass
class _Request:
    """A request that has no answer yet."""

    op: str
    topic: str
    value: int
    started_ns: int
    answer: Future[Any]


@dataclass
class _Changes:
    config: LoadConfig
    record: Recorder
    counts: dict[str, int] = field(default_factory=lambda: {"ok": 0, "failed": 0, "unknown": 0})
    made: list[str] = field(default_factory=list)
    settings: dict[str, int] = field(default_factory=dict)
    tried: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, _Request] = field(default_factory=dict)
    sent: int = 0
    born: int = 0

    def __post_init__(self) -> None:
        self.admin = AdminClient(
            {
                **self.config.kafka_login.librdkafka(self.config.bootstrap),
                "reconnect.backoff.max.ms": 1000,
                # With sparse connections (librdkafka's default) a request for a restarting broker
                # reconnects to it without any backoff, thousands of times per second.
                "enable.sparse.connections": False,
            }
        )
        self.prefix = f"meta-{time.time_ns() // 1_000_000}"
        self._answered: deque[tuple[str, int]] = deque()
        self._an_answer = threading.Event()

    @property
    def has_room(self) -> bool:
        return len(self.waiting) < self.config.metadata_in_flight

    def step(self) -> None:
        """Send one change: create a topic, or alter a setting of a recent topic that has no open request.

        A topic is created at every ``metadata_create_every``th change, and whenever no topic can be altered
        or fewer than ``metadata_in_flight`` topics exist.
        """
        self.sent += 1
        newest = self.made[-self.config.metadata_in_flight :]
        free = [topic for topic in newest if topic not in self.waiting]
        few = len({*self.made, *self.waiting}) < self.config.metadata_in_flight
        if few or not free or self.sent % self.config.metadata_create_every == 0:
            self._create(f"{self.prefix}-{self.sent}")
        else:
            turn = free[self.sent % len(free)]
            self._alter(turn, _LEAST_RETENTION_MS + self.sent)

    def _create(self, topic: str) -> None:
        sets = self._living() if self.born % 2 else ()
        self.born += 1
        if sets:
            new = NewTopic(topic, 1, replica_assignment=[list(sets[self.born // 2 % len(sets)])])
        else:
            new = NewTopic(topic, 1, self.config.replication_factor)
        limit = {"operation_timeout": _REQUEST_LIMIT_S, "request_timeout": _REQUEST_LIMIT_S}
        started = time.monotonic_ns()
        self._wait_for("create_topic", topic, 1, started, self.admin.create_topics([new], **limit)[topic])

    def _living(self) -> list[tuple[int, ...]]:
        """Return the configured replica lists whose brokers are all in the cluster now.

        The result is empty if the brokers do not answer.
        """
        if not self.config.metadata_sets:
            return []
        with suppress(KafkaException):
            here = set(self.admin.list_topics(timeout=_REQUEST_LIMIT_S).brokers)
            return [own for own in self.config.metadata_sets if here.issuperset(own)]
        return []

    def _alter(self, topic: str, value: int) -> None:
        entry = ConfigEntry(_SETTING, str(value), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.tried[topic] = value
        started = time.monotonic_ns()
        answers = self.admin.incremental_alter_configs([resource], request_timeout=_REQUEST_LIMIT_S)
        self._wait_for("alter_config", topic, value, started, next(iter(answers.values())))

    def _wait_for(self, op: str, topic: str, value: int, started: int, answer: Future[Any]) -> None:
        self.waiting[topic] = _Request(op, topic, value, started, answer)

        def answered(_answer: Future[Any]) -> None:  # on a thread of the client library
            self._answered.append((topic, time.monotonic_ns()))
            self._an_answer.set()

        answer.add_done_callback(answered)

    def collect(self, wait_s: float) -> None:
        """Wait at most ``wait_s`` seconds for an answer, and record all answers that have arrived.

        A request that is still unanswered 5 seconds after its own time limit is recorded as unknown.
        """
        self._an_answer.wait(wait_s)
        self._an_answer.clear()
        while self._answered:
            topic, at_ns = self._answered.popleft()
            request = self.waiting.get(topic)
            if request is not None and request.answer.done():
                self._settle(request, at_ns)
        overdue_ns = time.monotonic_ns() - int((_REQUEST_LIMIT_S + 5) * 1e9)
        for request in [request for request in self.waiting.values() if request.started_ns < overdue_ns]:
            self._record(request, "unknown", "no answer from the client library", time.monotonic_ns())

    def _settle(self, request: _Request, at_ns: int) -> None:
        try:
            request.answer.result(0)
        except KafkaException as error:
            outcome = "unknown" if error.args[0].code() in _UNKNOWN else "failed"
            self._record(request, outcome, str(error.args[0].str()), at_ns)
            return
        if request.op == "create_topic":
            self.made.append(request.topic)
        else:
            self.settings[request.topic] = request.value
        self._record(request, "ok", "", at_ns)

    def _record(self, request: _Request, outcome: str, text: str, at_ns: int) -> None:
        del self.waiting[request.topic]
        self.counts[outcome] += 1
        self.record.write(
            "op", mono_ns=at_ns, op=request.op, topic=request.topic, value=request.value, outcome=outcome,
            error=text, started_mono_ns=request.started_ns,
        )  # fmt: skip

    # --- reading back ---------------------------------------------------------------------------------------

    def verify(self) -> dict[str, Any]:
        """Read every acknowledged change back from the brokers.

        Return the fields of the ``verified`` line.
        """
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
            # values only rise; a change without an answer may have been applied after the acknowledged one
            if not self.settings[topic] <= seen <= self.tried[topic]:
                wrong.append(f"{topic}: {_SETTING} seen {seen}, acknowledged {self.settings[topic]}")
        return wrong


def run(config: LoadConfig, record: Recorder, orders: Orders) -> dict[str, Any]:
    """Change metadata at the configured rate until the stop signal, then read the changes back.

    Returns the counters of the closing line.
    """
    changes = _Changes(config, record)
    pace = Pace(config.metadata_rate, time.monotonic_ns())
    while not orders.stopping:
        if changes.has_room and pace.take(time.monotonic_ns()):
            changes.step()
        else:
            due_s = max(0.0, (pace.next_ns - time.monotonic_ns()) / 1e9) if changes.has_room else _TICK_S
            changes.collect(min(_TICK_S, due_s))
    record.write("stopping")
    while changes.waiting:
        changes.collect(_TICK_S)
    record.write("verified", **changes.verify())
    return changes.counts
