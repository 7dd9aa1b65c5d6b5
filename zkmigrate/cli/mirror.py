"""Define the verbs ``mirror …`` of the command line; :mod:`zkmigrate.topics.mirror.verbs` does the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zkmigrate.cli import flags

if TYPE_CHECKING:
    from zkmigrate.topics.mirror.verbs.request import Request

F = TypeVar("F", bound=Callable[..., Any])

_MOST_COPIERS = 1000
"""The most copiers. Each compares the hashes of all copiers for every partition."""


def _addresses(_context: click.Context, _option: click.Parameter, value: str | None) -> list[str]:
    """Split ``HOST:PORT,…`` into a list; return an empty one without a value. Raises BadParameter."""
    if value is None:
        return []
    found = [one.strip() for one in value.split(",") if one.strip()]
    for one in found:
        host, _, port = one.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise click.BadParameter(f"{one!r} is not HOST:PORT")
    if not found:
        raise click.BadParameter("it names no broker; needed: HOST:PORT")
    return found


def _share(_context: click.Context, _option: click.Parameter, value: str) -> tuple[int, int]:
    """Parse ``K/N`` into the number of a copier and the number of copiers. Raises BadParameter."""
    number, _, copiers = value.partition("/")
    if not (
        len(value) <= len("1000/1000")
        and (number.isdecimal() and copiers.isdecimal() and 1 <= int(number) <= int(copiers))
        and int(copiers) <= _MOST_COPIERS
    ):
        raise click.BadParameter(
            f"{value[:40]!r} is not K/N, such as 1/3: the first of three copiers; at most {_MOST_COPIERS}"
        )
    return int(number), int(copiers)


_configs: Callable[[F], F] = flags.together(
    click.option("--source-config", type=flags.FILE, help="Kafka client properties for source: TLS, SASL."),
    click.option("--target-config", type=flags.FILE, help="Kafka client properties for target: TLS, SASL."),
)

_common: Callable[[F], F] = flags.together(
    click.option(
        "--source", required=True, metavar="HOST:PORT,…", callback=_addresses, help="Brokers to copy from."
    ),
    click.option(
        "--target", required=True, metavar="HOST:PORT,…", callback=_addresses, help="Brokers to copy to."
    ),
    _configs,
    flags.many("--topic", "topics", "TOPIC", "A topic to mirror.", required=True),
)

_groups: Callable[[F], F] = flags.many(
    "--group",
    "groups",
    "GROUP",
    "A consumer group to follow. Default: all groups that have committed on the topics.",
)


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """Return the group of verbs. do: runs a function and exits with the code it returns."""

    @click.group("mirror")
    def mirror() -> None:
        """Copy topics to another Kafka cluster at equal offsets.

        Consumers that read only committed records see the same offsets, times, keys, values and headers on
        both. Both clusters are stock Kafka: source from 2.3, target from 2.8.
        """

    @mirror.command("plan")
    @_common
    @_groups
    @flags.as_json
    def plan(**options: Any) -> None:
        """Print what the verb run would do. Changes nothing. Exit code 3: a topic cannot be mirrored."""
        from zkmigrate.topics.mirror.verbs import show

        do(lambda: show.plan(_asked(options), click.echo))

    @mirror.command("run")
    @_common
    @_groups
    @click.option(
        "--refresh",
        type=flags.decimal(1, 3600),
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="Longest time until a change of settings, offsets or ACLs is copied to target.",
    )
    @click.option("--once", is_flag=True, help="Copy what source has now, then exit.")
    @click.option(
        "--rate",
        type=flags.decimal(0.001, 1_000_000),
        metavar="MB/S",
        help="Highest rate in megabytes per second, for all partitions together.",
    )
    @click.option(
        "--share",
        metavar="K/N",
        default="1/1",
        show_default=True,
        callback=_share,
        help="Copy only share K of N of the partitions. Run one copier for each share.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, one event per line.")
    def run(**options: Any) -> None:
        """Create the topics on target and copy until Ctrl-C.

        It also keeps partitions, settings, group offsets and ACLs equal. Run it again to continue: it reads
        its position from both logs. Exit codes: 5 another copier took over, 8 a partition failed.
        """
        from zkmigrate.topics.mirror.rules.share import Share
        from zkmigrate.topics.mirror.verbs import run as verb

        rate = (options["rate"] or 0.0) * 1e6
        limits = {"once": options["once"], "refresh_s": options["refresh"]}
        limits |= {"rate": rate, "share": Share(*options["share"])}
        do(lambda: verb.run(_asked(options), click.echo, flags.hint, **limits))

    @mirror.command("status")
    @_common
    @_groups
    @flags.as_json
    def status(**options: Any) -> None:
        """Show how far target is behind. Changes nothing. Exit code 10: a partition failed."""
        from zkmigrate.topics.mirror.verbs import show

        do(lambda: show.status(_asked(options), click.echo))

    @mirror.command("compare")
    @click.option("--source", metavar="HOST:PORT,…", callback=_addresses, help="Brokers to copy from.")
    @click.option("--target", metavar="HOST:PORT,…", callback=_addresses, help="Brokers to copy to.")
    @_configs
    @flags.many(
        "--source-logs", "source_logs", "DIR", "A log directory of source's brokers, instead of --source."
    )
    @flags.many(
        "--target-logs", "target_logs", "DIR", "A log directory of target's brokers, instead of --target."
    )
    @flags.many("--topic", "topics", "TOPIC", "A topic to compare.", required=True)
    @flags.as_json
    def compare(**options: Any) -> None:
        """Compare every committed record of both clusters. Changes nothing.

        Reads from brokers, or with Spark from log directories or their copies. Exit codes: 10 records differ,
        11 target is behind or a part could not be read.
        """
        do(lambda: _compare(options))

    return mirror


def _compare(options: dict[str, Any]) -> int:
    """Compare two clusters, or the log directories of their brokers, and return the exit code.

    Raises UsageError unless the options name either both clusters or both sides' directories.
    """
    from zkmigrate.errors import UsageError

    brokers, logs = ([bool(options[f"{side}{of}"]) for side in ("source", "target")] for of in ("", "_logs"))
    if brokers == [True, True] and logs == [False, False]:
        from zkmigrate.topics.mirror.verbs import compare as verb

        return verb.compare(_asked(options), click.echo)
    if logs != [True, True] or brokers != [False, False]:
        raise UsageError("compare needs --source and --target, or --source-logs and --target-logs")
    from zkmigrate.spark.compare_logs import compare_logs
    from zkmigrate.spark.request import Request
    from zkmigrate.spark.session import Bounds

    topics = tuple(dict.fromkeys(options["topics"]))
    asked = Request((), source_logs=options["source_logs"], target_logs=options["target_logs"], topics=topics)
    # Python does the work: Java's second compiler and compiled plans would cost more than they save.
    bounds = Bounds(progress=False, ui=False, small=True, tiny=True)
    return compare_logs(asked, bounds, click.echo, flags.hint, as_json=options["as_json"])


def _asked(options: dict[str, Any]) -> Request:
    from zkmigrate.topics.mirror.verbs.request import Request

    topics, groups = (tuple(dict.fromkeys(options.get(key, ()))) for key in ("topics", "groups"))
    files = options["source_config"], options["target_config"]
    return Request(options["source"], options["target"], topics, options["as_json"], groups, *files)
