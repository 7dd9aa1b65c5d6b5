"""How fast logs and snapshots become Spark tables: ``python -m bench.pipeline``.

Real servers write 2 GB of logs, with large writes and with small ones as Kafka makes them, and a snapshot of
5 million znodes. Then several ways answer the same question, round after round on the same files: how many
transactions of each type, and which is the newest. The ways: ZooKeeper's own LogFormatter, its text counted
by awk; one plain pass in Python; two such processes, each on half of the files; Spark with a source that
yields tuples; Spark with Arrow columns, on one core and on two. A tenth and ten times the bytes (the same
files under other names) show how the cost grows; a hundredth of a log's zxids shows what a filter saves. Of
the snapshot all znodes are counted. Different answers end the run.

Each way runs in a process that is already up, so that no start of Python, a JVM or Spark counts.
LogFormatter's own start, once for each log, is measured on empty logs and subtracted. CPU time is of all
processes of a way, memory the largest sum of their resident memory. The session of one core, with its JVM and
workers, runs on one core.
"""

from __future__ import annotations

import os
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import click

from bench.helper import Helper, helpers
from bench.readings import Logs, Plain, Spark, Stock, Tree, Types, Znodes, merged
from bench.scribe import Log, Planted, Scribe, write
from bench.spread import out_option, ratios, save, spread
from bench.usage import TICK_S, Usage, watched
from bench.zxid_tail import Writes
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.snapname import snapshot_files
from zkmigrate.zookeeper.data.tail import newest

MB = {"large": 700.0, "small": 300.0}
"""Size of one log of each kind; there are two of each, and two of a tenth."""
TIMES = 10
ZNODES = 5_000_000
PART = 100
"""The filter asks for one in so many zxids."""

STOCK, PLAIN, HALVES = "LogFormatter and awk", "plain Python", "plain Python, 2 on halves"
TUPLES, ARROW, ARROW_2 = "Spark, tuples, 1 core", "Spark, Arrow, 1 core", "Spark, Arrow, 2 cores"
ALL_COLUMNS = f"{ARROW}, all columns"
_IN_THE_LOG = 1.38
"""Bytes of the log for each byte of a small write's data."""
_HEADER_ONLY = struct.pack(">4siq", b"ZKLG", 2, 0)

Answer: TypeAlias = Types | Znodes


@dataclass(frozen=True)
class Corpus:
    """Logs, each in a ``version-2``. mb: of records, without the zeros behind them."""

    folders: tuple[Path, ...]
    mb: float
    records: int


def corpus(folders: Sequence[Path]) -> Corpus:
    """Logs of a standalone server: its zxids count its transactions."""
    tails = [newest(FileDirectory(folder)) for folder in folders]
    return Corpus(tuple(folders), sum(tail.end for tail in tails) / 1e6, sum(tail.zxid for tail in tails))


@dataclass(frozen=True)
class Case:
    """One way to answer one question. asks: the helpers and their questions, all at once. mb, items: how much
    there is to read. Cases of the same `question` must give the same answer; times: how often each
    transaction is read. seldom: it takes long."""

    table: str
    way: str
    asks: tuple[tuple[str, Logs | Tree], ...]
    mb: float
    items: int
    question: str
    times: int = 1
    seldom: bool = False


@dataclass
class Measured:
    """The usage of a case, round after round."""

    case: Case
    usages: list[Usage] = field(default_factory=list)

    @property
    def seconds(self) -> list[float]:
        return [usage.seconds for usage in self.usages]

    @property
    def cpu_s(self) -> list[float]:
        return [usage.cpu_s for usage in self.usages]

    def figures(self) -> dict[str, Any]:
        """A core's second is a second of CPU time."""
        mb, items = self.case.mb, self.case.items
        return {
            "mb": round(mb, 3),
            "items": items,
            "seconds": spread(self.seconds),
            "cpu_s": spread(self.cpu_s),
            "mb_per_s": spread([mb / s for s in self.seconds]),
            "mb_per_core_s": spread([mb / s for s in self.cpu_s]),
            "items_per_s": spread([items / s for s in self.seconds]),
            "items_per_core_s": spread([items / s for s in self.cpu_s]),
            "peak_mb": spread([usage.peak_bytes / 1e6 for usage in self.usages]),
        }

    def line(self) -> str:
        found = self.figures()
        clock = found["seconds"]
        middle = {name: figure["median"] for name, figure in found.items() if isinstance(figure, dict)}
        return (
            f"  {self.case.way:<26}{clock['median']:>8.2f} s ({clock['least']:.2f} to {clock['most']:.2f}, "
            f"n={clock['n']}), {middle['cpu_s']:.2f} s of CPU; a core's second: "
            f"{middle['mb_per_core_s']:.1f} MB, {middle['items_per_core_s']:,.0f} items; "
            f"{middle['peak_mb']:.0f} MB of memory"
        )


def cases(logs: dict[str, Corpus], snapshot: Path, znodes: int) -> Iterator[Case]:
    """In the order of a round. logs: as of `read`."""
    whole = logs["all"]
    for way, names, source in (
        (STOCK, ["stock"], ""),
        (PLAIN, ["plain"], ""),
        (HALVES, ["plain", "plain_2"], ""),
        (TUPLES, ["spark"], "zktuples"),
        (ARROW, ["spark"], "zktxnlog"),
        (ALL_COLUMNS, ["spark"], "zktxnlog"),
        (ARROW_2, ["spark_2"], "zktxnlog"),
    ):
        columns = "" if way == ALL_COLUMNS else Logs.columns
        asks = [
            (name, Logs(whole.folders[n :: len(names)], None, source, columns))
            for n, name in enumerate(names)
        ]
        seldom = way in (STOCK, TUPLES)
        yield Case("logs", way, tuple(asks), whole.mb, whole.records, "all", seldom=seldom)
    tenth, tenfold = logs["tenth"], logs["tenfold"]
    yield Case("a tenth", PLAIN, (("plain", Logs(tenth.folders)),), tenth.mb, tenth.records, "tenth")
    yield Case("a tenth", ARROW_2, (("spark_2", Logs(tenth.folders)),), tenth.mb, tenth.records, "tenth")
    for way, name in ((ARROW, "spark"), (ARROW_2, "spark_2")):
        asks = [(name, Logs(tenfold.folders))]
        yield Case("ten times", way, tuple(asks), tenfold.mb, tenfold.records, "all", TIMES, seldom=True)
    for kind in MB:
        for times in (1, TIMES):
            yield from _filtered(kind, logs[kind if times == 1 else f"{kind}, tenfold"], times)
    for way, name in ((PLAIN, "plain"), (ARROW, "spark")):
        size = snapshot_files(FileDirectory(snapshot))[0].size / 1e6
        yield Case("snapshot", way, ((name, Tree(snapshot)),), size, znodes, "snapshot")


def _filtered(kind: str, some: Corpus, times: int) -> Iterator[Case]:
    """All of one kind, and a part of each of its logs."""
    each = some.records // len(some.folders)
    often = times == 1
    table = f"{kind} writes" if often else f"{kind} writes, ten times"
    ways = [(PLAIN, "plain"), (ARROW, "spark")] if often else [(ARROW, "spark")]
    part = each // 2, each // 2 + max(1, each // PART) - 1
    for way, name in ways:
        for asks, of, question in (
            (Logs(some.folders), way, kind),
            (Logs(some.folders, part), f"{way}: filter", f"part of {kind}"),
        ):
            yield Case(table, of, ((name, asks),), some.mb, some.records, question, times, not often)


def ask(at: dict[str, Helper], case: Case) -> tuple[Answer, Usage]:
    """Let all helpers of a case answer at the same time."""
    chosen = [(at[name], question) for name, question in case.asks]
    with watched(*(helper.pid for helper, _ in chosen)) as usage:
        for helper, question in chosen:
            helper.send(question)
        answers: list[Any] = [helper.answer() for helper, _ in chosen]
    return (answers[0] if isinstance(case.asks[0][1], Tree) else merged(answers)), usage


def without_start(at: dict[str, Helper], case: Case, usage: Usage, empty: Path) -> Usage:
    """The usage without LogFormatter's start, which is its usage for as many empty logs."""
    ((name, logs),) = case.asks
    assert isinstance(logs, Logs)
    _, start = ask(at, replace(case, asks=((name, Logs((empty,) * len(logs.folders))),)))
    return Usage(
        max(TICK_S, usage.seconds - start.seconds), max(TICK_S, usage.cpu_s - start.cpu_s), usage.peak_bytes
    )


def compared(case: Case, answer: Answer, known: dict[str, Answer]) -> None:
    """Raises ClickException when another way gave another answer."""
    once = answer
    if isinstance(answer, dict):
        if any(count % case.times for count, _ in answer.values()):
            raise click.ClickException(
                f"{case.table}, {case.way}: {answer}, which is not {case.times} times all"
            )
        once = {kind: (count // case.times, newest) for kind, (count, newest) in answer.items()}
    other = known.setdefault(case.question, once)
    if once != other:
        raise click.ClickException(f"{case.table}, {case.way}: {once}, but another way found {other}")


def measured(
    at: dict[str, Helper], todo: Sequence[Case], rounds: int, seldom: int, empty: Path, warm: tuple[Path, ...]
) -> list[Measured]:
    """Every case, round after round; those that take long in the first `seldom` of them. warm: logs that a
    session reads before each, because Spark ends workers that had nothing to do for a minute."""
    found = [Measured(case) for case in todo]
    known: dict[str, Answer] = {}
    for turn_of in range(rounds):
        for measurement in found:
            case = measurement.case
            if case.seldom and turn_of >= seldom:
                continue
            click.echo(f"round {turn_of + 1}: {case.table}, {case.way}", err=True)
            for name, question in case.asks:
                if name.startswith("spark"):
                    beforehand = replace(question, folders=warm) if isinstance(question, Logs) else Logs(warm)
                    at[name].send(beforehand)
                    at[name].answer()
            answer, usage = ask(at, case)
            compared(case, answer, known)
            measurement.usages.append(without_start(at, case, usage, empty) if case.way == STOCK else usage)
    return found


# --- what is read


def wanted(folder: Path, scale: float) -> list[Log | Planted]:
    """All that servers must write, the longest work first."""
    found: list[Log | Planted] = [Planted(int(ZNODES * scale), folder / "tree")]
    for size, count in ((1.0, 2), (1 / TIMES, 1)):
        for kind, mb in sorted(MB.items(), reverse=True):
            least, most, per = (1_000, 100_000, 1.0) if kind == "large" else (60, 250, _IN_THE_LOG)
            for n in range(count):
                name = f"{kind}-{n + 1}" if size == 1.0 else f"{kind}-tenth"
                megabytes = mb * size * scale * (2 if size < 1 else 1) / per
                found.append(Log(Writes(name, max(1, round(megabytes)), least, most), folder / name))
    return found


def read(folder: Path) -> dict[str, Corpus]:
    """The logs of `wanted`, grouped for the questions; halves of each kind are beside each other."""
    large, small = ([folder / f"{kind}-{n}" / "version-2" for n in (1, 2)] for kind in ("large", "small"))
    found = {
        "all": corpus([*large, *small]),
        "large": corpus(large),
        "small": corpus(small),
        "tenth": corpus([folder / f"{kind}-tenth" / "version-2" for kind in MB]),
    }
    again = {inside: _again(folder, inside) for inside in (*large, *small)}
    for name, of in (("tenfold", "all"), ("large, tenfold", "large"), ("small, tenfold", "small")):
        one = found[of]
        copies = tuple(copy for inside in one.folders for copy in again[inside])
        found[name] = Corpus(copies, one.mb * TIMES, one.records * TIMES)
    return found


def _again(folder: Path, inside: Path) -> list[Path]:
    """The same logs, ten times."""
    copies = [folder / "again" / f"{n}-{inside.parent.name}" / inside.name for n in range(TIMES)]
    for copy in copies:
        copy.mkdir(parents=True)
        for log in inside.glob("log.*"):
            os.link(log, copy / log.name)
    return copies


# --- what comes of it


def figures_of(found: Sequence[Measured]) -> dict[str, Any]:
    """The figures of all ways, and their ratios."""
    tables: dict[str, dict[str, Any]] = {}
    at: dict[tuple[str, str], Measured] = {}
    for measurement in found:
        case = measurement.case
        at[case.table, case.way] = measurement
        tables.setdefault(case.table, {})[case.way] = measurement.figures()

    def per_mb(table: str) -> list[float]:
        measurement = at[table, ARROW_2]
        return [s / measurement.case.mb for s in measurement.seconds]

    stock = at["logs", STOCK]
    compared_to = {
        f"{way}, of {STOCK}, a core": ratios(stock.cpu_s, at["logs", way].cpu_s)
        for way in (PLAIN, TUPLES, ARROW, ALL_COLUMNS, ARROW_2)
    }
    for table, one, two in (("logs", PLAIN, HALVES), ("logs", ARROW, ARROW_2), ("ten times", ARROW, ARROW_2)):
        compared_to[f"{table}: {two}, of {one}, by the clock"] = ratios(
            at[table, one].seconds, at[table, two].seconds
        )
    compared_to["seconds a byte, ten times of all"] = ratios(per_mb("ten times"), per_mb("logs"))
    compared_to["seconds a byte, all of a tenth"] = ratios(per_mb("logs"), per_mb("a tenth"))
    for table in [f"{kind} writes{more}" for kind in MB for more in ("", ", ten times")]:
        full, part = at[table, ARROW], at[table, f"{ARROW}: filter"]
        compared_to[f"{table}, filter of all, by the clock"] = ratios(full.seconds, part.seconds)
        compared_to[f"{table}, filter of all, CPU"] = ratios(full.cpu_s, part.cpu_s)
    plain, spark = at["snapshot", PLAIN], at["snapshot", ARROW]
    compared_to[f"snapshot, {ARROW} of {PLAIN}, a core"] = ratios(plain.cpu_s, spark.cpu_s)
    return {"tables": tables, "times": {name: spread(values) for name, values in compared_to.items()}}


@click.command()
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Of each way, in turn.")
@click.option(
    "--seldom-rounds",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="Of what takes long: LogFormatter, tuples, ten times the bytes.",
)
@click.option("--scale", default=1.0, show_default=True, help="Of logs and snapshot, to try the program.")
@out_option
def main(rounds: int, seldom_rounds: int, scale: float, out: Path | None) -> None:
    """Read real logs and a real snapshot in several ways, with and without Spark."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as Ctrl-C: what was started and made is removed
    folder = Path(tempfile.mkdtemp(prefix="pipeline-"))
    try:
        began = time.monotonic()
        planned = wanted(folder, scale)
        with helpers(one=Scribe(), other=Scribe()) as scribes:
            write(list(scribes.values()), planned, lambda line: click.echo(line, err=True))
        wrote_s = time.monotonic() - began
        logs = read(folder)
        snapshot = folder / "tree" / "version-2"
        empty = folder / "empty" / "version-2"
        empty.mkdir(parents=True)
        (empty / "log.1").write_bytes(_HEADER_ONLY)
        with helpers(
            stock=Stock(), plain=Plain(), plain_2=Plain(), spark=Spark(1, folder), spark_2=Spark(2, folder)
        ) as at:
            todo = list(cases(logs, snapshot, int(ZNODES * scale)))
            found = measured(at, todo, rounds, seldom_rounds, empty, logs["tenth"].folders)
        whole = logs["all"]
        click.echo(
            f"{whole.mb:.0f} MB of logs, {whole.records:,} transactions, and a snapshot of "
            f"{int(ZNODES * scale):,} znodes, written in {wrote_s:.0f} s"
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result = figures_of(found)
    for table in result["tables"]:
        click.echo(table)
        for measurement in found:
            if measurement.case.table == table:
                click.echo(measurement.line())
    for name, ratio in result["times"].items():
        click.echo(f"  {name}: {ratio['median']:.2f} times ({ratio['least']:.2f} to {ratio['most']:.2f})")
    click.echo(f"all of it took {time.monotonic() - began:.0f} s", err=True)
    save(out, result)


if __name__ == "__main__":
    main()
