"""What: let a cluster without ZooKeeper forget the brokers that have stopped. With ZooKeeper nothing is left
of a broker that is down.

Why now: they are down. Until then Kafka keeps their ids, and tools wait for them.

Clients may notice: nothing.

Way back: none is needed; a broker that starts registers again.

Proof: Kafka confirms it for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkmigrate.model.change import KAFKA, Applied, Changes, UnregisterBroker
from zkmigrate.model.fact import Reading, Seen
from zkmigrate.model.finding import Finding, Severity, claim, few, meanings
from zkmigrate.model.look import KafkaView, Look, Pulse
from zkmigrate.model.step import Context, Done, Forecast, Hazard, Ready, Step, Verdict, Waiting, Way
from zkmigrate.model.step_record import known
from zkmigrate.removal.disks import OnDisks, directories_left, on_disks
from zkmigrate.removal.exclude_step import Excluded
from zkmigrate.removal.rules import ANSWER_S, CORDON_ALL, CORDONED, UNREGISTER
from zkmigrate.removal.section import removal

_BROKER = "unregister-"


@dataclass(frozen=True)
class CleanFacts:
    """view: the cluster. pulses: what requests its brokers take. None each where nothing is asked. aside: the
    directories on the disks of the removed brokers."""

    view: Reading[KafkaView] | None = None
    pulses: Mapping[str, Pulse] | None = None
    aside: OnDisks = field(default_factory=dict)


class CleanStep(Step[CleanFacts]):
    id = "forget"
    title = "Let the cluster forget the brokers"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> CleanFacts:
        if c.way is Way.BACK or not removal(c.inventory).shutdown:
            return CleanFacts()
        return CleanFacts(look.kafka(1), look.pulses(ANSWER_S), on_disks(c.inventory, look))

    def check(self, c: Context, f: CleanFacts) -> Verdict:
        if f.view is None or f.pulses is None:
            return Done()
        limit = c.inventory.policy.step_deadline_s
        offers = [pulse.apis for pulse in f.pulses.values() if not pulse.why]
        if not isinstance(f.view, Seen) or not offers:
            return Waiting("an answer of Kafka", str(f.view), limit, poll_s=1.0, keep=c.kept)
        heard = {c.inventory.broker(name).id for name, pulse in f.pulses.items() if not pulse.why}
        here = heard | set(f.view.value.brokers)  # who tells the view may have missed a broker that lives
        gone = [id for id in removal(c.inventory).brokers if id not in here]
        asked: frozenset[str] = c.kept.get("asked", frozenset()) - c.unconfirmed
        able = all(UNREGISTER in apis for apis in offers)
        todo = tuple(t for id in gone if able and (t := f"{_BROKER}{id}") not in asked)
        if todo:
            return Ready(todo, keep={"asked": asked | set(todo)})
        return Done((_forgotten(gone, able), *_left(c, gone), *directories_left(f.aside)))

    def plan(self, c: Context, f: CleanFacts, target: str) -> Changes:
        return (UnregisterBroker(KAFKA, int(target.removeprefix(_BROKER))),)

    def undo(self, c: Context, f: CleanFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()

    def forecast(self, c: Context, look: Look) -> Forecast[CleanFacts] | None:
        return None  # who is down then is known then


def _forgotten(gone: list[int], able: bool) -> Finding:
    seen = few(map(str, gone)) if gone else "none is down"
    seen += "" if able or not gone else "; with ZooKeeper a broker that is down is not registered"
    return claim("remove.forgotten", "the cluster has forgotten the brokers that stopped", True, seen=seen)


def _left(c: Context, gone: list[int]) -> tuple[Finding, ...]:
    """The cordon of a broker that is down stays: only the broker itself or a controller takes the setting."""
    record = known(Excluded, c)
    left = [id for id in gone if record is not None and id in record.found]
    if not left:
        return ()
    return (
        claim(
            "remove.cordon-stays",
            "no setting of the run is left",
            False,
            seen=f"{CORDONED}={CORDON_ALL} of brokers {few(map(str, left))}, which are down",
            needed="a broker that starts with one of these ids is cordoned until it is unset",
            moves=(
                f"when an id is used again: kafka-configs.sh --bootstrap-controller HOST:PORT --alter "
                f"--entity-type brokers --entity-name ID --delete-config {CORDONED}",
            ),
            severity=Severity.WARN,
        ),
    )


MEANINGS = meanings(
    """
    remove.forgotten: The cluster still names a removed broker. Cause: Kafka has not confirmed it. To do:
    Resume.

    remove.cordon-stays: A stopped broker keeps its cordon in the cluster's metadata. Cause: Only the broker
    itself or a controller can unset it. To do: Unset it when you use its id again.
    """
)
