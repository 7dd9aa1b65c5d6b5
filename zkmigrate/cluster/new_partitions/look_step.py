"""What: check the cluster, the topic of the plan, and whether Kafka would accept the change; change nothing.

Why now: a wrong cluster, name or replica list must be found before the first change.

Clients may notice: nothing; Kafka validates the change and does not make it.

Way back: nothing was changed.

Proof: the brokers belong to the named cluster, the topic is as the plan expects, and Kafka would accept the
change.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.cluster.new_partitions.facts import TopicReading, change, described, seen_by_brokers, topic
from zkmigrate.cluster.new_partitions.section import new_partitions_of
from zkmigrate.kafka.questions import ValidateTopic
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Severity, claim, few, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Done, Reads, Verdict


@dataclass(frozen=True)
class FirstLook:
    """The brokers' answers before the change.

    cluster_id: the id that brokers report; empty if none does.
    brokers: the registered brokers.
    refused: why Kafka would refuse the change; empty if it would accept it.
    """

    cluster_id: str
    brokers: frozenset[int]
    topic: TopicReading
    refused: Reading[str]


class PlanCheckStep(Reads[FirstLook]):
    id = "topic-look"
    title = "Check the topic"

    def observe(self, c: Context, look: Look) -> FirstLook:
        told = seen_by_brokers(c, look)
        found = topic(c, told)
        refused: Reading[str] = Seen("")
        if not isinstance(found, Unknown):
            refused = look.ask(ValidateTopic(change(c.inventory, found)))
        if not isinstance(told, Seen):
            return FirstLook("", frozenset(), found, refused)
        return FirstLook(told.value.cluster_id, told.value.brokers, found, refused)

    def check(self, c: Context, f: FirstLook) -> Verdict:
        return Done.unless_blocked(tuple(_findings(c, f)))


def _findings(c: Context, f: FirstLook) -> list[Finding]:
    plan = new_partitions_of(c.inventory)
    if isinstance(f.topic, Unknown):
        return [
            claim(
                "new.answer",
                "the brokers report the topic",
                None,
                seen=str(f.topic),
                cause=f.topic.cause,
            )
        ]
    right = c.inventory.kafka.cluster_id
    same = claim(
        "new.cluster",
        "the brokers are those of the cluster that the inventory names",
        f.cluster_id == right,
        seen=f"cluster id {f.cluster_id}",
        needed=right,
    )
    if plan.first:
        held = isinstance(f.topic, Seen) and len(f.topic.value.sets) == plan.first
        needed = f"{plan.first:,} partitions, as the plan expects"
    else:
        held, needed = isinstance(f.topic, Absent), "no topic of this name"
    fits = claim(
        "new.topic",
        f"topic {plan.topic} is as the plan needs it",
        held,
        seen=described(f.topic),
        needed=needed,
    )
    gone = sorted({id_ for of in plan.sets for id_ in of} - f.brokers)
    registered = claim(
        "new.brokers",
        "every broker of the plan is registered",
        not gone,
        seen=f"not registered: {few(map(str, gone))}" if gone else f"{len(f.brokers):,} are registered",
        needed="brokers that are up, because with ZooKeeper Kafka accepts a replica list with a "
        "broker that does not exist",
    )
    found = [same, fits, registered]
    if held and f.cluster_id == right:
        known = isinstance(f.refused, Seen)
        why = f.refused.value if isinstance(f.refused, Seen) else str(f.refused)
        found.append(
            claim(
                "new.accepted",
                "Kafka accepts the change",
                not why if known else None,
                seen=why or "Kafka has validated it and changed nothing",
            )
        )
    if plan.first:
        found.append(
            claim(
                "new.no-way-back",
                "adding partitions cannot be undone",
                True,
                seen=f"topic {plan.topic} keeps the new partitions, and records with a key will go to "
                "other partitions",
                severity=Severity.INFO,
            )
        )
    return found


MEANINGS = meanings(
    """
    new.answer: No broker reports the topic. Cause: The brokers do not respond, or refuse this client. To do:
    Find out why no broker responds, then resume.

    new.cluster: The brokers belong to another cluster than the inventory names. Cause: kafka.brokers or
    kafka.cluster_id is wrong. To do: Check which cluster has the addresses under kafka.brokers, and correct
    migration.yml.

    new.topic: The topic exists already, does not exist, or has another number of partitions than the plan
    expects. Cause: Somebody changed it after the plan was made, or the name is wrong. To do: Plan again with
    `zkmigrate placement new-topic` or `zkmigrate placement grow`.

    new.brokers: A broker of the plan is not registered. Cause: It is down, or the id is wrong. With
    ZooKeeper, Kafka would accept a replica on a broker that does not exist. To do: Start the broker, then
    resume. Or plan again with `zkmigrate placement`.

    new.accepted: Kafka refuses the change. Cause: Its message names the reason: a broker of a replica list is
    down, a policy or an ACL forbids it, a name collides, or the topic is being reassigned. To do: Fix the
    reason that Kafka names, or plan again.

    new.no-way-back: A topic that has grown keeps its partitions. Cause: A remark; it stops nothing. To do:
    Nothing, unless clients depend on the partition of a key.
    """
)
