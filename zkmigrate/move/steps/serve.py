"""What: wait until every dest host serves as a participant of the reformed ensemble.

Why now: the hosts have their GO and start in the safe order, with or without their operator.

Clients may notice: nothing more than at the fence.

Way back: as for GO: stop all, put the images back.

Proof: every host is leader or follower, and exactly one leads. A host that does not answer, or that has no
GO, is named and left out as soon as a majority serves.
"""

from __future__ import annotations

from zkmigrate.hosts.facts.status import HostPhase
from zkmigrate.move.facts.dest_status import SERVING, Statuses, phases
from zkmigrate.move.rules.window_rules import rehearsed_s
from zkmigrate.runbook.model.finding import Finding, Severity, claim, each, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Reads, Verdict, Waiting
from zkmigrate.runbook.model.window import Phase

SERVING_S = 30.0
"""The shortest time limit, in seconds, for the hosts to serve."""


class ServeStep(Reads[Statuses[HostPhase]]):
    id = "serve"
    title = "Wait for dest's own quorum"

    def observe(self, c: Context, look: Look) -> Statuses[HostPhase]:
        return phases(c, look)

    def check(self, c: Context, f: Statuses[HostPhase]) -> Verdict:
        if can_continue_without(c, f) and (missing := late_hosts(f)):
            return Done(missing)
        if f.unknown:
            return Blocked(f.unknown)
        failed = f.where(lambda s: s.phase == Phase.GO and s.finisher == "failed")
        if failed:
            moves = (
                "roll back: zkmigrate rollback",
                "read the host's journal and fix the cause, then run zkmigrate resume",
            )
            sentence = "the host starts by itself after GO"
            seen = ((host, f.at[host].finisher_note) for host in failed)
            return Blocked(
                tuple(
                    claim("serve.finisher", sentence, False, target=host, seen=note, moves=moves)
                    for host, note in seen
                )
            )
        if waiting := f.in_phase(Phase.GO):
            notes = {h: f.at[h].finisher_note or f.at[h].finisher for h in waiting}
            return Waiting("every dest host serves as participant", each(notes), serving_s(c), 0.05)
        return Done(
            f.claims(
                "serve.serving",
                "the host serves in the reformed ensemble",
                lambda s: s.phase in SERVING,
                lambda s: s.phase,
            )
        )


def serving_s(c: Context) -> float:
    """Return the time limit, in seconds, within which the hosts must serve.

    No session depends on this limit: until dest has a leader no session expires. A machine that was slow in
    the rehearsal is slow in the window too, so the rehearsed time counts. In a rehearsal no client waits, so
    the limit is the same as for other steps.
    """
    if c.rehearsal:
        return c.inventory.policy.step_deadline_s
    return max(SERVING_S, (rehearsed_s(c, "serve") or 0.0) * c.inventory.policy.window_margin)


def can_continue_without(c: Context, f: Statuses[HostPhase]) -> bool:
    """Return whether the hosts that serve continue without the missing ones.

    Once a host is open the only way is forward. Before that, while clients wait to be let in, a majority
    continues without hosts that do not answer or have no GO. A rehearsal, in which no client waits, needs
    every host.
    """
    if f.in_phase(Phase.OPEN):
        return True
    missing = bool(f.unknown) or bool(f.in_phase(Phase.SEALED))
    return missing and not c.rehearsal and len(f.in_phase(*SERVING)) >= c.inventory.dest.majority


def late_hosts(f: Statuses[HostPhase]) -> tuple[Finding, ...]:
    """Return a warning for each host that does not serve, does not answer, or has no GO."""
    notes = {str(x.target): x.seen for x in f.unknown}
    notes |= dict.fromkeys(
        f.in_phase(Phase.SEALED), "sealed: GO did not reach this host, so it refuses clients"
    )
    notes |= {host: f.at[host].finisher_note or f.at[host].finisher for host in f.in_phase(Phase.GO)}
    return tuple(
        claim(
            "serve.late",
            "the host serves in the reformed ensemble",
            False,
            severity=Severity.WARN,
            target=host,
            seen=note,
            moves=(
                "the other hosts serve. Repair this host: VERIFY waits for it, and sends GO if it lacks GO",
                "if the host is lost: docs/how-to/host-died.md",
            ),
        )
        for host, note in sorted(notes.items())
    )


MEANINGS = meanings(
    """
    serve.late: A dest host does not serve in the new ensemble; the other hosts do. Cause: The host did not
    start, or did not receive GO. To do: Repair this host. VERIFY waits for it and sends GO. If the host is
    lost: docs/how-to/host-died.md.

    serve.finisher: A dest host could not start by itself after GO. Cause: Its ZooKeeper or its finisher
    failed. The finding quotes the host. To do: Read the host's log and repair the host, then run zkmigrate
    resume. Or run zkmigrate rollback.

    serve.serving: A dest host does not serve in the new ensemble yet. Cause: The host is still starting, or
    the servers are electing a leader. To do: Wait. If this does not end, read the host's ZooKeeper log.
    """
)
