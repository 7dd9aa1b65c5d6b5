"""Findings before a removal, and the choice of how to keep new replicas off the brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.cluster.placement.plan import Plan, Refused
from zkmigrate.cluster.placement.statistics import statistics
from zkmigrate.cluster.reassign.estimate import Copies
from zkmigrate.cluster.reassign.moves import section
from zkmigrate.cluster.reassign.rules import foreign, gib, in_sync, no_answer, too_old
from zkmigrate.cluster.removal.section import Exclusion, Removal, policed, removal, stoppable
from zkmigrate.cluster.removal.survey import Survey
from zkmigrate.kafka.questions import TopicSetting
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.finding import Finding, Severity, claim, few, meanings
from zkmigrate.runbook.model.report import counted
from zkmigrate.runbook.model.step import Context

CORDONED, CORDON_ALL = "cordoned.log.dirs", "*"
POLICY = "create.topic.policy.class.name"
OWN_POLICY = "zkmigrate.ExcludedBrokersPolicy"
"""The class in setup/policy. It reads a file that the run writes."""

UNREGISTER = 64
"""The API key of UnregisterBroker, which brokers with ZooKeeper do not offer."""
ANSWER_S = 3.0
"""Seconds to wait for a broker's answer about the requests that it supports."""
NOT_LOADED = "no CreateTopicPolicy is loaded; ours needs a jar and a restart of each broker"

Settings = Mapping[int, Reading[TopicSetting]]
"""The readings of one broker setting, by broker id."""


def before(c: Context, f: Survey) -> tuple[Finding, ...]:
    """Return the findings before the first change."""
    if isinstance(f.in_flight, Absent):
        return (too_old(),)
    if not isinstance(f.in_flight, Seen):
        return (no_answer(f.in_flight),)
    partitions = {(p.topic, p.partition): p for p in f.view.partitions}
    return (
        _ids_known(c, f),
        _dead(f),
        _stoppable(c, f),
        foreign(f.in_flight.value),
        _placed(f),
        *in_sync(f.moves, partitions),
        _enough_in_sync(f),
        *_remarks(c, f),
    )


def _ids_known(c: Context, f: Survey) -> Finding:
    """Check that the cluster or the inventory knows every broker to be removed.

    A broker that only the inventory lists was removed already.
    """
    holding = {id for p in f.view.partitions for id in p.replicas}
    here = set(f.view.brokers) | holding
    listed = {broker.id for broker in c.inventory.brokers}
    unknown = [id for id in f.wanted.brokers if id not in here | listed]
    removed = [id for id in f.wanted.brokers if id not in here and id in listed]
    seen = f"unknown: {few(map(str, unknown))}" if unknown else counted(len(f.wanted.brokers), "broker")
    return claim(
        "remove.known",
        "the cluster or the inventory has every broker to be removed",
        not unknown,
        seen=seen + (f"; removed already: {few(map(str, removed))}" if removed else ""),
        needed="ids that are registered, have replicas, or are listed under kafka.brokers",
    )


def _dead(f: Survey) -> Finding:
    """Check that every other broker with replicas is registered.

    Otherwise the plan would also move replicas off a dead broker that is not to be removed.
    """
    dead = sorted(
        {id for p in f.view.partitions for id in p.replicas} - set(f.view.brokers) - set(f.wanted.brokers)
    )
    return claim(
        "remove.others-alive",
        "every other broker with replicas is registered",
        not dead,
        seen=f"not registered: {few(map(str, dead))}" if dead else counted(len(f.staying), "other broker"),
        needed="each broker that is not removed",
    )


def _stoppable(c: Context, f: Survey) -> Finding:
    """Check that the brokers to stop have a host in the inventory, and that ssh is configured."""
    hosts = {c.inventory.broker(name).id for name in stoppable(c.inventory)}
    without = [id for id in f.leaving if f.wanted.shutdown and id not in hosts]
    return claim(
        "remove.stoppable",
        "the brokers that are to stop have a host in the inventory",
        not without,
        seen=f"none for brokers {few(map(str, without))}"
        if without
        else "each has a host, or none is to stop",
        needed="the section ssh, and each of them under kafka.brokers",
    )


def _explain_refusal(plan: Refused) -> str:
    return few(f"{reason.id}: {reason.text}" for reason in plan.reasons)


def _placed(f: Survey) -> Finding:
    plan = f.plan
    if isinstance(plan, Refused):
        seen = _explain_refusal(plan)
    else:
        seen = f"{counted(len(plan.moves), 'partition')}, {gib(plan.bytes)}"
    return claim(
        "remove.placed",
        "the remaining brokers can take every replica, in as many racks as before",
        not isinstance(plan, Refused),
        seen=seen,
        needed=f"known sizes, and enough space with {f.wanted.margin:.0%} of the free bytes to spare",
    )


def _enough_in_sync(f: Survey) -> Finding:
    """Check that no partition to be moved is below its min ISR.

    Such a partition takes no writes, and a move might copy incomplete data.
    """
    low = [
        f"{p.topic}-{p.partition} has {len(p.isr)} of {f.view.min_isr[p.topic]}"
        for p in f.naming
        if p.topic in f.view.min_isr and len(p.isr) < f.view.min_isr[p.topic]
    ]
    return claim(
        "remove.min-isr",
        "no partition to be moved is below its min ISR",
        not low,
        seen=f"{counted(len(low), 'partition')} below it: {few(low)}"
        if low
        else counted(len(f.naming), "partition"),
        needed="min.insync.replicas in sync for each",
    )


def _remarks(c: Context, f: Survey) -> tuple[Finding, ...]:
    if isinstance(f.plan, Refused):
        return ()
    return (
        claim("remove.plan", "replicas leave the brokers", True, seen=words(c, f), severity=Severity.INFO),
    )


def words(c: Context, f: Survey) -> str:
    """Describe in one line what the plan does."""
    if not isinstance(f.plan, Plan):
        return f"no plan: {_explain_refusal(f.plan)}"
    told = statistics(f.plan.cluster, f.plan.moves, f.staying)
    return (
        f"{counted(len(f.moves), 'partition')}, {gib(f.plan.bytes)}, "
        f"{Copies.before(f.moves, section(c.inventory)).words}; free bytes of the other brokers "
        f"range over {gib(told.before.range)} before and {gib(told.after.range)} after"
    )


@dataclass(frozen=True)
class Choice:
    """How new replicas are kept off the brokers.

    way: the method. why: what was seen.
    possible: whether the requested method works here.
    own: whether our policy is used, which reads a file.
    """

    way: Exclusion
    why: str
    possible: bool = True
    own: bool = False


def chosen(asked: Removal, cordons: Settings, policies: Settings) -> Choice:
    """Return the method to use.

    cordons: the setting of the brokers to be removed. policies: the setting of all brokers.
    """
    wanted, own = asked.exclusion, asked.policy_file is not None
    silent = [id for id, own in cordons.items() if not isinstance(own, Seen) or own.value.value is None]
    knows = bool(cordons) and not silent
    loaded = {own.value.value for own in policies.values() if isinstance(own, Seen) and own.value.value}
    without = [id for id, own in policies.items() if not isinstance(own, Seen) or not own.value.value]
    told = f"policy loaded: {', '.join(sorted(loaded))}" if loaded else NOT_LOADED
    if wanted is Exclusion.POLICY:
        why = told if not without else f"no policy on brokers {few(map(str, without))}"
        return Choice(wanted, why, bool(loaded) and not without, own)
    if wanted is Exclusion.CORDON or (wanted is Exclusion.AUTO and knows):
        why = (
            f"these brokers support {CORDONED}"
            if knows
            else f"not supported by brokers {few(map(str, silent))}"
        )
        return Choice(Exclusion.CORDON, why, knows or not cordons)
    why = "as the inventory says" if wanted is Exclusion.WATCH else f"Kafka before 4.3 has no {CORDONED}"
    return Choice(Exclusion.WATCH, f"{why}; {told}")


def exclusion(choice: Choice) -> Finding:
    """Return the finding about how new replicas are kept off the brokers, and what is still possible."""
    through = {
        Exclusion.CORDON: "explicit assignments are still possible; the run moves their replicas",
        Exclusion.POLICY: "the policy refuses explicit assignments to the brokers, and while a broker "
        "stops every automatic one; the run moves replicas that were created earlier"
        if choice.own
        else "the run moves replicas that the policy allows",
        Exclusion.WATCH: "new topics may get replicas on the brokers; the run moves them until the "
        "brokers stop",
    }
    return claim(
        "remove.exclusion",
        "new replicas are kept off the brokers as the inventory says",
        choice.possible,
        seen=f"by {choice.way}: {choice.why}" + (f"; {through[choice.way]}" if choice.possible else ""),
        needed="Kafka 4.3 with metadata.version 4.3 to cordon, a policy on every broker, or exclusion: watch",
    )


def policy_file(c: Context, policies: Settings, *, zookeeper: bool) -> tuple[Finding, ...]:
    """Check that our policy can be given a file on every broker, if the inventory names one.

    policies: the setting of all brokers.
    zookeeper: whether the cluster has ZooKeeper, so that brokers run the policy.
    """
    if removal(c.inventory).policy_file is None:
        return ()
    hosts = {c.inventory.broker(name).id for name in policed(c.inventory)}
    without = [id for id in policies if id not in hosts]
    loaded = {id: own.value.value if isinstance(own, Seen) else None for id, own in policies.items()}
    other = [id for id, name in loaded.items() if name != OWN_POLICY]
    seen = [f"no host for brokers {few(map(str, without))}"] if without else []
    seen += [f"another policy, or none, on brokers {few(map(str, other))}"] if other else []
    seen += [] if zookeeper else ["a cluster without ZooKeeper, whose controllers run the policy"]
    return (
        claim(
            "remove.policy-file",
            "our policy can be configured on every broker",
            not seen,
            seen=few(seen) if seen else f"{OWN_POLICY} on {len(policies):,} brokers",
            needed=f"ssh, each broker under kafka.brokers, {OWN_POLICY} on each, and ZooKeeper",
        ),
    )


MEANINGS = meanings(
    """
    remove.policy-file: The run cannot configure our policy. Cause: A broker has not loaded the policy or has
    no host in the inventory, or the cluster has no ZooKeeper. To do: Load the policy on each broker, or set
    removal.exclusion to watch and remove policy_file.

    remove.known: Neither the cluster nor the inventory has a broker that is to be removed. Cause: The id is
    wrong. To do: Correct removal.brokers. Nothing was changed.

    remove.others-alive: A replica list names a broker that is not registered and is not to be removed. Cause:
    That broker is down. To do: Start the broker, then resume. Or add it to removal.brokers.

    remove.stoppable: A broker is to stop, and the inventory does not say how to reach its host. Cause: The
    section ssh or the broker is missing. To do: Add it to the inventory. Or set removal.shutdown to false,
    and stop the broker by hand.

    remove.placed: The remaining brokers cannot take every replica. Cause: There are too few brokers or racks,
    too little disk space, or unknown sizes; the finding names the limit. To do: Add brokers, free disk space,
    or remove fewer brokers. Nothing was changed.

    remove.min-isr: A partition to be moved has fewer replicas in sync than its min.insync.replicas. Cause: A
    broker is down or overloaded. To do: Wait until enough replicas are in sync, or lower min.insync.replicas
    of these topics, then resume.

    remove.plan: The finding shows how much leaves the brokers, and how even the others are before and after.
    Cause: A remark; it stops nothing. To do: Nothing.

    remove.exclusion: New replicas cannot be kept off the brokers in the configured way. Cause: Kafka is too
    old to cordon, or a broker has loaded no policy. To do: Set removal.exclusion to watch, then run again.
    Nothing was changed.
    """
)
