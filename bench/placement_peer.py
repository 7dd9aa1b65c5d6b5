"""Our reading of how topicmappr 3.18 rebalances and scales, written from a description of its algorithm.

It is not written from topicmappr's code. Each pass visits each source, the fullest first, and tries its
largest partitions. The destination is the broker with the most free bytes that is no source, is not in the
set and shares no rack with the rest of it. With ``locality_scoped`` it is one of the same rack, and the set
is not considered. The first partition that fits the tolerance moves. A source that moves nothing is counted;
planning ends when the count reaches the number of sources. Of 98 tolerances the lowest range wins, then the
lowest standard deviation; the bytes moved do not count.

``python -m bench.placement_peer --topicmappr PROGRAM`` runs topicmappr 4 itself beside our verb on ten made
clusters. Both read the same stand-ins for ZooKeeper and for Kafka's brokers on loopback.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner
from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tests.unit.kafka.clients.wire_brokers import WireBrokers
from tests.unit.tree_server import DataServer, running
from zkmigrate.cluster.placement.check import sets_of
from zkmigrate.cluster.placement.cluster import Broker, Cluster, Name, Partition
from zkmigrate.cluster.placement.rebalance import SWEEP, offload_targets
from zkmigrate.cluster.placement.request import MIB, Rebalance

GB = 10**9


@dataclass(frozen=True, slots=True)
class Planned:
    """The result of a plan. free: bytes by broker, afterwards. moved: bytes."""

    free: dict[int, int]
    moved: int

    @property
    def range(self) -> int:
        return max(self.free.values()) - min(self.free.values())


def planned(cluster: Cluster, request: Rebalance) -> Planned:
    """Return the best plan of all tolerances."""
    tolerances = (request.tolerance,) if request.tolerance else SWEEP
    plans = [_pass_by_pass(cluster, request, tolerance) for tolerance in tolerances]
    return min(plans, key=lambda plan: (plan.range, statistics.pstdev(plan.free.values())))


def _pass_by_pass(cluster: Cluster, request: Rebalance, tolerance: float) -> Planned:
    sources = offload_targets(cluster, tuple(cluster.brokers), request)
    takers = [broker for broker in cluster.brokers if broker not in sources]
    if request.scale:
        takers = [broker for broker in takers if cluster.brokers[broker].new]
    free = dict(cluster.free)
    mean = statistics.mean(free.values())
    sets = {one.name: list(one.replicas) for one in cluster.partitions}
    held: dict[int, list[tuple[int, tuple[str, int]]]] = {broker: [] for broker in sources}
    for one in cluster.partitions:
        if (one.size or 0) < request.partition_size_threshold * MIB:
            continue
        for broker in one.replicas:
            if broker in held:
                held[broker].append((one.size or 0, one.name))
    for entries in held.values():
        entries.sort(reverse=True)
    moved, stuck = 0, 0
    while stuck < len(sources):
        for source in sorted(sources, key=lambda broker: free[broker]):
            for entry in held[source][: request.partition_limit]:
                size, name = entry
                to = _most_free(cluster, request, takers, free, sets[name], source)
                if to is None or free[source] + size > mean * (1 + tolerance):
                    continue
                if free[to] - size < mean * (1 - tolerance):
                    continue
                held[source].remove(entry)
                sets[name][sets[name].index(source)] = to
                free[source] += size
                free[to] -= size
                moved += size
                break
            else:
                stuck += 1
    return Planned(free, moved)


def _most_free(
    cluster: Cluster,
    request: Rebalance,
    takers: list[int],
    free: dict[int, int],
    replicas: list[int],
    source: int,
) -> int | None:
    if request.locality_scoped:
        fit = [one for one in takers if cluster.rack(one) == cluster.rack(source)]
    else:
        rest = {cluster.rack(one) for one in replicas if one != source}
        fit = [one for one in takers if one not in replicas and cluster.rack(one) not in rest]
    return max(fit, key=lambda broker: (free[broker], -broker), default=None)


# The program itself


@dataclass(frozen=True, slots=True)
class Case:
    """A made cluster, and the request to both programs.

    verb, words: the verb and options of the command line. racks, brokers, partitions, rf: sizes of the
    cluster. sigma: the skew of the partitions' sizes. apart: sets span as many racks as they can. new: number
    of added brokers. gone: whether one broker is not registered any more. moving: number of partitions in the
    middle of a reassignment. ours: options for our verb only.
    """

    name: str
    verb: str = "rebalance"
    words: tuple[str, ...] = ()
    racks: int = 3
    brokers: int = 9
    partitions: int = 90
    rf: int = 3
    sigma: float = 0.9
    apart: bool = True
    new: int = 0
    gone: bool = False
    moving: int = 0
    ours: tuple[str, ...] = ()


CASES = (
    Case("three racks, RF 3"),
    Case("one rack, RF 2", racks=1, brokers=7, partitions=70, rf=2),
    Case("two racks, RF 2", words=("--storage-threshold", "0.1"), racks=2, brokers=10, rf=2),
    Case("two racks, RF 3, sets anywhere", racks=2, brokers=8, apart=False, ours=("--ignore-warns",)),
    Case("three racks, RF 2, skewed sizes", brokers=12, partitions=110, rf=2, sigma=1.8),
    Case("two new brokers, RF 3", "scale", partitions=120, new=2),
    Case("a new broker, two racks, RF 2, skewed", "scale", racks=2, brokers=8, rf=2, sigma=1.5, new=1),
    Case("a broker gone, by count", "rebuild", gone=True),
    Case(
        "a broker gone, by storage",
        "rebuild",
        ("--placement", "storage"),
        racks=2,
        brokers=8,
        rf=2,
        gone=True,
    ),
    Case("three partitions in flight", brokers=12, moving=3),
)


def cluster_of(case: Case, seed: int) -> tuple[Cluster, dict[Name, int]]:
    """Return the cluster of a case, and the additional broker of each partition in flight."""
    chance = random.Random(seed)
    ids = [*range(1001, 1001 + case.brokers)]
    rack = {id_: f"r{id_ % case.racks}" for id_ in range(1001, 1001 + case.brokers + case.new)}
    share = {id_: chance.lognormvariate(0, 0.5) for id_ in ids}
    used = dict.fromkeys(ids, 0)
    found = []
    for number in range(case.partitions):
        size = int(chance.lognormvariate(3.0, case.sigma) * GB)
        replicas: list[int] = []
        while len(replicas) < case.rf:
            left = [one for one in ids if one not in replicas]
            taken = {rack[one] for one in replicas}
            free = [one for one in left if rack[one] not in taken] if case.apart else []
            among = free or left
            replicas += chance.choices(among, [share[one] for one in among])
        for one in replicas:
            used[one] += size
        found.append(Partition(f"t{number % 17:02}", number // 17, tuple(replicas), size))
    disk = int(max(used.values()) * 1.25)
    brokers = [Broker(one, rack[one], disk - used[one]) for one in ids[case.gone :]]
    brokers += [Broker(one, rack[one], disk, new=True) for one in rack if one not in used]
    flights = {one.name: next(id_ for id_ in ids if id_ not in one.replicas) for one in found[: case.moving]}
    return Cluster.of(brokers, found), flights


def znodes_of(cluster: Cluster, flights: Mapping[Name, int]) -> dict[str, bytes]:
    """Return the data of every znode that one of the programs reads."""
    topics: dict[str, dict[str, dict[str, list[int]]]] = {}
    sizes: dict[str, dict[str, dict[str, int]]] = {}
    for one in cluster.partitions:
        topic = topics.setdefault(one.topic, {"partitions": {}, "adding_replicas": {}})
        adding = [flights[one.name]] if one.name in flights else []
        topic["partitions"][str(one.number)] = [*adding, *one.replicas]
        if adding:
            topic["adding_replicas"][str(one.number)] = adding
        sizes.setdefault(one.topic, {})[str(one.number)] = {"Size": one.size or 0}
    free = {str(one.id): {"StorageFree": one.free} for one in cluster.brokers.values()}
    told: dict[str, Any] = {"/topicmappr/partitionmeta": sizes, "/topicmappr/brokermetrics": free}
    told |= {
        f"/brokers/ids/{one.id}": {"rack": one.rack, "host": f"h{one.id}"} for one in cluster.brokers.values()
    }
    told |= {f"/brokers/topics/{topic}": {"version": 2, **body} for topic, body in topics.items()}
    data = {path: json.dumps(body).encode() for path, body in told.items()}
    above = {str(parent) for path in data for parent in Path(path).parents}
    return {**dict.fromkeys(sorted(above), b""), **data}


@contextmanager
def served(cluster: Cluster, flights: Mapping[Name, int]) -> Iterator[tuple[str, str]]:
    """Run the stand-ins for Kafka and for ZooKeeper, and yield their addresses."""
    response = MetadataResponse.MetadataResponseTopic
    topics: dict[str, list[Any]] = {}
    for one in cluster.partitions:
        replicas = [*([flights[one.name]] if one.name in flights else []), *one.replicas]
        alive = [id_ for id_ in one.replicas if id_ in cluster.brokers]
        topics.setdefault(one.topic, []).append(
            response.MetadataResponsePartition(
                error_code=0,
                partition_index=one.number,
                leader_id=alive[0],
                leader_epoch=1,
                replica_nodes=replicas,
                isr_nodes=alive,
                offline_replicas=[],
            )
        )

    def metadata(id_: int, request: Any) -> Mapping[str, Any]:
        rows = [
            response(error_code=0, name=topic, is_internal=False, partitions=rows)
            for topic, rows in topics.items()
        ]
        return {**made.metadata(id_, request), "topics": rows}

    def configs(_id: int, request: Any) -> Mapping[str, Any]:
        row = DescribeConfigsResponse.DescribeConfigsResult
        told = []
        for asked in request.resources:
            rack = row.DescribeConfigsResourceResult(
                name="broker.rack",
                value=cluster.brokers[int(asked.resource_name)].rack,
                read_only=True,
                is_default=False,
                config_source=4,
                is_sensitive=False,
                synonyms=[],
                config_type=2,
                documentation=None,
            )
            told.append(
                row(
                    error_code=0,
                    error_message=None,
                    resource_type=asked.resource_type,
                    resource_name=asked.resource_name,
                    configs=[rack],
                )
            )
        return {"results": told}

    data = znodes_of(cluster, flights)
    made = WireBrokers({MetadataRequest: metadata, DescribeConfigsRequest: configs})
    server = DataServer(dict.fromkeys(data, (1, 1, 1)), data=data)
    with made.running([*cluster.brokers]), running(server):
        yield made.at[min(made.at)], f"127.0.0.1:{server.port}"


@dataclass(frozen=True, slots=True)
class Map:
    """The plan that a program wrote.

    code: its exit code. said: its output. moved: bytes. range: free bytes, most minus least. counts: replicas
    of a broker, most minus least. sets: changed sets. wrong: sets that name a broker twice, or that are in
    fewer racks than before. few_racks: sets in fewer racks than possible. long: sets with more replicas than
    before.
    """

    code: int
    said: str
    moved: int = 0
    range: int = 0
    counts: int = 0
    sets: int = 0
    wrong: int = 0
    few_racks: int = 0
    long: int = 0


def judged(cluster: Cluster, code: int, said: str, written: Path) -> Map:
    """Return the figures of a map, or of none."""
    sets = {one.name: one.replicas for one in cluster.partitions}
    free = dict(cluster.free)
    planned_sets = sets_of(written.read_text()) if written.exists() else {}
    moved = wrong = changed = long = 0
    for name, replicas in planned_sets.items():
        before, size = sets[name], cluster.by_name[name].size or 0
        changed += replicas != before
        long += len(replicas) > len(before)
        moved += size * len(set(replicas) - set(before))
        wrong += len(set(replicas)) < len(replicas)
        wrong += cluster.racks(replicas) < min(cluster.racks(before), cluster.rack_count)
        for id_ in set(replicas) - set(before):
            free[id_] -= size
        for id_ in set(before) - set(replicas):
            free[id_] = free.get(id_, 0) + size
    sets |= planned_sets
    kept = [free[id_] for id_ in cluster.brokers]
    counts = [sum(id_ in replicas for replicas in sets.values()) for id_ in cluster.brokers]
    few = sum(cluster.racks(one) < min(len(one), cluster.rack_count) for one in sets.values())
    return Map(code, said, moved, max(kept) - min(kept), max(counts) - min(counts), changed, wrong, few, long)


def planned_by_peer(program: Path, cluster: Cluster, case: Case, kafka: str, zk: str) -> Map:
    """Return topicmappr's plan."""
    with tempfile.TemporaryDirectory() as folder:
        brokers = ",".join(map(str, cluster.brokers)) if case.verb == "scale" else "-2"
        words = ["--kafka-addr", kafka, "--zk-addr", zk, "--topics", ".*", "--brokers", brokers]
        words += ["--out-path", folder, "--out-file", "plan"]
        done = subprocess.run(
            [program, case.verb, *words, *case.words], capture_output=True, text=True, check=False, cwd=folder
        )
        return judged(cluster, done.returncode, done.stdout + done.stderr, Path(folder, "plan.json"))


def planned_by_us(cluster: Cluster, case: Case, zk: str, words: Sequence[str] = ()) -> Map:
    """Return our verb's plan."""
    from zkmigrate.cli.main import cli

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "plan.json")
        given = ["placement", case.verb, "--zk-addr", zk, "--out", str(out), *case.words, *case.ours, *words]
        done = CliRunner().invoke(cli, given, env={"HOME": folder})
        return judged(cluster, done.exit_code, done.output, out)


@click.command()
@click.option(
    "--topicmappr",
    "program",
    type=click.Path(path_type=Path, exists=True),
    required=True,
    help="Its program.",
)
@click.option("--seed", default=41, show_default=True, help="Of the first cluster.")
@click.option("--only", type=int, help="Only the case of this number, and print what both said.")
def main(program: Path, seed: int, only: int | None) -> None:
    """Plan ten made clusters with topicmappr and with our verb, and compare the maps.

    Ends with 1 where a set of ours is broken, or the same bytes give a wider range.
    """
    click.echo(f"load {os.getloadavg()[0]:.1f}")
    worse = 0
    for place, case in enumerate(CASES):
        if only is not None and only != place:
            continue
        cluster, flights = cluster_of(case, seed + place)
        with served(cluster, flights) as (kafka, zk):
            found = {"topicmappr": planned_by_peer(program.resolve(), cluster, case, kafka, zk)}
            found["ours"] = planned_by_us(cluster, case, zk)
            if case.verb != "rebuild" and found["topicmappr"].moved and not flights:
                found["same bytes"] = planned_by_us(
                    cluster, case, zk, ["--max-bytes", str(found["topicmappr"].moved)]
                )
            if not case.apart:
                found["--fix-racks"] = planned_by_us(cluster, replace(case, ours=()), zk, ["--fix-racks"])
        free = [one.free for one in cluster.brokers.values()]
        level = 0.02 * sum(free) / len(free)
        if "same bytes" in found:
            worse += found["same bytes"].range > max(found["topicmappr"].range, level)
        worse += sum(one.wrong for way, one in found.items() if way != "topicmappr")
        shown = [f"`{case.verb}`, {case.name}", f"{(max(free) - min(free)) / GB:,.0f}"]
        for way in ("topicmappr", "ours", "same bytes", "--fix-racks"):
            shown.append(_cell(found[way]) if way in found else "")
        click.echo(f"| {' | '.join(shown)} |")
        if only is not None:
            click.echo("".join(f"\n{way}\n{one.said}" for way, one in found.items()))
    sys.exit(bool(worse))


def _cell(of: Map) -> str:
    """Return the copied GB and the range afterwards, with any flaws; or the exit code if it is not 0."""
    if of.code:
        return f"refused ({of.code})"
    told = f"{of.moved / GB:,.0f} → {of.range / GB:,.0f}"
    told += f", {of.few_racks} sets in few racks" if of.few_racks else ""
    told += f", {of.long} sets too long" if of.long else ""
    return told + (f", **{of.wrong} broken sets**" if of.wrong else "")


if __name__ == "__main__":
    main()
