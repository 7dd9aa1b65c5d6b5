"""What: check that the brokers can be removed, with a plan that is not kept; change nothing.

Why now: too little disk, too few brokers or racks, or a running reassignment must be found before any change.

Clients may notice: nothing.

Way back: nothing was changed.

Proof: the remaining brokers have room for every replica, and no partition is below its min ISR.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import ClassVar

from zkmigrate.cluster.reassign.estimate import copied
from zkmigrate.cluster.reassign.facts import LOOKS
from zkmigrate.cluster.reassign.inflow import enough, first_reading, measured
from zkmigrate.cluster.reassign.moves import Move
from zkmigrate.cluster.reassign.rules import gib
from zkmigrate.cluster.reassign.throttle import FirstLimits, Values, read, values
from zkmigrate.cluster.removal.rules import (
    ANSWER_S,
    CORDONED,
    POLICY,
    UNREGISTER,
    Settings,
    before,
    chosen,
    exclusion,
    policy_file,
    words,
)
from zkmigrate.cluster.removal.section import removal
from zkmigrate.cluster.removal.survey import Survey, survey
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.kafka.questions import PingBrokers, ReadBrokerSettings
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import blocking
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Done, Reads, Verdict, Waiting


@dataclass(frozen=True)
class ValidateFacts:
    """The cluster before a removal.

    survey: the cluster.
    cordons, policies: the settings that decide how new replicas can be kept off.
    limits: the throttle rates of all brokers; empty if they are not queried.
    zookeeper: whether the cluster has ZooKeeper; queried only if the inventory names a policy file.
    """

    survey: Survey
    cordons: Settings
    policies: Settings
    limits: Values = field(default_factory=dict)
    zookeeper: bool = True


@dataclass(frozen=True)
class FirstRates(FirstLimits):
    """The throttle rates of all brokers, as the step that checks a removal saw them."""

    step: ClassVar[str] = "validate"


def settings(look: Look, key: str, brokers: Collection[int]) -> Settings:
    """Return one setting of these brokers. If there is no answer, each broker has the failed reading."""
    if not brokers:
        return {}
    told = look.ask(ReadBrokerSettings(KAFKA, key, tuple(brokers)))
    return told.value if isinstance(told, Seen) else dict.fromkeys(brokers, told)


def validated(c: Context, look: Look) -> ValidateFacts:
    """Read the cluster, and find out how new replicas can be kept off the brokers."""
    found = survey(c, look)
    pulses = look.ask(PingBrokers(ANSWER_S)).values() if removal(c.inventory).policy_file is not None else ()
    return ValidateFacts(
        found,
        settings(look, CORDONED, found.leaving),
        settings(look, POLICY, sorted(found.view.brokers)),
        zookeeper=not any(UNREGISTER in pulse.apis for pulse in pulses),
    )


def unsized(c: Context, f: Survey) -> Waiting | None:
    """Return a wait for the size of a partition that was just created.

    Returns None if no size is missing, or if one is still missing after ``LOOKS`` looks.
    """
    looks = c.kept.get("unsized", 0)
    if not f.unsized or looks >= LOOKS:
        return None
    what, limit = "the size of every partition", c.inventory.policy.step_deadline_s + LOOKS
    return Waiting(what, "a partition has no size yet", limit, 1.0, {**c.kept, "unsized": looks + 1})


class ValidateStep(Reads[ValidateFacts]):
    id = FirstRates.step
    title = "Check that the brokers can be removed"

    def observe(self, c: Context, look: Look) -> ValidateFacts:
        found = validated(c, look)
        rates = read(look, sorted(found.survey.view.brokers), ())
        return replace(found, limits=values(rates.value) if isinstance(rates, Seen) else {})

    def check(self, c: Context, f: ValidateFacts) -> Verdict:
        choice = chosen(f.survey.wanted, f.cordons, f.policies)
        told = policy_file(c, f.policies, zookeeper=f.zookeeper)
        findings = (*before(c, f.survey), exclusion(choice), *told)
        survey = f.survey
        waiting = unsized(c, survey)
        if waiting is None and not blocking(findings):
            waiting = first_reading(c, survey.moves, survey.at)
        if waiting is not None:
            return waiting
        partitions = {(one.topic, one.partition): one for one in survey.view.partitions}
        findings += enough(c, survey.moves, partitions, survey.at)
        return Done.unless_blocked(findings, FirstRates.of(f.limits).encode())


def planned_moves(c: Context, look: Look) -> tuple[Move, ...]:
    """Return the moves as they would be planned now."""
    return survey(c, look).moves


def measured_writes(c: Context, look: Look) -> tuple[str, ...] | Waiting:
    """Return the lines that ``plan`` prints about the throttle and clients' writes to these partitions."""
    f = survey(c, look)
    partitions = {(one.topic, one.partition): one for one in f.view.partitions}
    return measured(c, f.moves, partitions, f.at)


def foreseen(c: Context, look: Look) -> tuple[str, ...]:
    """Return the lines that ``plan`` prints about the whole run."""
    f = validated(c, look)
    choice = chosen(removal(c.inventory), f.cordons, f.policies)
    brokers = tuple(
        f"  broker {broker}: {gib(to)} in, {gib(of)} out"
        for broker, (to, of) in copied(f.survey.moves).items()
        if to or of
    )
    end = "then the brokers stop" if f.survey.wanted.shutdown else "the brokers continue to run, empty"
    return (*brokers, f"  {words(c, f.survey)}", f"  exclusion: {exclusion(choice).seen}", f"  {end}")
