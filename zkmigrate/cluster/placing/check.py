"""Run the verb ``placement check``: print what the brokers report, as lines or JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from zkmigrate.cluster.cluster_check import Check, Wrong, check
from zkmigrate.cluster.placed import other_cluster, settled
from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.placing.text import SHOWN, replicas, table
from zkmigrate.cluster.placing.verb import NoPlanError
from zkmigrate.errors import HostError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.json_stamp import stamped
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.kafka.questions import DescribeCluster, InFlight, ListReassignments
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.report import counted

T = TypeVar("T")

FOUND, NOT_KNOWN = 10, 11
"""Exit codes: something is wrong; nothing is wrong, but not everything is known."""

WITNESSES = 3
"""The number of brokers that report the partitions. A replica is in sync if each of them says so."""


def run(
    inventory: Inventory,
    look: Look,
    echo: Callable[[str], None],
    tell: Callable[[str], None],
    *,
    as_json: bool,
) -> int:
    """Query the brokers, print the problems that were found, and return the exit code.

    tell: receives lines of progress.

    Raises HostError if no broker answers, and NoPlanError if the brokers belong to another cluster.
    """
    view = _required(settled(lambda: look.ask(DescribeCluster(WITNESSES)), tell, time.sleep))
    if other := other_cluster(view, inventory):
        raise NoPlanError("; ".join(f"{one.id}: {one.text}" for one in other.reasons))
    moves = settled(lambda: look.ask(ListReassignments(KAFKA)), tell, time.sleep)
    found = check(view, moves, {broker.id: broker.endpoint for broker in inventory.brokers})
    code = FOUND if found.wrong else NOT_KNOWN if found.unknown else 0
    if as_json:
        told = {"code": code, "cluster_id": view.cluster_id, **body(found)}
        echo(json.dumps(stamped(told), ensure_ascii=False))
        return code
    for line in lines(found):
        echo(line)
    return code


def _required(reading: Reading[T]) -> T:
    if isinstance(reading, Seen):
        return reading.value
    why = f"{reading.what} does not exist" if isinstance(reading, Absent) else reading.why
    raise HostError(f"{why}. Next: make the brokers of the inventory reachable, then check again")


def _kinds(found: Check) -> tuple[tuple[str, str, Sequence[Wrong]], ...]:
    """Return the key in JSON, the meaning and the partitions of each kind of problem."""
    return (
        ("offline", "without a leader", found.offline),
        ("below_min_isr", "with fewer replicas in sync than min.insync.replicas", found.below_min_isr),
        ("under_replicated", "with replicas that are not in sync", found.under_replicated),
        ("few_racks", "in fewer racks than possible", found.few_racks),
    )


def lines(found: Check) -> list[str]:
    """Return the report for a terminal, with only the first items of each list."""
    shares = [
        (str(one.broker), one.rack or "-", str(one.leaders), str(one.preferred), str(one.replicas))
        for one in found.brokers
    ]
    out = table([("broker", "rack", "leaders", "preferred", "replicas"), *shares])
    if topics := _uneven(found.leaders):
        head = ("topic", "partitions led", "fewest of a broker", "most of a broker")
        out += ["", *table([head, *topics[:SHOWN]]), *_more(len(topics))]
    if found.down:
        ids = ", ".join(map(str, found.down))
        out += ["", f"down: {counted(len(found.down), 'broker')} not registered: {ids}"]
    if found.silent:
        ids = ", ".join(map(str, found.silent))
        out += [
            "",
            f"silent: {counted(len(found.silent), 'broker')} registered, but without a response: {ids}",
        ]
    for key, meaning, wrong in _kinds(found):
        if wrong:
            out += ["", f"{key.replace('_', '-')}: {counted(len(wrong), 'partition')} {meaning}"]
            out += [f"  {_name(one)} {replicas(one.partition.replicas)}: {one.text}" for one in wrong[:SHOWN]]
            out += _more(len(wrong))
    if found.moves:
        out += ["", f"moving: {counted(len(found.moves), 'reassignment')} in flight, from any tool"]
        out += [_move(name, move) for name, move in [*found.moves.items()][:SHOWN]]
        out += _more(len(found.moves))
    if found.unknown:
        out += ["", f"unknown whether a reassignment is in flight: {found.unknown}"]
    ended = "Something is wrong." if found.wrong else "Nothing is wrong."
    return [*out, "", f"{ended} Some checks could not be made." if found.unknown else ended]


def _uneven(leaders: Mapping[str, Mapping[int, int]]) -> list[tuple[str, str, str, str]]:
    """Return a row for each topic, those whose partitions are led least evenly first."""
    spread = {topic: (min(of.values()), max(of.values())) for topic, of in leaders.items() if of}
    order = sorted(spread, key=lambda topic: (spread[topic][0] - spread[topic][1], topic))
    return [
        (topic, str(sum(leaders[topic].values())), str(spread[topic][0]), str(spread[topic][1]))
        for topic in order
    ]


def _more(count: int) -> list[str]:
    return [f"and {count - SHOWN} more; --json has all"] if count > SHOWN else []


def _name(one: Wrong) -> str:
    return f"{one.partition.topic}-{one.partition.partition}"


def _move(name: Name, move: InFlight) -> str:
    text = f"  {name[0]}-{name[1]}"
    if not move.adding and not move.removing:
        return f"{text} {replicas(move.replicas)}"
    kept = [broker for broker in move.replicas if broker not in move.adding]
    return f"{text} {replicas(kept)} -> {replicas(move.target)}"


def body(found: Check) -> dict[str, Any]:
    """Return the report as JSON, with all partitions."""
    wrong = {key: [_partition(one) for one in of_kind] for key, _, of_kind in _kinds(found)}
    moving = None
    if found.moves is not None:
        moving = [
            {"topic": topic, "partition": number, **asdict(move)}
            for (topic, number), move in found.moves.items()
        ]
    return {
        "brokers": [asdict(one) for one in found.brokers],
        "topics": [
            {"topic": topic, "leaders": {str(id_): count for id_, count in of.items()}}
            for topic, of in found.leaders.items()
        ],
        "down": list(found.down),
        "silent": list(found.silent),
        **wrong,
        "moving": moving,
        "unknown": found.unknown,
    }


def _partition(one: Wrong) -> dict[str, Any]:
    state = one.partition
    told = {"topic": state.topic, "partition": state.partition, "leader": state.leader}
    return {**told, "replicas": list(state.replicas), "isr": list(state.isr), **one.facts}
