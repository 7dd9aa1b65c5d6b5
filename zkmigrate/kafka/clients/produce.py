"""The produce canary: small records to a topic that the operator made for it, and how long each took.

One partition for each broker, the one it is the preferred leader of, gets a record several times a second and
has at most one in flight; it is sent again, wherever the partition is led by then, until it is acknowledged.
So it sees what any producer with ``acks=all`` and retries sees. It is not idempotent: for that a broker hands
out producer ids, and takes these from ZooKeeper. A record that was sent again may be there twice; nobody
reads them. No topic is ever made by it: a metadata request says so, and there is no other that could.

Format: Kafka protocol guide, Metadata v4 and Produce v3, which Kafka 1.0 to 4 speak.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka.errors import for_code
from kafka.record.memory_records import MemoryRecordsBuilder

from zkmigrate.hosts.transport.failure import socket_text
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.clients.wire import Wire
from zkmigrate.model.sampling import Body

EVERY_S = 0.25
_PRODUCE, _METADATA = 0, 3
_KEY, _VALUE = b"zkmigrate", b"canary"
"""A key, so that a compacted topic takes it too."""

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
    """A record was acknowledged by ``broker``, which leads the partition. at: on the monotonic clock. took_s:
    since it was first sent."""

    partition: int
    broker: str
    at: float
    took_s: float


@dataclass(frozen=True)
class Late:
    """A record waits for its acknowledgement.

    home: the broker whose partition it goes to. partition: None where it is not known. since: when it was
    first sent, on the monotonic clock. why: what the last try met.
    """

    home: str
    partition: int | None
    since: float
    why: str


@dataclass(frozen=True)
class Led:
    """One partition as brokers tell it: who leads it, -1 for nobody; its replicas, preferred leader first."""

    leader: int
    replicas: tuple[int, ...]


class NotTakenError(Exception):
    """The record was not taken this time; the text says why."""


def canary(inventory: Inventory) -> ProduceCanary | None:
    """The canary that the inventory asks for; None where it asks for none."""
    topic = inventory.kafka.canary_topic if inventory.has("kafka") else None
    brokers = {b.name: (b.id, b.address, b.port) for b in inventory.brokers}
    return None if topic is None else ProduceCanary(topic, brokers)


def sample(topic: str, acks: Sequence[Ack], late: Sequence[Late], now: float) -> Body | None:
    """The body of a ``produce`` sample (``kafka/rules/sampling.py``); None where nothing happened."""
    if not acks and not late:
        return None
    took: dict[str, list[list[object]]] = {}
    for ack in acks:
        entry = [ack.broker, round((now - ack.at) * 1000, 1), round(ack.took_s * 1000, 2)]
        took.setdefault(str(ack.partition), []).append(entry)
    waits = [[d.home, d.partition, round(now - d.since, 2), d.why[:_WHY]] for d in late]
    return {"topic": topic, "acks": took, "late": waits}


class ProduceCanary:
    """Sends from ``begin`` until ``rest``, in threads of its own, one for each broker.

    All is called by one thread. brokers: name → (broker.id, address, port). every_s: from one record of a
    partition to its next.
    """

    def __init__(
        self, topic: str, brokers: Mapping[str, tuple[int, str, int]], every_s: float = EVERY_S
    ) -> None:
        self.topic = topic
        self._brokers = dict(brokers)
        self._every_s = every_s
        self._guard = threading.Lock()
        self._acks: deque[Ack] = deque(maxlen=_KEPT)
        self._late: dict[str, Late] = {}
        self._over: threading.Event | None = None
        self._threads: list[threading.Thread] = []
        self._closed = False

    def begin(self) -> None:
        """Start sending; nothing where it sends already or is closed."""
        if self._over is not None or self._closed:
            return
        self._over = threading.Event()
        for home in self._brokers:
            lane = _Lane(self.topic, home, self._brokers)
            args = (lane, self._over)
            thread = threading.Thread(target=self._send, args=args, name=f"produce-{home}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def rest(self) -> None:
        """Stop sending and close the connections; what is in flight is not waited for longer than its answer
        may take."""
        if self._over is None:
            return
        self._over.set()
        end = time.monotonic() + _ANSWER_S + _METADATA_S
        for thread in self._threads:
            thread.join(timeout=max(0.0, end - time.monotonic()))
        self._over, self._threads = None, []
        with self._guard:
            self._late.clear()

    def close(self) -> None:
        """Stop for good."""
        self._closed = True
        self.rest()

    def taken(self) -> tuple[list[Ack], list[Late]]:
        """What was acknowledged since the last call, at most the newest thousand, and what is late now."""
        with self._guard:
            acks = list(self._acks)
            self._acks.clear()
            return acks, list(self._late.values())

    def sampled(self, now: float) -> Body | None:
        """What was taken, as a sample."""
        return sample(self.topic, *self.taken(), now)

    def _send(self, lane: _Lane, over: threading.Event) -> None:
        """One lane's records, one after the other, until it is over."""
        while not over.is_set():
            begun = time.monotonic()
            while not over.is_set():
                try:
                    broker = lane.send()
                except NotTakenError as error:
                    why = str(error)
                else:
                    now = time.monotonic()
                    with self._guard:
                        self._late.pop(lane.home, None)
                        self._acks.append(Ack(lane.partition or 0, broker, now, now - begun))
                    break
                with self._guard:
                    if over.is_set():
                        break
                    self._late[lane.home] = Late(lane.home, lane.partition, begun, why)
                over.wait(_AGAIN_S if time.monotonic() - begun < _EAGER_S else _LATER_S)
            over.wait(max(0.0, self._every_s - (time.monotonic() - begun)))
        lane.drop()


class _Lane:
    """One partition's records, wherever it is led. Used by one thread."""

    def __init__(self, topic: str, home: str, brokers: Mapping[str, tuple[int, str, int]]) -> None:
        self.home = home
        self.partition: int | None = None
        self._topic = topic
        self._brokers = brokers
        self._names = {id: name for name, (id, _, _) in brokers.items()}
        self._leader = ""
        self._wire: Wire | None = None

    def send(self) -> str:
        """Send the record once; the broker that acknowledged it. NotTakenError when it was not."""
        if self._wire is None:
            self._find()
        wire, partition = self._wire, self.partition
        assert wire is not None
        assert partition is not None
        try:
            answer = wire.ask(_PRODUCE, 3, record(self._topic, partition), time.monotonic() + _ANSWER_S)
            error = produced(answer)
        except (OSError, ValueError) as error_:
            self.drop()
            why = socket_text(error_) if isinstance(error_, OSError) else str(error_)
            raise NotTakenError(f"{self._leader}: {why}") from error_
        if error:
            self.drop()
            raise NotTakenError(f"{self._leader}: {for_code(error).__name__}")
        return self._leader

    def drop(self) -> None:
        """Close the connection; the leader is asked for anew."""
        if self._wire is not None:
            self._wire.drop()
            self._wire = None

    def _find(self) -> None:
        led = self._partitions()
        if self.partition is None:
            self.partition = chosen(led, self._brokers[self.home][0])
        if self.partition is None:
            raise NotTakenError(
                f"{self._topic} has no partition of which {self.home} is the preferred leader"
            )
        if self.partition not in led:
            raise NotTakenError(f"{self._topic} has no partition {self.partition} any more")
        name = self._names.get(led[self.partition].leader)
        if name is None:
            raise NotTakenError("no broker leads it")
        self._leader = name
        self._wire = Wire(*self._brokers[name][1:])

    def _partitions(self) -> dict[int, Led]:
        """As the first broker tells that answers; the one that led last is asked last."""
        why = ""
        for name in sorted(self._brokers, key=lambda name: name == self._leader):
            wire = Wire(*self._brokers[name][1:])
            try:
                return partitions(wire.ask(_METADATA, 4, which(self._topic), time.monotonic() + _METADATA_S))
            except (OSError, ValueError) as error:
                why = f"{name}: {socket_text(error) if isinstance(error, OSError) else error}"
            finally:
                wire.drop()
        raise NotTakenError(why)


def chosen(led: Mapping[int, Led], home: int) -> int | None:
    """The partition for a broker: the first that it is the preferred leader of; None without one."""
    preferred = [p for p, state in led.items() if state.replicas[:1] == (home,)]
    return min(preferred, default=None)


def record(topic: str, partition: int) -> bytes:
    """A produce request with one small record, to be acknowledged by all replicas in sync."""
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1024)
    builder.append(timestamp=int(time.time() * 1000), key=_KEY, value=_VALUE)
    builder.close()
    batch = bytes(builder.buffer())
    head = struct.pack(">hhi", -1, _ALL_IN_SYNC, _BROKER_WAITS_MS)
    return head + struct.pack(">i", 1) + _text(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch


def produced(answer: bytes) -> int:
    """The error code of the one partition that was asked; ValueError for what is no such answer."""
    take = _Answer(answer)
    if take.many() != 1 or take.text() is None or take.many() != 1:
        raise ValueError("answered for another number of partitions than it was asked for")
    take.number(">i")
    return take.number(">h")


def which(topic: str) -> bytes:
    """A metadata request for one topic that makes none."""
    return struct.pack(">i", 1) + _text(topic) + struct.pack(">?", False)


def partitions(answer: bytes) -> dict[int, Led]:
    """The partitions in an answer about one topic. ValueError with what the brokers say of it instead."""
    take = _Answer(answer)
    take.number(">i")
    for _ in range(take.many()):
        take.number(">i"), take.text(), take.number(">i"), take.text()
    take.text(), take.number(">i")
    if take.many() != 1:
        raise ValueError("answered about another number of topics than it was asked for")
    if error := take.number(">h"):
        raise ValueError(f"the topic: {for_code(error).__name__}")
    take.text(), take.number(">?")
    out = {}
    for _ in range(take.many()):
        take.number(">h")
        partition, leader = take.number(">i"), take.number(">i")
        replicas = tuple(take.number(">i") for _ in range(take.many()))
        for _ in range(take.many()):
            take.number(">i")
        out[partition] = Led(leader, replicas)
    return out


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


class _Answer:
    """Reads an answer from its begin on; ValueError where it is shorter than it tells."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        size = struct.calcsize(form)
        return int(struct.unpack(form, self._take(size))[0])

    def many(self) -> int:
        """The length of an array."""
        return self.number(">i")

    def text(self) -> str | None:
        size = self.number(">h")
        return None if size < 0 else self._take(size).decode(errors="replace")

    def _take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if len(part) < size:
            raise ValueError("answered less than it tells")
        self._at += size
        return part
