"""The verbs ``mirror …`` for the command line; :mod:`zkmigrate.mirror.verbs` does the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zkmigrate.cli import flags

if TYPE_CHECKING:
    from zkmigrate.mirror.verbs.survey import Request

F = TypeVar("F", bound=Callable[..., Any])


def _addresses(_context: click.Context, _option: click.Parameter, value: str) -> list[str]:
    """``HOST:PORT,…`` as a list. BadParameter."""
    found = [one.strip() for one in value.split(",") if one.strip()]
    for one in found:
        host, _, port = one.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise click.BadParameter(f"{one!r} is not HOST:PORT")
    if not found:
        raise click.BadParameter("it names no broker; needed: HOST:PORT")
    return found


def _share(_context: click.Context, _option: click.Parameter, value: str) -> tuple[int, int]:
    """``K/N`` as numbers. BadParameter."""
    number, _, copiers = value.partition("/")
    if not (number.isdecimal() and copiers.isdecimal() and 1 <= int(number) <= int(copiers)):
        raise click.BadParameter(f"{value!r} is not K/N, such as 1/3: the first of three copiers")
    return int(number), int(copiers)


_common: Callable[[F], F] = flags.together(
    click.option(
        "--source", required=True, metavar="HOST:PORT,…", callback=_addresses, help="Brokers to copy from."
    ),
    click.option(
        "--target", required=True, metavar="HOST:PORT,…", callback=_addresses, help="Brokers to copy to."
    ),
    click.option("--source-config", type=flags.FILE, help="Kafka client properties for source: TLS, SASL."),
    click.option("--target-config", type=flags.FILE, help="The same for target."),
    flags.many("--topic", "topics", "TOPIC", "A topic to mirror.", required=True),
)


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """The group of verbs. do: runs one and exits with its code."""

    @click.group("mirror")
    def mirror() -> None:
        """Copy topics to another Kafka cluster at equal offsets.

        Consumers that read only committed records see the same offsets, times, keys, values and headers on
        both. Both clusters are stock Kafka: source from 2.3, target from 2.8.
        """

    @mirror.command("plan")
    @_common
    @flags.as_json
    def plan(**options: Any) -> None:
        """Print what run would do. Changes nothing. Exit code 3: a topic is refused."""
        from zkmigrate.mirror.verbs import show

        do(lambda: show.plan(_asked(options), click.echo))

    @mirror.command("run")
    @_common
    @click.option("--once", is_flag=True, help="Copy what source holds now and end.")
    @click.option(
        "--rate",
        type=click.FloatRange(min=0, min_open=True),
        metavar="MB/S",
        help="Copy at most so many megabytes per second, over all partitions.",
    )
    @click.option(
        "--share",
        metavar="K/N",
        default="1/1",
        show_default=True,
        callback=_share,
        help="Be copier K of N: copy its share of the partitions.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, one event per line.")
    def run(**options: Any) -> None:
        """Make the topics on target and copy until Ctrl-C.

        Call it again to continue: both logs tell where. Exit codes: 5 another copier took over, 8 a partition
        failed.
        """
        from zkmigrate.mirror.rules.rate import UNLIMITED
        from zkmigrate.mirror.rules.share import Share
        from zkmigrate.mirror.verbs import run as verb

        rate = UNLIMITED if options["rate"] is None else options["rate"] * 1e6
        limits = {"once": options["once"], "rate": rate, "share": Share(*options["share"])}
        do(lambda: verb.run(_asked(options), click.echo, flags.hint, **limits))

    @mirror.command("status")
    @_common
    @flags.as_json
    def status(**options: Any) -> None:
        """Show how far target is. Changes nothing. Exit code 10: a partition failed."""
        from zkmigrate.mirror.verbs import show

        do(lambda: show.status(_asked(options), click.echo))

    @mirror.command("compare")
    @_common
    @flags.as_json
    def compare(**options: Any) -> None:
        """Compare every committed record of both sides. Changes nothing.

        Exit codes: 10 something differs, 11 target is behind or a part could not be read.
        """
        from zkmigrate.mirror.verbs import compare as verb

        do(lambda: verb.compare(_asked(options), click.echo))

    return mirror


def _asked(options: dict[str, Any]) -> Request:
    from zkmigrate.mirror.verbs.survey import Request

    topics = tuple(dict.fromkeys(options["topics"]))
    return Request(
        options["source"],
        options["target"],
        topics,
        options["as_json"],
        options["source_config"],
        options["target_config"],
    )
