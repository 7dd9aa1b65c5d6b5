"""Draining one broker beside a load, by us and by Kafka's own tool: ``python -m bench.drain --gigabytes 10``.

One lab of six Kafka 2.8.2 brokers in three racks, their links limited to one rate. Broker 1 holds a replica
of each data partition (RF 2). Each way begins at the same sets and moves all of them off that broker; before
the next one they go back without a throttle. A producer (acks=all, RF 3) and a consumer run beside each way,
with topics of their own; from their records come the latencies, and what is lost or duplicated.

- *kafka_reassign, rates follow the load*: the playbook with ``adapt``.
- *kafka-reassign-partitions, best fixed throttle*: some shares of the link's rate are tried before, each on a
  part of the data, from the lowest to the first with which the p99 grew beyond ``--slow`` times that before.
  The one below it is taken.
- *kafka-reassign-partitions, no throttle*.

A way takes from its command's start until nothing is in flight, all sets are in sync and the throttles are
off. Kafka's own tool needs no look at the cluster before, and takes no journal.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from bench.spread import out_option, save, shown, spread
from zkmigrate.kafka.clients import reassignments, topics
from zkmigrate.lab import canary_topic, provision
from zkmigrate.lab.inventory import write_cluster_inventory
from zkmigrate.lab.judge import judge, load_history
from zkmigrate.lab.judge.latency import p99_ms
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.json_lines import load_recording
from zkmigrate.lab.load.target import of_cluster, runner_for
from zkmigrate.lab.shape import Shape
from zkmigrate.lab.shutdown import end_on_signals
from zkmigrate.lab.spec import KAFKA_PORT, LabSpec, Role
from zkmigrate.lab.wait import wait_until
from zkmigrate.model.fact import Seen
from zkmigrate.model.finding import Held

RELEASE, CLUSTER, DATA = "2.8.2", "broker", "drained"
BROKERS, DRAINED = (1, 2, 3, 4, 5, 6), 1
SHARES = (0.3, 0.5, 0.7, 0.9)
"""Of the link's rate: the fixed throttles that are tried."""
ADAPT, BEST, FREE = (
    "kafka_reassign, rates follow the load",
    "kafka-reassign-partitions, best fixed throttle",
    "kafka-reassign-partitions, no throttle",
)
_CHUNK = 100_000
_QUIET_S, _FLOW_S, _HOURS_S = 15.0, 60.0, 4 * 3600.0

Sets = Mapping[int, tuple[int, ...]]


def data_sets(partitions: int, brokers: Sequence[int], drained: int) -> dict[int, tuple[int, ...]]:
    """Sets of two, all with the drained broker; it leads every other one."""
    others = [broker for broker in brokers if broker != drained]
    pairs = {n: (drained, others[n % len(others)]) for n in range(partitions)}
    return {n: pair if n // len(others) % 2 == 0 else pair[::-1] for n, pair in pairs.items()}


def without(sets: Sets, brokers: Sequence[int], drained: int) -> dict[int, tuple[int, ...]]:
    """The sets with another broker in the place of the drained one, each as often as the next."""
    others = [broker for broker in brokers if broker != drained]
    found: dict[int, tuple[int, ...]] = {}
    given = dict.fromkeys(others, 0)
    for number, replicas in sets.items():
        taker = min((one for one in others if one not in replicas), key=lambda one: (given[one], one))
        given[taker] += 1
        found[number] = tuple(taker if one == drained else one for one in replicas)
    return found


def best(tried: Mapping[int, float], before_ms: float, slow: float) -> int:
    """The highest rate whose p99 (ms) is at most ``slow`` times the one before; else that of the smallest."""
    fine = [rate for rate, p99 in tried.items() if p99 <= slow * before_ms]
    return max(fine) if fine else min(tried, key=lambda rate: tried[rate])


@dataclass(frozen=True)
class Result:
    """One drain. rate: the throttle, bytes per second; 0 for none. before: of the seconds before it began.
    Milliseconds from sending a record to its acknowledgement."""

    way: str
    rate: int
    seconds: float
    before_p99_ms: float
    p99_ms: float
    max_ms: float
    acknowledged: int
    lost: Any
    duplicated: Any


class Drains:
    """The lab, and the ways to drain its broker."""

    def __init__(self, lab: Lab, folder: Path, link_bytes_s: int, produce: float, record_bytes: int) -> None:
        self.lab, self.folder, self.link = lab, folder, link_bytes_s
        self._load = {"produce_rate": produce, "record_bytes": record_bytes}
        self._brokers = [
            f"{plan.address}:{KAFKA_PORT}" for plan in lab.members(CLUSTER) if plan.role is Role.BROKER
        ]
        self._count = 0

    # --- the data ------------------------------------------------------------------------------------------

    def fill(self, sets: Sets, gigabytes: float) -> None:
        """The data topic with these sets, and so many gigabytes of records, evenly."""
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        where: dict[str, Any] = {"bootstrap.servers": ",".join(self._brokers)}
        with self.lab.operator():
            new = NewTopic(DATA, len(sets), replica_assignment=[list(sets[n]) for n in sorted(sets)])
            admin = AdminClient(where)  # it must outlive its answer
            admin.create_topics([new], request_timeout=60)[DATA].result()
            producer = Producer({**where, "acks": "all", "batch.size": 1_000_000, "linger.ms": 50})
            value = os.urandom(_CHUNK)
            for number in range(int(gigabytes * 1e9 / _CHUNK)):
                while True:
                    try:
                        producer.produce(DATA, value, partition=number % len(sets))
                        break
                    except BufferError:
                        producer.poll(0.1)
                producer.poll(0)
            if left := producer.flush(_HOURS_S):
                raise click.ClickException(f"{left} records of the data have no acknowledgement")
        self.settled(sets)

    def settled(self, sets: Sets) -> None:
        """Wait until nothing is in flight and these sets are there, in order and in sync."""

        def odd() -> str | None:
            with self.lab.operator():
                flying = reassignments.in_flight(self._brokers)
                told = topics.partitions(self._brokers, (DATA,), 2)
            if not isinstance(flying, Seen) or not isinstance(told, Seen):
                return f"{flying}, {told}"
            there = told.value.topics[DATA]
            states = {one.partition: one for one in there.value} if isinstance(there, Seen) else {}
            left = [
                n
                for n, replicas in sets.items()
                if n not in states or states[n].replicas != replicas or set(states[n].isr) != set(replicas)
            ]
            return f"{len(left)} of {len(sets)} partitions" if left or flying.value else None

        wait_until("all sets in sync", odd, _HOURS_S, poll_s=0.5)

    # --- the ways ------------------------------------------------------------------------------------------

    def own_tool(self, sets: Sets, rate: int) -> None:
        """Kafka's own tool, until it says that all is complete and has taken its throttle off."""
        plan = self.folder / "own.json"
        plan.write_text(_json(sets))
        self._kafkas(plan, "--execute", *(("--throttle", str(rate)) if rate else ()))
        self.settled(sets)
        said = self._kafkas(plan, "--verify")
        if said.count("is complete") != len(sets):
            raise click.ClickException(f"kafka-reassign-partitions --verify: {said}")

    def _kafkas(self, plan: Path, *words: str) -> str:
        jars = ":".join(map(str, provision.kafka_classpath(RELEASE)))
        main = ["java", "-Xmx256m", "-cp", jars, "kafka.admin.ReassignPartitionsCommand"]
        asked = ["--bootstrap-server", ",".join(self._brokers), "--reassignment-json-file", str(plan)]
        argv = self.lab.operator_command([*main, *asked, *words])
        done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise click.ClickException(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def playbook(self, sets: Sets, rate: int, adapt: Mapping[str, Any]) -> None:
        """The playbook with rates that follow the load, to its end. rate: where they begin."""
        self._count += 1
        here = self.folder / f"run{self._count}"
        here.mkdir()
        (here / "plan.json").write_text(_json(sets))
        section = {"plan": "plan.json", "throttle_bytes_s": rate, "adapt": dict(adapt)}
        path = write_cluster_inventory(self.lab, here / "moves.yml", CLUSTER, {"reassign": section})
        text = path.read_text().replace("\nkafka:\n", f"\nkafka:\n  canary_topic: {canary_topic.TOPIC}\n")
        path.write_text(text)
        words = ["run", "-i", str(path), "--playbook", "kafka_reassign", "--run-id", "drain", "--yes"]
        argv = self.lab.operator_command([sys.executable, "-m", "zkmigrate", *words])
        environment = {**os.environ, "ZKMIGRATE_RUNS": str(here / "runs")}
        done = subprocess.run(
            argv, env=environment, capture_output=True, text=True, timeout=_HOURS_S, check=False
        )
        (here / "said").write_text(done.stdout + done.stderr)
        if done.returncode:
            raise click.ClickException(f"run ended with {done.returncode}: {done.stdout}{done.stderr}")

    # --- one drain -----------------------------------------------------------------------------------------

    def measured(self, way: str, rate: int, drain: Callable[[], None]) -> Result:
        """One drain beside a load of its own, begun after some quiet seconds."""
        self._count += 1
        directory = self.folder / f"load{self._count}"
        changes = {**of_cluster(self.lab.spec, CLUSTER), **self._load}
        mine = {"topics": (f"load{self._count}",), "group": f"load{self._count}"}
        load = runner_for(self.lab, directory, **{**changes, **mine})
        kinds = ("producer", "consumer")
        load.start(kinds)
        try:
            load.wait_flowing(kinds, _FLOW_S)
            quiet_ns = time.monotonic_ns() + int(5e9)  # the first records open connections
            time.sleep(5 + _QUIET_S)
            began = time.monotonic_ns()
            drain()
            ended = time.monotonic_ns()
            if wrong := load.finish():
                raise click.ClickException("; ".join(wrong))
        finally:
            load.kill()
        acks = load_recording(directory, "producer").of("ack")
        during = [ack for ack in acks if began <= ack["sent_mono_ns"] < ended]
        before = [ack for ack in acks if quiet_ns <= ack["sent_mono_ns"] < began]
        claims = judge(load_history(directory))
        if unsure := [claims[id].detail for id in ("lost", "duplicated") if claims[id].held is Held.UNKNOWN]:
            raise click.ClickException(f"{way}: it is not known what was lost: {unsure}")
        result = Result(
            way,
            rate,
            (ended - began) / 1e9,
            p99_ms(before) or 0.0,
            p99_ms(during) or 0.0,
            max((ack["mono_ns"] - ack["sent_mono_ns"]) / 1e6 for ack in during),
            len(acks),
            claims["lost"].value,
            claims["duplicated"].value,
        )
        click.echo(
            f"{way}, {rate / 1e6:g} MB/s: {result.seconds:.1f} s, p99 {result.p99_ms:.1f} ms "
            f"(before {result.before_p99_ms:.1f}), longest {result.max_ms:.0f} ms, "
            f"{result.acknowledged:,} acknowledged, lost {result.lost}, duplicated {result.duplicated}, "
            f"machine's load {os.getloadavg()[0]:.1f}"
        )
        return result


def _json(sets: Sets) -> str:
    rows = [{"topic": DATA, "partition": n, "replicas": list(ids)} for n, ids in sets.items()]
    return json.dumps({"version": 1, "partitions": rows})


def adapted(link: int, latency_ms: float) -> dict[str, Any]:
    """How the playbook's rates follow the load. The disk is that of the whole machine, so it does not
    count."""
    return {
        "cap_bytes_s": link,
        "percent": 90,
        "floor_bytes_s": link // 20,
        "raise_factor": 1.5,
        "busy_limit": None,
        "latency_limit_ms": round(latency_ms, 1),
        "tick_s": 12.0,
    }


def spec_of(link_bytes_s: int) -> LabSpec:
    """Six brokers in three racks; each link has this rate in both directions."""
    brokers = [{"rack": "abc"[(id - 1) % 3]} for id in BROKERS]
    cluster = {"name": CLUSTER, "version": RELEASE, "ensemble": "zk", "brokers": brokers}
    shape = Shape.from_json({"ensembles": [{"name": "zk", "count": 1}], "clusters": [cluster]})
    links = {f"{CLUSTER}{id}": link_bytes_s * 8 // 1000 for id in BROKERS}
    return LabSpec(shape=shape, bandwidth_kbit=links)


@click.command()
@click.option("--gigabytes", default=10.0, show_default=True, help="Of the drained broker.")
@click.option("--partitions", default=40, show_default=True)
@click.option("--link", default=50, show_default=True, help="MB/s of each broker's link, in each direction.")
@click.option("--produce", default=300.0, show_default=True, help="Records per second.")
@click.option("--record-bytes", default=10_000, show_default=True)
@click.option("--tried", default=0.2, show_default=True, help="Share of the partitions to try rates on.")
@click.option("--slow", default=2.0, show_default=True, help="How many times slower the p99 may become.")
@click.option("--rounds", default=1, show_default=True)
@out_option
def main(
    gigabytes: float,
    partitions: int,
    link: int,
    produce: float,
    record_bytes: int,
    tried: float,
    slow: float,
    rounds: int,
    out: Path | None,
) -> None:
    """Drain a broker three ways, round by round."""
    end_on_signals()
    bytes_s = link * 1_000_000
    home = data_sets(partitions, BROKERS, DRAINED)
    drained = without(home, BROKERS, DRAINED)
    results: list[Result] = []
    with (
        tempfile.TemporaryDirectory(prefix="zkm-bench-") as name,
        Lab.up(spec_of(bytes_s), click.echo) as lab,
    ):
        canary_topic.make(lab)
        drains = Drains(lab, Path(name), bytes_s, produce, record_bytes)
        drains.fill(home, gigabytes)
        click.echo(f"{gigabytes:g} GB are there, {partitions} partitions, links of {link} MB/s")
        some = {n: drained[n] for n in range(max(5, int(partitions * tried)))}
        p99s: dict[int, float] = {}
        befores: list[float] = []
        for share in SHARES:
            rate = int(bytes_s * share)
            found = drains.measured("a try", rate, lambda rate=rate: drains.own_tool(some, rate))  # type: ignore[misc]
            results.append(found)
            p99s[rate] = found.p99_ms
            befores.append(found.before_p99_ms)
            drains.own_tool({n: home[n] for n in some}, 0)
            if found.p99_ms > slow * statistics.median(befores):
                break
        before_ms = statistics.median(befores)
        rate = best(p99s, before_ms, slow)
        click.echo(f"the best fixed throttle is {rate / 1e6:g} MB/s (p99 before {before_ms:.1f} ms)")
        adapt = adapted(bytes_s, slow * before_ms)
        ways: dict[str, tuple[int, Callable[[], None]]] = {
            ADAPT: (rate, lambda: drains.playbook(drained, rate, adapt)),
            BEST: (rate, lambda: drains.own_tool(drained, rate)),
            FREE: (0, lambda: drains.own_tool(drained, 0)),
        }
        for number, (way, (limit, drain)) in enumerate(list(ways.items()) * rounds):
            if number:
                drains.own_tool(home, 0)
            results.append(drains.measured(way, limit, drain))
            save(out, {"results": [asdict(one) for one in results]})
    summary = {
        way: {
            figure: spread([getattr(one, figure) for one in results if one.way == way])
            for figure in ("seconds", "before_p99_ms", "p99_ms", "max_ms")
        }
        for way in ways
    }
    for way in ways:
        mine = [one for one in results if one.way == way]
        click.echo(way)
        click.echo(shown("  time", [one.seconds for one in mine]))
        click.echo(shown("  p99", [one.p99_ms for one in mine], "ms"))
        click.echo(shown("  longest", [one.max_ms for one in mine], "ms"))
    save(out, {"results": [asdict(one) for one in results], "summary": summary})
    if any(one.lost or one.duplicated for one in results):
        sys.exit("records were lost or duplicated")


if __name__ == "__main__":
    main()
