"""The request for a placement: the options of the command line as values, under the same names."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from zkmigrate.cluster.placement.cluster import Name

MIB, GIB = 1 << 20, 1 << 30

MAPPED, REGISTERED = -1, -2
"""Values of ``--brokers``: -1 is every broker that the chosen partitions name, -2 every registered one."""


_NAME = re.compile(r"[A-Za-z0-9_-]+")


def matcher(pattern: str) -> Callable[[str], object]:
    """Return a function that says whether a pattern matches a topic, by topicmappr's rules.

    A text of letters, digits, ``_`` and ``-`` is a whole name, and any other is a regular expression that may
    match anywhere in a name. Raises re.error.
    """
    compiled = re.compile(pattern)
    return compiled.fullmatch if _NAME.fullmatch(pattern) else compiled.search


class Balance(StrEnum):
    """The quantity to balance: free bytes, bytes produced per second, or both."""

    STORAGE = "storage"
    RATE = "rate"
    BOTH = "both"


class By(StrEnum):
    """How ``rebuild`` chooses a broker: by the fewest replicas, or by the most free bytes."""

    COUNT = "count"
    STORAGE = "storage"


class Optimize(StrEnum):
    """The order in which ``rebuild --placement storage`` works: slot by slot, or partition by partition."""

    DISTRIBUTION = "distribution"
    STORAGE = "storage"


class LogDirs(StrEnum):
    """Who chooses the log directories of a broker.

    With CHOOSE the plan chooses one for each new copy. With BALANCE it also moves replicas between
    directories. With KAFKA it leaves the choice to Kafka.
    """

    CHOOSE = "choose"
    BALANCE = "balance"
    KAFKA = "kafka"


@dataclass(frozen=True, slots=True)
class Choice:
    """The topics and brokers that a plan covers.

    topics, exclude: names, or regular expressions that may match anywhere in a name.
    brokers: ids, or MAPPED or REGISTERED.
    partitions: only these partitions of the topics; empty for all.
    """

    topics: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = ()
    brokers: tuple[int, ...] = (REGISTERED,)
    partitions: frozenset[Name] = frozenset()


@dataclass(frozen=True, slots=True)
class Rollout:
    """How a plan is cut into reassignments.

    optimize_leadership: whether to reorder replica lists so that brokers lead equally many partitions.
    phased: whether to write two reassignments, with the old leader preferred in the first.
    leader_evac_brokers: brokers that must lead none of the topics in ``leader_evac_topics``. Both options are
    given, or neither.
    chunk_step_size: the number of source brokers in one reassignment; 0 for a single one.
    log_dirs: who chooses the log directories.
    """

    optimize_leadership: bool = False
    phased: bool = False
    leader_evac_brokers: tuple[int, ...] = ()
    leader_evac_topics: tuple[str, ...] = ()
    chunk_step_size: int = 0
    log_dirs: LogDirs = LogDirs.CHOOSE


@dataclass(frozen=True, slots=True)
class Rebalance:
    """The request of ``rebalance``, or of ``scale`` if ``scale`` is true.

    storage_threshold: a broker whose free bytes are below the harmonic mean by more than this share gives
    replicas away; with 0 every old broker does.
    storage_threshold_gb: a broker with fewer free GiB gives replicas away; it takes precedence over the
    share.
    any_broker: whether every broker gives and receives replicas, whatever both thresholds; not with
    ``scale``.
    tolerance: how far one move may take a broker from the mean, as a share of the mean; 0 tries several
    values.
    partition_limit: how many of the largest partitions of a source are considered in a pass.
    partition_size_threshold: the size in MiB below which no partition moves.
    locality_scoped: whether a replica stays in its rack.
    effort: how long the search tries further tolerances; 0 takes the first answer.
    max_bytes: the most bytes that the plan copies; None for no limit.
    """

    choice: Choice = Choice()
    rollout: Rollout = Rollout()
    scale: bool = False
    storage_threshold: float = 0.20
    storage_threshold_gb: float = 0.0
    any_broker: bool = False
    tolerance: float = 0.0
    partition_limit: int = 30
    partition_size_threshold: int = 512
    locality_scoped: bool = False
    balance: Balance = Balance.STORAGE
    effort: int = 1
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class FixRacks:
    """The request of ``--fix-racks``.

    The plan has only the moves after which every chosen replica list spans as many racks as possible.
    """

    choice: Choice = Choice()
    rollout: Rollout = Rollout()


@dataclass(frozen=True, slots=True)
class Rebuild:
    """The request of ``rebuild``: every replica on a broker that is not chosen moves.

    force_rebuild: whether every replica gets a new place.
    use_meta: whether racks and sizes count.
    replication: the number of replicas of each partition; 0 keeps the number.
    sub_affinity: whether each gone broker is replaced by one new broker of its rack.
    min_rack_ids: the number of racks of each partition; 0 for all different.
    partition_size_factor: bytes to reserve for a replica, as a multiple of its size.
    """

    choice: Choice = Choice()
    rollout: Rollout = Rollout()
    placement: By = By.COUNT
    use_meta: bool = True
    force_rebuild: bool = False
    replication: int = 0
    sub_affinity: bool = False
    min_rack_ids: int = 0
    optimize: Optimize = Optimize.DISTRIBUTION
    partition_size_factor: float = 1.0
    effort: int = 1


Request = Rebalance | Rebuild | FixRacks
