"""Statistics about the clients of an application."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zkmigrate.clean import inline

MOST_NAMES = 1000
"""The most names in one table."""
LONGEST = 249
"""The most characters of a name that are kept, as in Kafka's longest topic name."""
ALL, MORE = "*", "(more)"
"""The names for all topics, and for names that had no room."""


@dataclass
class Seen:
    """The counts of one application. software: connections by name and version of the client's library.
    clients, principals, transactional: requests by client id, user and transactional id. topics: METADATA
    requests by topic, or ``ALL``. acks: requests of producers. refused: requests and frames that were not
    served. answered, in_flight: requests by kind. lost: requests by kind whose connection to the broker ended
    first, so their outcome is unknown. parked: connections whose request waits at the gate, each with its
    kind and since when, in seconds. longest_wait_ms: of the longest such wait by kind, once it has ended."""

    software: Counter[str] = field(default_factory=Counter)
    clients: Counter[str] = field(default_factory=Counter)
    principals: Counter[str] = field(default_factory=Counter)
    transactional: Counter[str] = field(default_factory=Counter)
    topics: Counter[str] = field(default_factory=Counter)
    acks: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    in_flight: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    parked: dict[object, tuple[str, float]] = field(default_factory=dict)
    longest_wait_ms: Counter[str] = field(default_factory=Counter)

    def body(self, now: float) -> dict[str, dict[str, int]]:
        """Return the counts ready for JSON, without zeros. The longest waits include those that have not
        ended."""
        waits, parked = Counter(self.longest_wait_ms), Counter[str]()
        for kind, since in self.parked.values():
            parked[kind] += 1
            waits[kind] = max(waits[kind], _ms(since, now))
        tables = {**vars(self), "parked": parked, "longest_wait_ms": waits}
        return {name: dict(sorted((+table).items())) for name, table in tables.items()}

    def goes_on(self, connection: object, now: float) -> None:
        """Record that the request of a connection no longer waits, and how long it did."""
        kind, since = self.parked.pop(connection)
        longest = self.longest_wait_ms
        longest[kind] = max(longest[kind], _ms(since, now))

    def again(self, client: str, fields: Mapping[str, Any]) -> list[tuple[Counter[str], str]]:
        """Return the counters that a further request like this one increases, as pairs of table and name."""
        counted = [(self.clients, client)]
        if "Acks" in fields:
            counted.append((self.acks, str(fields["Acks"])))
        if told := fields.get("TransactionalId"):
            counted.append((self.transactional, told))
        return [(table, name if (name := fit(told)) in table else MORE) for table, told in counted]

    def request(self, fields: Mapping[str, Any]) -> None:
        """Count the fields that were read of a request."""
        if name := fields.get("ClientSoftwareName"):
            count(self.software, f"{name} {fields.get('ClientSoftwareVersion')}")
        if "Acks" in fields:
            count(self.acks, str(fields["Acks"]))
        if told := fields.get("TransactionalId"):
            count(self.transactional, told)
        if "Topics" in fields:
            asked = fields["Topics"]
            for topic in (ALL,) if asked is None else asked:
                if len(topic) <= LONGEST:
                    count(self.topics, topic)


def _ms(since: float, now: float) -> int:
    return round((now - since) * 1000)


def fit(name: str) -> str:
    """Return a name that a client chose, cut to ``LONGEST`` characters and in one line."""
    if len(name) <= LONGEST and name.isascii() and name.isprintable():
        return name
    told = inline(name[: LONGEST + 1])
    return told if len(told) <= LONGEST else f"{told[: LONGEST - 1]}…"


def count(table: Counter[str], name: str) -> None:
    """Count a name that a client chose. Further names count as ``MORE`` once the table is full."""
    name = fit(name)
    table[name if name in table or len(table) < MOST_NAMES else MORE] += 1
