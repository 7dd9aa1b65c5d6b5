"""What: stop every broker, wave after wave, the controller last.

Why now: dest's transactions are final only once no broker uses dest.

Clients may notice: partitions go offline as their last replicas stop. From the last wave on nothing is served
until the brokers start again.

Way back: start the brokers against dest again, those that stopped last first.

Proof: no broker's service runs, and dest shows neither a registered broker nor a controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.kafka.facts.broker import broker_service
from zkmigrate.kafka.facts.cluster import kafka_view
from zkmigrate.kafka.questions import KafkaView
from zkmigrate.kafka.rules.next_wave import out_of_sync
from zkmigrate.move.facts.dest_status import unknown
from zkmigrate.move.facts.outage import BrokerState, Registered, brokers, load_progress, registered
from zkmigrate.move.facts.records import Outage
from zkmigrate.move.rules.outage import next_to_start, next_to_stop
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.fact import Reading, Seen
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
from zkmigrate.runbook.model.step_record import known

STILL_S = 600.0
"""The seconds without progress after which the wait for starting brokers ends; loading logs is progress."""

SYNC_S, SESSION_S = 300.0, 120.0


@dataclass(frozen=True)
class DownFacts:
    """Every broker, Kafka as the running brokers report it, and their registrations on dest."""

    brokers: Mapping[str, BrokerState]
    view: Reading[KafkaView]
    dest: Reading[Registered]


class BrokersDownStep(Step[DownFacts]):
    id = "brokers"
    title = "Stop every broker"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> DownFacts:
        inventory = c.inventory
        return DownFacts(
            brokers(inventory, look),
            kafka_view(c, look),
            registered(look, inventory.dest_names, inventory.kafka.prefix),
        )

    def check(self, c: Context, f: DownFacts) -> Verdict:
        if unread := unknown_services("brokers", f.brokers):
            return Blocked(unread)
        up = [broker for broker in c.inventory.kafka.brokers if f.brokers[broker.name].runs]
        order = stopped_order(c)
        if c.way is Way.BACK:
            return _back(c, f, order)
        if stopping := ", ".join(name for name, state in f.brokers.items() if state.stops):
            # A stop may last longer than the wait for its answer; sending it again would have no effect.
            longest_s = max(STILL_S, c.inventory.policy.roll_recovery_s)
            return Waiting(f"{stopping} has stopped", "systemd is stopping the service", longest_s, 1.0)
        if up:
            if not isinstance(f.view, Seen):
                return Waiting("the running brokers answer", str(f.view), SYNC_S, 1.0)
            wave, why = next_to_stop(f.view.value, up, c.inventory.policy.roll_wave)
            if not wave:
                return Waiting("every replica on a running broker is in sync", why, SYNC_S, 1.0)
            ahead = tuple(name for name in order if name not in wave)
            return Ready(wave, record=Outage((*ahead, *wave)).encode())
        if not isinstance(f.dest, Seen):
            return Waiting("dest reports its registered brokers", str(f.dest), SESSION_S, 1.0)
        dest = f.dest.value
        if dest.any_registered:
            return Waiting("the brokers' sessions on dest have ended", dest.words, SESSION_S, 1.0)
        down = claim("brokers.down", "no broker runs or is registered on dest", True, seen="0 registered")
        return Done((down,), Outage(order, dest.epoch).encode())

    def plan(self, c: Context, f: DownFacts, target: str) -> Changes:
        return (broker_service(c.inventory, target, "stop"),)

    def undo(self, c: Context, f: DownFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return (broker_service(c.inventory, target, "start"),)

    def forecast(self, c: Context, look: Look) -> Forecast[DownFacts]:
        return Forecast(self.observe(c, look), c.inventory.broker_names)


def stopped_order(c: Context) -> tuple[str, ...]:
    """Return the brokers in the order in which this run stopped them; brokers without a record come first."""
    outage = known(Outage, c) if c.begun else None
    every = c.inventory.broker_names  # without brokers that were retired since
    order = tuple(name for name in outage.order if name in every) if outage is not None else ()
    return (*(name for name in every if name not in order), *order)


def _back(c: Context, f: DownFacts, order: tuple[str, ...]) -> Verdict:
    """Decide the next action of the way back, until all brokers are registered on dest and in sync.

    order: the order in which the brokers were stopped.
    """
    started = [name for name, state in f.brokers.items() if state.runs]
    registered = registered_among(c, started, f.dest)
    if wave := next_to_start(order[::-1], started, registered):
        return Ready(wave)
    return wait_for_brokers(c, f.brokers, f.view, registered, "dest") or Done()


def registered_among(c: Context, started: list[str], shown: Reading[Registered]) -> list[str]:
    """Return those of the started brokers whose registration the ensemble shows."""
    ids = shown.value.ids if isinstance(shown, Seen) else frozenset()
    return [name for name in started if c.inventory.broker(name).id in ids]


def wait_for_brokers(
    c: Context, states: Mapping[str, BrokerState], view: Reading[KafkaView], registered: list[str], side: str
) -> Waiting | None:
    """Return the wait until all brokers are registered on an ensemble and in sync.

    Returns None once they are. side: the ensemble's name in messages, source or dest.
    """
    every = c.inventory.broker_names
    behind = len(out_of_sync(view.value, frozenset())) if isinstance(view, Seen) else -1
    if len(registered) == len(every) and behind == 0:
        return None
    replicas = f"{behind} partitions lack a replica" if behind >= 0 else str(view)
    seen = f"{len(registered)} of {len(every)} are registered; {replicas}"
    longest_s = max(STILL_S, c.inventory.policy.roll_recovery_s)
    mark, what = (
        (len(registered), behind, load_progress(states)),
        f"every broker is registered on {side} and in sync",
    )
    return Waiting(what, seen, longest_s, 1.0, mark=mark, stalled_s=STILL_S)


def unknown_services(step: str, states: Mapping[str, BrokerState]) -> tuple[Finding, ...]:
    """Return a finding for each broker for which it is not known whether its service runs."""
    return tuple(unknown(f"{step}.service", h, s.status) for h, s in states.items() if s.runs is None)


MEANINGS = meanings(
    """
    STEP.service: It is not known whether a broker runs. Cause: The host does not answer, or its status
    command fails. To do: Run systemctl status, or the status command, on that host by hand, then resume.

    brokers.down: A broker runs or is registered on dest. Cause: The broker has not stopped yet, or somebody
    started it. To do: Stop the broker and find out who started it, then resume.
    """
)
