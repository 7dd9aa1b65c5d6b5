"""Facts of a run that creates a topic or lets one grow: the topic as brokers tell it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from zkmigrate.cluster.new_partitions.section import Sets, wanted
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.changes import KAFKA, CreateTopic, GrowTopic
from zkmigrate.kafka.questions import DescribePartitions, TopicPartitions
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Waiting

WITNESSES = 3
"""Brokers that each look at the topic asks."""

LOOKS = 30
"""How often, a second apart, brokers are asked again that do not show a confirmed change yet: with KRaft each
broker learns of it by itself."""


@dataclass(frozen=True)
class Topic:
    """A topic that is there. sets: of its partitions, from 0 on; one in flight has the union of both sets.
    led: whether each partition has a leader. id: empty where brokers tell none."""

    sets: Sets
    led: bool
    leaders: tuple[int, ...]
    id: str


TopicReading: TypeAlias = Reading[Topic]


def seen_by_brokers(c: Context, look: Look) -> Reading[TopicPartitions]:
    """What the brokers tell of the plan's topic."""
    return look.ask(DescribePartitions(KAFKA, (wanted(c.inventory).topic,), WITNESSES))


def topic(c: Context, told: Reading[TopicPartitions]) -> TopicReading:
    """The topic of the plan."""
    if not isinstance(told, Seen):
        return told if isinstance(told, Unknown) else Unknown("failed", "no cluster")
    name = wanted(c.inventory).topic
    reading = told.value.topics[name]
    if not isinstance(reading, Seen):
        return reading
    ordered = sorted(reading.value, key=lambda one: one.partition)
    leaders = tuple(one.leader for one in ordered)
    sets = tuple(one.replicas for one in ordered)
    return Seen(Topic(sets, min(leaders, default=-1) >= 0, leaders, told.value.ids.get(name, "")))


def change(inventory: Inventory, found: TopicReading) -> CreateTopic | GrowTopic:
    """The change that the plan asks for."""
    plan = wanted(inventory)
    if not plan.first:
        return CreateTopic(KAFKA, plan.topic, plan.sets)
    old = found.value.sets[: plan.first] if isinstance(found, Seen) else ()
    return GrowTopic(KAFKA, plan.topic, old, plan.sets)


def silent(c: Context, found: Unknown) -> Waiting:
    """Wait for an answer."""
    limit = c.inventory.policy.step_deadline_s
    return Waiting("an answer of Kafka about the topic", str(found), limit, poll_s=1.0, keep=c.kept)


def late(c: Context) -> Waiting | None:
    """Wait for brokers to show a confirmed change; None once they had the time for it."""
    looks = c.kept.get("looks", 0) + 1
    if looks > LOOKS:
        return None
    limit = c.inventory.policy.step_deadline_s + LOOKS
    return Waiting(
        "brokers to show what Kafka has confirmed", f"look {looks}", limit, poll_s=1.0, keep={"looks": looks}
    )


def described(found: TopicReading) -> str:
    """What of the topic is there, for messages."""
    if isinstance(found, Seen):
        sets = ", ".join(str(list(of)) for of in found.value.sets[:3])
        return f"{len(found.value.sets):,} partitions, the first on {sets}"
    return "it is not there" if isinstance(found, Absent) else str(found)
