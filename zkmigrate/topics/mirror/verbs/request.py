"""The arguments of a mirror verb, and the connections to its two clusters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from zkmigrate.topics.mirror.clients.cluster import Cluster
from zkmigrate.topics.mirror.clients.pair import Pair
from zkmigrate.topics.mirror.questions import ClusterAt


@dataclass(frozen=True)
class Request:
    """The arguments of a mirror verb.

    source, target: ``host:port`` of each cluster's brokers. groups: the consumer groups; empty for all
    groups. as_json: whether to print JSON. source_config, target_config: files of client properties.
    """

    source: Sequence[str]
    target: Sequence[str]
    topics: Sequence[str]
    as_json: bool = False
    groups: Sequence[str] = ()
    source_config: Path | None = None
    target_config: Path | None = None


@contextmanager
def both(asked: Request) -> Iterator[tuple[Cluster, Cluster]]:
    """Yield the connections to both clusters.

    Raises UsageError if source and target are the same cluster.
    """
    pair = Pair(_at(asked.source, asked.source_config), _at(asked.target, asked.target_config))
    with closing(pair), pair.clusters() as clusters:
        yield clusters


def _at(brokers: Sequence[str], config: Path | None) -> ClusterAt:
    return ClusterAt(tuple(brokers), None if config is None else str(config))
