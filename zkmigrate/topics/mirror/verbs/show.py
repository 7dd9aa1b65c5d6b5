"""The verbs plan and status, which print the state of both clusters as text or JSON.

Both verbs change nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from zkmigrate.errors import HostError
from zkmigrate.json_stamp import stamped
from zkmigrate.topics.mirror.clients.ahead import looked
from zkmigrate.topics.mirror.clients.cluster import Cluster
from zkmigrate.topics.mirror.clients.permitted import missing_rights
from zkmigrate.topics.mirror.clients.survey import Mirrored, Place, beside, places, standing_direction, topics
from zkmigrate.topics.mirror.rules.direction import Direction
from zkmigrate.topics.mirror.verbs import follow
from zkmigrate.topics.mirror.verbs.request import Request, both

_CLAIM, _UNKNOWN, _PREFLIGHT = 10, 11, 3


def plan(asked: Request, say: Callable[[str], None]) -> int:
    """Print what the verb run would do, and return the exit code."""
    with both(asked) as (here, there):
        mirrored = topics(here, there, asked.topics)
        found = looked(here, mirrored, places(here, there, mirrored))
        also = beside(here, there, asked.topics, asked.groups)
        partitions = {one.topic: one.partitions for one in mirrored}
        groups = {**dict.fromkeys(asked.groups), **also.groups}
        lacking = missing_rights(here, there, "mirror", partitions, groups, also.hidden)
    if asked.as_json:
        body = {"topics": [topic_body(one) for one in mirrored], "partitions": _bodies(found)}
        rights = [{**vars(one), "command": one.command} for one in lacking]
        say(json.dumps(stamped({**body, **follow.body(also), "rights": rights})))
    else:
        rights_lines = [f"missing right: {one.words}. Next: {one.command}" for one in lacking]
        for line in (*plan_lines(mirrored), *place_lines(found), *follow.lines(also), *rights_lines):
            say(line)
    refused = lacking or any(one.refused for one in mirrored)
    return _PREFLIGHT if refused else _code(mirrored, found)


def status(asked: Request, say: Callable[[str], None]) -> int:
    """Print how far target is behind source, and return the exit code."""
    with both(asked) as (here, there):
        mirrored = topics(here, there, asked.topics)
        found = places(here, there, mirrored)
        also = beside(here, there, asked.topics, asked.groups)
        way = _direction(here, there, asked.topics)
    if asked.as_json:
        lag = sum(one.lag for one in found)
        refused = {one.topic: one.refused for one in mirrored if one.refused}
        known = {"copies": None, "why": way} if isinstance(way, str) else vars(way)
        told = {"refused": refused, "direction": known}
        say(json.dumps(stamped({"partitions": _bodies(found), "lag": lag, **told, **follow.body(also)})))
    else:
        refusals = plan_lines([one for one in mirrored if one.refused])
        direction = f"direction: {f'not known: {way}' if isinstance(way, str) else way.words}"
        for line in (*refusals, *place_lines(found), direction, *follow.lines(also)):
            say(line)
    return _code(mirrored, found)


def _direction(here: Cluster, there: Cluster, names: Sequence[str]) -> Direction | str:
    """Return the clusters on which copiers may write, or a text that says why this is not known."""
    try:
        return standing_direction(here, there, names)
    except HostError as error:
        return str(error)


def _code(mirrored: Sequence[Mirrored], found: Sequence[Place]) -> int:
    states = {one.state for one in found}
    return (
        _CLAIM
        if "failed" in states or any(one.refused for one in mirrored)
        else _UNKNOWN
        if states & {"unknown", "held"}
        else 0
    )


def topic_body(one: Mirrored) -> dict[str, Any]:
    """Return a topic as JSON."""
    return {
        "topic": one.topic,
        "partitions": one.partitions,
        "exists": one.exists,
        "replicas": one.replicas,
        "settings": dict(one.settings),
        "not_copied": dict(one.left),
        "differ": {key: list(pair) for key, pair in one.differ.items()},
        "refused": one.refused,
    }


def _bodies(found: Sequence[Place]) -> list[Mapping[str, Any]]:
    return [
        {
            "topic": one.part[0],
            "partition": one.part[1],
            "state": one.state,
            "why": one.why,
            "note": one.note,
            "lag": one.lag,
            "source": None if one.source is None else [one.source.start, one.stable],
            "target": None if one.target is None else [one.target.start, one.target.end],
        }
        for one in found
    ]


def plan_lines(mirrored: Sequence[Mirrored]) -> Iterator[str]:
    """Yield the topics as lines of text."""
    for one in mirrored:
        if one.refused:
            yield f"{one.topic}: refused: {one.refused}"
            continue
        act = "exists" if one.exists else "make"
        yield f"{one.topic}: {act}, partitions: {one.partitions}, replicas: {one.replicas}"
        yield from (f"    {key}={value}" for key, value in sorted(one.settings.items()))
        if 0 < one.found < one.partitions:
            yield f"    add partitions: {one.partitions - one.found}"
        yield from (f"    not copied: {key}: {why}" for key, why in sorted(one.left.items()))
        for key, (needed, found) in one.differ.items():
            act = "differs" if key in one.left else "change"
            yield f"    {act}: {key}: {found}, needed: {needed}"


def place_lines(found: Sequence[Place]) -> Iterator[str]:
    """Yield the partitions as lines of text."""
    for one in found:
        name = f"{one.part[0]}-{one.part[1]}"
        if one.why:
            yield f"{name}: {one.state}: {one.why}"
        elif one.target is None:
            yield f"{name}: {one.state}, source's last stable offset: {one.stable}"
        else:
            yield f"{name}: {one.state}, at {one.target.end} of {one.stable}, lag: {one.lag}"
        if one.note:
            yield f"    note: {one.note}"
