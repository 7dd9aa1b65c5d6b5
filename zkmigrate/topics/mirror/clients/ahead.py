"""Read the records that are copied next, and find the records that target would refuse."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from zkmigrate.errors import HostError
from zkmigrate.kafka.error_text import describe_error
from zkmigrate.topics.mirror.clients.cluster import Cluster, Part
from zkmigrate.topics.mirror.clients.codecs import KafkaCodecs
from zkmigrate.topics.mirror.clients.survey import Mirrored, Place
from zkmigrate.topics.mirror.rules.ahead import limit, refused
from zkmigrate.topics.mirror.rules.batch import BatchError, parse
from zkmigrate.topics.mirror.rules.gaps import Append, steps
from zkmigrate.topics.mirror.rules.topic import AFTER, compacts

PEEK_BYTES = 64 << 10
"""The approximate number of bytes that are read from each partition."""
SCAN_BYTES, SCAN_S = 16 << 20, 20.0
"""The limits for compacted topics, where any record may lack a key.

They are the approximate number of bytes read from each partition, and the seconds for all partitions
together.
"""


def looked(source: Cluster, mirrored: Sequence[Mirrored], placed: Sequence[Place]) -> list[Place]:
    """Check the next records of each partition, and mark partitions ``failed`` if target would refuse them.

    Returns all partitions, also those without a change. A partition that cannot be read becomes ``unknown``.
    If a partition of a compacted topic was not read to its end, its note gives the offset up to which its
    records were checked.
    """
    values = {one.topic: one.values for one in mirrored}
    led = source.leaders({one.part[0] for one in placed})
    until = time.monotonic() + SCAN_S
    return [_looked(source, led, values[one.part[0]], one, until) for one in placed]


def _looked(
    source: Cluster, led: Mapping[str, Mapping[int, int]], values: Mapping[str, str], one: Place, until: float
) -> Place:
    leader = led.get(one.part[0], {}).get(one.part[1], -1)
    if one.state not in ("missing", "behind") or one.source is None or leader < 0:
        return one
    begun = max(one.source.start, one.target.end if one.target else 0)
    most = SCAN_BYTES if compacts(values) else PEEK_BYTES
    try:
        why, at = _read(source, leader, one.part, values, begun, one.stable, most, until)
        late = limit(values, AFTER)
        if not why and late and at < one.stable:
            latest = source.first_at(leader, one.part, _now() + late[1])
            if latest >= at:
                why, _ = _read(source, leader, one.part, values, latest, latest + 1, 1, until)
    except BatchError as error:
        return replace(one, state="failed", why=f"source: {error}")
    except HostError as error:
        return replace(one, state="unknown", why=str(error))
    if why:
        return replace(one, state="failed", why=f"target would refuse the next records: {why}")
    if compacts(values) and at < one.stable:
        return replace(one, note=f"the search for records without a key reached offset {at} of {one.stable}")
    return one


def _read(
    source: Cluster,
    leader: int,
    part: Part,
    values: Mapping[str, str],
    at: int,
    end: int,
    most: int,
    until: float,
) -> tuple[str, int]:
    """Read batches from offset ``at`` on, until one is found that target would refuse.

    Returns why target would refuse that batch (an empty text if there is none), and the next offset to read.
    At least one fetch response is read. Reading ends at offset ``end``, after about ``most`` bytes, or at the
    time ``until`` of the monotonic clock. values: the settings of the topic. Raises BatchError for records
    that cannot be parsed, and HostError if source does not respond.
    """
    codecs = KafkaCodecs()
    while at < end and most > 0:
        answer = source.fetched(source.begin_fetch(leader, {part: at}, most=min(most, 1 << 20))).get(part)
        if answer is None:  # its quota is used up
            if time.monotonic() > until:
                raise HostError(
                    f"{source.what} returned no records of {part[0]}-{part[1]} from offset {at} on"
                )
            continue
        if answer.error:
            raise HostError(f"{source.what}: {part[0]}-{part[1]}: {describe_error(answer.error)}")
        batches = parse(answer.records, at)
        if not batches:
            break
        for step in steps(at, batches, answer.aborted, codecs):
            if isinstance(step, Append) and (why := refused(step, values, _now(), codecs)):
                return why, at
        at, most = batches[-1].next_offset, most - len(answer.records)
        if time.monotonic() > until:
            break
    return "", at


def _now() -> int:
    return int(time.time() * 1000)
