"""Write and read a plan's reassignments in the JSON that ``kafka-reassign-partitions`` takes.

::

    {"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}

If log directories are chosen, a partition also has ``"log_dirs":["any","/data2"]``, one for each replica. The
same plan gives the same bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, TypeAdapter, ValidationError

from zkmigrate.cluster.placement.cluster import Cluster, Name, Partition, Set
from zkmigrate.cluster.placement.cluster_file import TOPIC, TOPIC_NEEDED, ClusterFileError, load_json
from zkmigrate.cluster.placement.log_dirs import held_in, nameable, several
from zkmigrate.cluster.placement.plan import Notice, Plan, Reassignment, Refused
from zkmigrate.cluster.placement.validation import partition_names

_NEEDED = "Kafka's reassignment JSON"
_Id = Annotated[int, Strict(), Field(ge=0, le=2**31 - 1)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid")

    topic: Annotated[str, Strict(), Field(min_length=1)]
    partition: _Id
    replicas: Annotated[tuple[_Id, ...], Field(min_length=1)]
    log_dirs: tuple[str, ...] = ()


class _Map(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    partitions: Annotated[list[_Row], Field(min_length=1)]


ANY = "any"
"""A placeholder for a log directory: the one that holds the replica, or the one that Kafka chooses."""

Entry = tuple[Name, Set, tuple[str, ...]]
"""A partition, its replica list, and the log directory of each replica, or none."""


def text(entries: Iterable[Entry]) -> str:
    """Return a reassignment as JSON, one partition a line, in the order given."""
    rows = []
    for (topic, number), replicas, dirs in entries:
        row = {"topic": topic, "partition": number, "replicas": list(replicas)}
        if any(path != ANY for path in dirs):
            row["log_dirs"] = list(dirs)
        rows.append(json.dumps(row, separators=(",", ":")))
    body = "\n" + ",\n".join(rows) + "\n" if rows else ""
    return f'{{"version":1,"partitions":[{body}]}}\n'


def beside_plan(plan: PurePath, part: str) -> str:
    """Return the name of a file that belongs to a plan: ``plan-back.json`` for the part ``back``."""
    return f"{plan.stem}-{part}{plan.suffix}"


def files(plan: Plan, name: str) -> dict[str, str]:
    """Return the files of a plan: content by file name, the way back first and the plan last.

    name: the file of the plan. Beside ``plan.json`` the files are ``plan-back.json`` and
    ``plan-phase0.json``.
    """
    path = PurePath(name)
    width = len(str(max(len(plan.phases) - 1, 0)))
    inside = [plan.cluster.by_name[name] for name in _inside(plan)]
    stay = [_forward(plan, one.name, one.replicas) for one in inside]
    many = several(plan.cluster)
    back = [_back_entry(plan, many, one.name, one.replicas, one.replicas) for one in reversed(inside)]
    back += [_back_entry(plan, many, move.name, move.before, move.after) for move in _way_back(plan)]
    made = {beside_plan(path, "back"): text(back)}
    for number, phase in enumerate(plan.phases):
        last = stay if number == len(plan.phases) - 1 else []
        entries = [_forward(plan, move.name, move.after) for move in phase]
        made[beside_plan(path, f"phase{number:0{width}}")] = text([*entries, *last])
    made[path.name] = text([*(_forward(plan, move.name, move.after) for move in plan.moves), *stay])
    return made


def _inside(plan: Plan) -> list[Name]:
    """Return the partitions of which a replica moves within its broker, while the replica list stays."""
    moved = {move.name for move in plan.moves}
    return sorted({name for name, _ in plan.dirs} - moved)


def _forward(plan: Plan, name: Name, replicas: Set) -> Entry:
    return name, replicas, tuple(plan.dirs.get((name, broker), ANY) for broker in replicas)


def _back_entry(plan: Plan, several: Collection[int], name: Name, before: Set, after: Set) -> Entry:
    """Return an entry of the way back, with the log directories that held the replicas that return.

    several: the brokers with several log directories.
    """
    dirs = []
    for broker in before:
        comes = broker in several and broker not in after and nameable(name)
        found = held_in(plan.cluster, (name, broker)) if comes or (name, broker) in plan.dirs else ""
        dirs.append(found or ANY)
    return name, before, tuple(dirs)


def _way_back(plan: Plan) -> list[Reassignment]:
    """Return the moves that can be undone, last one first, because in this order each has room."""
    known = plan.cluster.brokers
    return [move for move in reversed(plan.moves) if all(broker in known for broker in move.before)]


def no_way_back(plan: Plan) -> tuple[Notice, ...]:
    """Return a notice about the moves that the way back cannot undo.

    Kafka accepts no replica list with a broker that is gone.
    """
    left_out = len(plan.moves) - len(_way_back(plan))
    if not left_out:
        return ()
    said = "1 partition that has" if left_out == 1 else f"{left_out} partitions that have"
    return (
        Notice(
            "placement.no-way-back",
            f"The way back leaves out {said} a replica on a broker that no longer exists.",
        ),
    )


def parse(content: bytes, origin: str) -> dict[Name, tuple[int, ...]]:
    """Return the replica lists in a reassignment, in the order of the file. Raises ClusterFileError."""
    raw: Any = load_json(content, origin, _NEEDED)
    try:
        read = TypeAdapter(_Map).validate_python(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"]).lstrip(".")
        seen = json.dumps(first["input"], default=str)[:60]
        raise ClusterFileError(
            f"{origin}: {place or 'the reassignment'}: seen {seen}; needed: {_NEEDED} ({first['msg']})"
        ) from None
    sets: dict[Name, tuple[int, ...]] = {}
    for at, row in enumerate(read.partitions):
        name = row.topic, row.partition
        if not re.fullmatch(TOPIC, row.topic) or row.topic in (".", ".."):
            raise ClusterFileError(
                f"{origin}: partitions[{at}].topic: seen {json.dumps(row.topic)[:60]}; needed: "
                f'{TOPIC_NEEDED}, and neither "." nor ".."'
            )
        if name in sets:
            raise ClusterFileError(
                f"{origin}: partitions[{at}] (topic {row.topic}, partition {row.partition}): seen a second "
                "time; needed: each partition once"
            )
        if len(set(row.replicas)) != len(row.replicas):
            raise ClusterFileError(
                f"{origin}: partitions[{at}] (topic {row.topic}, partition {row.partition}).replicas: seen a "
                f"broker twice in {list(row.replicas)}; needed: each broker once"
            )
        if wrong := _wrong_dirs(row):
            raise ClusterFileError(
                f"{origin}: partitions[{at}] (topic {row.topic}, partition {row.partition}).log_dirs: {wrong}"
            )
        sets[name] = row.replicas
    return sets


def _wrong_dirs(row: _Row) -> str:
    """Return what is wrong with the directories of a partition, or an empty string."""
    if row.log_dirs and len(row.log_dirs) != len(row.replicas):
        return f"seen {len(row.log_dirs)}; needed: one for each of {len(row.replicas)} replicas"
    odd = next((path for path in row.log_dirs if path != ANY and not path.startswith("/")), None)
    return "" if odd is None else f'seen {odd!r}; needed: "{ANY}" or a path from the root'


def mapped(cluster: Cluster, sets: Mapping[Name, Set]) -> Cluster | Refused:
    """Return the cluster with these replica lists in place of its own; sizes and rates stay.

    Returns Refused if the cluster lacks one of these partitions.
    """
    if unknown := [Partition(*name, of, None) for name, of in sets.items() if name not in cluster.by_name]:
        text = (
            f"--map-string names {partition_names(unknown)}, which the cluster does not have; needed: "
            "partitions of the cluster. Next: remove the others."
        )
        return Refused((Notice("placement.map-unknown", text),))
    other = {
        one.name: replace(one, replicas=sets[one.name], dirs=())
        for one in cluster.partitions
        if sets.get(one.name, one.replicas) != one.replicas
    }
    partitions = (other.get(one.name, one) for one in cluster.partitions)
    return Cluster.of(cluster.brokers.values(), partitions)
