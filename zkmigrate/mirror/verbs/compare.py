"""The verb compare: read_committed reads of both sides, record by record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from zkmigrate.errors import HostError
from zkmigrate.mirror.clients.cluster import Cluster
from zkmigrate.mirror.clients.codecs import KafkaCodecs
from zkmigrate.mirror.clients.reading import committed
from zkmigrate.mirror.rules.batch import BatchError
from zkmigrate.mirror.rules.difference import first_difference
from zkmigrate.mirror.verbs.show import topic_body
from zkmigrate.mirror.verbs.survey import Mirrored, Place, Request, both, places, topics

_CLAIM, _UNKNOWN = 10, 11


@dataclass(frozen=True)
class Compared:
    """A partition. state: equal, behind, different or unknown. records: how many were compared. begun, end:
    the offsets between which."""

    topic: str
    partition: int
    state: str
    records: int
    begun: int
    end: int
    why: str = ""


def compare(asked: Request, say: Callable[[str], None]) -> int:
    """Compare the topics and print the first difference of each partition. 10: something differs; 11: target
    is behind, or a part could not be read."""
    with both(asked) as (here, there):
        mirrored = topics(here, there, asked.topics)
        found = [_compared(here, there, one) for one in places(here, there, mirrored)]
    if asked.as_json:
        body: dict[str, Any] = {"topics": [topic_body(one) for one in mirrored]}
        say(json.dumps({**body, "partitions": [vars(one) for one in found]}))
    else:
        for line in (*_topic_lines(mirrored), *_lines(found)):
            say(line)
    states = {one.state for one in found}
    if "different" in states or any(one.refused or one.differ for one in mirrored):
        return _CLAIM
    return _UNKNOWN if states & {"behind", "unknown"} else 0


def _compared(here: Cluster, there: Cluster, place: Place) -> Compared:
    part = place.part
    if place.source is None or place.target is None:
        why = place.why or "target has no such topic"
        return Compared(*part, "unknown", 0, 0, 0, why)
    begun = max(place.source.start, place.target.start)
    end = min(place.stable, place.target.end)
    try:
        sides = [
            committed(side, side.leaders([part[0]])[part[0]][part[1]], part, begun, end, KafkaCodecs())
            for side in (here, there)
        ]
        count, why = first_difference(*sides)
    except (HostError, BatchError) as error:
        return Compared(*part, "unknown", 0, begun, end, str(error))
    if why:
        return Compared(*part, "different", count, begun, end, why)
    if place.state == "failed":
        return Compared(*part, "different", count, begun, end, place.why)
    return Compared(*part, "equal" if end == place.stable else "behind", count, begun, end)


def _topic_lines(mirrored: Sequence[Mirrored]) -> Iterator[str]:
    for one in mirrored:
        if one.refused:
            yield f"{one.topic}: different: {one.refused}"
        for key, (needed, found) in one.differ.items():
            yield f"{one.topic}: different: {key} is {found or 'unset'}, needed: {needed or 'unset'}"


def _lines(found: Sequence[Compared]) -> Iterator[str]:
    for one in found:
        text = f"{one.topic}-{one.partition}: {one.state}"
        if one.why:
            yield f"{text}: {one.why}"
        else:
            yield f"{text}, compared records: {one.records}, offsets {one.begun} to {one.end}"
    differ = sum(one.state == "different" for one in found)
    yield f"partitions: {len(found)}, different: {differ}, records: {sum(one.records for one in found)}"
