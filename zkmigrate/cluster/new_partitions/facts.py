"""Facts of a run that creates a topic or adds partitions to one: the topic as brokers report it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from zkmigrate.cluster.new_partitions.section import Sets, new_partitions_of
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.changes import KAFKA, CreateTopic, GrowTopic
from zkmigrate.kafka.questions import DescribePartitions, TopicPartitions
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Waiting

WITNESSES = 3
"""The number of brokers that answer each query about the topic."""

LOOKS = 30
"""The number of queries, one second apart, to brokers that do not report a confirmed change yet.

With KRaft each broker learns of a change independently.
"""


@dataclass(frozen=True)
class Topic:
    """An existing topic.

    sets: the replica list of each partition, from partition 0 on. During a reassignment a list has the old
    and the new replicas.
    led: whether each partition has a leader.
    leaders: the leader of each partition; below 0 for none.
    id: the topic id; empty if brokers report none.
    """

    sets: Sets
    led: bool
    leaders: tuple[int, ...]
    id: str


TopicReading: TypeAlias = Reading[Topic]


def seen_by_brokers(c: Context, look: Look) -> Reading[TopicPartitions]:
    """Query the brokers for the topic of the plan."""
    return look.ask(DescribePartitions(KAFKA, (new_partitions_of(c.inventory).topic,), WITNESSES))


def topic(c: Context, told: Reading[TopicPartitions]) -> TopicReading:
    """Return the topic of the plan, or why it is not known."""
    if not isinstance(told, Seen):
        return told if isinstance(told, Unknown) else Unknown("failed", "no cluster")
    name = new_partitions_of(c.inventory).topic
    reading = told.value.topics[name]
    if not isinstance(reading, Seen):
        return reading
    ordered = sorted(reading.value, key=lambda one: one.partition)
    leaders = tuple(one.leader for one in ordered)
    sets = tuple(one.replicas for one in ordered)
    return Seen(Topic(sets, min(leaders, default=-1) >= 0, leaders, told.value.ids.get(name, "")))


def change(inventory: Inventory, found: TopicReading) -> CreateTopic | GrowTopic:
    """Return the change that carries out the plan: a new topic or more partitions."""
    plan = new_partitions_of(inventory)
    if not plan.first:
        return CreateTopic(KAFKA, plan.topic, plan.sets)
    old = found.value.sets[: plan.first] if isinstance(found, Seen) else ()
    return GrowTopic(KAFKA, plan.topic, old, plan.sets)


def silent(c: Context, found: Unknown) -> Waiting:
    """Return the wait for brokers that do not report the topic."""
    limit = c.inventory.policy.step_deadline_s
    return Waiting("a response of Kafka about the topic", str(found), limit, poll_s=1.0, keep=c.kept)


def wait_until_shown(c: Context) -> Waiting | None:
    """Return the wait until brokers report a confirmed change, or None after ``LOOKS`` queries."""
    looks = c.kept.get("looks", 0) + 1
    if looks > LOOKS:
        return None
    limit = c.inventory.policy.step_deadline_s + LOOKS
    return Waiting(
        "the brokers report the change that Kafka has confirmed",
        f"check {looks}",
        limit,
        poll_s=1.0,
        keep={"looks": looks},
    )


def described(found: TopicReading) -> str:
    """Describe the current topic for messages."""
    if isinstance(found, Seen):
        sets = ", ".join(str(list(of)) for of in found.value.sets[:3])
        return f"{len(found.value.sets):,} partitions, the first on {sets}"
    return "the topic does not exist" if isinstance(found, Absent) else str(found)
