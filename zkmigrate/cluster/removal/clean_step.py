"""What: unregister the stopped brokers from a cluster without ZooKeeper, and unset the cordons of this run.
With ZooKeeper a broker that is down is not registered.

Why now: the brokers are down. Until they are unregistered Kafka keeps their ids, and tools wait for them.
Afterwards Kafka accepts no change of their settings any more.

Clients may notice: nothing.

Way back: none is needed; a broker that starts registers again.

Proof: Kafka confirms the removal of each broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from zkmigrate.cluster.removal.disks import OnDisks, directories_left, on_disks
from zkmigrate.cluster.removal.exclude_step import Excluded
from zkmigrate.cluster.removal.rules import ANSWER_S, CORDON_ALL, CORDONED, UNREGISTER
from zkmigrate.cluster.removal.section import removal
from zkmigrate.kafka.changes import KAFKA, AlterAtController, UnregisterBroker
from zkmigrate.kafka.questions import DescribeCluster, KafkaView, PingBrokers, ValidateAtController
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Finding, Severity, claim, few, meanings
from zkmigrate.runbook.model.look import Look, Pulse
from zkmigrate.runbook.model.step import Context, Done, Forecast, Hazard, Ready, Step, Verdict, Waiting, Way
from zkmigrate.runbook.model.step_record import Recorded, known

_BROKER = "unregister-"


@dataclass(frozen=True)
class Uncordoned(Recorded):
    """The cordons that the controller unsets.

    brokers: the brokers whose cordon is unset before Kafka forgets them.
    """

    step: ClassVar[str] = "forget"

    brokers: tuple[int, ...]


@dataclass(frozen=True)
class CleanFacts:
    """The brokers that have stopped, and everything that remains of them.

    view: the cluster. pulses: which requests its brokers support. Both are None if nothing is queried.
    aside: the directories on the disks of the removed brokers.
    refused: for brokers that this run has cordoned, why the controller refuses to unset that; empty if it
    accepts.
    """

    view: Reading[KafkaView] | None = None
    pulses: Mapping[str, Pulse] | None = None
    aside: OnDisks = field(default_factory=dict)
    refused: Mapping[int, Reading[str]] = field(default_factory=dict)


class CleanStep(Step[CleanFacts]):
    id = Uncordoned.step
    title = "Unregister the brokers"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> CleanFacts:
        if c.way is Way.BACK or not removal(c.inventory).shutdown:
            return CleanFacts()
        refused = {id: look.ask(ValidateAtController(_cordon(id))) for id in _cordoned(c)}
        return CleanFacts(
            look.ask(DescribeCluster(1)),
            look.ask(PingBrokers(ANSWER_S)),
            on_disks(c.inventory, look),
            refused,
        )

    def check(self, c: Context, f: CleanFacts) -> Verdict:
        if f.view is None or f.pulses is None:
            return Done()
        limit = c.inventory.policy.step_deadline_s
        offers = [pulse.apis for pulse in f.pulses.values() if not pulse.why]
        if not isinstance(f.view, Seen) or not offers:
            return Waiting("a response of Kafka", str(f.view), limit, poll_s=1.0, keep=c.kept)
        heard = {c.inventory.broker(name).id for name, pulse in f.pulses.items() if not pulse.why}
        here = heard | set(f.view.value.brokers)  # the broker that answered may not know a live one
        gone = [id for id in removal(c.inventory).brokers if id not in here]
        asked: frozenset[str] = c.kept.get("asked", frozenset()) - c.unconfirmed
        able = all(UNREGISTER in apis for apis in offers)
        todo = tuple(t for id in gone if able and (t := f"{_BROKER}{id}") not in asked)
        before = known(Uncordoned, c)
        unset = set(before.brokers) if before is not None else set()
        if todo:
            unset |= {id for id in gone if f.refused.get(id) == _TAKEN}
            return Ready(
                todo, record=Uncordoned(tuple(sorted(unset))).encode(), keep={"asked": asked | set(todo)}
            )
        cordons = [id for id in _cordoned(c) if id in gone]
        left = {id: f.refused[id] for id in cordons if id not in unset}
        told = _uncordoned(cordons, left)
        return Done((_forgotten(gone, able), *told, *directories_left(f.aside)))

    def plan(self, c: Context, f: CleanFacts, target: str) -> Changes:
        id = int(target.removeprefix(_BROKER))
        forget = UnregisterBroker(KAFKA, id)
        return (_cordon(id), forget) if f.refused.get(id) == _TAKEN else (forget,)

    def undo(self, c: Context, f: CleanFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()

    def forecast(self, c: Context, look: Look) -> Forecast[CleanFacts] | None:
        return None  # which brokers are down is known only then


def _forgotten(gone: list[int], able: bool) -> Finding:
    seen = few(map(str, gone)) if gone else "none of the brokers is down"
    seen += "" if able or not gone else "; with ZooKeeper a broker that is down is not registered"
    return claim("remove.forgotten", "the cluster has forgotten the brokers that stopped", True, seen=seen)


_TAKEN = Seen("")


def _cordon(id: int) -> AlterAtController:
    return AlterAtController(KAFKA, id, CORDONED, None, CORDON_ALL)


def _cordoned(c: Context) -> list[int]:
    """Return the brokers that this run has cordoned and that were not cordoned before."""
    record = known(Excluded, c)
    return [id for id, found in record.found.items() if found is None] if record is not None else []


def _uncordoned(cordons: list[int], left: Mapping[int, Reading[str]]) -> tuple[Finding, ...]:
    """Check that the run's cordons are unset. left: why some are not."""
    if not cordons:
        return ()
    why = {id: told.value if isinstance(told, Seen) else str(told) for id, told in left.items()}
    seen = few(f"broker {id}: {text}" for id, text in why.items())
    return (
        claim(
            "remove.cordon-stays",
            f"{CORDONED} of the run is unset",
            not left,
            seen=seen or f"unset at the controller for brokers {few(map(str, cordons))}",
            needed="a response of the active controller, because a broker that is down accepts no setting",
            moves=(
                f"a new broker with one of these ids starts cordoned. Once that broker is up, run: "
                f"kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type brokers "
                f"--entity-name ID --delete-config {CORDONED}",
            ),
            severity=Severity.WARN,
        ),
    )


MEANINGS = meanings(
    """
    remove.forgotten: The cluster still names a removed broker. Cause: Kafka has not confirmed the removal. To
    do: Resume.

    remove.cordon-stays: A stopped broker keeps its cordon in the cluster's metadata. Cause: Only the active
    controller can remove it, and it did not respond, or Kafka had forgotten the broker already. To do: When
    you use the id again, unset cordoned.log.dirs once the broker is up.
    """
)
