"""Define the verb ``analyze`` of the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zkmigrate.cli import flags, removed
from zkmigrate.cli.zxid import compared
from zkmigrate.spark.jobs import JOBS, OWN_INPUT

if TYPE_CHECKING:
    from zkmigrate.cluster.placement.what_if import WhatIf

_AS_GIVEN = (
    "server", "window_s", "depth", "top", "jute_maxbuffer", "watches", "server_logs", "after_cut",
    "fleet_partitions", "fleet_brokers", "source_logs", "target_logs", "topics",
)  # fmt: skip


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """Return the verb as a command. do: runs a function and exits with the code it returns."""

    @click.command("analyze")
    @click.argument("jobs", metavar="JOB[,JOB...]|all")
    @click.argument("places", metavar="[NAME=]DIR...", nargs=-1)
    @flags.chroot
    @click.option(
        "--server", default="", metavar="NAME", help="Read this server's log; all have the same transactions."
    )
    @flags.number(
        "--window",
        "window_s",
        "SECONDS",
        "quiet: how many seconds the cut-over holds clients.",
        10,
        most=3600,
    )
    @flags.number(
        "--depth", "depth", "N", "tenants: the number of path elements that name a subtree.", 1, most=20
    )
    @flags.number("--top", "top", "N", "Rows shown per table. The Parquet files have all.", 20, most=10_000)
    @click.option(
        "--wchp",
        "watches",
        type=flags.FILE,
        multiple=True,
        metavar="FILE",
        help="tenants: a server's saved answer to wchp. Repeat for each server.",
    )
    @flags.many(
        "--server-log",
        "server_logs",
        "FILE",
        "writers: text log of a ZooKeeper server, for addresses of sessions.",
    )
    @flags.many("--dest-dir", "dest_dirs", "[NAME=]DIR", "continuity, proof, diff: dataDir of a dest server.")
    @flags.zxid
    @click.option(
        "--after-cut",
        is_flag=True,
        help="proof, diff: dest was cut over and has transactions of its own.",
    )
    @flags.on_dest
    @flags.jute_maxbuffer
    @click.option(
        "--fleet-partitions",
        default="",
        metavar="FILE",
        help="placement: partitions of many clusters, as .parquet or with one JSON object per line.",
    )
    @click.option(
        "--fleet-brokers", default="", metavar="FILE", help="placement: the brokers of these clusters."
    )
    @click.option(
        "--what-if",
        "what_ifs",
        type=flags.FILE,
        metavar="FILE",
        help="placement: plans to try on each cluster, as JSON. Default: a rebalance.",
    )
    @flags.many("--source-logs", "source_logs", "DIR", "mirror: a log directory of source's brokers.")
    @flags.many("--target-logs", "target_logs", "DIR", "mirror: a log directory of target's brokers.")
    @flags.many("--topic", "topics", "TOPIC", "mirror: a topic to compare.")
    @click.option(
        "--out", type=flags.FILE, metavar="DIR", help="Write the page and the tables to this folder."
    )
    @click.option(
        "--master",
        default="",
        metavar="URL",
        help="Spark master, such as local[2] or spark://HOST:7077. Default: all cores here.",
    )
    @click.option(
        "--memory",
        default="2g",
        show_default=True,
        metavar="SIZE",
        help="Memory for Spark on this machine. It writes the rest to disk.",
    )
    @click.option(
        "--spill", type=flags.FILE, metavar="DIR", help="Directory for data that exceeds Spark's memory."
    )
    @flags.as_json
    @removed.options("analyze")
    def analyze(**options: Any) -> None:
        """Analyze ZooKeeper's logs and snapshots with Spark, before or after a move.

        Each DIR is a dataDir or dataLogDir of one server, or a copy. Two DIRs with the same NAME= belong to
        one server. Writes only --out.
        """
        do(lambda: _analyze(options))

    return analyze


def _analyze(options: dict[str, Any]) -> int:
    import sys

    from zkmigrate.spark.request import Request, parse_place
    from zkmigrate.spark.session import Bounds, under_spark_submit
    from zkmigrate.spark.verb import analyze
    from zkmigrate.zookeeper.data.chroot import parse_chroot

    names = _names(options["jobs"], options)
    zxid, on_dest = compared(options)
    what_ifs: Path | None = options["what_ifs"]
    request = Request(
        source=tuple(parse_place(text) for text in options["places"]),
        dest=tuple(parse_place(text) for text in options["dest_dirs"]),
        chroot=parse_chroot(options["chroot"], options["only"]),
        what_ifs=_what_ifs(what_ifs) if what_ifs else (),
        zxid=zxid,
        on_dest=on_dest,
        **{name: options[name] for name in _AS_GIVEN},
    )
    spill: Path | None = options["spill"]
    bounds = Bounds(options["master"], options["memory"], spill, progress=sys.stderr.isatty())
    as_json: bool = options["as_json"]

    def hint(line: str) -> None:
        if not (as_json and under_spark_submit()):  # spark-submit sends both outputs to standard output
            flags.hint(line)

    return analyze(names, request, bounds, options["out"], click.echo, hint, as_json=as_json)


def _what_ifs(path: Path) -> tuple[WhatIf, ...]:
    """Read and check the file of ``--what-if``. Raises UsageError."""
    from zkmigrate import input_file
    from zkmigrate.cluster.placement.what_if import parse
    from zkmigrate.errors import UsageError

    try:
        content = input_file.content(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}. Needed: a file of what-ifs") from error
    return parse(content, str(path))


def _names(text: str, options: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the jobs to run. Raises UsageError for an unknown job.

    options: decide which jobs ``all`` means: a job with its own input runs only if its option is given.
    """
    from zkmigrate.errors import UsageError

    if text == "all":
        return tuple(name for name in JOBS if name not in OWN_INPUT or options[OWN_INPUT[name]])
    names = tuple(dict.fromkeys(part for part in text.split(",") if part))
    for name in names:
        removed.refuse("analyze", name)
    unknown = [name for name in names if name not in JOBS]
    if unknown or not names:
        raise UsageError(f"unknown job {', '.join(unknown) or text!r}. Needed: {', '.join(JOBS)} or all")
    return names
