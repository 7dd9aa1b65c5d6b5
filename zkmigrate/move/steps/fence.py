"""What: refuse clients at the client port of every dest host and end their connections.

Why now: no client may change dest between the last proof and the reform. Right before the fence, dest is
checked once more for foreign clients that came since SURVEY.

Clients may notice: members lose ZooKeeper and keep retrying; Kafka's producers and consumers continue. A
client does not know the outcome of requests that were not acknowledged, as in any disconnect.

Way back: reopen. No session is lost if the way back starts before the deadline. The kernel reopens by itself
when the lease is not renewed.

Proof: on every dest host zkm-host's rules are first, the set is filled, and no client socket is left.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.hosts.facts.status import HostStatus
from zkmigrate.move.dependent import OfDependent
from zkmigrate.move.facts.connections import connections_of
from zkmigrate.move.facts.dest_status import DestStates, Statuses, dest_states, every_host_in
from zkmigrate.move.rules.foreign_clients import foreign_findings
from zkmigrate.move.rules.lease import lease_in_force
from zkmigrate.runbook.model.change import Applied, Changes, Fence, HostVerb
from zkmigrate.runbook.model.finding import Finding, blocking, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Way
from zkmigrate.runbook.model.window import Phase


@dataclass(frozen=True)
class FenceFacts:
    """The state of the fence.

    foreign: findings about other clients of dest, read before the first host is fenced; an accepted finding
    only warns.
    """

    states: DestStates
    foreign: tuple[Finding, ...] = ()


class FenceStep(OfDependent, Step[FenceFacts]):
    id = "fence"
    title = "Fence clients off"
    hazard = Hazard.WINDOW

    def observe(self, c: Context, look: Look) -> FenceFacts:
        states = dest_states(c, look, Phase.ARMED)
        # A rehearsal comes before the roll: dest has no clients then, and the roll's gate checks for them.
        if c.way is Way.BACK or c.rehearsal or not states.phases.in_phase(Phase.ARMED):
            return FenceFacts(states)
        cons = connections_of(look, c.inventory.dest_names)
        return FenceFacts(states, foreign_findings(c, self.dependent, look, cons))

    def check(self, c: Context, facts: FenceFacts) -> Verdict:
        f = facts.states
        if c.way is Way.BACK:
            hosts = f.statuses
            fenced = hosts.where(
                lambda s: s.phase == Phase.FENCED or (s.phase == Phase.ARMED and s.fence_entries > 0)
            )
            if fenced:
                return Ready(fenced)
            return Blocked(hosts.unknown, others_back=True) if hosts.unknown else _reopened(hosts)
        if f.phases.unknown:
            return Blocked(f.phases.unknown)
        if wrong := f.phases.outside("fence", Phase.ARMED, Phase.FENCED):
            return Blocked(wrong)
        if todo := f.phases.in_phase(Phase.ARMED):
            return Blocked(facts.foreign) if blocking(facts.foreign) else Ready(todo)
        return Done.unless_blocked(closed_findings(f.statuses))

    def plan(self, c: Context, f: FenceFacts, target: str) -> Changes:
        return (Fence(target, lease_in_force(c).fence_ttl_ms),)

    def undo(self, c: Context, f: FenceFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return (HostVerb(target, "reopen"),)

    def forecast(self, c: Context, look: Look) -> Forecast[FenceFacts]:
        return Forecast(FenceFacts(every_host_in(c, Phase.ARMED)))


def closed_findings(f: Statuses[HostStatus]) -> tuple[Finding, ...]:
    """Return the findings that clients are shut out on every host, as its status shows."""
    return f.claims(
        "fence.closed",
        "no client reaches this dest host",
        lambda s: s.rules_on_top and s.fence_entries >= 2 and s.client_sockets == 0,
        lambda s: f"rules {s.in4}/{s.in6}, {s.fence_entries} set entries, {s.client_sockets} client sockets",
    )


def _reopened(f: Statuses[HostStatus]) -> Verdict:
    return Done.unless_blocked(
        f.claims(
            "fence.reopened",
            "clients reach this dest host again",
            lambda s: s.fence_entries == 0,
            lambda s: f"{s.fence_entries} set entries",
        )
    )


MEANINGS = meanings(
    """
    fence.closed: A client still reaches this dest host. Cause: The rules are not first, the set is empty, or
    a socket was not ended. To do: Stop the program that changes rules on this host, then run again.

    fence.reopened: This dest host still refuses clients after the way back. Cause: Its fence set still has
    entries. To do: Resume. If the host still refuses clients, run zkm-host status on it.
    """
)
