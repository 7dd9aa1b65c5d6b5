"""What: create the topic with the replica lists of the plan.

Why now: no topic has this name, and Kafka has validated the change.

Clients may notice: a new topic.

Way back: the topic is deleted if it is still empty and is still the one that this run created. Otherwise it
stays.

Proof: each partition has its planned replica list, and a leader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zkmigrate.cluster.new_partitions.facts import (
    Topic,
    TopicReading,
    described,
    seen_by_brokers,
    silent,
    topic,
    wait_until_shown,
)
from zkmigrate.cluster.new_partitions.section import new_partitions_of
from zkmigrate.kafka.changes import KAFKA, CreateTopic, DeleteTopic
from zkmigrate.kafka.questions import ReadLogEnds
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, claim, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import (
    Blocked,
    Context,
    Done,
    Forecast,
    Hazard,
    Ready,
    Step,
    Verdict,
    Waiting,
    Way,
)
from zkmigrate.runbook.model.step_record import Recorded, known


@dataclass(frozen=True)
class Created(Recorded):
    """The topic that this run created. id: its topic id; empty if brokers report none."""

    step: ClassVar[str] = "create-topic"

    id: str


@dataclass(frozen=True)
class CreateFacts:
    """The topic, if it exists.

    records: on the way back, how many records were written to the topic; None if not queried.
    """

    topic: TopicReading
    records: Reading[int] | None = None


class CreateStep(Step[CreateFacts]):
    id = Created.step
    title = "Create the topic"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> CreateFacts:
        found = topic(c, seen_by_brokers(c, look))
        if c.way is Way.BACK and isinstance(found, Seen):
            return CreateFacts(found, _records(c, found.value, look))
        return CreateFacts(found)

    def check(self, c: Context, f: CreateFacts) -> Verdict:
        if c.way is Way.BACK and not c.begun:
            return Done()
        if isinstance(f.topic, Unknown):
            return silent(c, f.topic)
        return self._check_back(c, f) if c.way is Way.BACK else self._forward(c, f)

    def _forward(self, c: Context, f: CreateFacts) -> Verdict:
        plan = new_partitions_of(c.inventory)
        if not isinstance(f.topic, Seen):
            sent = plan.topic in c.unrestored - c.unconfirmed
            return (sent and wait_until_shown(c)) or Ready((plan.topic,))
        if not c.begun or f.topic.value.sets != plan.sets:
            return Blocked((_foreign(c, f.topic),))
        if not f.topic.value.led:
            limit = c.inventory.policy.step_deadline_s
            return Waiting("a leader of each partition", described(f.topic), limit, poll_s=1.0)
        seen = f"{len(plan.sets):,} partitions with the planned replicas"
        done = claim("new.created", f"topic {plan.topic} exists", True, seen=seen)
        return Done((done,), Created(f.topic.value.id).encode())

    def _check_back(self, c: Context, f: CreateFacts) -> Verdict:
        plan = new_partitions_of(c.inventory)
        if not isinstance(f.topic, Seen):
            gone = claim(
                "new.deleted", f"topic {plan.topic} is deleted", True, seen="no broker lists the topic"
            )
            return (plan.topic in c.unrestored and wait_until_shown(c)) or Done((gone,))
        record, found = known(Created, c), f.topic.value
        other = record is not None and record.id != found.id
        if other or found.sets != plan.sets:
            seen = f"{described(f.topic)}; id {found.id or 'not reported'}"
            return Blocked(
                (_not_deleted(plan.topic, "the topic is not the one that this run created", seen),), True
            )
        if isinstance(f.records, Unknown):
            return silent(c, f.records)
        if not isinstance(f.records, Seen) or f.records.value:
            count = f"{f.records.value:,}" if isinstance(f.records, Seen) else str(f.records)
            return Blocked((_not_deleted(plan.topic, "records in its partitions", count),), True)
        if plan.topic not in c.unrestored and (waiting := wait_until_shown(c)):
            return waiting
        return Ready((plan.topic,))

    def plan(self, c: Context, f: CreateFacts, target: str) -> Changes:
        return (CreateTopic(KAFKA, target, new_partitions_of(c.inventory).sets),)

    def undo(self, c: Context, f: CreateFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return (DeleteTopic(KAFKA, target, f.topic.value.id if isinstance(f.topic, Seen) else ""),)

    def forecast(self, c: Context, look: Look) -> Forecast[CreateFacts]:
        return Forecast(self.observe(c, look), (new_partitions_of(c.inventory).topic,))


def _records(c: Context, found: Topic, look: Look) -> Reading[int]:
    """Return how many records were written to the topic: the sum of its leaders' log ends."""
    name = new_partitions_of(c.inventory).topic
    asked: dict[int, dict[str, list[int]]] = {}
    for number, leader in enumerate(found.leaders):
        if leader < 0:
            return Unknown("failed", f"{name}-{number} has no leader")
        asked.setdefault(leader, {}).setdefault(name, []).append(number)
    told = look.ask(ReadLogEnds(KAFKA, asked))
    if not isinstance(told, Seen):
        return told
    total = 0
    for ends in told.value.values():
        if not isinstance(ends, Seen):
            return ends
        for end in ends.value.values():
            if not isinstance(end, Seen):
                return end
            total += end.value.offset
    return Seen(total)


def _foreign(c: Context, found: TopicReading) -> Finding:
    return claim(
        "new.foreign",
        f"no other person or tool has created topic {new_partitions_of(c.inventory).topic}",
        False,
        seen=described(found),
        needed="no topic of this name, or one with the replica lists of the plan",
    )


def _not_deleted(name: str, why: str, seen: str) -> Finding:
    return claim(
        "new.kept",
        f"topic {name} is empty and is the one that this run created",
        False,
        seen=f"{why}: {seen}",
        needed="a topic that this run created and that never had a record",
    )


MEANINGS = meanings(
    """
    new.foreign: Another person or tool created the topic during this run. Cause: They use the same name. To
    do: Choose another name, or add partitions to that topic. A rollback does not change it.

    new.created: The topic is not complete yet. Cause: Brokers have not received the change yet. To do: Wait,
    or resume.

    new.deleted: The topic still exists. Cause: Brokers are still deleting it. To do: Wait, or resume.

    new.kept: The run does not delete the topic. Cause: It has or had records, or it was replaced. To do: If
    the topic is not needed, delete it by hand and roll back. Otherwise keep it, and resume.
    """
)
