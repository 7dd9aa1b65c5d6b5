"""Facts of a run that sets one config on many topics: the topics, and what they set before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.model.change import KAFKA
from zkmigrate.model.fact import Reading, Seen, Unknown
from zkmigrate.model.look import ClusterTopics, Look, Settings
from zkmigrate.model.step import Context, Records
from zkmigrate.model.step_record import Recorded, recorded
from zkmigrate.topics.section import TopicConfig, TopicConfigInventory

INTERNAL = "__"
"""How the names of Kafka's own topics begin, such as ``__consumer_offsets``."""


@dataclass(frozen=True)
class Originals(Recorded):
    """original: by topic, in order, what it set itself before the first change; None for nothing.

    Recorded when the first wave is ready, and the same until the run is back at its start.
    """

    step: ClassVar[str] = "topic-config"

    original: Mapping[str, str | None]


def to_change(inventory: Inventory, records: Records) -> tuple[str, ...]:
    """The topics that a run changes, done or not; none before it has looked at them."""
    wanted, body = topic_config(inventory), records.get(Originals.step)
    original = recorded(Originals, body, "").original if body else {}
    return tuple(t for t, own in original.items() if own != wanted.value and not left_out(wanted, t))


@dataclass(frozen=True)
class FirstLook:
    """What is there before anything is changed.

    topics: those that the inventory names, in order. unmatched: entries of its list that match no topic.
    refused: topics on which Kafka would not take the value, with its reason.
    """

    cluster: Reading[ClusterTopics]
    topics: tuple[str, ...]
    unmatched: tuple[str, ...]
    settings: Settings
    refused: Reading[Mapping[str, str]]


def topic_config(inventory: Inventory) -> TopicConfig:
    """What the inventory wants set. TypeError where it has no such section."""
    if not isinstance(inventory, TopicConfigInventory):
        raise TypeError("the inventory of this playbook has a section topic_config")
    return inventory.topic_config


def matches(entry: str, topic: str) -> bool:
    """Whether an entry of the inventory's list matches this topic."""
    hidden = topic.startswith(INTERNAL) and not entry.startswith(INTERNAL)
    return not hidden and fnmatchcase(topic, entry)


def left_out(wanted: TopicConfig, topic: str) -> bool:
    """Whether ``leave_out`` of the inventory names this topic."""
    return any(matches(entry, topic) for entry in wanted.leave_out)


def topics_to_set(wanted: TopicConfig, names: Iterable[str]) -> tuple[str, ...]:
    """The topics of a cluster that get the config, in order."""
    return tuple(
        topic
        for topic in sorted(names)
        if any(matches(entry, topic) for entry in wanted.topics) and not left_out(wanted, topic)
    )


def first_look(c: Context, look: Look) -> FirstLook:
    """Look at every topic that the inventory names, in four questions at most."""
    wanted = topic_config(c.inventory)
    cluster = look.topics(KAFKA)
    if not isinstance(cluster, Seen):
        nothing = cluster if isinstance(cluster, Unknown) else Unknown("failed", "no cluster")
        return FirstLook(cluster, (), (), nothing, nothing)
    names = cluster.value.names
    unmatched = tuple(entry for entry in wanted.topics if not any(matches(entry, t) for t in names))
    topics = topics_to_set(wanted, names)
    settings = look.topic_settings(KAFKA, wanted.key, topics)
    refused: Reading[Mapping[str, str]] = Seen({})
    if isinstance(settings, Seen):
        refused = look.refused_setting(KAFKA, wanted.key, wanted.value, topics)
    return FirstLook(cluster, topics, unmatched, settings, refused)


def shown(value: str | None) -> str:
    """What a topic sets, for messages."""
    return "unset" if value is None else value or "empty"
