"""What: make the block permanent on every dest host, if nothing has changed since the proof.

Why now: the proof holds and the lease still runs. From here no timer may end the block while dest reforms.

Clients may notice: nothing more than at the fence.

Way back: put the image back and unseal all, then start the observers, unblock, reopen. A sealed host that
cannot be reached stays closed, which is safe.

Proof: every host compared boot id, lease, rules and data stamp under its own lock and reported sealed.
"""

from __future__ import annotations

from zkmigrate.move.facts.dest_status import DestStates, dest_states, every_host_in
from zkmigrate.move.facts.records import Stopped
from zkmigrate.move.rules.lease import lease_in_force
from zkmigrate.runbook.model.change import Applied, Changes, RestoreImage, Seal, Unseal
from zkmigrate.runbook.model.finding import meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Way
from zkmigrate.runbook.model.step_record import needed
from zkmigrate.runbook.model.window import Phase


class SealStep(Step[DestStates]):
    id = "seal"
    title = "Seal the block"
    hazard = Hazard.WINDOW

    def observe(self, c: Context, look: Look) -> DestStates:
        return dest_states(c, look, Phase.STOPPED)

    def check(self, c: Context, f: DestStates) -> Verdict:
        if c.way is Way.BACK:
            # GO was never sent, or every host has been stopped: hosts that answer need not wait for one that
            # does not. That one stays closed, which is safe.
            if sealed := f.phases.in_phase(Phase.SEALED):
                return Ready(sealed)
            unknown = f.phases.unknown
            return Blocked(unknown, others_back=True) if unknown else Done()
        if f.phases.unknown:
            return Blocked(f.phases.unknown)
        if wrong := f.phases.outside("seal", Phase.STOPPED, Phase.SEALED):
            return Blocked(wrong)
        if todo := f.phases.in_phase(Phase.STOPPED):
            return Ready(todo)
        findings = f.statuses.claims(
            "seal.permanent",
            "the block does not end by itself any more",
            lambda s: s.fence_permanent and s.cut_permanent and not s.lapsed,
            lambda s: f"fence {s.fence_entries} and cut {s.cut_entries} entries, lapsed {s.lapsed}",
        )
        return Done.unless_blocked(findings)

    def plan(self, c: Context, f: DestStates, target: str) -> Changes:
        stopped = needed(Stopped, c)
        return (Seal(target, stopped.boots[target], stopped.stamps[target]),)

    def undo(self, c: Context, f: DestStates, target: str, applied: tuple[Applied, ...]) -> Changes:
        lease = lease_in_force(c)
        unseal = Unseal(target, lease.fence_ttl_ms, lease.cut_ttl_ms)
        # Right in every case: if the host had not started yet, restoring leaves its data untouched.
        return (RestoreImage(target), unseal)

    def forecast(self, c: Context, look: Look) -> Forecast[DestStates]:
        hosts = c.inventory.dest_names
        stopped = Stopped({}, dict.fromkeys(hosts, "STAMP"), dict.fromkeys(hosts, "BOOT-ID"))
        return Forecast(every_host_in(c, Phase.STOPPED), records={Stopped.step: stopped.encode()})


MEANINGS = meanings(
    """
    seal.permanent: The block on a dest host still ends by itself, or its lease has ended. Cause: The seal has
    not reached the host, or came too late. To do: Let the run go back, then run again.
    """
)
