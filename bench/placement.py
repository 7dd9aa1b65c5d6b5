"""Compare plans of ``rebalance`` and ``scale`` with an exact solver and with the peer's algorithm.

Run it with ``python -m bench.placement``. Each input is made from a seed. The solver reports the fewest bytes
that reach the plan's range, and the smallest range that the plan's bytes reach, by the moves that the options
allow. With ``--any`` both may move every replica to any broker. The solver's time is limited, so its bound is
reported beside its answer. ``--large`` measures large clusters instead, each in its own process.
``--clusters`` tests on random clusters that no plan breaks a rule.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from bench.placement_peer import planned
from bench.placement_solver import solve
from bench.spread import out_option, save, shown, spread
from zkmigrate.cluster.placement.cluster import Broker, Cluster, Partition
from zkmigrate.cluster.placement.order import after
from zkmigrate.cluster.placement.plan import Plan
from zkmigrate.cluster.placement.rebalance import offload_targets, rebalance
from zkmigrate.cluster.placement.request import MIB, Rebalance
from zkmigrate.cluster.placement.statistics import lower_bound

GB = 10**9
ALL = 10**9
"""A partition limit above every number of partitions, because the solver has no such limit."""

CALLS = 3
"""How many times each plan is made; its time is the smallest."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of input. cluster: the arguments of ``made``. request: the request to plan."""

    cluster: Mapping[str, Any] = field(default_factory=dict)
    request: Rebalance = field(default_factory=lambda: Rebalance(storage_threshold=0.0, partition_limit=ALL))


SHAPES = {
    "three racks": Shape(),
    "no racks": Shape({"racks": 0, "brokers": 12}),
    "four racks": Shape({"racks": 4, "brokers": 12, "partitions": 120}),
    "defaults": Shape({"racks": 6, "brokers": 12, "partitions": 120}, Rebalance()),
    "in the rack": Shape({}, Rebalance(storage_threshold=0.0, partition_limit=ALL, locality_scoped=True)),
    "scale by three": Shape({"new": 3}, Rebalance(scale=True, partition_limit=ALL)),
    "scale by two": Shape(
        {"racks": 6, "brokers": 12, "partitions": 120, "new": 2}, Rebalance(scale=True, partition_limit=ALL)
    ),
    "few": Shape({"brokers": 6, "partitions": 24}),
    "few, two replicas": Shape({"racks": 4, "brokers": 8, "partitions": 30, "rf": 2}),
    "few, one replica": Shape({"racks": 0, "brokers": 8, "partitions": 40, "rf": 1}),
}

LARGE = {
    "10,000 on 200": {"brokers": 200, "partitions": 10_000},
    "100,000 on 500": {"brokers": 500, "partitions": 100_000},
}


def made(
    seed: int,
    *,
    brokers: int = 9,
    partitions: int = 90,
    racks: int = 3,
    rf: int = 3,
    new: int = 0,
    skew: float = 0.5,
) -> Cluster:
    """Return a cluster made from a seed.

    Sizes are lognormal with a median of 20 GB; brokers have lognormal shares.
    """
    chance = random.Random(seed)
    ids = range(1001, 1001 + brokers)
    added = range(ids.stop, ids.stop + new)
    rack = {broker: f"r{place % racks}" if racks else "" for place, broker in enumerate((*ids, *added))}
    share = {broker: chance.lognormvariate(0, skew) for broker in ids}
    used = dict.fromkeys(ids, 0)
    found = []
    for number in range(partitions):
        size = int(chance.lognormvariate(3.0, 0.9) * GB)
        replicas: list[int] = []
        while len(replicas) < rf:
            taken = {rack[one] for one in replicas if rack[one]}
            apart = [one for one in ids if one not in replicas and rack[one] not in taken]
            replicas += chance.choices(apart, [share[one] for one in apart])
        for one in replicas:
            used[one] += size
        found.append(Partition(f"t{number % 17:02}", number, tuple(replicas), size))
    disk = int(max(used.values()) * 1.25)
    old = [Broker(one, rack[one], disk - used[one]) for one in ids]
    return Cluster.of([*old, *(Broker(one, rack[one], disk, True) for one in added)], found)


def ours(cluster: Cluster, request: Rebalance) -> tuple[Plan, float]:
    """Return the plan, and the seconds of CPU time that it took."""
    began = time.process_time()
    plan = rebalance(cluster, request)
    if not isinstance(plan, Plan):
        raise click.ClickException(f"refused: {plan.reasons[0].text}")
    return plan, time.process_time() - began


def range_of(free: Mapping[int, int]) -> int:
    """Return the most free bytes of a broker minus the least."""
    return max(free.values()) - min(free.values())


def compared(shape: Shape, seed: int, limit_s: float, every: bool) -> dict[str, float] | None:
    """Return the figures of one input; None if there was nothing to move."""
    cluster = made(seed, **shape.cluster)
    request = replace(shape.request, scale=False, any_broker=True) if every else shape.request
    runs = [ours(cluster, request) for _ in range(CALLS)]
    plan, seconds = runs[0][0], min(took for _, took in runs)
    if not plan.moves:
        return None
    width = range_of(after(plan.cluster.free, plan.moves))
    found = {
        "range before": range_of(cluster.free) / GB,
        "range": width / GB,
        "bytes": plan.bytes / GB,
        "eta": lower_bound([*cluster.free.values()], width) / plan.bytes,
        "seconds": seconds,
    }
    began = time.process_time()
    peer = planned(cluster, shape.request)
    found["peer seconds"] = time.process_time() - began
    if peer.moved:
        found |= {"peer range / range": peer.range / width, "peer bytes / bytes": peer.moved / plan.bytes}
        found["peer eta"] = lower_bound([*cluster.free.values()], peer.range) / peer.moved
    sources = offload_targets(cluster, tuple(cluster.brokers), shape.request)
    takers = [one for one in cluster.brokers if one not in sources]
    if shape.request.scale:
        takers = [one for one in takers if cluster.brokers[one].new]
    least = shape.request.partition_size_threshold * MIB
    local = shape.request.locality_scoped
    if every:
        sources = tuple(cluster.brokers)
        takers = list(sources)
    fewest = solve(cluster, sources, takers, least=least, local=local, width=width, limit_s=limit_s)
    if fewest:
        found["bytes / solver's"] = plan.bytes / fewest.value
        found["bytes / bound"] = plan.bytes / fewest.bound
    narrowest = solve(cluster, sources, takers, least=least, local=local, moved=plan.bytes, limit_s=limit_s)
    if narrowest and narrowest.bound > 0:
        found["range / solver's"] = width / narrowest.value
        found["range / bound"] = width / narrowest.bound
    return found


def large() -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the figures of each large input, measured in its own process."""
    for name, kind in LARGE.items():
        for request, scale in (
            ("defaults", False),
            ("every broker a source or taker", False),
            ("scale", True),
        ):
            threshold = 0.0 if request.startswith("every") else 0.2
            cluster = {**kind, "racks": 8, "skew": 0.3, "new": kind["brokers"] // 10 if scale else 0}
            code = f"from bench.placement import one_large; one_large({cluster!r}, {scale}, {threshold})"
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            seconds, megabytes, *more = map(float, done.stdout.split())
            before, width, moved, eta, count = more
            yield (
                f"{name}, {request}",
                {
                    "seconds": seconds,
                    "megabytes": megabytes,
                    "range before": before,
                    "range": width,
                    "bytes": moved,
                    "eta": eta,
                    "moves": count,
                },
            )


def one_large(kind: Mapping[str, Any], scale: bool, threshold: float) -> None:
    """Print the figures of one large input."""
    cluster = made(1, **kind)
    plan, seconds = ours(cluster, Rebalance(scale=scale, storage_threshold=threshold))
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    width = range_of(after(plan.cluster.free, plan.moves))
    before = range_of(cluster.free)
    eta = lower_bound([*cluster.free.values()], width) / max(plan.bytes, 1)
    print(seconds, megabytes, before / GB, width / GB, plan.bytes / GB, eta, len(plan.moves))


@click.command()
@click.option("--seeds", default=4, show_default=True, help="Inputs of each shape.")
@click.option("--limit-s", default=20.0, show_default=True, help="Seconds for one question to the solver.")
@click.option("--any", "every", is_flag=True, help="Plan with --any-broker; the solver may do the same.")
@click.option("--large", "is_large", is_flag=True, help="Measure the large clusters instead.")
@click.option("--clusters", default=0, help="Try the rules on so many random clusters instead.")
@out_option
def main(seeds: int, limit_s: float, every: bool, is_large: bool, clusters: int, out: Path | None) -> None:
    """Measure plans; ends with 1 where a plan breaks a rule."""
    click.echo(f"load {os.getloadavg()[0]:.1f}")
    if clusters:
        from tests.unit.cluster.placement.test_rebalance import broken_rules

        broken = {seed: rules for seed in range(clusters) if (rules := broken_rules(seed))}
        click.echo(f"{clusters} random clusters, {len(broken)} plans break a rule {broken or ''}")
        sys.exit(bool(broken))
    if is_large:
        rows = dict(large())
        for name, figures in rows.items():
            click.echo(f"{name}: " + ", ".join(f"{key} {value:,.2f}" for key, value in figures.items()))
        save(out, rows)
        return
    inputs: dict[str, dict[str, float]] = {}
    for place, (name, shape) in enumerate(SHAPES.items()):
        for seed in range(seeds):
            found = compared(shape, 100 * place + seed, limit_s, every)
            if found is None:
                click.echo(f"{name} {seed}: nothing to move")
                continue
            inputs[f"{name} {seed}"] = found
            click.echo(f"{name} {seed}: " + ", ".join(f"{key} {value:.3f}" for key, value in found.items()))
    columns: dict[str, list[float]] = {}
    for found in inputs.values():
        for key, value in found.items():
            columns.setdefault(key, []).append(value)
    for key, values in columns.items():
        click.echo(shown(key, values, ""))
    save(out, {"inputs": inputs, "spread": {key: spread(values) for key, values in columns.items()}})


if __name__ == "__main__":
    main()
