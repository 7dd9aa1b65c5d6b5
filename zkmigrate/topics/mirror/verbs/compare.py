"""The verb compare, which reads both clusters as a read_committed consumer and compares each record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from zkmigrate.errors import HostError
from zkmigrate.json_stamp import stamped
from zkmigrate.topics.mirror.clients.cluster import Cluster
from zkmigrate.topics.mirror.clients.codecs import KafkaCodecs
from zkmigrate.topics.mirror.clients.reading import compared
from zkmigrate.topics.mirror.clients.survey import NOT_TOLD, Mirrored, Place, places, topics
from zkmigrate.topics.mirror.rules.batch import BatchError
from zkmigrate.topics.mirror.rules.compared import CLAIM, Compared, code, line, total
from zkmigrate.topics.mirror.verbs.request import Request, both
from zkmigrate.topics.mirror.verbs.show import topic_body


def compare(asked: Request, say: Callable[[str], None]) -> int:
    """Compare the topics, and print the first difference of each partition.

    Returns the exit code: 10 if something differs, 11 if target is behind or a part could not be read, else
    0.
    """
    with both(asked) as (here, there):
        mirrored = topics(here, there, asked.topics)
        found = [_compared(here, there, one) for one in places(here, there, mirrored)]
    if asked.as_json:
        body: dict[str, Any] = {"topics": [topic_body(one) for one in mirrored]}
        say(json.dumps(stamped({**body, "partitions": [vars(one) for one in found]})))
    else:
        for text in (*_topic_lines(mirrored), *map(line, found), total(found)):
            say(text)
    return CLAIM if any(one.refused or one.differ for one in mirrored) else code(found)


def _compared(here: Cluster, there: Cluster, place: Place) -> Compared:
    part = place.part
    if place.source is None or place.target is None:
        why = place.why or "target does not have this partition"
        return Compared(*part, "unknown", 0, 0, 0, why)
    begun = max(place.source.start, place.target.start)
    end = min(place.stable, place.target.end)
    sides = here, there
    try:
        leaders = [side.leaders([part[0]]).get(part[0], {}).get(part[1], -1) for side in sides]
        if -1 in leaders:
            return Compared(*part, "unknown", 0, begun, end, NOT_TOLD)
        found, begun = compared(sides, leaders, part, begun, end, KafkaCodecs())
    except (HostError, BatchError) as error:
        if place.state == "failed":
            return Compared(*part, "different", 0, begun, end, place.why)
        return Compared(*part, "unknown", 0, begun, end, str(error))
    if why := found.first or (place.why if place.state == "failed" else ""):
        return Compared(*part, "different", found.equal, begun, end, why)
    if place.unread:
        why = f"{place.unread:,} offsets of source's log cannot be read yet, so they were not compared"
        why = f"{why}; {place.why}" if place.why else why
        return Compared(*part, "behind", found.equal, begun, end, why)
    return Compared(*part, "equal" if end == place.stable else "behind", found.equal, begun, end)


def _topic_lines(mirrored: Sequence[Mirrored]) -> Iterator[str]:
    for one in mirrored:
        if one.refused:
            yield f"{one.topic}: different: {one.refused}"
        for key, (needed, found) in one.differ.items():
            yield f"{one.topic}: different: {key} is {found}, needed: {needed}"
