"""Decide how target's topics follow changes of source's topics.

Such changes are new partitions, changed settings, or a deletion that ends the copying. Target stores nothing
about earlier states. So each comparison reads both sides, and a Memory keeps what earlier comparisons of this
run have found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from zkmigrate.topics.mirror.rules.topic import Settings, align, named, refusal


@dataclass(frozen=True)
class State:
    """The current state of a topic.

    id: Kafka's topic id; empty if the brokers have no topic ids.
    """

    id: str
    partitions: int
    replicas: int
    settings: Settings


@dataclass(frozen=True)
class Memory:
    """The facts about a topic on source that earlier comparisons have found.

    id, partitions: the topic id and the number of partitions. keys: the settings that the mirror keeps equal.
    gone: whether the last comparison did not find the topic.
    """

    id: str = ""
    partitions: int = 0
    keys: frozenset[str] = frozenset()
    gone: bool = False


@dataclass(frozen=True)
class Grow:
    """A change that gives target's topic this many partitions."""

    topic: str
    partitions: int


@dataclass(frozen=True)
class Configure:
    """A change that sets and removes settings of target's topic."""

    topic: str
    put: Mapping[str, str]
    remove: tuple[str, ...]


@dataclass(frozen=True)
class Stop:
    """A decision to stop copying a topic.

    why: the reason, which each partition of the topic then reports.
    """

    topic: str
    why: str


Change = Grow | Configure | Stop


@dataclass(frozen=True)
class Followed:
    """The result of the comparison of one topic.

    changes: the changes to send to target. left: by setting, why it stays different; the key "" stands for
    the whole topic. memory: the facts to pass to the next comparison.
    """

    changes: tuple[Change, ...]
    left: Mapping[str, str]
    memory: Memory


def follow(name: str, here: State | None, there: State | None, before: Memory) -> Followed:
    """Compare a topic on both clusters, and return the changes to send to target.

    here, there: the topic on source and on target; None if it does not exist. before: the facts that earlier
    comparisons have found. A topic counts as deleted only if two comparisons in a row do not find it, because
    a broker that has just started may not know the topic yet.
    """
    if here is None:
        stop = (Stop(name, "source no longer has this topic: it was deleted or renamed"),)
        return Followed(stop if before.gone else (), {}, replace(before, gone=True))
    if why := _why_created_again(here, before):
        return Followed((Stop(name, why),), {}, before)
    if there is None:
        missing = "target no longer has this topic. Next: stop this run, then start it again"
        return Followed((), {"": missing}, Memory(here.id or before.id, here.partitions, before.keys))
    if why := refusal(name, here.partitions, there.partitions, there.settings.values):
        return Followed((Stop(name, why),), {}, before)
    changes: list[Change] = []
    if there.partitions < here.partitions:
        changes.append(Grow(name, here.partitions))
    found = align(here.settings, there.settings, there.replicas, before.keys)
    if found.put or found.remove:
        changes.append(Configure(name, found.put, found.remove))
    # A setting that source no longer has remains to be removed until target has source's value.
    keys = named(here.settings) | {key for key in before.keys if key in found.differ}
    return Followed(tuple(changes), found.left, Memory(here.id or before.id, here.partitions, keys))


def _why_created_again(here: State, before: Memory) -> str:
    """Return why source's topic is not the topic that was copied so far; empty if it may be the same."""
    if before.id and here.id and here.id != before.id:
        return f"source's topic was created again: its id is {here.id}, and was {before.id}"
    if here.partitions < before.partitions:
        return (
            f"source's topic was created again: it had {before.partitions} partitions, now {here.partitions}"
        )
    return ""
