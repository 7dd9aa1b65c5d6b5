"""What: keep new replicas off the brokers to be removed, as far as Kafka can.

Why now: every replica that is created on these brokers from here on would have to move as well. The next step
makes the plan, from the state at that time.

Clients may notice: nothing. A topic that needs more brokers than are left cannot be created.

Way back: each broker's setting gets its former value.

Proof: a new query shows the setting of each broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zkmigrate.cluster.reassign.facts import LOOKS
from zkmigrate.cluster.removal.rules import CORDON_ALL, CORDONED, Settings, chosen, exclusion
from zkmigrate.cluster.removal.section import Exclusion, removal
from zkmigrate.cluster.removal.validate_step import ValidateFacts, settings, validated
from zkmigrate.kafka.changes import KAFKA, AlterBrokerConfig
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import Finding, blocking, claim, few, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Hazard, Ready, Step, Verdict, Waiting, Way
from zkmigrate.runbook.model.step_record import Recorded, known

_BROKER = "broker-"


@dataclass(frozen=True)
class Excluded(Recorded):
    """How new replicas are kept off the brokers, and the settings before.

    way: the method. found: the setting before the run, by broker id; None for unset.
    """

    step: ClassVar[str] = "exclude"

    way: Exclusion
    found: dict[int, str | None]


@dataclass(frozen=True)
class ExcludeFacts:
    """The settings that keep new replicas off the brokers.

    first: the facts that decide on the method; None once the method is recorded.
    cordons: the setting of the brokers to be removed.
    """

    first: ValidateFacts | None
    cordons: Settings
    record: Excluded | None


class ExcludeStep(Step[ExcludeFacts]):
    id = Excluded.step
    title = "Keep new replicas away"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> ExcludeFacts:
        record = known(Excluded, c) if c.begun or c.way is Way.BACK else None
        if record is None and c.way is Way.FORWARD:
            first = validated(c, look)
            return ExcludeFacts(first, first.cordons, None)
        ids = tuple(record.found) if record is not None and record.way is Exclusion.CORDON else ()
        return ExcludeFacts(None, settings(look, CORDONED, ids), record)

    def check(self, c: Context, f: ExcludeFacts) -> Verdict:
        record = f.record
        findings: tuple[Finding, ...] = ()
        if f.first is not None:
            choice = chosen(removal(c.inventory), f.cordons, f.first.policies)
            findings = (exclusion(choice),)
            if blocking(findings):
                return Blocked(findings)
            found = {id: own.value.own for id, own in f.cordons.items() if isinstance(own, Seen)}
            record = Excluded(choice.way, found if choice.way is Exclusion.CORDON else {})
        if record is None:
            return Done()  # the process ended before the first change
        limit = c.inventory.policy.step_deadline_s
        silent = [id for id in record.found if not isinstance(f.cordons.get(id), Seen)]
        if silent:
            return Waiting(
                f"a response of brokers about {CORDONED}", few(map(str, silent)), limit, poll_s=1.0
            )
        differ = tuple(
            f"{_BROKER}{id}" for id in record.found if self._value_to_set(c, f, record, id) is not None
        )
        looks = c.kept.get("looks", 0)
        sent = c.unrestored - c.unconfirmed if c.way is Way.FORWARD else frozenset(differ) - c.unrestored
        todo = tuple(target for target in differ if target not in sent or looks >= LOOKS)
        if todo and (c.way is Way.FORWARD or looks < LOOKS):
            return Ready(todo, record=record.encode())
        if differ and looks < LOOKS:
            what = "brokers report the setting that Kafka has confirmed"
            return Waiting(what, few(differ), limit + LOOKS, 1.0, {"looks": looks + 1})
        if c.way is Way.BACK:
            return Done()
        told = f"{CORDONED}={CORDON_ALL} on brokers {few(map(str, record.found))}" if record.found else ""
        held = claim("remove.excluded", "new replicas are kept away", True, seen=told or f"by {record.way}")
        return Done((*findings, held), record.encode())

    def _value_to_set(
        self, c: Context, f: ExcludeFacts, record: Excluded, id: int
    ) -> tuple[str | None] | None:
        """Return the value to set on a broker, as a tuple of one, or None for no change.

        Nothing changes if the broker has the value, or on the way back if another tool has changed it.
        """
        reading = f.cordons[id]
        own = reading.value.own if isinstance(reading, Seen) else None
        if c.way is Way.FORWARD:
            return None if own == CORDON_ALL else (CORDON_ALL,)
        return (record.found[id],) if own == CORDON_ALL != record.found[id] else None

    def plan(self, c: Context, f: ExcludeFacts, target: str) -> Changes:
        return self._changes(f, target, CORDON_ALL)

    def undo(self, c: Context, f: ExcludeFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        id = int(target.removeprefix(_BROKER))
        own = f.cordons[id]
        if f.record is None and isinstance(own, Seen):  # a forecast, which restores the current value
            return (AlterBrokerConfig(KAFKA, id, CORDONED, own.value.own, CORDON_ALL),)
        assert f.record is not None
        return self._changes(f, target, f.record.found[id])

    def _changes(self, f: ExcludeFacts, target: str, value: str | None) -> Changes:
        id = int(target.removeprefix(_BROKER))
        own = f.cordons[id]
        assert isinstance(own, Seen)
        return (AlterBrokerConfig(KAFKA, id, CORDONED, value, own.value.own),)


MEANINGS = meanings(
    """
    remove.excluded: New replicas may still be placed on the brokers. Cause: The step is not finished. To do:
    Wait, or resume.
    """
)
