"""Define the verb ``placement`` of the command line; :mod:`zkmigrate.cluster.placing.verb` does the work."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from zkmigrate.cli import flags, placement_topics, removed

if TYPE_CHECKING:
    from zkmigrate.cluster.placement.cluster import Cluster, Name, Set
    from zkmigrate.cluster.placement.plan import Notice, Refused
    from zkmigrate.cluster.placement.request import Choice, Rollout

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_common: Callable[[F], F] = flags.together(
    click.option("--cluster", type=flags.FILE, help="The file that describes the cluster: cluster.json."),
    click.option(
        "--inventory",
        "-i",
        type=flags.FILE,
        help="Read the cluster from the brokers of this inventory, instead of --cluster.",
    ),
    click.option(
        "--zk-addr",
        default="",
        metavar="HOST[:PORT],…",
        envvar="TOPICMAPPR_ZK_ADDR",
        show_envvar=True,
        help="Instead, read the cluster and topicmappr's metrics from ZooKeeper.",
    ),
    click.option(
        "--zk-prefix",
        default="",
        metavar="PATH",
        envvar="TOPICMAPPR_ZK_PREFIX",
        show_envvar=True,
        help="With --zk-addr: the path above Kafka's znodes.",
    ),
    click.option(
        "--zk-metrics-prefix",
        default="topicmappr",
        show_default=True,
        envvar="TOPICMAPPR_ZK_METRICS_PREFIX",
        show_envvar=True,
        metavar="PATH",
        help="With --zk-addr: the path above the metrics.",
    ),
    flags.number(
        "--metrics-age",
        "metrics_age",
        "MINUTES",
        "With --zk-addr: the highest age of the metrics.",
        60,
        least=0,
    ),
    click.option(
        "--map-string",
        default="",
        metavar="JSON",
        help="Plan only these partitions, with these sets: Kafka's reassignment JSON.",
    ),
    flags.many(
        "--topics",
        "topics",
        "NAME,…",
        "Topics, or regular expressions that match part of a name. Default: all.",
    ),
    flags.many("--topics-exclude", "topics_exclude", "NAME,…", "Topics to exclude, in the same form."),
    click.option(
        "--brokers",
        default="-2",
        show_default=True,
        metavar="ID,…",
        help="Brokers that may hold replicas. -1: those that have some. -2: all registered ones.",
    ),
)
_written: Callable[[F], F] = flags.together(
    flags.switch("--optimize-leadership", text="Reorder sets so that brokers lead equally many partitions."),
    flags.switch("--phased-reassignment", text="Write two maps. In the first one the old leader "
        "remains the preferred leader."),
    click.option(
        "--leader-evac-brokers", default="", metavar="ID,…", help="Brokers that must not lead the "
            "topics of --leader-evac-topics."
    ),
    flags.many("--leader-evac-topics", "leader_evac_topics", "NAME,…", "The topics that these "
        "brokers must not lead."),
    flags.number(
        "--chunk-step-size", "chunk_step_size", "N", "How many brokers give away replicas in each "
            "map. 0: write only one map.", 0,
        least=0,
    ),
    click.option(
        "--log-dirs",
        type=click.Choice(["choose", "balance", "kafka"]),
        default="choose",
        show_default=True,
        help="If a broker has several: choose one for each copy, also move replicas between them, or "
            "let Kafka "
        "choose.",
    ),
    flags.number("--effort", "effort", "N", "How long to search. 0: take the first plan; 2: search "
        "twice as long as 1.", 1, least=0, most=1000),
    click.option("--out", type=flags.FILE, help="Write the plan here. Default: only report."),
    click.option("--out-file", default="", metavar="NAME", help="Write the plan to NAME.json, "
        "instead of --out."),
    click.option("--out-path", default="", metavar="DIR", help="With --out-file: the folder of that file."),
    click.option("--page", type=flags.FILE, help="Also write the report as an HTML page."),
    click.option("--force", is_flag=True, help="Replace existing files."),
    flags.switch(
        "--ignore-warnings",
        "--ignore-warns",
        text="Write the plan despite warnings.",
        envvar="TOPICMAPPR_IGNORE_WARNS",
    ),
    flags.as_json,
)  # fmt: skip
_moving: Callable[[F], F] = flags.together(
    click.option(
        "--tolerance",
        type=flags.decimal(0, 1),
        default=0.0,
        show_default=True,
        metavar="SHARE",
        help="How far one move may take a broker from the mean. 0: try several values.",
    ),
    flags.number(
        "--partition-limit", "partition_limit", "N", "Consider only the N largest partitions of each "
            "broker that gives replicas.", 30
    ),
    flags.number(
        "--partition-size-threshold", "partition_size_threshold", "MIB", "Do not move partitions "
            "smaller than this.", 512,
        least=0,
    ),
    flags.switch("--locality-scoped", text="Keep every replica in its rack."),
    click.option(
        "--balance",
        type=click.Choice(["storage", "rate", "both"]),
        default="storage",
        show_default=True,
        help="What to balance: free bytes, bytes per second, or both.",
    ),
    click.option(
        "--max-bytes",
        type=click.IntRange(min=0),
        metavar="BYTES",
        help="The most bytes to copy. Default: no limit.",
    ),
)  # fmt: skip

_fix_racks = click.option(
    "--fix-racks",
    is_flag=True,
    help="Only repair sets that could span more racks, with the fewest moves.",
)


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """Return the group of verbs. do: runs a function and exits with the code it returns."""

    @click.group("placement")
    def placement() -> None:
        """Plan which brokers hold which replicas. Writes files only; changes no cluster."""

    @placement.command("rebalance")
    @_common
    @click.option(
        "--storage-threshold",
        type=flags.decimal(0, 1),
        default=0.20,
        show_default=True,
        metavar="SHARE",
        help="A broker gives replicas if its free bytes are this far below the harmonic mean. 0: all "
        "old brokers.",
    )
    @click.option(
        "--storage-threshold-gb",
        type=flags.decimal(0.001, 1 << 40, or_zero=True),
        default=0.0,
        show_default=True,
        metavar="GIB",
        help="A broker gives replicas if it has less free. 0: off.",
    )
    @click.option(
        "--any-broker",
        is_flag=True,
        help="Let every broker give and receive replicas, whatever its free bytes.",
    )
    @_fix_racks
    @_moving
    @_written
    @removed.options("placement rebalance")
    def rebalance(**options: Any) -> None:
        """Move replicas from full brokers to emptier ones.

        Exit codes: 2 bad input, 3 no plan.
        """
        do(lambda: _place(options, _rebalance(options, scale=False)))

    @placement.command("scale")
    @_common
    @_moving
    @_written
    @removed.options("placement scale")
    def scale(**options: Any) -> None:
        """Move replicas from old brokers to new ones.

        Exit codes: 2 bad input, 3 no plan.
        """
        do(lambda: _place(options, _rebalance(options, scale=True)))

    @placement.command("rebuild")
    @_common
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
    @flags.number("--replication", "replication", "N", "Replicas of each set. 0: as many as now.", 0, least=0)
    @flags.switch("--sub-affinity", text="Replace each missing broker by one new broker of the same rack.")
    @flags.number("--min-rack-ids", "min_rack_ids", "N", "Racks of each set. 0: all different.", 0, least=0)
    @click.option(
        "--optimize",
        type=click.Choice(["distribution", "storage"]),
        default="distribution",
        show_default=True,
        help="With --placement storage: place replica by replica of all sets, or set by set.",
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
        help="Has no effect: a map never contains partitions that do not change.",
    )
    @_fix_racks
    @_written
    @removed.options("placement rebuild")
    def rebuild(**options: Any) -> None:
        """Replace replicas on brokers that are gone or left out; change the replication.

        Exit codes: 2 bad input, 3 no plan.
        """
        do(lambda: _place(options, _rebuild(options)))

    placement_topics.add_to(placement, do, from_file)
    return placement


def _always(_context: click.Context, option: click.Parameter, value: bool) -> None:
    """Accept an option that is always on. Raises BadParameter for false."""
    if not value:
        raise click.BadParameter(
            "A map never contains partitions that do not change. Remove this option.", param=option
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
    """Return the file of the plan, from this tool's option or from those of topicmappr. Raises UsageError."""
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
        _useless("--zk-addr", "zk_prefix", "zk_metrics_prefix", "metrics_age")
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
    return _not_refused(live.read(*where, options["metrics_age"], _now_ms(), sized=sized))


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
    """Return the sets of ``--map-string``; none without that option. Raises UsageError."""
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
    """Raise UsageError if one of these options is given without the option ``needed`` that it belongs to."""
    _no_effect(names, f"without {needed}. Next: add that option")


def _excluded(given: str, *names: str) -> None:
    """Raise UsageError if one of these options is given beside ``given``, which leaves it without effect."""
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
