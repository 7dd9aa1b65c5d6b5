"""Define the verbs of ``placement`` for topics and the cluster's state, beside those that plan moves."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zkmigrate.cli import flags, placement_options

if TYPE_CHECKING:
    from zkmigrate.cluster.placement.cluster import Cluster
    from zkmigrate.cluster.placement.topic_sets import TopicSets

F = TypeVar("F", bound=Callable[..., Any])

_MOST = 10_000
"""The most partitions of one call; a controller of Kafka 4 accepts that many in one request."""


class _Place(click.ParamType[Any]):
    """The type of an option: a place in the order of brokers, or one of some words instead."""

    name = "place"

    def __init__(self, *words: str) -> None:
        self._words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the number or the word. Raises BadParameter."""
        if value in self._words:
            return str(value)
        try:
            number = int(value)
        except ValueError:
            number = -1
        if not 0 <= number < 2**31:
            self.fail(f"{value!r}: needed: a number from 0 on, or {' or '.join(self._words)}", param, ctx)
        return number


_topic: Callable[[F], F] = flags.together(
    click.option("--topic", required=True, metavar="NAME", help="The name of the topic."),
    click.option(
        "--partitions",
        required=True,
        type=click.IntRange(1, _MOST),
        metavar="N",
        help="The number of partitions of the topic in the end.",
    ),
)
_how: Callable[[F], F] = flags.together(
    click.option(
        "--shift",
        type=click.IntRange(0, 2**31 - 1),
        metavar="N",
        help="The distance from the leader to the next replica, in the order of brokers. Default: "
        "derived from --start.",
    ),
    click.option("--ignore-racks", is_flag=True, help="Place as if no broker had a rack."),
    placement_options.source,
    click.option("--out", type=flags.FILE, help="Write the replica lists here. Default: only report."),
    click.option("--force", is_flag=True, help="Replace an existing file."),
    flags.as_json,
)


def add_to(
    placement: click.Group, do: Callable[[Callable[[], int]], None], from_file: Callable[[Path], Cluster]
) -> None:
    """Add the verbs to the group ``placement``.

    do: runs a function and exits with the code it returns. from_file: reads the file of ``--cluster``.
    """

    def sets(options: dict[str, Any], choose: Callable[[Cluster], TopicSets]) -> None:
        do(lambda: _sets(options, from_file, choose))

    @placement.command("new-topic")
    @_topic
    @click.option(
        "--replication",
        required=True,
        type=click.IntRange(1, 32767),
        metavar="N",
        help="Replicas of each partition.",
    )
    @click.option(
        "--start",
        type=_Place("random"),
        default="random",
        show_default=True,
        metavar="N|random",
        help="The position of partition 0's leader in the order of brokers.",
    )
    @_how
    def new_topic(**options: Any) -> None:
        """Choose the replica lists of a new topic, as Kafka's own code does.

        Exit codes: 2 bad input, 3 refused, 8 no broker answers.
        """
        sets(options, lambda cluster: _new(cluster, options))

    @placement.command("grow")
    @_topic
    @click.option(
        "--start",
        type=_Place("even", "kafka", "random"),
        default="even",
        show_default=True,
        metavar="N|even|kafka|random",
        help="The position of the first new leader in the order of brokers. even: brokers lead equally "
        "many partitions of the topic. kafka: the leader of partition 0.",
    )
    @_how
    def grow(**options: Any) -> None:
        """Choose the replica lists of a topic's new partitions; the old partitions stay.

        Exit codes: 2 bad input, 3 refused, 8 no broker answers.
        """
        sets(options, lambda cluster: _grown(cluster, options))

    @placement.command("check")
    @click.option(
        "--inventory", "-i", type=flags.FILE, required=True, help="The inventory that names the brokers."
    )
    @flags.as_json
    def check(inventory: Path, as_json: bool) -> None:
        """Look for replicas, leaders, racks and moves that are not as they should be.

        Exit codes: 0 nothing is wrong, 2 bad input, 3 another cluster, 8 no broker answers, 10 something is
        wrong, 11 not all is known.
        """
        do(lambda: _check(inventory, as_json=as_json))

    @placement.command("measure")
    @click.option(
        "--inventory", "-i", type=flags.FILE, required=True, help="The inventory that names the brokers."
    )
    @click.option(
        "--minutes",
        type=flags.decimal(0.01, 1440),
        default=5.0,
        show_default=True,
        metavar="N",
        help="The time between the two measurements. A longer time gives better rates.",
    )
    @click.option(
        "--out", type=flags.FILE, required=True, help="Write the cluster to this file, for --cluster."
    )
    @click.option("--force", is_flag=True, help="Replace an existing file.")
    @flags.as_json
    def measure(**options: Any) -> None:
        """Measure sizes and rates by reading the log directories twice.

        A rate is what a partition grew by. Deleted segments lower it. Partitions that shrank have no rate.

        Exit codes: 2 bad input, 3 refused, 8 no broker answers.
        """
        do(lambda: _measure(options))


def _sets(
    options: dict[str, Any], from_file: Callable[[Path], Cluster], choose: Callable[[Cluster], TopicSets]
) -> int:
    from zkmigrate.cluster.placement.topic_sets import racks_ignored
    from zkmigrate.cluster.placing import topics
    from zkmigrate.errors import UsageError

    if bool(options["cluster"]) == bool(options["inventory"]):
        raise UsageError("needed: either --cluster FILE or --inventory FILE")
    output = topics.Output(options["out"], options["force"], options["as_json"])
    topics.refuse_bad_out(output)
    cluster, notices = _seen(options) if options["inventory"] else (from_file(options["cluster"]), ())
    found = choose(racks_ignored(cluster) if options["ignore_racks"] else cluster)
    return topics.answer(found, notices, output, click.echo)


def _seen(options: dict[str, Any]) -> Any:
    from zkmigrate.cluster.placing import topics
    from zkmigrate.inventory.inventory import Inventory, load
    from zkmigrate.runbook.site.wiring import Site

    inventory = load(options["inventory"], Inventory, ("kafka",))
    site = (click.get_current_context().obj or Site)(inventory, "placement")
    with closing(site):
        return _allowed(topics.from_brokers(inventory, site.look, options["topic"], flags.hint))


def _new(cluster: Cluster, options: dict[str, Any]) -> TopicSets:
    from zkmigrate.cluster.placement.topic_sets import new_topic

    start, shift = _drawn(cluster, options)
    counts = options["partitions"], options["replication"]
    found: TopicSets = _allowed(new_topic(cluster, options["topic"], *counts, start or 0, shift))
    return found


def _grown(cluster: Cluster, options: dict[str, Any]) -> TopicSets:
    from zkmigrate.cluster.placement.assignment import place_of
    from zkmigrate.cluster.placement.topic_sets import more_partitions

    start, shift = _drawn(cluster, options)
    if options["start"] == "kafka":
        leaders = (one.replicas[0] for one in cluster.partitions if one.topic == options["topic"])
        start = place_of(cluster, next(leaders, 0))
        shift = start if shift is None else shift
    found: TopicSets = _allowed(
        more_partitions(cluster, options["topic"], options["partitions"], start, shift)
    )
    return found


def _drawn(cluster: Cluster, options: dict[str, Any]) -> tuple[int | None, int | None]:
    """Return start and shift: as given, or drawn at random as Kafka does.

    None means that the planner chooses the value.
    """
    start, shift = options["start"], options["shift"]
    if start == "random":
        drawn = random.SystemRandom()
        places = max(len(cluster.brokers), 1)
        return drawn.randrange(places), drawn.randrange(places) if shift is None else shift
    return (start if isinstance(start, int) else None), shift


def _allowed(found: Any) -> Any:
    from zkmigrate.cluster.placement.plan import Refused
    from zkmigrate.cluster.placing.verb import refusal

    if isinstance(found, Refused):
        raise refusal(found)
    return found


def _measure(options: dict[str, Any]) -> int:
    from zkmigrate.cluster.placing import measure
    from zkmigrate.inventory.inventory import Inventory, load
    from zkmigrate.runbook.site.wiring import Site

    out, written = options["out"], {name: options[name] for name in ("force", "as_json")}
    inventory = load(options["inventory"], Inventory, ("kafka",))
    measure.refuse_bad_out(out, force=options["force"])
    site = (click.get_current_context().obj or Site)(inventory, "placement")
    with closing(site):
        clock = measure.Clock()
        found = measure.measure(inventory, site.look, 60 * options["minutes"], flags.hint, clock)
    return measure.answer(_allowed(found), out, click.echo, **written)


def _check(path: Path, *, as_json: bool) -> int:
    from zkmigrate.cluster.placing import check
    from zkmigrate.inventory.inventory import Inventory, load
    from zkmigrate.runbook.site.wiring import Site

    inventory = load(path, Inventory, ("kafka",))
    site = (click.get_current_context().obj or Site)(inventory, "placement")
    with closing(site):
        return check.run(inventory, site.look, click.echo, flags.hint, as_json=as_json)
