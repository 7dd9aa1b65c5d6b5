"""The verb ``analyze`` for the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from zkmigrate.cli import flags
from zkmigrate.cli.zxid import compared
from zkmigrate.spark.jobs import JOBS, OWN_INPUT

_AS_GIVEN = (
    "server", "window_s", "depth", "top", "jute_maxbuffer", "watches", "server_logs", "broker_dirs",
    "broker_logs", "client_history", "run", "broker_log_zone", "after_cut",
)  # fmt: skip


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """The verb. do: runs it to its exit code."""

    @click.command("analyze")
    @click.argument("jobs", metavar="JOB[,JOB...]|all")
    @click.argument("places", metavar="[NAME=]DIR...", nargs=-1)
    @click.option(
        "--chroot", default="/", show_default=True, help="The subtree that is to move, such as /kafka."
    )
    @click.option(
        "--server",
        default="",
        metavar="NAME",
        help="Whose log is read where one is enough: all have the same.",
    )
    @click.option(
        "--window",
        "window_s",
        type=click.IntRange(1, 3600),
        default=10,
        show_default=True,
        metavar="SECONDS",
        help="quiet: how long the cut-over holds clients.",
    )
    @click.option(
        "--depth",
        type=click.IntRange(1, 20),
        default=1,
        show_default=True,
        metavar="N",
        help="tenants: how many elements of a path name a subtree.",
    )
    @click.option(
        "--top",
        type=click.IntRange(1, 10_000),
        default=20,
        show_default=True,
        metavar="N",
        help="Rows of a table for people; Parquet has all.",
    )
    @click.option(
        "--wchp",
        "watches",
        type=flags.FILE,
        multiple=True,
        metavar="FILE",
        help="tenants: a server's answer to wchp, saved; again for each server.",
    )
    @click.option(
        "--server-log",
        "server_logs",
        multiple=True,
        metavar="FILE",
        help="writers: a text log of a ZooKeeper server, for the addresses of sessions.",
    )
    @click.option(
        "--dest-dir",
        "dest_dirs",
        multiple=True,
        metavar="[NAME=]DIR",
        help="continuity, proof, diff: the dataDir of a dest server; once for each.",
    )
    @click.option(
        "--zxid", metavar="0xHEX", help="proof, diff: compare the trees at this; else at the newest of both."
    )
    @click.option(
        "--after-cut", is_flag=True, help="proof, diff: dest was cut over, it has transactions of its own."
    )
    @click.option(
        "--on-dest",
        multiple=True,
        metavar="0xSESSION",
        help="proof: a session known to be a client of dest: source may let it expire.",
    )
    @flags.jute_maxbuffer
    @click.option(
        "--broker-dir",
        "broker_dirs",
        multiple=True,
        metavar="[NAME=]DIR",
        help="partitions: one of a broker's log.dirs; again for each. NAME: the broker's.",
    )
    @click.option("--run", type=flags.FILE, metavar="DIR", help="timeline: a run's folder, with its journal.")
    @click.option(
        "--client-history",
        "client_history",
        multiple=True,
        metavar="[NAME=]FILE",
        help="timeline: JSON lines of a real client, as the lab's load writes them; again for each.",
    )
    @click.option(
        "--broker-log",
        "broker_logs",
        multiple=True,
        metavar="[NAME=]FILE",
        help="timeline: a broker's server.log or controller.log; again for each.",
    )
    @click.option(
        "--broker-log-zone",
        default="UTC",
        show_default=True,
        metavar="ZONE",
        help="timeline: the time zone of brokers' logs, such as Europe/Berlin.",
    )
    @click.option(
        "--out", type=flags.FILE, metavar="DIR", help="Write the page and the tables into this folder."
    )
    @click.option(
        "--master",
        default="",
        metavar="URL",
        help="Spark's, such as local[2] or spark://HOST:7077; else all cores of this machine.",
    )
    @click.option(
        "--memory",
        default="2g",
        show_default=True,
        metavar="SIZE",
        help="Of Spark here; the rest is spilled.",
    )
    @click.option(
        "--spill", type=flags.FILE, metavar="DIR", help="Where Spark puts what does not fit in memory."
    )
    @flags.as_json
    def analyze(**options: Any) -> None:
        """Answer questions before a move and after it from ZooKeeper's logs and snapshots, with Spark.

        Each DIR is a dataDir or dataLogDir of one server, or a copy; NAME= tells two of one server together.
        Nothing is written but --out.
        """
        do(lambda: _analyze(options))

    made: click.Command = analyze
    return made


def _analyze(options: dict[str, Any]) -> int:
    """The options as a call."""
    import sys

    from zkmigrate.spark.request import Asked, parse_place
    from zkmigrate.spark.session import Bounds, submitted
    from zkmigrate.spark.verb import analyze
    from zkmigrate.zookeeper.disks.chroot import parse_chroot

    names = _names(options["jobs"], options)
    zxid, on_dest = compared(options)
    asked = Asked(
        source=tuple(parse_place(text) for text in options["places"]),
        dest=tuple(parse_place(text) for text in options["dest_dirs"]),
        chroot=parse_chroot(options["chroot"]),
        zxid=zxid,
        on_dest=on_dest,
        **{name: options[name] for name in _AS_GIVEN},
    )
    spill: Path | None = options["spill"]
    bounds = Bounds(options["master"], options["memory"], spill, progress=sys.stderr.isatty())
    as_json: bool = options["as_json"]

    def hint(line: str) -> None:
        if not (as_json and submitted()):  # spark-submit sends both outputs to standard output
            flags.hint(line)

    return analyze(names, asked, bounds, options["out"], click.echo, hint, as_json=as_json)


def _names(text: str, options: dict[str, Any]) -> tuple[str, ...]:
    """Raises UsageError for an unknown job. options: tell what ``all`` is."""
    from zkmigrate.errors import UsageError

    if text == "all":
        return tuple(name for name in JOBS if name not in OWN_INPUT or options[OWN_INPUT[name]])
    names = tuple(dict.fromkeys(part for part in text.split(",") if part))
    unknown = [name for name in names if name not in JOBS]
    if unknown or not names:
        raise UsageError(f"no job {', '.join(unknown) or text!r}. There are: {', '.join(JOBS)}, all")
    return names
