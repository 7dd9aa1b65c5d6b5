"""What: block ZooKeeper's ports between dest and source, both ways, IPv4 and IPv6, and end the open
connections. With policy.cut: all every port but ssh is blocked.

Why now: the fence is in force and dest is drained. From here on dest must not receive session expiries from
source.

Clients may notice: nothing more than at the fence.

Way back: unblock; the observers follow source again by a DIFF. After a cut of more than two seconds the
observer is restarted, because its election back-off would cost more than a start (29 s seen). The kernel
unblocks by itself when the lease is not renewed.

Proof: zkm-host's rules are first, no socket to source is left on these ports, and each of these ports refuses
an outgoing probe. ZooKeeper has no connection with source on another port, and source's leader no longer
counts the dest hosts as learners.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.hosts.facts.status import Drain, HostStatus, drain, probe
from zkmigrate.move.facts.dest_status import DestStates, dest_states, every_host_in, unknown
from zkmigrate.move.facts.outage import dest_service
from zkmigrate.move.facts.records import Surveyed
from zkmigrate.move.rules.lease import lease_in_force
from zkmigrate.runbook.model.change import Applied, Changes, Cut, HostVerb
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Finding, blocking, claim, each, meanings
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
from zkmigrate.runbook.model.step_record import needed
from zkmigrate.runbook.model.window import IDLE, Phase
from zkmigrate.zookeeper.facts.ensemble import learners, mntr_of_leader, source_view

# The observer's election back-off starts to cost more than a JVM start after a cut of about this long.
RESTART_AFTER_S = 2.0
LEARNERS_DEADLINE_S = 3.0
OBSERVING_DEADLINE_S = 60.0


@dataclass(frozen=True)
class CutFacts:
    """The state of the cut.

    probes: dest host → ``address:port`` of source → the result of a connect. learners: how many learners
    source's leader still counts beside its followers, read only on the way forward. following: the mode and
    zxid of each dest host, read only on the way back.
    """

    states: DestStates
    probes: dict[str, Reading[dict[str, str]]]
    learners: int | None
    following: dict[str, Reading[Drain]]


class CutStep(Step[CutFacts]):
    id = "cut"
    title = "Cut dest off from source"
    hazard = Hazard.WINDOW

    def observe(self, c: Context, look: Look) -> CutFacts:
        states = dest_states(c, look, Phase.FENCED)
        cut = states.statuses.in_phase(Phase.CUT)
        if c.way is Way.BACK:
            following = {} if cut else look.each(c.inventory.dest_names, lambda host: drain(look, host))
            return CutFacts(states, {}, None, following)
        probes = look.each(cut, lambda host: probe(look, host))
        count = learners(mntr_of_leader(look, source_view(c.inventory, look))) if cut else None
        return CutFacts(states, probes, count, {})

    def check(self, c: Context, f: CutFacts) -> Verdict:
        if c.way is Way.BACK:
            return self._check_back(f)
        hosts = f.states.phases
        if hosts.unknown:
            return Blocked(hosts.unknown)
        if wrong := hosts.outside("cut", Phase.FENCED, Phase.CUT):
            return Blocked(wrong)
        if todo := hosts.in_phase(Phase.FENCED):
            return Ready(todo)
        findings = _severed(f)
        if blocking(findings):
            return Blocked(findings)
        others = needed(Surveyed, c).learners - len(c.inventory.dest.hosts)
        if f.learners is None or f.learners > others:
            return Waiting(
                "source's leader has dropped the dest learners",
                f"learners: {'unknown' if f.learners is None else f.learners}, needed: at most {others}",
                LEARNERS_DEADLINE_S,
                0.02,
            )
        dropped = claim(
            "cut.dropped", "source's leader counts no dest learner", True, seen=f"{f.learners} learners"
        )
        return Done((*findings, dropped))

    def _check_back(self, f: CutFacts) -> Verdict:
        hosts = f.states.statuses
        if todo := hosts.in_phase(Phase.CUT):
            return Ready(todo)
        # A host that is not armed was never cut by this run: it may not even have joined.
        ours = hosts.where(lambda s: s.phase != IDLE)
        if down := tuple(h for h in ours if hosts.at[h].unit_state != "active"):
            return Ready(down)
        following = {h: r for h, r in f.following.items() if h in ours}
        modes = {h: r.value.mode if isinstance(r, Seen) else "unknown" for h, r in following.items()}
        if any(mode != "observer" for mode in modes.values()):
            return Waiting("every dest host observes source again", each(modes), OBSERVING_DEADLINE_S, 0.1)
        if hosts.unknown:
            return Blocked(hosts.unknown, others_back=True)
        return Done(
            tuple(
                claim("cut.following", "the dest host observes source again", True, target=host, seen=mode)
                for host, mode in modes.items()
            )
        )

    def plan(self, c: Context, f: CutFacts, target: str) -> Changes:
        return (Cut(target, lease_in_force(c).cut_ttl_ms),)

    def undo(self, c: Context, f: CutFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        status = f.states.statuses.at.get(target)
        unblock = (HostVerb(target, "uncut"),) if status is None or status.phase == Phase.CUT else ()
        # How long the cut will have lasted is not known beforehand; a restart is right in every case.
        if status is None or status.unit_state != "active" or _backed_off(status):
            return (*unblock, dest_service(c.inventory, target, "restart"))
        return unblock

    def forecast(self, c: Context, look: Look) -> Forecast[CutFacts]:
        return Forecast(CutFacts(every_host_in(c, Phase.FENCED), {}, None, {}))


def _backed_off(status: HostStatus) -> bool:
    """Return whether the running observer has been cut off for so long that a restart is quicker."""
    cut_s = status.uptime_s - status.phase_since
    return status.unit_since < status.phase_since and cut_s > RESTART_AFTER_S


def _severed(f: CutFacts) -> tuple[Finding, ...]:
    findings: list[Finding] = list(
        f.states.statuses.claims(
            "cut.severed",
            "no traffic passes between this dest host and source",
            lambda s: s.rules_on_top and s.cut_entries > 0 and s.source_sockets == 0,
            lambda s: (
                f"rules {s.in4}/{s.out4}/{s.in6}/{s.out6}, {s.cut_entries} set entries, "
                f"{s.source_sockets} sockets to source"
            ),
        )
    )
    for host, reading in f.probes.items():
        if not isinstance(reading, Seen):
            findings.append(unknown("cut.probe", host, reading))
            continue
        leaks = {where: how for where, how in reading.value.items() if how != "refused"}
        findings.append(
            claim(
                "cut.probe",
                "this dest host's ZooKeeper cannot reach any port of source",
                bool(reading.value) and not leaks,
                target=host,
                seen=f"not refused: {leaks}" if leaks else f"{len(reading.value)} probes, all refused",
                needed="all refused",
            )
        )
    return tuple(findings)


MEANINGS = meanings(
    """
    cut.dropped: Source's leader still counts dest hosts as learners. Cause: The leader has not noticed yet
    that these hosts are cut off. To do: Wait. If this does not end, find the open connection on source.

    cut.severed: A connection between this dest host and source is still open. Cause: Another program
    changed the rules, or a socket was not ended. To do: Check the rules and sockets in zkmigrate status,
    then run again.

    cut.probe: This dest host's ZooKeeper can reach a port of source. Cause: The rules do not cover that
    port or address. To do: Add the address under also in migration.yml, then run again.

    cut.following: A dest host does not observe source again. Cause: The host has not found source's leader
    yet, or source does not serve. To do: Wait. If this does not end, read the log of that dest host.
    """
)
