"""Send small records to a canary topic and measure how long each takes to be acknowledged.

For each broker, the partition that it is the preferred leader of gets a record several times a second, at
most one in flight. A record is sent again, to the current leader, until it is acknowledged. So the canary
sees what any producer with ``acks=all`` and retries sees. It is not idempotent, because brokers would take
producer ids from ZooKeeper. Records may be duplicated, but no client reads them. The canary never creates a
topic.

Format: Kafka protocol guide, Metadata v4 and Produce v3, which Kafka 1.0 to 4 speak.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka.record.memory_records import MemoryRecordsBuilder

from zkmigrate.hosts.transport.failure import socket_text
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.clients.wire import BrokerConnection
from zkmigrate.kafka.said import said
from zkmigrate.runbook.model.look import Pulse
from zkmigrate.runbook.model.sampling import Body

EVERY_S = 0.25
_PRODUCE, _METADATA = 0, 3
_KEY, _VALUE = b"zkmigrate", b"canary"
"""Each record has a key, so that a compacted topic accepts it too."""

_ALL_IN_SYNC = -1
_BROKER_WAITS_MS = 1500
_ANSWER_S = 2.0
_METADATA_S = 1.0
_KEPT = 1000
_EAGER_S = 2.0
_AGAIN_S, _LATER_S = 0.05, 0.5
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


@dataclass(frozen=True)
class PartitionInfo:
    """One partition in a metadata answer.

    leader: broker id, or -1 for none. replicas: broker ids, the preferred leader first.
    """

    leader: int
    replicas: tuple[int, ...]


class NotAcknowledgedError(Exception):
    """An attempt to send a record that was not acknowledged; the text says why."""


def canary(inventory: Inventory) -> ProduceCanary | None:
    """Return the produce canary of the inventory, or None if the inventory names no topic for it."""
    topic = inventory.canary_topic
    brokers = {b.name: (b.id, b.address, b.port) for b in inventory.brokers}
    return None if topic is None else ProduceCanary(topic, brokers)


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
    """A canary that sends records from ``begin`` until ``rest``, in one thread for each broker.

    Only one thread may call its methods. brokers: name → (broker.id, address, port). every_s: seconds between
    the records of a partition.
    """

    def __init__(
        self, topic: str, brokers: Mapping[str, tuple[int, str, int]], every_s: float = EVERY_S
    ) -> None:
        self.topic = topic
        self._brokers = dict(brokers)
        self._every_s = every_s
        self._lock = threading.Lock()
        self._acks: deque[Ack] = deque(maxlen=_KEPT)
        self._pulses: dict[str, deque[Pulse]] = {name: deque(maxlen=_KEPT) for name in self._brokers}
        self._late: dict[str, Late] = {}
        self._stop: threading.Event | None = None
        self._threads: list[threading.Thread] = []
        self._closed = False

    def begin(self) -> None:
        """Start sending, unless the canary sends already or is closed."""
        if self._stop is not None or self._closed:
            return
        self._stop = threading.Event()
        for home in self._brokers:
            sender = _PartitionSender(self.topic, home, self._brokers)
            args = (sender, self._stop)
            thread = threading.Thread(target=self._send, args=args, name=f"produce-{home}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def rest(self) -> None:
        """Stop sending and close the connections; wait at most one answer's limit for records in flight."""
        if self._stop is None:
            return
        self._stop.set()
        end = time.monotonic() + _ANSWER_S + _METADATA_S
        for thread in self._threads:
            thread.join(timeout=max(0.0, end - time.monotonic()))
        self._stop, self._threads = None, []
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
            told = {name: list(own) for name, own in self._pulses.items()}
            for own in self._pulses.values():
                own.clear()
            for late in self._late.values():
                if late.partition is not None:
                    told[late.home].append(Pulse(None, took_s=now - late.since))
        return {name: tuple(own) for name, own in told.items() if own}

    def sampled(self, now: float) -> Body | None:
        """Return the results since the last call as a sample."""
        return sample(self.topic, *self.results(), now)

    def _send(self, sender: _PartitionSender, over: threading.Event) -> None:
        while not over.is_set():
            begun = time.monotonic()
            while not over.is_set():
                try:
                    broker = sender.send()
                except NotAcknowledgedError as error:
                    why = str(error)
                else:
                    now = time.monotonic()
                    with self._lock:
                        self._late.pop(sender.home, None)
                        self._acks.append(Ack(sender.partition or 0, broker, now, now - begun))
                        self._pulses[broker].append(Pulse(0.0, took_s=now - begun))
                    break
                with self._lock:
                    if over.is_set():
                        break
                    self._late[sender.home] = Late(sender.home, sender.partition, begun, why)
                over.wait(_AGAIN_S if time.monotonic() - begun < _EAGER_S else _LATER_S)
            over.wait(max(0.0, self._every_s - (time.monotonic() - begun)))
        sender.drop()


class _PartitionSender:
    """A sender of the records of one partition to its current leader, for use by one thread."""

    def __init__(self, topic: str, home: str, brokers: Mapping[str, tuple[int, str, int]]) -> None:
        self.home = home
        self.partition: int | None = None
        self._topic = topic
        self._brokers = brokers
        self._names = {id: name for name, (id, _, _) in brokers.items()}
        self._leader = ""
        self._connection: BrokerConnection | None = None

    def send(self) -> str:
        """Send the record once and return the broker that acknowledged it. Raises NotAcknowledgedError."""
        if self._connection is None:
            self._find_leader()
        connection, partition = self._connection, self.partition
        assert connection is not None
        assert partition is not None
        try:
            request, end = produce_request(self._topic, partition), time.monotonic() + _ANSWER_S
            error = produce_error(connection.ask(_PRODUCE, 3, request, end))
        except (OSError, ValueError) as error_:
            self.drop()
            why = socket_text(error_) if isinstance(error_, OSError) else str(error_)
            raise NotAcknowledgedError(f"{self._leader}: {why}") from error_
        if error:
            self.drop()
            raise NotAcknowledgedError(f"{self._leader}: {said(error)}")
        return self._leader

    def drop(self) -> None:
        """Close the connection, so that the next record looks for the leader again."""
        if self._connection is not None:
            self._connection.drop()
            self._connection = None

    def _find_leader(self) -> None:
        led = self._metadata()
        if self.partition is None:
            self.partition = preferred_partition(led, self._brokers[self.home][0])
        if self.partition is None:
            raise NotAcknowledgedError(
                f"{self._topic} has no partition of which {self.home} is the preferred leader"
            )
        if self.partition not in led:
            raise NotAcknowledgedError(f"{self._topic} has no partition {self.partition} any more")
        name = self._names.get(led[self.partition].leader)
        if name is None:
            raise NotAcknowledgedError("no broker leads it")
        self._leader = name
        self._connection = BrokerConnection(*self._brokers[name][1:])

    def _metadata(self) -> dict[int, PartitionInfo]:
        """Return the partitions from the first broker that answers, trying the last leader last."""
        why = ""
        for name in sorted(self._brokers, key=lambda name: name == self._leader):
            connection = BrokerConnection(*self._brokers[name][1:])
            try:
                request, end = metadata_request(self._topic), time.monotonic() + _METADATA_S
                return parse_metadata(connection.ask(_METADATA, 4, request, end))
            except (OSError, ValueError) as error:
                why = f"{name}: {socket_text(error) if isinstance(error, OSError) else error}"
            finally:
                connection.drop()
        raise NotAcknowledgedError(why)


def preferred_partition(led: Mapping[int, PartitionInfo], home: int) -> int | None:
    """Return the first partition that a broker is the preferred leader of, or None if there is none."""
    preferred = [p for p, state in led.items() if state.replicas[:1] == (home,)]
    return min(preferred, default=None)


def produce_request(topic: str, partition: int) -> bytes:
    """Return a produce request with one small record and acks=all."""
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1024)
    builder.append(timestamp=int(time.time() * 1000), key=_KEY, value=_VALUE)
    builder.close()
    batch = bytes(builder.buffer())
    head = struct.pack(">hhi", -1, _ALL_IN_SYNC, _BROKER_WAITS_MS)
    return head + struct.pack(">i", 1) + _text(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch


def produce_error(answer: bytes) -> int:
    """Return the error code of the one partition in the answer. Raises ValueError for another answer."""
    take = _Answer(answer)
    if take.many() != 1 or take.text() is None or take.many() != 1:
        raise ValueError("answered for a wrong number of partitions")
    take.number(">i")
    return take.number(">h")


def metadata_request(topic: str) -> bytes:
    """Return a metadata request for one topic that does not create the topic."""
    return struct.pack(">i", 1) + _text(topic) + struct.pack(">?", False)


def parse_metadata(answer: bytes) -> dict[int, PartitionInfo]:
    """Return the partitions in an answer about one topic. Raises ValueError with the topic's error."""
    take = _Answer(answer)
    take.number(">i")
    for _ in range(take.many()):
        take.number(">i"), take.text(), take.number(">i"), take.text()
    take.text(), take.number(">i")
    if take.many() != 1:
        raise ValueError("answered about a wrong number of topics")
    if error := take.number(">h"):
        raise ValueError(f"the topic: {said(error)}")
    take.text(), take.number(">?")
    out = {}
    for _ in range(take.many()):
        take.number(">h")
        partition, leader = take.number(">i"), take.number(">i")
        replicas = tuple(take.number(">i") for _ in range(take.many()))
        for _ in range(take.many()):
            take.number(">i")
        out[partition] = PartitionInfo(leader, replicas)
    return out


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


class _Answer:
    """A reader of the fields of an answer in order; raises ValueError if the answer is too short."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        size = struct.calcsize(form)
        return int(struct.unpack(form, self._take(size))[0])

    def many(self) -> int:
        """Read the length of an array."""
        return self.number(">i")

    def text(self) -> str | None:
        size = self.number(">h")
        return None if size < 0 else self._take(size).decode(errors="replace")

    def _take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if len(part) < size:
            raise ValueError("answered too few bytes")
        self._at += size
        return part
