"""Count the requests of an application's clients, and the software that the clients use."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from zkmigrate.clean import inline
from zkmigrate.topics.gateway.rules.crowd import Groups

MOST_NAMES = 1000
"""The most names in one table. A further name displaces a name of the address that has the most names."""
LONGEST = 249
"""The most bytes in JSON that are kept of a name, which is the length of Kafka's longest topic name."""
MOST_TOLD = 4 << 20
"""The most bytes in JSON of all tables of a status together."""
ALL, MORE = "*", "(more)"
"""The name that stands for all topics, and the name that stands for names that were left out."""


_CUT = "…"
_ESCAPED = frozenset('"\\')
"""The printable characters of ASCII for which JSON needs two bytes."""
_NUMBER = 26
"""The most bytes of a number in JSON, with the separators around the number."""
Body = dict[str, dict[str, int]]
"""The tables of an application, by title; each table has numbers by name."""


class Names(defaultdict[str, int]):
    """A table that counts names which clients chose.

    It has at most ``MOST_NAMES`` names, besides ``ALL`` and ``MORE``.
    """

    def __init__(self) -> None:
        super().__init__(int)
        self._groups, self._of = Groups[str](), dict[str, str]()

    def add(self, name: str, by: str) -> None:
        """Count a name once.

        by: the client's address block, as ``crowd.share`` returns it. A name belongs to the address block
        that sent it last. If the table is full, the block with the most names loses the name that was counted
        longest ago, and the number of that name is added to ``MORE``.
        """
        name = fit(name)
        if name not in (ALL, MORE):
            if name in self._of:
                self._groups.remove(name, self._of[name])
            elif len(self._of) >= MOST_NAMES:
                group, old = self._groups.largest()
                self._groups.remove(old, group)
                del self._of[old]
                self[MORE] += self.pop(old, 0)
            self._groups.add(name, by)
            self._of[name] = by
        self[name] += 1


def count(notes: Iterable[tuple[Names, str]]) -> None:
    """Add one to each name in its table, or to ``MORE`` if the table no longer has the name.

    notes: pairs of a table and a name in it.
    """
    for table, name in notes:
        table[name if name in table else MORE] += 1


def _numbers() -> defaultdict[str, int]:
    """Return an empty table of counts, four times as fast to count in as a ``Counter``."""
    return defaultdict(int)


@dataclass
class Seen:
    """The counts of one application.

    software: connections by name and version of the client's library.
    clients, principals, transactional: requests by client id, user and transactional id.
    topics: METADATA requests by topic, or ``ALL``.
    acks: PRODUCE requests by their setting of acks.
    refused: requests and frames that were not served, by reason.
    answered, in_flight: requests by kind.
    lost: requests of unknown outcome by kind, because the connection to the broker ended first.
    parked: the connections whose request waits at the gate, each with the request's kind and the start of the
    wait in seconds.
    longest_wait_ms: by kind, the longest such wait that has ended.
    """

    software: Names = field(default_factory=Names)
    clients: Names = field(default_factory=Names)
    principals: Names = field(default_factory=Names)
    transactional: Names = field(default_factory=Names)
    topics: Names = field(default_factory=Names)
    acks: Names = field(default_factory=Names)
    refused: Names = field(default_factory=Names)
    answered: defaultdict[str, int] = field(default_factory=_numbers)
    in_flight: defaultdict[str, int] = field(default_factory=_numbers)
    lost: Counter[str] = field(default_factory=Counter)
    parked: dict[object, tuple[str, float]] = field(default_factory=dict)
    longest_wait_ms: Counter[str] = field(default_factory=Counter)

    def body(self, now: float) -> Body:
        """Return the counts as a dict for JSON, without zeros.

        now: the current time in seconds. The longest waits include waits that have not ended.
        """
        waits, parked = Counter(self.longest_wait_ms), Counter[str]()
        for kind, since in self.parked.values():
            parked[kind] += 1
            waits[kind] = max(waits[kind], _ms(since, now))
        tables = {**vars(self), "parked": parked, "longest_wait_ms": waits}
        return {
            table: {name: number for name, number in sorted(numbers.items()) if number > 0}
            for table, numbers in tables.items()
        }

    def goes_on(self, connection: object, now: float) -> None:
        """Record that the request of a connection no longer waits, and how long it has waited."""
        kind, since = self.parked.pop(connection)
        longest = self.longest_wait_ms
        longest[kind] = max(longest[kind], _ms(since, now))

    def counters_of(self, client: str, fields: Mapping[str, Any]) -> list[tuple[Names, str]]:
        """Return the counters that each further request with the same fields increases.

        Each counter is a pair of a table and a name in the table.
        """
        counted = [(self.clients, client)]
        if "Acks" in fields:
            counted.append((self.acks, str(fields["Acks"])))
        if told := fields.get("TransactionalId"):
            counted.append((self.transactional, told))
        return [(table, fit(told)) for table, told in counted]

    def request(self, fields: Mapping[str, Any], by: str) -> None:
        """Count the values of the fields that were read from a request.

        by: the client's address block, as ``crowd.share`` returns it.
        """
        if name := fields.get("ClientSoftwareName"):
            self.software.add(f"{name} {fields.get('ClientSoftwareVersion')}", by)
        if "Acks" in fields:
            self.acks.add(str(fields["Acks"]), by)
        if told := fields.get("TransactionalId"):
            self.transactional.add(told, by)
        if "Topics" in fields:
            asked = fields["Topics"]
            for topic in (ALL,) if asked is None else asked:
                if len(topic) <= LONGEST:
                    self.topics.add(topic, by)


def _ms(since: float, now: float) -> int:
    return round((now - since) * 1000)


def fit(name: str) -> str:
    """Return a name that a client chose in one line, cut to ``LONGEST`` bytes of JSON.

    JSON needs up to 12 bytes for a character.
    """
    if len(name) <= LONGEST and name.isascii() and name.isprintable() and _ESCAPED.isdisjoint(name):
        return name
    told = inline(name[: LONGEST + 1])
    if _size(told) <= LONGEST:
        return told
    most = LONGEST - _size(_CUT)
    fitting = bisect_right(range(len(told)), most, key=lambda count: _size(told[:count]))
    return told[: fitting - 1] + _CUT


def _size(name: str) -> int:
    """Return how many bytes a name takes in JSON, without quotation marks."""
    return len(json.dumps(name)) - 2


def bounded(bodies: Mapping[str, Body]) -> dict[str, Body]:
    """Return the tables of several applications, cut to ``MOST_TOLD`` bytes of JSON in total.

    Each table has an equal share of the bytes. A table that needs less stays whole. In a larger table, the
    names with the lowest counts are merged into ``MORE``.
    """
    most, found = MOST_TOLD, {app: dict(body) for app, body in bodies.items()}
    sizes = sorted(
        (len(json.dumps(table)), app, name) for app, body in found.items() for name, table in body.items()
    )
    for at, (size, app, name) in enumerate(sizes):
        share = most // (len(sizes) - at)
        if size > share:
            found[app][name] = _cut(found[app][name], share)
        most -= min(size, share)
    return found


def _cut(table: Mapping[str, int], most: int) -> dict[str, int]:
    left, kept = most - _size(MORE) - _NUMBER, dict[str, int]()
    for name, number in Counter(table).most_common():
        left -= _size(name) + _NUMBER
        if left < 0:
            break
        kept[name] = number
    more = sum(table.values()) - sum(kept.values())
    kept[MORE] = kept.get(MORE, 0) + more
    return dict(sorted(kept.items()))
