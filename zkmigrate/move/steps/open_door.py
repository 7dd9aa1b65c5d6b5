"""What: let clients in on every dest host: the point of no return.

Why now: dest has been checked while clients are refused.

Clients may notice: members reconnect within about three seconds, Kafka's with their old sessions.

Way back: none without a cost: members have seen dest's transactions. Repair forward.

Proof: on every host that serves the fence is empty and the phase is open.
"""

from __future__ import annotations

from zkmigrate.move.dependent import OfDependent
from zkmigrate.move.facts.dest_status import SERVING, DestStates, Statuses, dest_states, every_host_in
from zkmigrate.move.steps.go import door_is_open
from zkmigrate.move.steps.serve import can_continue_without, late_hosts
from zkmigrate.runbook.model.change import Applied, Changes, HostVerb
from zkmigrate.runbook.model.finding import meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Way
from zkmigrate.runbook.model.window import Phase


class OpenStep(OfDependent, Step[DestStates]):
    id = "open"
    title = "Let clients in"
    hazard = Hazard.FINAL

    def observe(self, c: Context, look: Look) -> DestStates:
        return dest_states(c, look, Phase.STARTED, Phase.CHECKED)

    def check(self, c: Context, f: DestStates) -> Verdict:
        hosts = f.phases
        opened = hosts.in_phase(Phase.OPEN)
        if c.way is Way.BACK and opened:
            return Blocked((door_is_open(self.dependent.words, opened),), no_way_back=True)
        partly = can_continue_without(c, hosts)
        if hosts.unknown and not (c.way is Way.FORWARD and partly):
            return Blocked(hosts.unknown)
        if c.way is Way.BACK:
            return Done()
        if wrong := hosts.outside("open", *SERVING, *((Phase.GO, Phase.SEALED) if partly else ())):
            return Blocked(wrong)
        if todo := hosts.in_phase(Phase.STARTED, Phase.CHECKED):
            return Ready(todo)
        serving = {host: s for host, s in f.statuses.at.items() if s.phase not in (Phase.GO, Phase.SEALED)}
        findings = Statuses(serving, ()).claims(
            "open.door",
            "clients reach this dest host",
            lambda s: s.fence_entries == 0,
            lambda s: f"{s.fence_entries} set entries, {s.client_sockets} client sockets",
        )
        return Done.unless_blocked((*findings, *late_hosts(hosts)))

    def plan(self, c: Context, f: DestStates, target: str) -> Changes:
        # A host may have opened by itself since CHECK: open is right from both phases.
        return (HostVerb(target, "open"),)

    def undo(self, c: Context, f: DestStates, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()

    def forecast(self, c: Context, look: Look) -> Forecast[DestStates]:
        return Forecast(every_host_in(c, Phase.CHECKED))


MEANINGS = meanings(
    """
    open.door: A dest host that serves still refuses clients. Cause: Its fence set still has entries. To do:
    Resume. If the host still refuses clients, run zkm-host status on it.
    """
)
