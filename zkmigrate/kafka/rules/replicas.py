"""Find out from Kafka's znodes over time whether every replica was in sync when the brokers were stopped.

A clean stop takes a broker out of every ISR before it leaves `/brokers/ids`, so a stopped cluster always
shows short ISRs. The znodes still show since when they were short, and when the first broker left.

Formats, as Kafka's kafka.zk.ZkData writes them: `/brokers/topics/T` `{"partitions": {"0": [1, 2, 3]}}`,
`/brokers/topics/T/partitions/0/state` `{"leader": 1, "isr": [1, 2]}`, `/brokers/ids/1`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from zkmigrate.zookeeper.data.contents import Content

_TOPIC = re.compile(r"topics/([^/]+)")
_STATE = re.compile(r"topics/([^/]+)/partitions/([0-9]+)/state")
_BROKER = re.compile(r"ids/([0-9]+)")


@dataclass(frozen=True, slots=True)
class TxnTime:
    """A transaction's zxid and time, in milliseconds since the epoch."""

    zxid: int
    time_ms: int


@dataclass
class Replicas:
    """The state of all replicas, built by applying the contents of Kafka's `/brokers` in order.

    root: path of `/brokers`, with the chroot. registered: ids of the brokers registered now. behind:
    partitions, `topic-number`, that lack a replica or have an unreadable state. short: since when some
    partitions are behind. whole: whether there was a time since the last registration at which no partition
    was behind. left: when the first broker left after the last registration.
    """

    root: str
    registered: set[int] = field(default_factory=set)
    behind: set[str] = field(default_factory=set)
    short: TxnTime | None = None
    whole: bool = False
    left: TxnTime | None = None
    _assigned: dict[str, dict[str, frozenset[int]]] = field(default_factory=dict)
    _isr: dict[str, dict[str, frozenset[int]]] = field(default_factory=dict)

    @property
    def partitions(self) -> int:
        return sum(len(numbers) for numbers in self._assigned.values())

    def take(self, content: Content) -> None:
        """Apply the new content of a znode."""
        path = content.path[len(self.root) + 1 :]
        now = TxnTime(content.zxid, content.time_ms)
        if found := _STATE.fullmatch(path):
            self._state(found.group(1), found.group(2), content)
            self._judge(found.group(1))
        elif found := _TOPIC.fullmatch(path):
            topic = found.group(1)
            self._assigned.pop(topic, None)
            if content.there:
                self._assigned[topic] = _parse_assignment(content.data)
            self._judge(topic)
        elif found := _BROKER.fullmatch(path):
            self._broker(int(found.group(1)), content.there, now)
        if self.behind:
            self.short = self.short or now
        else:
            self.short, self.whole = None, True

    def _broker(self, number: int, there: bool, now: TxnTime) -> None:
        if there:
            self.registered.add(number)
            self.whole, self.left = False, None
        else:
            self.registered.discard(number)
            self.left = self.left or now

    def _state(self, topic: str, number: str, content: Content) -> None:
        numbers = self._isr.setdefault(topic, {})
        if content.there:
            numbers[number] = _ids(_fields(content.data).get("isr"))
        else:
            numbers.pop(number, None)

    def _judge(self, topic: str) -> None:
        """Update ``behind`` for the partitions of one topic."""
        self.behind = {name for name in self.behind if name.rpartition("-")[0] != topic}
        isr = self._isr.get(topic, {})
        for number, replicas in self._assigned.get(topic, {}).items():
            if not replicas or not replicas <= isr.get(number, frozenset()):
                self.behind.add(f"{topic}-{number}")


def _fields(data: bytes | None) -> dict[str, Any]:
    """Return the JSON object in a znode; empty for anything else."""
    try:
        found = json.loads(data or b"")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _ids(found: object) -> frozenset[int]:
    """Return a list of broker ids as a set; empty for anything else."""
    if isinstance(found, list) and all(type(one) is int for one in found):
        return frozenset(found)
    return frozenset()


def _parse_assignment(data: bytes | None) -> dict[str, frozenset[int]]:
    """Return the replicas by partition number.

    Garbled data counts as one partition without replicas.
    """
    partitions = _fields(data).get("partitions")
    if not isinstance(partitions, dict):
        return {"?": frozenset()}
    return {number: _ids(replicas) for number, replicas in partitions.items()}
