"""What a gateway sees of an application's clients: the facts that usage rules judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zkmigrate.clean import inline

MOST_NAMES = 1000
"""So many names of a kind are kept."""
LONGEST = 249
"""The longest name that is kept whole; Kafka's longest topic."""
ALL, MORE = "*", "(more)"
"""Every topic; names for which there was no room."""


@dataclass
class Seen:
    """Counts. software: connections by name and version of the client's library. clients, principals,
    transactional: requests by client id, user and transactional id. topics: METADATA requests by topic, or
    ``ALL``. acks: requests of producers. refused: requests and frames that were not served. answered,
    in_flight: requests by kind. lost: requests by kind whose connection to the broker ended first, so their
    outcome is unknown. parked: connections whose request waits at the gate, each with its kind and since
    when, in seconds. longest_wait_ms: of the longest such wait by kind, once it has ended."""

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
        """As JSON; what is at 0 is left out. The longest waits are told with those that have not ended."""
        waits, parked = Counter(self.longest_wait_ms), Counter[str]()
        for kind, since in self.parked.values():
            parked[kind] += 1
            waits[kind] = max(waits[kind], _ms(since, now))
        tables = {**vars(self), "parked": parked, "longest_wait_ms": waits}
        return {name: dict(sorted((+table).items())) for name, table in tables.items()}

    def goes_on(self, connection: object, now: float) -> None:
        """Its request waits no more."""
        kind, since = self.parked.pop(connection)
        longest = self.longest_wait_ms
        longest[kind] = max(longest[kind], _ms(since, now))

    def again(self, client: str, fields: Mapping[str, Any]) -> list[tuple[Counter[str], str]]:
        """What one more request like this counts in, of those that a client sends all the time."""
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
    """A name that a client chose, as it is kept and shown: cut to a length, and in one line."""
    if len(name) <= LONGEST and name.isascii() and name.isprintable():
        return name
    told = inline(name[: LONGEST + 1])
    return told if len(told) <= LONGEST else f"{told[: LONGEST - 1]}…"


def count(table: Counter[str], name: str) -> None:
    """Count a name that a client chose; the table stays bounded."""
    name = fit(name)
    table[name if name in table or len(table) < MOST_NAMES else MORE] += 1
