"""Find the releases of Kafka and of its ZooKeeper client from the names of jars and from brokers' answers.

A jar's name contains the whole release. Confluent has its own numbers (5.4 is 2.4, 6.0 is 2.6, 7.0 is 3.0:
Confluent's table of supported versions). An ApiVersions answer contains major and minor only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_KAFKA = re.compile(r"kafka_\d+\.\d+-(\d[^/]*)\.jar")
_ZOOKEEPER = re.compile(r"zookeeper-(\d[^/]*)\.jar")
_NOT_THE_CODE = re.compile(r"-(?:sources|javadoc|scaladoc|test|test-sources|tests)$")
_NUMBERS = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(.*)")
_CONFLUENT = re.compile(r"-(?:ccs|ce)\b")


@dataclass(frozen=True)
class Release:
    """A release of Kafka or of the ZooKeeper client.

    text: the release as written. numbers: Apache's major and minor number, and the third number if known.
    """

    text: str
    numbers: tuple[int, ...]

    def before(self, *numbers: int) -> bool | None:
        """Return whether this release is older than another.

        Returns None if the answer depends on an unknown third number.
        """
        known = self.numbers[: len(numbers)]
        if len(known) < len(numbers) and known == numbers[: len(known)]:
            return None
        return known < numbers


def release(text: str) -> Release | None:
    """Return the release in a text such as ``2.8.2``, ``5.5.1-ccs`` or ``2.8``, or None for another text."""
    match = _NUMBERS.fullmatch(text)
    if match is None:
        return None
    major, minor = int(match[1]), int(match[2])
    if _CONFLUENT.search(match[4]) and major >= 5:
        numbers: tuple[int, ...] = {5: (2, minor), 6: (2, minor + 6)}.get(major, (major - 4, minor))
        return Release(text, numbers)
    return Release(text, (major, minor) if match[3] is None else (major, minor, int(match[3])))


def kafka_release(jars: Iterable[str]) -> Release | None:
    """Return Kafka's release from its core jar; None if there is no such jar, or if two differ."""
    return _only(_KAFKA, jars)


def zookeeper_release(jars: Iterable[str]) -> Release | None:
    """Return the ZooKeeper client's release from its jar; None if there is no such jar, or if two differ."""
    return _only(_ZOOKEEPER, jars)


def _only(pattern: re.Pattern[str], jars: Iterable[str]) -> Release | None:
    texts = {m[1] for jar in jars if (m := pattern.fullmatch(jar)) and not _NOT_THE_CODE.search(m[1])}
    return release(texts.pop()) if len(texts) == 1 else None
