"""Try plans on many clusters, and return the figures of each plan on each cluster.

::

    [{"name": "two more", "verb": "scale", "clusters": ["a"], "tolerance": 0.1,
      "add": {"1004": {"rack": "a", "storage_free": BYTES}}},
     {"name": "without 1001", "verb": "rebuild", "remove": [1001], "placement": "storage"}]

Needed are ``name`` and ``verb``. Other keys are the options of the verb, with ``_`` for ``-``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from zkmigrate.cluster.placement import cluster_file
from zkmigrate.cluster.placement.cluster import Broker, Cluster
from zkmigrate.cluster.placement.cluster_file import ClusterFileError, load_json, mistakes
from zkmigrate.cluster.placement.maps import files, no_way_back
from zkmigrate.cluster.placement.plan import Notice, Refused
from zkmigrate.cluster.placement.planner import broken, planned
from zkmigrate.cluster.placement.request import Balance, By, Choice, Optimize, Rebalance, Rebuild
from zkmigrate.cluster.placement.statistics import statistics
from zkmigrate.cluster.placement.validation import Chosen, chosen
from zkmigrate.errors import UsageError

_Share = Annotated[float, Field(ge=0, le=1)]
_Count = Annotated[int, Field(ge=0, le=2**31 - 1)]


class _Any(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    name: Annotated[str, Field(min_length=1)]
    clusters: tuple[str, ...] | None = None
    add: dict[str, Any] | None = None
    topics: tuple[str, ...] | None = None
    topics_exclude: tuple[str, ...] | None = None
    effort: Annotated[int, Field(ge=0, le=1000)] | None = None


class _Moving(_Any):
    tolerance: _Share | None = None
    partition_limit: Annotated[int, Field(ge=1)] | None = None
    partition_size_threshold: _Count | None = None
    locality_scoped: bool | None = None
    balance: Balance | None = None


class _Rebalance(_Moving):
    verb: Literal["rebalance"]
    storage_threshold: _Share | None = None
    storage_threshold_gb: _Count | None = None


class _Scale(_Moving):
    verb: Literal["scale"]


class _Rebuild(_Any):
    verb: Literal["rebuild"]
    remove: tuple[_Count, ...] | None = None
    placement: By | None = None
    use_meta: bool | None = None
    force_rebuild: bool | None = None
    replication: _Count | None = None
    sub_affinity: bool | None = None
    min_rack_ids: _Count | None = None
    optimize: Optimize | None = None
    partition_size_factor: Annotated[float, Field(ge=0)] | None = None


_ADAPTER = TypeAdapter(list[Annotated[_Rebalance | _Scale | _Rebuild, Field(discriminator="verb")]])
_OWN = ("name", "verb", "clusters", "add", "remove", "topics", "topics_exclude")
"""The keys that are no field of a request."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A plan to try.

    clusters: the names of the clusters; empty for all.
    add: brokers that join the cluster and count as new.
    remove: ids of registered brokers that ``rebuild`` empties.
    """

    name: str
    request: Rebalance | Rebuild
    clusters: tuple[str, ...] = ()
    add: tuple[Broker, ...] = ()
    remove: tuple[int, ...] = ()

    @property
    def verb(self) -> str:
        """The verb as the command line calls it."""
        if isinstance(self.request, Rebuild):
            return "rebuild"
        return "scale" if self.request.scale else "rebalance"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a what-if on a cluster. Sizes are bytes.

    error: why the cluster is unusable, or which rule the plan broke.
    refused: why there is no plan. Figures are None with an error or a refusal.
    refusing: notices that only ``--ignore-warnings`` lifts.
    notices: the other notices, each with its id.
    """

    cluster: str
    what_if: str
    verb: str
    brokers: int | None = None
    partitions: int | None = None
    range_before: int | None = None
    range_after: int | None = None
    moves: int | None = None
    bytes: int | None = None
    lower_bound: int | None = None
    eta: float | None = None
    limited: str | None = None
    refusing: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    error: str | None = None


def parse(content: bytes, origin: str) -> tuple[WhatIf, ...]:
    """Return the what-ifs in the content of a file. origin: its name in errors. Raises ClusterFileError."""
    # Refuse JSON that pydantic would accept although it is ambiguous.
    load_json(content, origin, "JSON, a list of what-ifs")
    try:
        found = _ADAPTER.validate_json(content.removeprefix(b"\xef\xbb\xbf"))
    except ValidationError as error:
        told = error.errors(include_url=False, include_context=False)
        raise ClusterFileError(mistakes(origin, map(_explain_mistake, told))) from None
    read = [one.model_dump(exclude_none=True) for one in found]
    if wrong := [*_faults(read)]:
        raise ClusterFileError(mistakes(origin, wrong))
    return tuple(_what_if(one, f"{origin}: [{at}]") for at, one in enumerate(read))


def _explain_mistake(error: Mapping[str, Any]) -> str:
    """Describe a mistake that pydantic found, and its place without the name of the verb."""
    loc = [part for at, part in enumerate(error["loc"]) if at != 1 or part not in _VERBS]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc) or "the file"
    if error["type"] == "extra_forbidden":
        return f"{place}: unknown key; needed: name, verb, and options of the verb"
    if error["type"].startswith("union_tag"):
        return f"{place}.verb: needed: rebalance, scale or rebuild"
    seen = "nothing" if error["type"] == "missing" else json.dumps(error["input"], default=str)[:60]
    return f"{place}: seen {seen}; needed: {re.sub('^Input should be (an? )?', '', error['msg'])}"


_VERBS = ("rebalance", "scale", "rebuild")


def _faults(read: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not read:
        yield "seen an empty list; needed: at least one what-if"
    names: set[str] = set()
    for at, one in enumerate(read):
        if one["name"] in names:
            yield f"[{at}].name: seen {json.dumps(one['name'])} a second time; needed: each name once"
        names.add(one["name"])


def _what_if(read: Mapping[str, Any], place: str) -> WhatIf:
    choice = Choice(tuple(read.get("topics") or (".*",)), tuple(read.get("topics_exclude", ())))
    options = {key: value for key, value in read.items() if key not in _OWN}
    request: Rebalance | Rebuild
    if read["verb"] == "rebuild":
        request = Rebuild(choice, **options)
    else:
        request = Rebalance(choice, scale=read["verb"] == "scale", **options)
    added = cluster_file.brokers(read.get("add", {}), f"{place}.add")
    new = tuple(replace(broker, new=True) for broker in added)
    return WhatIf(read["name"], request, tuple(read.get("clusters", ())), new, tuple(read.get("remove", ())))


def tried(name: str, partitions: Iterable[str], brokers: Iterable[str], what_if: WhatIf) -> Outcome:
    """Return the outcome on a cluster that is given as lines of JSON, in any order.

    partitions: partitions in the format of ``cluster.json``.
    brokers: brokers in the same format, with the id as ``broker``.

    A key ``cluster`` in them is ignored.
    """
    try:
        cluster = _cluster(name, partitions, brokers)
        return outcome(name, *_applied(name, cluster, what_if), what_if)
    except UsageError as error:
        return Outcome(name, what_if.name, what_if.verb, error=str(error))


def outcome(name: str, cluster: Cluster, request: Rebalance | Rebuild, what_if: WhatIf) -> Outcome:
    """Return the outcome of a request on a cluster. what_if: its name and verb are in the outcome."""
    size = len(cluster.brokers), len(cluster.partitions)
    known = Outcome(name, what_if.name, what_if.verb, *size)
    plan = planned(cluster, request)
    if isinstance(plan, Refused):
        return replace(known, refused=_notice_lines(plan.reasons))
    if wrong := broken(plan, request, files(plan, "plan.json")):
        text = f"the finished plan breaks a rule: {wrong[0]}. Next: report this defect"
        return replace(known, error=text)
    found = chosen(cluster, request.choice)
    told = statistics(cluster, plan.moves, found.brokers if isinstance(found, Chosen) else None)
    notices = (*plan.notices, *no_way_back(plan))
    return replace(
        known,
        range_before=told.before.range,
        range_after=told.after.range,
        moves=told.moves,
        bytes=told.moved,
        lower_bound=told.lower_bound,
        eta=told.eta,
        limited=plan.limited,
        refusing=_notice_lines(one for one in notices if one.refuses),
        notices=_notice_lines(one for one in notices if not one.refuses),
    )


def _notice_lines(notices: Iterable[Notice]) -> tuple[str, ...]:
    return tuple(f"{one.id}: {one.text}" for one in notices)


def _cluster(name: str, partitions: Iterable[str], brokers: Iterable[str]) -> Cluster:
    """Return the cluster of these lines. Raises ClusterFileError.

    The lines are sorted, so that errors name the same place whatever their order.
    """
    rows = [_row(line, name) for line in sorted(partitions)]
    by_id: dict[str, Any] = {}
    for line in sorted(brokers):
        row = _row(line, f"{name}: brokers")
        if "broker" not in row:
            raise ClusterFileError(f"{name}: brokers: seen {line[:60]}; needed: the id as broker")
        id_ = str(row.pop("broker"))
        if id_ in by_id:
            raise ClusterFileError(f"{name}: brokers.{id_}: seen a second time; needed: each broker once")
        by_id[id_] = row
    return cluster_file.of({"brokers": by_id, "partitions": rows}, name)


def _row(line: str, origin: str) -> dict[str, Any]:
    found = load_json(line.encode(), origin, "JSON, an object a line")
    if not isinstance(found, dict):
        raise ClusterFileError(f"{origin}: seen {line[:60]}; needed: an object a line")
    return {key: value for key, value in found.items() if key != "cluster" and value is not None}


def _applied(name: str, cluster: Cluster, what_if: WhatIf) -> tuple[Cluster, Rebalance | Rebuild]:
    """Return the cluster with the brokers that join, and the request without those that leave.

    Raises UsageError.
    """
    if known := [broker.id for broker in what_if.add if broker.id in cluster.brokers]:
        raise UsageError(f"{name}: add: seen broker {known[0]}, which is registered already; needed: new ids")
    if absent := [id_ for id_ in what_if.remove if id_ not in cluster.brokers]:
        raise UsageError(f"{name}: remove: seen broker {absent[0]}; needed: a registered broker")
    cluster = Cluster.of((*cluster.brokers.values(), *what_if.add), cluster.partitions)
    if not what_if.remove:
        return cluster, what_if.request
    left = tuple(id_ for id_ in cluster.brokers if id_ not in what_if.remove)
    if not left:
        raise UsageError(f"{name}: remove: seen all of the brokers; needed: some that remain")
    return cluster, replace(what_if.request, choice=replace(what_if.request.choice, brokers=left))


BY_DEFAULT = (WhatIf("rebalance", Rebalance()),)
"""The what-ifs that are tried if no file is given."""
