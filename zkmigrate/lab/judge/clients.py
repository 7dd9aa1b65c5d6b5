"""Judge each client of a client matrix by its recordings and the final log.

All functions are pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from zkmigrate.lab.judge.claims import explain, truth
from zkmigrate.lab.judge.gaps import ack_gaps, end_of_asking, longest_s
from zkmigrate.lab.judge.history import Log
from zkmigrate.lab.judge.kafka import missing_acks, place_of, read_in
from zkmigrate.lab.load.json_lines import Event, Recording
from zkmigrate.runbook.model.finding import Held

_SHOWN = 3
FLAWS = ("lost", "moved", "twice", "unseen", "gone")
"""The names of the figures that are counted from the log and must be 0; see Figures."""
Place: TypeAlias = tuple[str, int, int]
"""The topic, partition and offset of a record."""


@dataclass(frozen=True)
class Played:
    """The recordings of one client.

    prefix: the text with which the ids of the client's producer begin. said: the output of the client's two
    programs, by ``producer`` and ``consumer``, which is shown if the client failed; "" if unknown.
    """

    client: str
    prefix: str
    producer: Recording
    consumer: Recording
    said: Mapping[str, str]


@dataclass(frozen=True)
class Figures:
    """The figures of one client, counted from its recordings and from the log.

    library: name and version that the client reported. acked: acknowledged records. failed: records that the
    library gave up on or never answered. consumed: deliveries to the client's group. again: repeated
    deliveries of an offset. produce_gap_s: the longest time in seconds without an acknowledgement until the
    client's producer stopped. consume_gap_s: the longest time in seconds without a delivery until all
    producers had stopped. A gap is None if there is nothing to measure. errors: how often the library
    reported an error, even if it recovered.

    The other figures are None if the log was not read to its end. ``unseen`` is also None if the consumer
    recorded nothing, not even its end. lost: acknowledged records of the client's producer that are nowhere
    in the log. moved: acknowledged records that are in the log, but not at the acknowledged offset. twice:
    further offsets with the id of a record. unseen: records of any client in the log that the client's group
    never received. gone: records that the group received at an offset where the log has no such record.
    """

    library: str
    acked: int
    failed: int
    consumed: int
    again: int
    lost: int | None
    moved: int | None
    twice: int | None
    unseen: int | None
    gone: int | None
    produce_gap_s: float | None
    consume_gap_s: float | None
    errors: int


@dataclass(frozen=True)
class Row:
    """The verdict on one client.

    held: YES if the client's programs ended in order, each program recorded something, and none of the
    client's records failed or has one of FLAWS. Repeated deliveries, gaps and errors are reported, not
    judged. why: what is wrong, and what the programs printed; "" if the client passed.
    """

    client: str
    figures: Figures
    held: Held
    why: str


def judge_clients(played: Sequence[Played], log: Log) -> list[Row]:
    """Return the verdict on each client.

    log: the whole content of the topic at the end. Records of other clients are ignored.
    """
    ours = _Ours.of(log, [one.prefix for one in played])
    stopped_ns = max((end_of_asking(one.producer) for one in played), default=0)
    return [_row(one, log, ours, stopped_ns) for one in played]


@dataclass(frozen=True)
class _Ours:
    """The records in the log that this run wrote.

    places: id → the place of every record with this id. all: the same records as pairs of place and id. A
    place is a topic, a partition and an offset.
    """

    prefixes: tuple[str, ...]
    places: Mapping[str, Sequence[Place]]
    all: frozenset[tuple[Place, str]]

    @classmethod
    def of(cls, log: Log, prefixes: Sequence[str]) -> _Ours:
        found = {
            (place, id) for place, ids in read_in(log).items() for id in ids if id.startswith(tuple(prefixes))
        }
        places: dict[str, list[Place]] = defaultdict(list)
        for place, id in sorted(found):
            places[id].append(place)
        return cls(tuple(prefixes), places, frozenset(found))


def _row(one: Played, log: Log, ours: _Ours, stopped_ns: int) -> Row:
    acks, reads, failed = one.producer.of("ack"), one.consumer.of("consumed"), one.producer.of("failed")
    unanswered = int((one.producer.closing or {}).get("sent", 0)) - len(acks) - len(failed)
    flaws = {} if log.problem else _flaws(one.prefix, acks, reads, log, ours)
    if not reads and not one.consumer.closing:
        flaws.pop("unseen", None)  # without a recording it is unknown what the group has received
    figures = Figures(
        library=next(filter(None, map(_library, (one.producer, one.consumer))), ""),
        acked=len(acks),
        failed=len(failed) + max(0, unanswered),
        consumed=len(reads),
        again=sum(count - 1 for count in Counter(map(place_of, reads)).values()),
        **{name: len(flaws[name]) if name in flaws else None for name in FLAWS},
        produce_gap_s=longest_s(ack_gaps(acks, end_of_asking(one.producer))),
        consume_gap_s=longest_s(ack_gaps(reads, stopped_ns)),
        errors=len(one.producer.of("kafka")) + len(one.consumer.of("kafka")),
    )
    parts = {"producer": one.producer, "consumer": one.consumer}
    wrong = [
        *(f"{len(found)} {name}: {_first(found)}" for name, found in flaws.items() if found),
        f"{figures.failed} failed: {_first({str(event['error']) for event in failed})}"
        if figures.failed
        else "",
        *(f"{name} {part.problem}" for name, part in parts.items() if part.problem and part.closing),
    ]
    unsure = [
        *(f"{name}: {part.problem}" for name, part in parts.items() if part.problem and not part.closing),
        f"log: {log.problem}" if log.problem else "",
        "" if acks else "nothing acknowledged",
        "" if reads else "nothing consumed",
    ]
    if not any((*wrong, *unsure)):
        return Row(one.client, figures, Held.YES, "")
    said = [f"its {name} printed: {words}" for name, words in one.said.items() if words]
    held = truth(False, unsure, bad_is_certain=any(wrong))
    return Row(one.client, figures, held, explain(*wrong, *unsure, *said))


def _flaws(prefix: str, acks: list[Event], reads: list[Event], log: Log, ours: _Ours) -> dict[str, list[str]]:
    """Return for each of FLAWS the records that have this flaw, each described in words."""
    absent = missing_acks(acks, read_in(log))
    got = {(place_of(event), event["id"]) for event in reads if event["id"].startswith(ours.prefixes)}
    return {
        "lost": [_acked(event) for event in absent if event["id"] not in ours.places],
        "moved": [
            f"{_acked(event)} is at {ours.places[event['id']]}"
            for event in absent
            if event["id"] in ours.places
        ],
        "twice": [
            f"{id} at {place}"
            for id, places in ours.places.items()
            if id.startswith(prefix)
            for place in places[1:]
        ],
        "unseen": [f"{id} at {place}" for place, id in sorted(ours.all - got)],
        "gone": [f"{id} at {place}" for place, id in sorted(got - ours.all)],
    }


def _acked(event: Event) -> str:
    return f"{event['id']} of {event['topic']}/{event['partition']}@{event['offset']}"


def _first(found: Collection[str]) -> str:
    return ", ".join(sorted(found)[:_SHOWN])


def _library(recording: Recording) -> str:
    config = recording.events[0].get("config") if recording.events else None
    return str(config.get("library", "")) if isinstance(config, dict) else ""
