"""Define the verb ``placement`` of the command line; :mod:`zkmigrate.cluster.placing.verb` does the work."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from zkmigrate.cli import flags, placement_options, placement_topics, removed

if TYPE_CHECKING:
    from zkmigrate.cluster.placement.cluster import Cluster, Name, Set
    from zkmigrate.cluster.placement.plan import Notice, Refused
    from zkmigrate.cluster.placement.request import Choice, Rollout

T = TypeVar("T")


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """Return the group of verbs. do: runs a function and exits with the code it returns."""

    @click.group("placement")
    def placement() -> None:
        """Plan which brokers hold which replicas. Writes files only; changes no cluster."""

    @placement.command("rebalance")
    @placement_options.common
    @click.option(
        "--storage-threshold",
        type=flags.decimal(0, 1),
        default=0.20,
        show_default=True,
        metavar="SHARE",
        help="A broker gives replicas away if its free bytes are below the harmonic mean by this "
        "share. 0: all old brokers do.",
    )
    @click.option(
        "--storage-threshold-gb",
        type=flags.decimal(0.001, 1 << 40, or_zero=True),
        default=0.0,
        show_default=True,
        metavar="GIB",
        help="A broker gives replicas away if it has fewer GiB free than this. 0: off.",
    )
    @click.option(
        "--any-broker",
        is_flag=True,
        help="Let every broker give and receive replicas, whatever its free bytes.",
    )
    @placement_options.fix_racks
    @placement_options.moving
    @placement_options.written
    @removed.options("placement rebalance")
    def rebalance(**options: Any) -> None:
        """Move replicas from full brokers to emptier ones.

        Exit codes: 2 bad input, 3 no plan.
        """
        do(lambda: _place(options, _rebalance(options, scale=False)))

    @placement.command("scale")
    @placement_options.common
    @placement_options.moving
    @placement_options.written
    @removed.options("placement scale")
    def scale(**options: Any) -> None:
        """Move replicas from old brokers to new ones.

        Exit codes: 2 bad input, 3 no plan.
        """
        do(lambda: _place(options, _rebalance(options, scale=True)))

    @placement.command("rebuild")
    @placement_options.common
    @click.option(
        "--placement",
        "by",
        type=click.Choice(["count", "storage"]),
        default="count",
        show_default=True,
        help="Choose the broker with the fewest replicas, or with the most free bytes.",
    )
    @click.option(
        "--use-meta",
        is_flag=False,
        flag_value="true",
        type=bool,
        default=True,
        show_default=True,
        help="Use racks and sizes.",
    )
    @flags.switch("--force-rebuild", text="Choose a new place for every replica.")
    @flags.number(
        "--replication", "replication", "N", "Replicas of each partition. 0: as many as now.", 0, least=0
    )
    @flags.switch("--sub-affinity", text="Replace each missing broker by one new broker of the same rack.")
    @flags.number(
        "--min-rack-ids",
        "min_rack_ids",
        "N",
        "Racks that the replicas of a partition span. 0: a different one for each.",
        0,
        least=0,
    )
    @click.option(
        "--optimize",
        type=click.Choice(["distribution", "storage"]),
        default="distribution",
        show_default=True,
        help="The order of placing with --placement storage. distribution: the first replica of every "
        "partition, then the second ones. storage: every replica of a partition, then the next partition.",
    )
    @click.option(
        "--partition-size-factor",
        type=flags.decimal(0.001, 1000),
        default=1.0,
        show_default=True,
        metavar="FACTOR",
        help="Reserve this many times the size of a replica.",
    )
    @click.option(
        "--skip-no-ops",
        is_flag=False,
        flag_value="true",
        type=bool,
        default=True,
        expose_value=False,
        callback=_always,
        metavar="[=true]",
        help="Has no effect: a plan never contains partitions that do not change.",
    )
    @placement_options.fix_racks
    @placement_options.written
    @removed.options("placement rebuild")
    def rebuild(**options: Any) -> None:
        """Replace replicas on brokers that are gone or left out; change the replication.

        Exit codes: 2 bad input, 3 no plan.
        """
        do(lambda: _place(options, _rebuild(options)))

    placement_topics.add_to(placement, do, from_file)
    return placement


def _always(_context: click.Context, option: click.Parameter, value: bool) -> None:
    """Accept an option that cannot be turned off. Raises BadParameter for false."""
    if not value:
        raise click.BadParameter(
            "A plan never contains partitions that do not change. Remove this option.", param=option
        )


def _place(options: dict[str, Any], request: Any) -> int:
    from zkmigrate.cluster.placing import verb

    names = ("page", "force", "ignore_warnings", "as_json")
    out = _out(options)
    cluster, notices = _cluster(options, sized=_sized(request))
    given = {name: options[name] for name in names}
    read = tuple(options[name] for name in ("cluster", "inventory") if options[name])
    return verb.place(verb.Asked(cluster, request, out, read=read, **given, notices=notices), click.echo)


def _out(options: dict[str, Any]) -> Path | None:
    """Return the file to which the plan is written, from this tool's option or from those of topicmappr.

    Raises UsageError.
    """
    if not options["out_file"]:
        _useless("--out-file", "out_path")
        out: Path | None = options["out"]
        return out
    if options["out"]:
        _excluded("--out", "out_file")
    return Path(options["out_path"], f"{options['out_file']}.json")


def _sized(request: Any) -> bool:
    """Return whether a plan needs sizes and free bytes: every plan but ``rebuild`` by count does."""
    from zkmigrate.cluster.placement.request import By, Rebuild

    return not isinstance(request, Rebuild) or request.placement is not By.COUNT


def _cluster(options: dict[str, Any], *, sized: bool) -> tuple[Cluster, tuple[Notice, ...]]:
    """Return the cluster that the options name, and notices about how it was read.

    sized: whether sizes and free bytes are needed. Raises UsageError, InventoryError, HostError and
    NoPlanError.
    """
    from zkmigrate.cluster.placement import maps
    from zkmigrate.errors import UsageError

    if (options["cluster"] or options["inventory"]) and not _given("zk_addr"):
        options = {**options, "zk_addr": ""}
    given = sum(bool(options[name]) for name in ("cluster", "inventory", "zk_addr"))
    if given != 1:
        one = "only one" if given else "one"
        raise UsageError(f"needed: {one} of --cluster FILE, --inventory FILE and --zk-addr HOST:PORT")
    if not options["zk_addr"]:
        _useless("--zk-addr", "zk_prefix", "zk_metrics_prefix", "metrics_age", "client")
    notices: tuple[Notice, ...] = ()
    if options["inventory"]:
        cluster = _from_brokers(options["inventory"])
    elif options["zk_addr"]:
        cluster, notices = _from_zookeeper(options, sized=sized)
    else:
        cluster = from_file(options["cluster"])
    if options["map_string"]:
        cluster = _not_refused(maps.mapped(cluster, _sets(options)))
    return cluster, notices


def _now_ms() -> int:
    return round(time.time() * 1000)


def from_file(path: Path) -> Cluster:
    """Read a cluster from a file. Raises UsageError."""
    from zkmigrate import input_file
    from zkmigrate.cluster.placement.cluster_file import parse
    from zkmigrate.errors import UsageError

    try:
        content = input_file.content(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}. Needed: a cluster as a file") from error
    return parse(content, str(path))


def _from_brokers(path: Path) -> Cluster:
    from zkmigrate.cluster import placed
    from zkmigrate.inventory.inventory import Inventory, load
    from zkmigrate.runbook.site.wiring import Site

    inventory = load(path, Inventory, ("kafka",))
    site = (click.get_current_context().obj or Site)(inventory, "placement")
    with closing(site):
        return _not_refused(placed.read(inventory, site.look, flags.hint, time.sleep))


def _from_zookeeper(options: dict[str, Any], *, sized: bool) -> tuple[Cluster, tuple[Notice, ...]]:
    from zkmigrate.cluster.placing import live

    where = options["zk_addr"], options["zk_prefix"], options["zk_metrics_prefix"]
    login = flags.credentials(options)
    return _not_refused(live.read(*where, options["metrics_age"], _now_ms(), login, sized=sized))


def _not_refused(found: T | Refused) -> T:
    from zkmigrate.cluster.placement.plan import Refused
    from zkmigrate.cluster.placing.verb import refusal

    if isinstance(found, Refused):
        raise refusal(found)
    return found


def _rebalance(options: dict[str, Any], *, scale: bool) -> Any:
    from zkmigrate.cluster.placement.request import Balance, Rebalance

    if options.get("fix_racks"):
        return _fix(
            options,
            *("storage_threshold", "storage_threshold_gb", "any_broker", "tolerance", "partition_limit"),
            *("partition_size_threshold", "locality_scoped", "balance", "effort", "max_bytes"),
        )
    names = ["tolerance", "partition_limit", "partition_size_threshold", "locality_scoped", "effort"]
    names += ["max_bytes"]
    if not scale:
        if options["any_broker"]:
            _excluded("--any-broker", "storage_threshold", "storage_threshold_gb")
        names += ["storage_threshold", "storage_threshold_gb", "any_broker"]
    given = {name: options[name] for name in names}
    balance = Balance(options["balance"])
    return Rebalance(_choice(options), _rollout(options), scale=scale, balance=balance, **given)


def _rebuild(options: dict[str, Any]) -> Any:
    from zkmigrate.cluster.placement.request import By, Optimize, Rebuild

    names = (
        "use_meta", "force_rebuild", "replication", "sub_affinity", "min_rack_ids", "partition_size_factor",
        "effort",
    )  # fmt: skip
    if options["fix_racks"]:
        return _fix(options, "by", "optimize", *names)
    given = {name: options[name] for name in names}
    if options["by"] == By.COUNT:
        _useless("--placement storage", "optimize")
    by, optimize = By(options["by"]), Optimize(options["optimize"])
    return Rebuild(_choice(options), _rollout(options), placement=by, optimize=optimize, **given)


def _fix(options: dict[str, Any], *useless: str) -> Any:
    """Return the request of ``--fix-racks``. Raises UsageError if one of the ``useless`` options is given."""
    from zkmigrate.cluster.placement.request import FixRacks

    _excluded("--fix-racks", *useless)
    return FixRacks(_choice(options), _rollout(options))


def _choice(options: dict[str, Any]) -> Choice:
    from zkmigrate.cluster.placement.request import Choice

    topics = _many(options["topics"]) or (".*",)
    brokers = _ids("--brokers", options["brokers"])
    return Choice(topics, _many(options["topics_exclude"]), brokers, frozenset(_sets(options)))


def _sets(options: dict[str, Any]) -> dict[Name, Set]:
    """Return the replica lists given by ``--map-string``; none without that option. Raises UsageError."""
    from zkmigrate.cluster.placement import maps

    text = options["map_string"]
    return maps.parse(text.encode(), "--map-string") if text else {}


def _rollout(options: dict[str, Any]) -> Rollout:
    from zkmigrate.cluster.placement.request import LogDirs, Rollout

    return Rollout(
        options["optimize_leadership"],
        options["phased_reassignment"],
        _ids("--leader-evac-brokers", evacuated) if (evacuated := options["leader_evac_brokers"]) else (),
        _many(options["leader_evac_topics"]),
        options["chunk_step_size"],
        LogDirs(options["log_dirs"]),
    )


def _useless(needed: str, *names: str) -> None:
    """Raise UsageError if one of these options is given, because without ``needed`` it has no effect."""
    _no_effect(names, f"without {needed}. Next: add that option")


def _excluded(given: str, *names: str) -> None:
    """Raise UsageError if one of these options is given, because beside ``given`` it has no effect."""
    _no_effect(names, f"with {given}. Next: remove one of them")


def _no_effect(names: tuple[str, ...], why: str) -> None:
    from zkmigrate.errors import UsageError

    options = {one.name: one.opts[0] for one in click.get_current_context().command.params}
    for name in names:
        if _given(name):
            raise UsageError(f"{options[name]} has no effect {why}")


def _given(name: str) -> bool:
    """Return whether an option is on the command line. An environment variable does not count."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _many(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the parts between commas, without blanks around them."""
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())


def _ids(option: str, text: str) -> tuple[int, ...]:
    """Parse ids of brokers between commas. Raises UsageError for other text, or for an id given twice."""
    from zkmigrate.errors import UsageError

    try:
        ids = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{option} {text!r}; needed: ids of brokers, such as 1001,1002") from None
    if len(set(ids)) < len(ids):
        raise UsageError(f"{option} {text}; needed: each broker once")
    return ids
