"""Doubles of Kafka's client for the load: a message, and a consumer that goes by a script."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Self

from confluent_kafka import KafkaError


class Message:
    """A record of topic ``a``, or an error in place of one."""

    def __init__(self, partition: int, offset: int, value: str = "", error: KafkaError | None = None) -> None:
        self._partition, self._offset, self._value, self._error = partition, offset, value, error

    def topic(self) -> str:
        return "a"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return self._value.encode()

    def error(self) -> KafkaError | None:
        return self._error


@dataclass
class ScriptedConsumer:
    """Stands in for the class of consumers and for ``time``: each answer takes a second."""

    settings: dict[str, Any] = field(default_factory=dict)
    closed: bool = False
    now: float = 0.0
    calls: itertools.count[int] = field(default_factory=itertools.count)

    def __call__(self, settings: dict[str, Any]) -> Self:
        self.settings = settings
        return self

    def monotonic(self) -> float:
        return self.now

    def take_a_second(self) -> None:
        assert next(self.calls) < 1000, "it goes on for ever"
        self.now += 1.0

    def close(self) -> None:
        self.closed = True
