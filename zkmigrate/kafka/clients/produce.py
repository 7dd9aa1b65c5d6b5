"""Send small records to a canary topic and measure how long each takes to be acknowledged.

For each broker, the partition that it is the preferred leader of gets a record several times a second, at
most one in flight. A record is sent again, to the current leader, until it is acknowledged. So the canary
sees what any producer with ``acks=all`` and retries sees. It is not idempotent, because brokers would take
producer ids from ZooKeeper. Records may be duplicated, but no client reads them. The canary never creates a
topic.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.clients import cluster_view, library
from zkmigrate.kafka.clients.connections import Brokers
from zkmigrate.kafka.clients.login import Login, login_of
from zkmigrate.kafka.error_text import describe_exception
from zkmigrate.kafka.questions import PartitionState
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.look import Pulse
from zkmigrate.runbook.model.sampling import Body
from zkmigrate.secret import SecretError

EVERY_S = 0.25
_KEY, _VALUE = b"zkmigrate", b"canary"
"""Each record has a key, so that a compacted topic accepts it too."""

_ANSWER_S = 2.0
_METADATA_S = 1.0
_KEPT = 1000
_EAGER_S = 2.0
_AGAIN_S, _LATER_S = 0.05, 0.5
_LOOK_S = 5.0
_POLL_S = 0.1
_WHY = 200


@dataclass(frozen=True)
class Ack:
    """The acknowledgement of one record by the leader.

    broker: name of the leader. at: time on the monotonic clock. took_s: seconds since the record was first
    sent.
    """

    partition: int
    broker: str
    at: float
    took_s: float


@dataclass(frozen=True)
class Late:
    """A record that still waits for its acknowledgement.

    home: the preferred leader of the record's partition. partition: None when unknown. since: when the record
    was first sent, on the monotonic clock. why: the error of the last attempt.
    """

    home: str
    partition: int | None
    since: float
    why: str


def canary(inventory: Inventory) -> ProduceCanary | None:
    """Return the produce canary of the inventory, or None if the inventory names no topic for it."""
    topic = inventory.canary_topic
    brokers = {b.name: (b.id, b.address, b.port) for b in inventory.brokers}
    return None if topic is None else ProduceCanary(topic, brokers, login=login_of(inventory))


def sample(topic: str, acks: Sequence[Ack], late: Sequence[Late], now: float) -> Body | None:
    """Return the body of a ``produce`` sample (``kafka/rules/sampling.py``), or None if nothing happened."""
    if not acks and not late:
        return None
    took: dict[str, list[list[object]]] = {}
    for ack in acks:
        entry = [ack.broker, round((now - ack.at) * 1000, 1), round(ack.took_s * 1000, 2)]
        took.setdefault(str(ack.partition), []).append(entry)
    waits = [[d.home, d.partition, round(now - d.since, 2), d.why[:_WHY]] for d in late]
    return {"topic": topic, "acks": took, "late": waits}


class ProduceCanary:
    """A canary that sends records from ``begin`` until ``rest``, through one producer in one thread.

    Only one thread may call its methods. brokers: name → (broker.id, address, port). every_s: seconds between
    the records of a partition.
    """

    def __init__(
        self,
        topic: str,
        brokers: Mapping[str, tuple[int, str, int]],
        every_s: float = EVERY_S,
        login: Login = dict,
    ) -> None:
        self.topic = topic
        self._login = login
        self._brokers = dict(brokers)
        self._every_s = every_s
        self._lock = threading.Lock()
        self._acks: deque[Ack] = deque(maxlen=_KEPT)
        self._pulses: dict[str, deque[Pulse]] = {name: deque(maxlen=_KEPT) for name in self._brokers}
        self._late: dict[str, Late] = {}
        self._stop: threading.Event | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def begin(self) -> None:
        """Start sending, unless the canary is already sending or is closed."""
        if self._stop is None and not self._closed:
            self._stop = threading.Event()
            acknowledged, failed = (partial(f, self._stop) for f in (self._acknowledged, self._failed))
            sender = _Sender(self.topic, self._brokers, self._every_s, self._login, acknowledged, failed)
            self._thread = threading.Thread(
                target=sender.run, args=(self._stop,), name="produce", daemon=True
            )
            self._thread.start()

    def rest(self) -> None:
        """Stop sending and close the connections.

        Records in flight may take until the time limit of one answer.
        """
        if self._stop is None or self._thread is None:
            return
        self._stop.set()
        self._thread.join(timeout=_ANSWER_S + _METADATA_S)
        self._stop, self._thread = None, None
        with self._lock:
            self._late.clear()
            for own in self._pulses.values():
                own.clear()

    def close(self) -> None:
        """Stop sending permanently."""
        self._closed = True
        self.rest()

    def results(self) -> tuple[list[Ack], list[Late]]:
        """Return the acknowledgements since the last call, at most the newest thousand, and late records."""
        with self._lock:
            acks = list(self._acks)
            self._acks.clear()
            return acks, list(self._late.values())

    def pulses(self) -> dict[str, tuple[Pulse, ...]]:
        """Return each broker's acknowledgements since the last call, at most its newest thousand.

        They include how long a late record has waited so far.
        """
        now = time.monotonic()
        with self._lock:
            pulses = {name: list(own) for name, own in self._pulses.items()}
            for own in self._pulses.values():
                own.clear()
            for late in self._late.values():
                if late.partition is not None:
                    pulses[late.home].append(Pulse(None, took_s=now - late.since))
        return {name: tuple(own) for name, own in pulses.items() if own}

    def sampled(self, now: float) -> Body | None:
        """Return the results since the last call as a sample."""
        return sample(self.topic, *self.results(), now)

    def _acknowledged(self, over: threading.Event, home: str, ack: Ack) -> None:
        with self._lock:
            if over.is_set():
                return
            self._late.pop(home, None)
            self._acks.append(ack)
            self._pulses[ack.broker].append(Pulse(0.0, took_s=ack.took_s))

    def _failed(self, over: threading.Event, late: Late) -> None:
        with self._lock:
            if not over.is_set():
                self._late[late.home] = late


class _Sender:
    """The sender of all records, for use by one thread.

    acknowledged: called with the preferred leader and the acknowledgement of each record. failed: called
    after each attempt that is not acknowledged.
    """

    def __init__(
        self,
        topic: str,
        brokers: Mapping[str, tuple[int, str, int]],
        every_s: float,
        login: Login,
        acknowledged: Callable[[str, Ack], None],
        failed: Callable[[Late], None],
    ) -> None:
        self._topic, self._every_s = topic, every_s
        self._acknowledged, self._failed = acknowledged, failed
        self._ids = {name: id for name, (id, _, _) in brokers.items()}
        self._names = {id: name for name, id in self._ids.items()}
        self._brokers = Brokers((f"{address}:{port}" for _, address, port in brokers.values()), login)
        self._producer: KafkaProducer | None = None
        self._partitions: Mapping[int, int] = {}
        self._found_at, self._unread = -math.inf, ""
        self._sent: dict[str, float] = {}
        self._due = dict.fromkeys(brokers, 0.0)
        self._in_flight: dict[str, int] = {}
        self._answers: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def run(self, over: threading.Event) -> None:
        """Send until ``over`` is set, then wait for the records in flight and close the connections."""
        while not over.is_set():
            for home, due in self._due.items():
                if home not in self._in_flight and due <= time.monotonic() and not over.is_set():
                    self._send(home)
            self._take_answers()
        self._close()
        self._brokers.close()

    def _close(self) -> None:
        while self._producer is not None:
            with suppress(KafkaTimeoutError):  # a record is in flight, and kafka-python 3.0.12 closes nothing
                self._producer.close(timeout=_METADATA_S)
                self._producer = None

    def _send(self, home: str) -> None:
        self._sent.setdefault(home, time.monotonic())
        try:
            partition = self._partition(home)
            sent = self._connection().send(self._topic, _VALUE, _KEY, partition=partition)
        except (KafkaError, OSError, LookupError, ValueError, SecretError) as error:
            if isinstance(error, ValueError):  # the producer does not know the partition yet
                self._close()
            self._late(home, self._partitions.get(self._ids[home]), _why(error))
            return
        self._in_flight[home] = partition
        sent.add_both(lambda answer: self._answers.put((home, answer)))

    def _connection(self) -> KafkaProducer:
        if self._producer is None:
            self._producer = KafkaProducer(
                bootstrap_servers=list(self._brokers),
                client_id="zkmigrate-canary",
                acks="all",
                enable_idempotence=False,
                retries=0,
                allow_auto_create_topics=False,
                max_in_flight_requests_per_connection=1,
                max_block_ms=int(_METADATA_S * 1000),
                bootstrap_timeout_ms=int(_METADATA_S * 1000),
                request_timeout_ms=int(_ANSWER_S * 1000),
                delivery_timeout_ms=int(_ANSWER_S * 1000),
                retry_backoff_ms=int(_AGAIN_S * 1000),
                reconnect_backoff_max_ms=int(_LATER_S * 1000),
                metrics_enabled=False,
                **self._brokers.login(),
            )
        return self._producer

    def _partition(self, home: str) -> int:
        """Return the partition of a broker. Raises LookupError if it is the preferred leader of none."""
        if self._ids[home] not in self._partitions and time.monotonic() - self._found_at >= _LOOK_S:
            found = cluster_view.partitions_of(self._brokers, self._topic)
            self._found_at, self._unread = time.monotonic(), "" if isinstance(found, Seen) else str(found)
            if isinstance(found, Seen):
                self._partitions = preferred_partitions(found.value)
        if self._ids[home] not in self._partitions:
            none = f"topic {self._topic} has no partition whose preferred leader is {home}"
            raise LookupError(self._unread or none)
        return self._partitions[self._ids[home]]

    def _take_answers(self) -> None:
        """Handle the answers that arrive until the next record is due."""
        due = min((due for home, due in self._due.items() if home not in self._in_flight), default=math.inf)
        wait_s = max(0.0, min(due - time.monotonic(), _POLL_S))
        with suppress(queue.Empty):
            while True:
                self._take(*self._answers.get(timeout=wait_s))
                wait_s = 0.0

    def _take(self, home: str, answer: Any) -> None:
        partition = self._in_flight.pop(home)
        leader = self._leader(partition) or home
        if isinstance(answer, Exception):
            self._late(home, partition, f"{leader}: {_why(answer)}")
            return
        now = time.monotonic()
        took_s = now - self._sent.pop(home)
        self._due[home] = now + max(0.0, self._every_s - took_s)
        self._acknowledged(home, Ack(partition, leader, now, took_s))

    def _leader(self, partition: int) -> str | None:
        """Return the name of the partition's current leader, or None if it is none of the brokers."""
        if self._producer is None:
            return None
        leader = library.leader_of(self._producer, TopicPartition(self._topic, partition))
        return None if leader is None else self._names.get(leader)

    def _late(self, home: str, partition: int | None, why: str) -> None:
        now, sent = time.monotonic(), self._sent[home]
        self._due[home] = now + (_AGAIN_S if now - sent < _EAGER_S else _LATER_S)
        self._failed(Late(home, partition, sent, why))


def _why(error: Exception) -> str:
    if isinstance(error, KafkaTimeoutError):
        return f"no answer within {_ANSWER_S:g} s"
    return (
        str(error) if isinstance(error, LookupError | ValueError | SecretError) else describe_exception(error)
    )


def preferred_partitions(partitions: Iterable[PartitionState]) -> dict[int, int]:
    """Return, by broker id, the first partition that the broker is the preferred leader of."""
    return {p.replicas[0]: p.partition for p in sorted(partitions, key=lambda p: -p.partition)}
