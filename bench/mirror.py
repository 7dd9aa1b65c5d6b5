"""What copying costs, by us and by MirrorMaker 2: ``python -m bench.mirror``.

One broker each as source and target. For batches of 1, 10 and 1,000 records of 1,000 bytes a topic is
filled. Both copy it: ``mirror run`` under its own name, MirrorMaker 2 with its defaults under ``source.…``.
They take turns, one at a time. Counted is the CPU time of the copying process, user and system, from the
first look at which target has a fifth of the records to the one at which it has all. So no start counts.

The wall time of the same stretch gives what each can do at most on this machine, beside both brokers. Then a
producer writes at 80 % of that, and each look tells how many seconds of its records target lacks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import click
from kafka.record.default_records import DefaultRecordBatchBuilder

from bench.spread import out_option, save, shown, spread
from bench.usage import cpu_s
from tests.servers.brokers import ALONE, Broker, serve
from tests.servers.test_mirror import make
from tests.servers.test_versions import zookeeper
from zkmigrate.lab import provision
from zkmigrate.lab.wait import wait_until
from zkmigrate.topics.mirror.clients.cluster import Cluster
from zkmigrate.topics.mirror.rules.batch import encode, parse
from zkmigrate.topics.mirror.rules.position import Ends

RELEASE = "3.9.1"
MEGABYTES = {1: 40.0, 10: 150.0, 1000: 600.0}
"""The megabytes to copy, by the number of records in a batch."""
PARTITIONS, RECORD = 4, 1000
BEGUN = 0.2
"""The fraction of the records at which counting begins."""
LOOK_S, WAIT_S = 0.05, 900.0
STEADY, STEADY_RECORDS, SETTLED_S = 0.8, 10, 5.0
"""How each way is fed for its lag: the fraction of its capacity, and the records of a batch.

SETTLED_S: seconds at the beginning in which lags do not count.
"""
OURS, THEIRS = "mirror run", "MirrorMaker 2"


@contextmanager
def brokers(folder: Path) -> Iterator[tuple[str, str]]:
    """Run source and target, and yield their addresses as ``host:port``."""
    source, target = (Broker(RELEASE, ALONE, chroot=name, heap="512m") for name in ("source", "target"))
    with zookeeper("3.5.8", folder) as port, serve(folder, port, source, target):
        yield source.address, target.address


def batch(records: int, size: int = RECORD) -> bytes:
    """Return a batch of this many records of this size, made without a producer."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=4 << 20,
    )
    for n in range(records):
        builder.append(n, int(time.time() * 1000), None, os.urandom(size), [])
    [one] = parse(bytes(builder.build()))
    return encode(replace(one, leader_epoch=-1))


def fill(address: str, topic: str, records: int, megabytes: float) -> int:
    """Create a topic with this many megabytes and return how many batches each partition has."""
    make(address, topic, partitions=PARTITIONS)
    data = batch(records)
    rounds = max(1, round(megabytes * 1e6 / len(data) / PARTITIONS))
    with closing(Cluster("source", [address])) as cluster:

        def led() -> str | None:
            found = cluster.leaders([topic]).get(topic, {})
            return None if set(found.values()) == {1} else str(found)

        wait_until(topic, led, WAIT_S)
        flying = []
        for _ in range(rounds):
            flying.append(cluster.begin_produce(1, {(topic, n): data for n in range(PARTITIONS)}))
            if len(flying) == 8:
                cluster.produced(flying.pop(0))
        for one in flying:
            cluster.produced(one)
    return rounds


def ours(pair: tuple[str, str], topic: str, folder: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "zkmigrate", "mirror", "run", "--topic", topic]
    words += ["--source", pair[0], "--target", pair[1]]
    return started(words, folder / "ours.log")


def theirs(pair: tuple[str, str], topic: str, folder: Path) -> subprocess.Popen[bytes]:
    config = folder / "mirror.properties"
    internal = ["offset-syncs.topic", "checkpoints.topic", "heartbeats.topic", "offset.storage"]
    internal += ["status.storage", "config.storage"]
    config.write_text(
        f"clusters=source, target\nsource.bootstrap.servers={pair[0]}\ntarget.bootstrap.servers={pair[1]}\n"
        f"source->target.enabled=true\nsource->target.topics={topic}\ntarget->source.enabled=false\n"
        "emit.heartbeats.enabled=false\nemit.checkpoints.enabled=false\nsync.topic.acls.enabled=false\n"
        "replication.factor=1\n" + "".join(f"{one}.replication.factor=1\n" for one in internal)
    )
    jars = ":".join(map(str, provision.mirror_maker_classpath(RELEASE)))
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    return started(["java", "-Xms256m", "-Xmx2g", "-cp", jars, main, str(config)], folder / "theirs.log")


def started(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def megabytes_per_s(
    process: subprocess.Popen[bytes], target: Cluster, topic: str, total: int
) -> tuple[float, float]:
    """Return megabytes per second of CPU time and of wall time, until target has all records.

    Records have RECORD bytes. Raises ClickException if the process ends before.
    """
    first: tuple[int, float, float] | None = None
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise click.ClickException(f"{process.args!r} ended with {process.returncode}")
        have, used, at = copied(target, topic), cpu_s(process.pid), time.monotonic()
        if first is None and have >= total * BEGUN:
            first = have, used, at
        if have >= total:
            if first is None or have == first[0] or used == first[1]:
                raise click.ClickException("copied between two looks. Needed: more megabytes (--scale)")
            megabytes = (have - first[0]) * RECORD / 1e6
            return megabytes / (used - first[1]), megabytes / (at - first[2])
        time.sleep(LOOK_S)
    raise click.ClickException(f"not copied within {WAIT_S:g} s")


def lags_s(
    process: subprocess.Popen[bytes],
    pair: tuple[str, str],
    topic: str,
    there: str,
    rate: float,
    steady_s: float,
) -> list[float]:
    """Return the lag of target at each look: the seconds of the producer's records that it lacks.

    rate: megabytes per second.
    """
    data = batch(STEADY_RECORDS)
    every_s = len(data) * PARTITIONS / 1e6 / rate
    over = threading.Event()

    def feed() -> None:
        flying, due = [], time.monotonic()
        with closing(Cluster("source", [pair[0]])) as source:
            while not over.wait(max(0.0, due - time.monotonic())):
                flying.append(source.begin_produce(1, {(topic, n): data for n in range(PARTITIONS)}))
                if len(flying) == 8:
                    source.produced(flying.pop(0))
                due += every_s

    feeding = threading.Thread(target=feed)
    feeding.start()
    found, begun = list[float](), time.monotonic()
    try:
        with closing(Cluster("source", [pair[0]])) as source, closing(Cluster("target", [pair[1]])) as target:
            while (now := time.monotonic()) < begun + SETTLED_S + steady_s:
                if process.poll() is not None:
                    raise click.ClickException(f"{process.args!r} ended with {process.returncode}")
                have = copied(target, there)
                if now > begun + SETTLED_S:
                    found.append(max(0, copied(source, topic) - have) * RECORD / 1e6 / rate)
                time.sleep(LOOK_S)
    finally:
        over.set()
        feeding.join()
    return found


def copied(target: Cluster, topic: str) -> int:
    if not target.leaders([topic]):
        return 0
    told = target.ends([(topic, n) for n in range(PARTITIONS)])
    return sum(one.end for one in told.values() if isinstance(one, Ends))


@click.command(help=__doc__)
@click.option("--rounds", default=3, show_default=True, help="How often each copies each topic.")
@click.option("--scale", default=1.0, show_default=True, help="Times the megabytes.")
@click.option("--steady", default=20.0, show_default=True, help="Seconds at 80 % of what each can do.")
@out_option
def main(rounds: int, scale: float, steady: float, out: Path | None) -> None:
    provision.mirror_maker_classpath(RELEASE, click.echo)
    ways: dict[str, Callable[[tuple[str, str], str, Path], subprocess.Popen[bytes]]] = {
        OURS: ours,
        THEIRS: theirs,
    }
    figures: dict[str, dict[str, Any]] = {}
    behind: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(prefix="bench-mirror-") as name, ExitStack() as stack:
        folder = Path(name)
        pair = stack.enter_context(brokers(folder))
        target = stack.enter_context(closing(Cluster("target", [pair[1]])))
        for records, megabytes in MEGABYTES.items():
            found: dict[str, list[float]] = {way: [] for way in ways}
            for turn in range(rounds):
                topic = f"of{records}-{turn}"
                total = fill(pair[0], topic, records, megabytes * scale) * PARTITIONS * records
                for way, start in ways.items():
                    process = start(pair, topic, folder)
                    try:
                        there = topic if way == OURS else f"source.{topic}"
                        per_cpu_s, per_s = megabytes_per_s(process, target, there, total)
                        found[way].append(per_cpu_s)
                        if records == STEADY_RECORDS and steady:
                            lags = lags_s(process, pair, topic, there, per_s * STEADY, steady)
                            behind[way] += lags
                            click.echo(shown(f"{way}, {per_s * STEADY:.1f} MB/s: behind", lags))
                    finally:
                        process.terminate()
                        process.wait(WAIT_S)
                    click.echo(f"{records} records a batch, {way}: {found[way][-1]:.1f} MB per CPU second")
            times = [one / other for one, other in zip(found[OURS], found[THEIRS], strict=True)]
            figures[str(records)] = {way: spread(one) for way, one in found.items()} | {
                "times": spread(times)
            }
            for way, one in found.items():
                click.echo(shown(f"{records}: {way}", one, "MB"))
            click.echo(shown(f"{records}: times", times, ""))
    lag = {way: {"p50": median(one), "p99": quantiles(one, n=100)[98]} for way, one in behind.items() if one}
    for way, told in lag.items():
        click.echo(f"at 80 % of capacity, {way}: {told['p50']:.3f} s behind, p99 {told['p99']:.3f} s")
    save(out, {"release": RELEASE, "mb_per_cpu_s": figures, "behind_s": lag})


if __name__ == "__main__":
    main()
