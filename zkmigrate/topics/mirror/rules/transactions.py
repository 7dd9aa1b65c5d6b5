"""Find the producers that write to topics in transactions, from reports of brokers.

The state of a producer's transactions is not copied to another cluster. The producer's id is unknown there,
and each transaction ends with INVALID_PRODUCER_ID_MAPPING. The requests that a gateway has seen since its
start do not show which producers write next.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from zkmigrate.topics.mirror.rules.needed import OWNED

Part = tuple[str, int]
_DEAD = frozenset({"Dead", "PrepareEpochFence"})
_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
OPEN = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})


@dataclass(frozen=True)
class Producer:
    """A producer that a partition's leader remembers.

    ms: when it last wrote, in milliseconds since the epoch. transactional: whether it has ended a transaction
    in the partition, or has one open.
    """

    id: int
    ms: int
    transactional: bool


@dataclass(frozen=True)
class Transactional:
    """A transactional id.

    producer: its current producer id. state: Kafka's name for the state of its last transaction. parts: the
    partitions of that transaction while it is open.
    """

    name: str
    producer: int
    state: str
    parts: frozenset[Part] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Writers:
    """The producers that write in transactions.

    named: a text about each producer, by transactional id, or by producer id if the transactional id is not
    known. dark: why there may be further producers; empty if all are known.
    """

    named: Mapping[str, str]
    dark: str = ""


def writers(
    producers: Mapping[Part, Iterable[Producer]] | None,
    ids: Collection[Transactional],
    topics: Collection[str],
    dark: str = "",
) -> Writers:
    """Match the producers of partitions with transactional ids.

    producers: None if brokers cannot report producers; then each transactional id may write to the topics.
    ids: all known transactional ids. dark: what could not be read, and why.
    """
    by_producer = {one.producer: one for one in ids}
    wrote = defaultdict[str, list[tuple[int, Part]]](list)
    for part, some in (producers or {}).items():
        for one in some:
            known = by_producer.get(one.id)
            if known is not None:
                wrote[known.name].append((one.ms, part))
            elif one.transactional:
                wrote[f"producer id {one.id}"].append((one.ms, part))
    states = {one.name: one.state for one in ids}
    named = {
        name: f"the producer wrote to {_places([part for _, part in times])}, last at {_time(max(times)[0])}"
        + (f", state {states[name]}" if name in states else ", and Kafka does not show its transactional id")
        for name, times in wrote.items()
    }
    for held in ids:
        ours = sorted(part for part in held.parts if part[0] in topics)
        if ours and held.name not in named:
            named[held.name] = (
                f"the producer has a transaction open on {_places(ours)}, in state {held.state}"
            )
    named = {name: why for name, why in named.items() if not name.startswith(OWNED)}
    if producers is None:
        for held in ids:
            if held.name not in named and held.state not in _DEAD and not held.name.startswith(OWNED):
                named[held.name] = (
                    "the brokers do not report where the producer has written; "
                    f"its last transaction has state {held.state}"
                )
    return Writers(named, dark)


def kept(key: bytes, value: bytes | None) -> tuple[str, Transactional | None] | None:
    """Parse a record of the topic ``__transaction_state``.

    Returns the transactional id and its current state, which is None if the id was removed. Returns None
    instead for a record of another kind. Raises ValueError.
    """
    try:
        version, length = struct.unpack_from(">hh", key)
        if version != 0:
            return None
        name = key[4 : 4 + length].decode()
        if value is None:
            return name, None
        format, producer, _, _, status = struct.unpack_from(">hqhiB", value)
        if format != 0 or len(key) != 4 + length:
            raise ValueError(f"a record of {name} has format {format}")
        return name, Transactional(name, producer, _STATES[status], frozenset(_parts(value, 17)))
    except (struct.error, IndexError) as error:
        raise ValueError(f"a record of a transactional id is truncated: {error}") from None


def _parts(value: bytes, at: int) -> Iterable[Part]:
    (topics,) = struct.unpack_from(">i", value, at)
    at += 4
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", value, at)
        topic = value[at + 2 : at + 2 + length].decode()
        at += 2 + length
        (count,) = struct.unpack_from(">i", value, at)
        at += 4
        for number in struct.unpack_from(f">{min(count, len(value))}i", value, at):
            yield topic, number
        at += 4 * count


def _places(parts: Collection[Part]) -> str:
    return _few([f"{topic}-{number}" for topic, number in sorted(set(parts))])


_MOST = 5


def _few(names: Collection[str]) -> str:
    some = list(names)[:_MOST]
    return ", ".join(some) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")


def _time(ms: int) -> str:
    return f"{datetime.fromtimestamp(max(0, min(ms, 1 << 42)) / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"
