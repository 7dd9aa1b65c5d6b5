"""Define the options that several verbs of ``placement`` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from zkmigrate.cli import flags

F = TypeVar("F", bound=Callable[..., Any])

source: Callable[[F], F] = flags.together(
    click.option("--cluster", type=flags.FILE, help="The file that describes the cluster: cluster.json."),
    click.option(
        "--inventory",
        "-i",
        type=flags.FILE,
        help="Read the cluster from the brokers of this inventory, instead of --cluster.",
    ),
)
common: Callable[[F], F] = flags.together(
    source,
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
        help="With --zk-addr: Kafka's chroot.",
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
    flags.client,
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
        help="Plan only these partitions, with these replicas: Kafka's reassignment JSON.",
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
written: Callable[[F], F] = flags.together(
    flags.switch("--optimize-leadership", text="Reorder replicas so that brokers lead equally many "
        "partitions."),
    flags.switch("--phased-reassignment", text="Write two reassignment files. In the first one the old "
        "leader remains the preferred leader."),
    click.option(
        "--leader-evac-brokers", default="", metavar="ID,…", help="Brokers that must not lead the "
            "topics of --leader-evac-topics."
    ),
    flags.many("--leader-evac-topics", "leader_evac_topics", "NAME,…", "The topics that these "
        "brokers must not lead."),
    flags.number(
        "--chunk-step-size", "chunk_step_size", "N", "How many brokers give away replicas in each "
            "reassignment file. 0: write only one file.", 0,
        least=0,
    ),
    click.option(
        "--log-dirs",
        type=click.Choice(["choose", "balance", "kafka"]),
        default="choose",
        show_default=True,
        help="If a broker has several log directories: choose a directory for each copy, also move "
            "replicas between directories (balance), or let Kafka choose.",
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
moving: Callable[[F], F] = flags.together(
    click.option(
        "--tolerance",
        type=flags.decimal(0, 1),
        default=0.0,
        show_default=True,
        metavar="SHARE",
        help="How far a move may take a broker's level from the mean, as a share. 0: try several values.",
    ),
    flags.number(
        "--partition-limit", "partition_limit", "N", "Consider only the N largest partitions of each "
            "broker that gives replicas away.", 30
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

fix_racks = click.option(
    "--fix-racks",
    is_flag=True,
    help="Only repair partitions whose replicas could span more racks, with the fewest moves.",
)
