"""Run jobs for ``analyze``, print their answers, and write their tables and one page."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from zkmigrate.clean import clean, inline
from zkmigrate.errors import UsageError, ZkmigrateError
from zkmigrate.json_stamp import stamped
from zkmigrate.runbook.model.report import Table
from zkmigrate.spark.jobs import job
from zkmigrate.spark.page import page
from zkmigrate.spark.request import TINY, Request, is_small
from zkmigrate.spark.section import Section
from zkmigrate.spark.session import Bounds, local_table_bytes, session
from zkmigrate.zookeeper.data.errors import ZkDataError

NOT_HELD, UNPROVED = 10, 11
"""The exit codes for a proof that does not hold, and for a proof that was not possible, as for ``prove``."""

JSON, PAGE = "analysis.json", "analysis.html"
Say = Callable[[str], None]


class AnalysisError(ZkmigrateError):
    """An error for a file that is not ZooKeeper's, or a failure of Spark."""

    exit_code = 8


def analyze(
    names: Sequence[str],
    request: Request,
    bounds: Bounds,
    out: Path | None,
    say: Say,
    hint: Say,
    *,
    as_json: bool,
) -> int:
    """Run jobs by name and return the exit code.

    The code is 0 if no job disproved anything, NOT_HELD if a job disproved something, and UNPROVED if a proof
    was not possible.

    out: a folder for the page, the figures and the tables as Parquet; it is new, empty, or of an earlier
    analysis. say: prints answers. hint: prints progress. Raises UsageError for a wrong request, AnalysisError
    for unreadable input.
    """
    if out is not None:
        _writable(out)
    sections: dict[str, Section] = {}
    small = is_small(request)
    # Parallel jobs keep all their tables in memory.
    together = small and not request.dest and is_small(request, local_table_bytes(bounds.memory))
    with session(replace(bounds, small=small, tiny=is_small(request, TINY)), hint) as spark:
        from pyspark.errors import PySparkException

        from zkmigrate.spark.input import Input

        given = Input(spark, request)

        def one(name: str) -> Section:
            began = time.monotonic()
            hint(f"{name} …")
            try:
                found = job(name)(given)
                if out is not None:
                    _frames(out / name, found, here=given.is_local)
            except PySparkException as error:
                raise AnalysisError(f"{name}: {reason(error)}") from error
            hint(f"{name}: {time.monotonic() - began:.1f} s")
            return replace(found, frames={})

        def alone(name: str) -> Section:
            found = one(name)
            # Otherwise Spark keeps this job's cached tables, plans and broadcasts until the last job ends.
            spark.catalog.clearCache()
            return found

        answers = side_by_side(one, names) if together else map(alone, names)
        for name, found in zip(names, answers, strict=True):
            sections[name] = found
            if not as_json:
                say("\n".join(text(found)))
    body = {name: {"answer": one.answer, "held": one.held, **one.figures} for name, one in sections.items()}
    at = time.time()
    if as_json:
        say(json.dumps(stamped(body, at), ensure_ascii=False))
    if out is not None:
        written = clean(json.dumps(stamped(body, at), ensure_ascii=False, indent=1))
        (out / JSON).write_text(f"{written}\n", encoding="utf-8")
        (out / PAGE).write_text(page(_title(request), _intro(request), sections), encoding="utf-8")
        hint(f"the analysis is in {out / PAGE} and {out / JSON}; the tables are beside them as Parquet")
    held = [one.held for one in sections.values() if one.proves]
    return NOT_HELD if False in held else UNPROVED if None in held else 0


def side_by_side(one: Callable[[str], Section], names: Sequence[str]) -> Iterator[Section]:
    """Run ``one`` for each name in a thread of its own, and yield the answers in order.

    A small job is mostly planning, which Spark does in one thread. If a job raises an error or the caller
    stops, this function does not wait for the other jobs.
    """
    threads = ThreadPoolExecutor(max(len(names), 1))
    try:
        for answer in [threads.submit(one, name) for name in names]:
            yield answer.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def text(found: Section) -> Iterable[str]:
    """Yield the lines of a section for a terminal: its answer, and its tables in columns."""
    yield f"{found.title}: {inline(found.answer)}"
    for table in found.tables:
        yield ""
        yield from _columns(table)
    yield ""


def _columns(table: Table) -> Iterable[str]:
    rows = [table.head, *table.rows]
    cells = [[inline(cell) for cell in row] for row in rows]
    widths = [max(len(row[n]) for row in cells) for n in range(len(table.head))]
    yield f"  {table.title}{f': {table.intro}' if table.intro else ''}{'' if table.rows else ': none'}"
    for row in cells if table.rows else ():
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"    {line.rstrip()}"


def reason(error: Exception) -> str:
    """Return the reason of an error in one line.

    For an error raised in a task, the stacks of Spark and Python are left out.
    """
    if isinstance(error, ZkDataError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("zkmigrate.") and ": " in line]
    return ours[-1].partition(": ")[2] if ours else lines[0] if lines else type(error).__name__


def _writable(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file. Needed: a new folder, or the folder of an earlier analysis")
    if out.is_dir() and any(out.iterdir()) and not (out / JSON).is_file():
        raise UsageError(
            f"{out} is not empty and is not the folder of an earlier analysis. Needed: a new or empty folder"
        )
    out.mkdir(parents=True, exist_ok=True)
    (out / JSON).write_text("{}\n", encoding="utf-8")  # now it is ours, also after Ctrl-C


def _frames(folder: Path, found: Section, *, here: bool) -> None:
    """Write a section's tables as Parquet files.

    here: whether this process writes the files, which is faster for small tables.
    """
    from pyarrow import parquet

    if folder.is_dir():
        shutil.rmtree(folder)
    for name, frame in found.frames.items():
        place = folder.absolute() / f"{name}.parquet"
        if here:
            place.mkdir(parents=True)
            parquet.write_table(frame.toArrow(), place / "part-00000.parquet")
        else:
            frame.write.parquet(str(place))


def _title(request: Request) -> str:
    if not (request.source or request.dest):
        return "Kafka"
    return f"ZooKeeper before the move of {request.chroot}" if request.chroot.path != "/" else "ZooKeeper"


def _intro(request: Request) -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    fleet = filter(None, (request.fleet_partitions, request.fleet_brokers))
    more = (*fleet, *request.source_logs, *request.target_logs)
    places = ", ".join((*(place.path for place in (*request.source, *request.dest)), *more))
    return (
        f"Created {now} from {places}. All times are UTC. Times in ZooKeeper's log are those of the "
        "leader's clock."
    )
