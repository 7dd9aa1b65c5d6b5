"""What is asked of a placement: the options of the verb as values, named as their users name them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from zkmigrate.cluster.placement.cluster import Name

MIB, GIB = 1 << 20, 1 << 30

MAPPED, REGISTERED = -1, -2
"""``--brokers``: -1 is every broker that the chosen partitions name, -2 every registered one."""


_NAME = re.compile(r"[A-Za-z0-9_-]+")


def matcher(pattern: str) -> Callable[[str], object]:
    """Return whether a topic is meant, as topicmappr decides it.

    A text of letters, digits, ``_`` and ``-`` is a whole name, and any other is a regular expression that is
    found anywhere in a name. Raises re.error.
    """
    compiled = re.compile(pattern)
    return compiled.fullmatch if _NAME.fullmatch(pattern) else compiled.search


class Balance(StrEnum):
    """What is spread: free bytes, bytes produced in a second, or both."""

    STORAGE = "storage"
    RATE = "rate"
    BOTH = "both"


class By(StrEnum):
    """How ``rebuild`` chooses a broker: fewest replicas, or most free bytes."""

    COUNT = "count"
    STORAGE = "storage"


class Optimize(StrEnum):
    """The order of ``rebuild --placement storage``: slot by slot, or partition by partition."""

    DISTRIBUTION = "distribution"
    STORAGE = "storage"


class LogDirs(StrEnum):
    """The log directories of a broker: the plan chooses one for each new copy, or also moves replicas between
    them, or leaves them to Kafka."""

    CHOOSE = "choose"
    BALANCE = "balance"
    KAFKA = "kafka"


@dataclass(frozen=True, slots=True)
class Choice:
    """What a plan is about. topics, exclude: names, or regular expressions that are found in a name;
    brokers: ids, or MAPPED or REGISTERED. partitions: only these of the topics, empty for all."""

    topics: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = ()
    brokers: tuple[int, ...] = (REGISTERED,)
    partitions: frozenset[Name] = frozenset()


@dataclass(frozen=True, slots=True)
class Rollout:
    """How a plan is cut into maps.

    optimize_leadership: reorder sets so that brokers lead alike. phased: two maps, the old leader stays
    preferred in the first. leader_evac_brokers, leader_evac_topics: these brokers lead none of these topics;
    both or none. chunk_step_size: source brokers in one map, 0 for one map. log_dirs: who chooses them.
    """

    optimize_leadership: bool = False
    phased: bool = False
    leader_evac_brokers: tuple[int, ...] = ()
    leader_evac_topics: tuple[str, ...] = ()
    chunk_step_size: int = 0
    log_dirs: LogDirs = LogDirs.CHOOSE


@dataclass(frozen=True, slots=True)
class Rebalance:
    """``rebalance``, and ``scale`` when ``scale`` is true.

    storage_threshold: a broker whose free bytes are below the harmonic mean by more than this share gives
    replicas away; with 0 every old one does. storage_threshold_gb: one below so many GiB does; it wins.
    any_broker: instead of both thresholds, every broker gives and takes; not with ``scale``. tolerance: how
    far one move may take a broker from the mean, as a share of it; 0 tries all. partition_limit: how many of
    the largest partitions of a source are looked at in a pass. partition_size_threshold: MiB, no smaller
    partition moves. locality_scoped: a replica stays in its rack. effort: how often the search may begin
    again; 0 is the first answer. max_bytes: the most bytes that the plan copies, None for no limit.
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
    """``--fix-racks``: only the moves after which every chosen set spans as many racks as possible."""

    choice: Choice = Choice()
    rollout: Rollout = Rollout()


@dataclass(frozen=True, slots=True)
class Rebuild:
    """``rebuild``: every replica on a broker that is not asked for moves, and with force every one.

    use_meta: racks and sizes count. replication: replicas of each set, 0 keeps the length. sub_affinity: each
    gone broker is replaced by one new broker of its rack. min_rack_ids: racks of each set, 0 for all
    different. partition_size_factor: bytes reserved for a replica, as a multiple of its size.
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
