"""Plans of a fleet, ``analyze placement``: ``python -m bench.fleet``.

Clusters are made from seeds, and written as two files of a JSON object a line. Then the ways plan them, round
after round: one plain Python process, Spark on one core, Spark on two. Each way runs in a process that is
already up and has planned one cluster, so that no start of Python, a JVM or Spark counts. CPU time is of all
processes of a way. Different answers end the run.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import click

from bench.helper import Answering, helpers
from bench.placement import made
from bench.spread import out_option, save, shown, spread
from bench.usage import Usage, watched
from zkmigrate.placement.request import Rebalance
from zkmigrate.placement.what_if import WhatIf, tried

PLAIN, ONE, TWO = "plain Python", "Spark, 1 core", "Spark, 2 cores"
TOPICS = 17

Answer: TypeAlias = list[tuple[str, int | None, int | None, str | None]]
"""Of each cluster in order: bytes copied, range afterwards, error."""
Serve: TypeAlias = Callable[[Callable[["Fleet"], Answer]], None]


@dataclass(frozen=True)
class Fleet:
    """Where its tables stand, and the effort of a plan."""

    folder: Path
    effort: int = 1

    @property
    def what_ifs(self) -> tuple[WhatIf, ...]:
        """One rebalance for each cluster."""
        return (WhatIf("rebalance", Rebalance(effort=self.effort)),)

    @property
    def partitions(self) -> Path:
        """A JSON object a line."""
        return self.folder / "partitions.jsonl"

    @property
    def brokers(self) -> Path:
        """A JSON object a line."""
        return self.folder / "brokers.jsonl"


def write(fleet: Fleet, clusters: int, partitions: int) -> int:
    """Write the tables of so many clusters of 24 brokers; returns their bytes."""
    fleet.folder.mkdir()
    with fleet.partitions.open("w") as rows, fleet.brokers.open("w") as brokers:
        for seed in range(clusters):
            cluster = made(seed, brokers=24, partitions=partitions, racks=4, skew=0.3)
            name = f"cluster {seed:03}"
            for place, one in enumerate(cluster.partitions):
                topic, number = f"t{place % TOPICS:02}", place // TOPICS
                row = {"topic": topic, "partition": number, "replicas": one.replicas, "size": one.size}
                rows.write(json.dumps({"cluster": name, **row}) + "\n")
            for broker in cluster.brokers.values():
                row = {"broker": broker.id, "rack": broker.rack, "storage_free": broker.free}
                brokers.write(json.dumps({"cluster": name, **row}) + "\n")
    return fleet.partitions.stat().st_size + fleet.brokers.stat().st_size


def plain(serve: Serve) -> None:
    """Answer in this process, on one core."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])

    def answer(fleet: Fleet) -> Answer:
        lines: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for place, path in enumerate((fleet.partitions, fleet.brokers)):
            with path.open() as file:
                for line in file:
                    lines[json.loads(line)["cluster"]][place].append(line)
        found = [asdict(tried(name, *both, fleet.what_ifs[0])) for name, both in sorted(lines.items())]
        return [_row(one) for one in found]

    serve(answer)


@dataclass(frozen=True)
class Spark:
    """Answer by the job, on so many cores."""

    cores: int
    spill: Path

    def __call__(self, serve: Serve) -> None:
        """Serve until the process ends."""
        from zkmigrate.spark.input import Input
        from zkmigrate.spark.jobs.placement import run
        from zkmigrate.spark.request import Request
        from zkmigrate.spark.session import Bounds, session

        # A session cannot stop in the middle of a call; its JVM ends with this process.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: self.cores])
        bounds = Bounds(f"local[{self.cores}]", spill=self.spill, progress=False, ui=False)
        with session(bounds, lambda _line: None) as spark:

            def answer(fleet: Fleet) -> Answer:
                asked = Request(
                    (),
                    fleet_partitions=str(fleet.partitions),
                    fleet_brokers=str(fleet.brokers),
                    what_ifs=fleet.what_ifs,
                )
                found = run(Input(spark, asked)).figures["outcomes"]
                spark.catalog.clearCache()
                return [_row(one) for one in found]

            serve(answer)


def _row(one: dict[str, Any]) -> tuple[str, int | None, int | None, str | None]:
    return one["cluster"], one["bytes"], one["range_after"], one["error"]


@click.command()
@click.option("--clusters", default=200, show_default=True)
@click.option("--partitions", default=2000, show_default=True, help="Of each cluster.")
@click.option("--rounds", default=2, show_default=True)
@click.option("--effort", default=1, show_default=True, help="Of each plan.")
@out_option
def main(clusters: int, partitions: int, rounds: int, effort: int, out: Path | None) -> None:
    """Measure; ends with 1 where answers differ."""
    click.echo(f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="zkmigrate-fleet-") as name:
        folder = Path(name)
        fleet, small = Fleet(folder / "fleet", effort), Fleet(folder / "small", effort)
        size = write(fleet, clusters, partitions)
        write(small, 1, partitions)
        click.echo(f"{clusters} clusters of {partitions} partitions, {size / 1e6:.1f} MB")
        used: dict[str, list[Usage]] = defaultdict(list)
        answers: dict[str, Answer] = {}
        wanted: dict[str, Answering] = {PLAIN: plain, ONE: Spark(1, folder), TWO: Spark(2, folder)}
        with helpers(**wanted) as ways:
            for way in ways.values():
                way.send(small)
                way.answer()
            for _ in range(rounds):
                for title, way in ways.items():
                    with watched(way.pid) as usage:
                        way.send(fleet)
                        answers[title] = way.answer()
                    if answers[title] != answers[PLAIN]:
                        raise click.ClickException(f"{title} answers otherwise than {PLAIN}")
                    used[title].append(usage)
                    click.echo(f"{title}: {usage.seconds:.1f} s, CPU {usage.cpu_s:.1f} s")
        if errors := [error for *_, error in answers[PLAIN] if error]:
            raise click.ClickException(errors[0])
    rows = {
        f"{title}, {what}": [getattr(one, key) / by for one in each]
        for title, each in used.items()
        for what, key, by in (("s", "seconds", 1), ("CPU s", "cpu_s", 1), ("MB", "peak_bytes", 1e6))
    }
    ratio = [one.seconds / two.seconds for one, two in zip(used[ONE], used[TWO], strict=True)]
    rows["1 core / 2 cores, s"] = ratio
    for title, figures in rows.items():
        click.echo(shown(title, figures, ""))
    save(out, {title: spread(figures) for title, figures in rows.items()})


if __name__ == "__main__":
    main()
