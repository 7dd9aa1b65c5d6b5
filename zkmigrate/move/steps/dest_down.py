"""What: stop ZooKeeper on every dest host and read the newest zxid from its disk.

Why now: no broker runs any more, so the content of the disks is final.

Clients may notice: nothing more; no broker serves them.

Way back: start the servers again. Their disks were only read.

Proof: no dest server runs, and a majority of the disks hold the same newest transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.hosts.facts.status import HostStatus, runs
from zkmigrate.move.facts.dest_status import unanswered, unknown
from zkmigrate.move.facts.outage import BrokerState, brokers, dest_service, dest_services
from zkmigrate.move.steps.brokers_down import unknown_services
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Finding, claim, each, meanings
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
from zkmigrate.zookeeper.data.tail import Tail
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.facts.disk import durable_tail
from zkmigrate.zookeeper.facts.ensemble import EnsembleView, dest_view

SERVES_S = 120.0


@dataclass(frozen=True)
class DestFacts:
    """The state of every broker, of ZooKeeper on every dest host, and of the disk of each stopped host.

    view: the mode and zxid of each dest server, read only on the way back.
    """

    brokers: Mapping[str, BrokerState]
    services: Mapping[str, Reading[HostStatus]]
    tails: Mapping[str, Reading[Tail]]
    view: EnsembleView | None = None


class DestDownStep(Step[DestFacts]):
    id = "dest"
    title = "Stop dest and read its disks"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> DestFacts:
        services = dest_services(c.inventory, look)
        down = [host for host, status in services.items() if runs(status) is False]
        back = c.way is Way.BACK
        tails = {} if back else look.each(down, lambda host: durable_tail(look, host, c.inventory.dest))
        return DestFacts(
            brokers(c.inventory, look), services, tails, dest_view(c.inventory, look) if back else None
        )

    def check(self, c: Context, f: DestFacts) -> Verdict:
        unread = tuple(unknown("dest.service", h, r) for h, r in f.services.items() if runs(r) is None)
        if unread or (unread := unknown_services("dest", f.brokers)):
            return Blocked(unread)
        up = tuple(host for host, status in f.services.items() if runs(status))
        if c.way is Way.BACK:
            if down := tuple(host for host in f.services if host not in up):
                return Ready(down)
            if f.view is None or f.view.has_quorum() is not True:
                seen = "" if f.view is None else each(f.view.modes())
                return Waiting("dest serves", seen, SERVES_S, 1.0)
            return Done()
        if running := _running(f.brokers):
            return Blocked(running)
        if up:
            return Ready(up)
        if unread := unanswered("dest.tail", f.tails):
            return Blocked(unread)
        newest = {host: r.value.zxid for host, r in f.tails.items() if isinstance(r, Seen)}
        return Done.unless_blocked((_equal(c, newest),))

    def plan(self, c: Context, f: DestFacts, target: str) -> Changes:
        return (dest_service(c.inventory, target, "stop"),)

    def undo(self, c: Context, f: DestFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return (dest_service(c.inventory, target, "start"),)

    def forecast(self, c: Context, look: Look) -> Forecast[DestFacts]:
        return Forecast(DestFacts({}, {}, {}), c.inventory.dest_names)


def _running(states: Mapping[str, BrokerState]) -> tuple[Finding, ...]:
    """Return a finding for each broker that runs, although all were stopped."""
    return tuple(
        claim(
            "dest.brokers-down",
            "the broker is down",
            False,
            target=host,
            seen="the broker's service runs",
            needed="stopped",
            moves=(
                "stop the broker and find out who started it, then resume",
                "or roll back: zkmigrate rollback",
            ),
        )
        for host, state in states.items()
        if state.runs
    )


def _equal(c: Context, tails: Mapping[str, int]) -> Finding:
    newest = max(tails.values(), default=0)
    holding = [host for host, zxid in tails.items() if zxid == newest]
    majority = c.inventory.dest.majority
    return claim(
        "dest.tail",
        "a majority of dest's disks hold the same newest transaction",
        len(holding) >= majority,
        seen=", ".join(f"{host} {format_zxid(zxid)}" for host, zxid in tails.items()),
        needed=f"the newest on {majority}",
        moves=("roll back to outage.dest, so that dest starts and its servers catch up. Then run again",),
    )


MEANINGS = meanings(
    """
    dest.brokers-down: A broker runs although it was stopped. Cause: Somebody started the broker. To do: Stop
    the broker and find out who started it, then resume. Or roll back.

    dest.tail: Fewer than a majority of dest's disks hold the newest transaction. Cause: Some servers were
    behind when they stopped. To do: Roll back to outage.dest, so that dest starts and its servers catch up.
    Then run again.

    dest.service: It is not known whether ZooKeeper runs on a dest host. Cause: The host does not answer.
    To do: Find out why, then resume.
    """
)
