"""The maps of a plan as Kafka's reassignment JSON, which ``kafka-reassign-partitions`` takes:
``{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}``. The same plan gives the same
bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, TypeAdapter, ValidationError

from zkmigrate.placement.cluster import Cluster, Name, Partition, Set
from zkmigrate.placement.cluster_file import ClusterFileError, load_json
from zkmigrate.placement.plan import Notice, Plan, Reassignment, Refused
from zkmigrate.placement.validation import partition_names

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


def text(sets: Iterable[tuple[Name, tuple[int, ...]]]) -> str:
    """A map, one partition a line, in the order given."""
    rows = [
        json.dumps({"topic": topic, "partition": number, "replicas": list(replicas)}, separators=(",", ":"))
        for (topic, number), replicas in sets
    ]
    body = "\n" + ",\n".join(rows) + "\n" if rows else ""
    return f'{{"version":1,"partitions":[{body}]}}\n'


def beside_plan(plan: PurePath, part: str) -> str:
    """The name of a file that belongs to a plan's: ``plan-back.json`` for the part ``back``."""
    return f"{plan.stem}-{part}{plan.suffix}"


def files(plan: Plan, name: str) -> dict[str, str]:
    """What is written for a plan: content by file name, the way back first and the plan last.

    name: the file of the plan. Beside ``plan.json`` stand ``plan-back.json`` and ``plan-phase0.json``.
    """
    path = PurePath(name)
    width = len(str(max(len(plan.phases) - 1, 0)))
    made = {beside_plan(path, "back"): text((move.name, move.before) for move in _way_back(plan))}
    for number, phase in enumerate(plan.phases):
        made[beside_plan(path, f"phase{number:0{width}}")] = text((move.name, move.after) for move in phase)
    made[path.name] = text((move.name, move.after) for move in plan.moves)
    return made


def _way_back(plan: Plan) -> list[Reassignment]:
    """The moves whose sets before can be had again, the last one first: backwards they have as much room."""
    known = plan.cluster.brokers
    return [move for move in reversed(plan.moves) if all(broker in known for broker in move.before)]


def no_way_back(plan: Plan) -> tuple[Notice, ...]:
    """Which moves the way back leaves out, because Kafka takes no set with a broker that is gone."""
    left_out = len(plan.moves) - len(_way_back(plan))
    if not left_out:
        return ()
    said = "1 partition that has" if left_out == 1 else f"{left_out} partitions that have"
    return (
        Notice(
            "placement.no-way-back", f"The way back leaves out {said} a replica on a broker that is gone."
        ),
    )


def parse(content: bytes, origin: str) -> dict[Name, tuple[int, ...]]:
    """The replica sets of a map, in its order. Raises ClusterFileError."""
    raw: Any = load_json(content, origin, _NEEDED)
    try:
        read = TypeAdapter(_Map).validate_python(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"]).lstrip(".")
        seen = json.dumps(first["input"], default=str)[:60]
        raise ClusterFileError(
            f"{origin}: {place or 'the map'}: seen {seen}; needed: {_NEEDED} ({first['msg']})"
        ) from None
    sets: dict[Name, tuple[int, ...]] = {}
    for at, row in enumerate(read.partitions):
        name = row.topic, row.partition
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
        sets[name] = row.replicas
    return sets


def mapped(cluster: Cluster, sets: Mapping[Name, Set]) -> Cluster | Refused:
    """The cluster with these sets in the place of its own; sizes and rates stay. Refused: it lacks one of
    these partitions."""
    if unknown := [Partition(*name, of, None) for name, of in sets.items() if name not in cluster.by_name]:
        text = (
            f"--map-string names {partition_names(unknown)}, which the cluster does not have; needed: "
            "partitions of the cluster. Next: leave the others out."
        )
        return Refused((Notice("placement.map-unknown", text),))
    other = {
        one.name: replace(one, replicas=sets[one.name], dirs=())
        for one in cluster.partitions
        if sets.get(one.name, one.replicas) != one.replicas
    }
    partitions = (other.get(one.name, one) for one in cluster.partitions)
    return Cluster.of(cluster.brokers.values(), partitions)
