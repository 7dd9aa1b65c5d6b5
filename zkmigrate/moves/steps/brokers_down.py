"""What: stop every broker, wave after wave, the controller last.

Why now: what dest did is only final once nobody uses it.

Clients may notice: partitions go offline as their last replicas stop; from the last wave on nothing is served
until the brokers start again.

Way back: start them against dest again, those that stopped last first.

Proof: no broker's service runs, and dest has ended every broker's session: none is registered, none is
controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.kafka.facts.cluster import kafka_view
from zkmigrate.kafka.rules.next_wave import out_of_sync
from zkmigrate.model.change import Applied, Changes, SetService
from zkmigrate.model.fact import Reading, Seen
from zkmigrate.model.finding import Finding, claim, meanings
from zkmigrate.model.look import KafkaView, Look
from zkmigrate.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Waiting, Way
from zkmigrate.model.step_record import known
from zkmigrate.moves.facts.dest_status import unknown
from zkmigrate.moves.facts.outage import BrokerState, Registered, brokers, loaded, registered
from zkmigrate.moves.facts.records import Outage
from zkmigrate.moves.rules.outage import next_down, next_up

STILL_S = 600.0
"""So long brokers may stand still while they come back; while they load logs they are waited for."""

SYNC_S, SESSION_S = 300.0, 120.0


@dataclass(frozen=True)
class DownFacts:
    """Every broker, Kafka as those answer that are up, and what dest shows of them."""

    brokers: Mapping[str, BrokerState]
    view: Reading[KafkaView]
    dest: Reading[Registered]


class BrokersDownStep(Step[DownFacts]):
    """See the module."""

    id = "brokers"
    title = "Stop every broker"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> DownFacts:
        inventory = c.inventory
        return DownFacts(
            brokers(inventory, look),
            kafka_view(c, look),
            registered(look, inventory.dest_names, inventory.kafka.chroot),
        )

    def check(self, c: Context, f: DownFacts) -> Verdict:
        if lost := untold("brokers", f.brokers):
            return Blocked(lost)
        up = [broker for broker in c.inventory.kafka.brokers if f.brokers[broker.name].runs]
        order = stopped_order(c)
        if c.way is Way.BACK:
            return _back(c, f, order)
        if stopping := ", ".join(name for name, state in f.brokers.items() if state.stops):
            # A stop may take longer than its answer is waited for; sent again it would do nothing.
            longest_s = max(STILL_S, c.inventory.policy.roll_recovery_s)
            return Waiting(f"{stopping} stops", "systemd stops it", longest_s, 1.0)
        if up:
            if not isinstance(f.view, Seen):
                return Waiting("the brokers that are up answer", str(f.view), SYNC_S, 1.0)
            wave, why = next_down(f.view.value, up, c.inventory.policy.roll_wave)
            if not wave:
                return Waiting("every replica that is up is in sync", why, SYNC_S, 1.0)
            ahead = tuple(name for name in order if name not in wave)
            return Ready(wave, record=Outage((*ahead, *wave)).encode())
        if not isinstance(f.dest, Seen):
            return Waiting("dest tells who is registered", str(f.dest), SESSION_S, 1.0)
        there = f.dest.value
        if there.anybody:
            return Waiting("dest has ended the brokers' sessions", there.words, SESSION_S, 1.0)
        gone = claim("brokers.down", "no broker runs or is registered on dest", True, seen="0 registered")
        return Done((gone,), Outage(order, there.epoch).encode())

    def plan(self, c: Context, f: DownFacts, target: str) -> Changes:
        kafka = c.inventory.kafka
        return (SetService(target, kafka.service.unit, "stop", kafka.commands(target)),)

    def undo(self, c: Context, f: DownFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        kafka = c.inventory.kafka
        return (SetService(target, kafka.service.unit, "start", kafka.commands(target)),)

    def forecast(self, c: Context, look: Look) -> Forecast[DownFacts]:
        """All of them, wave after wave."""
        return Forecast(self.observe(c, look), c.inventory.broker_names)


def stopped_order(c: Context) -> tuple[str, ...]:
    """The brokers as this walk stopped them; those of which nothing is known first."""
    found = known(Outage, c) if c.begun else None
    every = c.inventory.broker_names  # without those that were retired since
    order = tuple(name for name in found.order if name in every) if found is not None else ()
    return (*(name for name in every if name not in order), *order)


def _back(c: Context, f: DownFacts, order: tuple[str, ...]) -> Verdict:
    """Every broker is up, registered on dest and in sync again."""
    started = [name for name, state in f.brokers.items() if state.runs]
    ids = f.dest.value.ids if isinstance(f.dest, Seen) else frozenset()
    here = [name for name in started if c.inventory.broker(name).id in ids]
    if wave := next_up(order[::-1], started, here):
        return Ready(wave)
    if waits := coming_back(c, f.brokers, f.view, here, "dest"):
        return waits
    return Done()


def coming_back(
    c: Context, states: Mapping[str, BrokerState], view: Reading[KafkaView], here: list[str], side: str
) -> Waiting | None:
    """The wait for brokers that were started; None once all are registered and in sync. here: those that are
    registered on that side."""
    every = c.inventory.broker_names
    behind = len(out_of_sync(view.value, frozenset())) if isinstance(view, Seen) else -1
    if len(here) == len(every) and behind == 0:
        return None
    seen = f"{len(here)} of {len(every)} are registered; " + (
        f"{behind} partitions lack a replica" if behind >= 0 else str(view)
    )
    longest_s = max(STILL_S, c.inventory.policy.roll_recovery_s)
    mark, what = (len(here), behind, loaded(states)), f"every broker is registered on {side} and in sync"
    return Waiting(what, seen, longest_s, 1.0, mark=mark, stalled_s=STILL_S)


def untold(step: str, states: Mapping[str, BrokerState]) -> tuple[Finding, ...]:
    """A finding for each broker of which nobody can tell whether it runs: it may."""
    return tuple(
        unknown(f"{step}.service", host, state.status) for host, state in states.items() if state.runs is None
    )


MEANINGS = meanings(
    """
    STEP.service: The host of a broker did not tell whether the broker runs. Cause: The host does not answer,
    or its status command fails. To do: Run systemctl status, or the status command, on that host by hand,
    then resume.

    brokers.down: A broker runs or is registered on dest. Cause: It has not stopped yet, or somebody
    started it. To do: Stop it and find out who started it, then resume.
    """
)
