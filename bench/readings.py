"""The ways to read logs and snapshots for the same question; each runs in a `helper`."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import click
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.tuples import TupleSource
from bench.zookeeper import VERSION
from zkmigrate.lab import provision
from zkmigrate.spark.session import Bounds, session
from zkmigrate.zookeeper.data.logdir import log_files, walk
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.snapname import snapshot_files
from zkmigrate.zookeeper.data.snapshot import read_snapshot
from zkmigrate.zookeeper.data.txn import TxnType

Serve: TypeAlias = Callable[[Callable[[Any], Any]], None]
Types: TypeAlias = dict[str, tuple[int, int]]
"""How many transactions of each type, and the newest zxid among them."""
Znodes: TypeAlias = tuple[int, int, int]
"""How many, the bytes of their data, and the newest mzxid."""

_COUNT = r"""
/ zxid 0x/ {
    for (i = 1; i < 20; i++) if ($i == "zxid") { count[$(i + 2)]++; newest[$(i + 2)] = $(i + 1); break }
}
END { for (type in count) print type, count[type], newest[type] }
"""
"""An awk program for LogFormatter's lines; zxids rise, so a type's newest is its last."""


@dataclass(frozen=True)
class Logs:
    """The question: how many transactions of each type these ``version-2`` have, and the newest.

    zxids: only these, both ends included. source: the Spark data source; columns: those that it makes, "" for
    all.
    """

    folders: tuple[Path, ...]
    zxids: tuple[int, int] | None = None
    source: str = "zktxnlog"
    columns: str = "type,zxid"


@dataclass(frozen=True)
class Tree:
    """The question: how many znodes the newest snapshot of this ``version-2`` has, and the bytes of their
    data."""

    folder: Path


def merged(found: list[Types]) -> Types:
    """What several found together."""
    types: Types = {}
    for one in found:
        for kind, (count, newest) in one.items():
            known = types.get(kind, (0, 0))
            types[kind] = known[0] + count, max(known[1], newest)
    return types


# --- ZooKeeper's own


@dataclass(frozen=True)
class Stock:
    """LogFormatter, log by log, its text counted by awk."""

    def __call__(self, serve: Serve) -> None:
        jars = ":".join(map(str, provision.zookeeper_classpath(VERSION)))
        java = ["java", "-cp", jars, "org.apache.zookeeper.server.LogFormatter"]

        def one(log: Path) -> Types:
            with (
                subprocess.Popen(
                    [*java, str(log)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                ) as formatter,
                subprocess.Popen(
                    ["awk", _COUNT],
                    stdin=formatter.stdout,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "LC_ALL": "C"},
                ) as awk,
            ):
                assert formatter.stdout is not None
                assert awk.stdout is not None
                formatter.stdout.close()  # so that it hears of an awk that has ended
                lines = awk.stdout.read().decode().splitlines()
            if formatter.returncode or awk.returncode:
                raise click.ClickException(f"LogFormatter: {formatter.returncode}, awk: {awk.returncode}")
            return {kind: (int(n), int(zxid, 16)) for kind, n, zxid in map(str.split, lines)}

        serve(lambda question: merged([one(log) for folder in question.folders for log in _logs(folder)]))


def _logs(folder: Path) -> list[Path]:
    return [folder / file.name for file in log_files(FileDirectory(folder)) if file.size]


# --- plain Python


@dataclass(frozen=True)
class Plain:
    """One pass of the single-process readers. Of a transaction only the header is decoded."""

    def __call__(self, serve: Serve) -> None:
        serve(lambda question: walked(question) if isinstance(question, Logs) else streamed(question))


def walked(question: Logs) -> Types:
    """By the records' headers."""
    low, high = question.zxids or (0, (1 << 63) - 1)
    count: Counter[int] = Counter()
    newest: dict[int, int] = {}
    for folder in question.folders:
        for record in walk(FileDirectory(folder)):
            if low <= record.zxid <= high:
                count[record.type] += 1
                if record.zxid > newest.get(record.type, -1):
                    newest[record.type] = record.zxid
    return {TxnType(kind).name: (count[kind], newest[kind]) for kind in count}


def streamed(question: Tree) -> Znodes:
    """Znode by znode."""
    directory = FileDirectory(question.folder)
    name = snapshot_files(directory)[0].name
    count = size = newest = 0
    for node in read_snapshot(directory.open(name), name):
        count += 1
        size += len(node.data or b"")
        newest = max(newest, node.stat.mzxid)
    return count, size, newest


# --- Spark


@dataclass(frozen=True)
class Spark:
    """A session with the data sources, and with the one that yields tuples. cores: how many of the machine's
    cores it may use."""

    cores: int
    spill: Path

    def __call__(self, serve: Serve) -> None:
        # A session cannot stop in the middle of a call; its JVM ends with this process.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: self.cores])
        bounds = Bounds(f"local[{self.cores}]", spill=self.spill, progress=False, ui=False)
        with session(bounds, lambda _line: None) as spark:
            spark.dataSource.register(TupleSource)
            serve(lambda question: answer_of(spark, question))


def answer_of(spark: SparkSession, question: Logs | Tree) -> Types | Znodes:
    """The answer by the data sources. A row is an operation: in logs without multi, a transaction."""
    if isinstance(question, Tree):
        name = snapshot_files(FileDirectory(question.folder))[0].name
        snapshot = spark.read.format("zksnapshot").option("columns", "data_length,mzxid")
        nodes = snapshot.load(str(question.folder / name))
        row = nodes.agg(F.count("*"), F.sum(F.greatest("data_length", F.lit(0))), F.max("mzxid")).first()
        assert row is not None
        return row[0], row[1], row[2]
    reader = spark.read.format(question.source).option("columns", question.columns)
    if question.zxids:
        reader = reader.option("fromZxid", question.zxids[0]).option("toZxid", question.zxids[1])
    log = reader.load([str(folder) for folder in question.folders])
    rows = log.groupBy("type").agg(F.count("*"), F.max("zxid")).collect()
    return {row[0]: (row[1], row[2]) for row in rows}
