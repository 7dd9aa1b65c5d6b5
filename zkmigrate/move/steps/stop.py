"""What: kill ZooKeeper on every dest host and read the newest durable zxid from its disk.

Why now: after the cut a server answers "not serving", and only the disk of a dead process cannot change under
the proof.

Clients may notice: nothing more than at the fence.

Way back: start the observers again, unblock, reopen.

Proof: the unit is down, and the disk holds at least Z and every zxid that the host showed in DRAIN.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.hosts.facts.status import DOWN_STATES, stamp
from zkmigrate.move.facts.dest_status import DestStates, dest_states, every_host_in, unknown
from zkmigrate.move.facts.outage import dest_service
from zkmigrate.move.facts.records import Drained, Stopped, Surveyed
from zkmigrate.runbook.model import step_record
from zkmigrate.runbook.model.change import Applied, Changes, HostVerb
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, blocking, claim, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Way
from zkmigrate.runbook.model.window import Phase
from zkmigrate.zookeeper.data.tail import Tail
from zkmigrate.zookeeper.data.zxid import counter, epoch, format_zxid
from zkmigrate.zookeeper.facts.disk import durable_tail


@dataclass(frozen=True)
class StopFacts:
    """The state of the dest hosts, and of their disks.

    tails, stamps: the newest zxid and the digest of the data files, read only on the way forward, from hosts
    whose ZooKeeper is down.
    """

    states: DestStates
    tails: dict[str, Reading[Tail]]
    stamps: dict[str, Reading[str]]


class StopStep(Step[StopFacts]):
    id = "stop"
    title = "Stop dest and read its disks"
    hazard = Hazard.WINDOW

    def observe(self, c: Context, look: Look) -> StopFacts:
        states = dest_states(c, look, Phase.CUT)
        if c.way is Way.BACK:
            return StopFacts(states, {}, {})
        down = states.statuses.where(lambda s: s.phase == Phase.STOPPED and s.unit_state in DOWN_STATES)
        survey = step_record.known(Surveyed, c)
        cursors = survey.cursors if survey is not None else {}
        tails = look.each(
            down, lambda host: durable_tail(look, host, c.inventory.dest, cursors.get(host), check=False)
        )
        return StopFacts(states, tails, look.each(down, lambda host: stamp(look, host)))

    def check(self, c: Context, f: StopFacts) -> Verdict:
        if c.way is Way.BACK:
            down = f.states.statuses.where(
                lambda s: s.phase == Phase.STOPPED or (s.phase == Phase.CUT and s.unit_state in DOWN_STATES)
            )
            if down:
                return Ready(down)
            unknown = f.states.phases.unknown
            return Blocked(unknown, others_back=True) if unknown else Done()
        hosts = f.states.phases
        if hosts.unknown:
            return Blocked(hosts.unknown)
        if wrong := hosts.outside("stop", Phase.CUT, Phase.STOPPED):
            return Blocked(wrong)
        if todo := hosts.in_phase(Phase.CUT):
            return Ready(todo)
        findings = tuple(finding for host in c.inventory.dest_names for finding in _durable(c, f, host))
        if blocking(findings):
            return Blocked(findings)
        record = Stopped(
            {h: r.value.zxid for h, r in f.tails.items() if isinstance(r, Seen)},
            {h: r.value for h, r in f.stamps.items() if isinstance(r, Seen)},
            {h: s.boot_id for h, s in f.states.statuses.at.items()},
        )
        return Done(findings, record.encode())

    def plan(self, c: Context, f: StopFacts, target: str) -> Changes:
        return (dest_service(c.inventory, target, "kill"), HostVerb(target, "stopped"))

    def undo(self, c: Context, f: StopFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return (HostVerb(target, "started-observer"),)

    def forecast(self, c: Context, look: Look) -> Forecast[StopFacts]:
        return Forecast(StopFacts(every_host_in(c, Phase.CUT), {}, {}))


def _durable(c: Context, f: StopFacts, host: str) -> tuple[Finding, ...]:
    tail, data_stamp = f.tails.get(host), f.stamps.get(host)
    if tail is None:
        state = f.states.statuses.at[host].unit_state
        return (claim("stop.down", "ZooKeeper is down", False, target=host, seen=state),)
    if not isinstance(tail, Seen):
        return (unknown("stop.tail", host, tail),)
    if not isinstance(data_stamp, Seen):
        return (unknown("stop.stamp", host, data_stamp or Unknown("failed", "not read")),)
    drained = step_record.needed(Drained, c)
    needed = max(drained.z, drained.zxids[host])
    return (
        claim(
            "stop.tail",
            "the disk holds every transaction that the host had applied",
            _holds(tail.value, needed),
            target=host,
            seen=f"{format_zxid(tail.value.zxid)} in {tail.value.file}"
            + (" (torn end)" if tail.value.torn else ""),
            needed=f"at least {format_zxid(needed)}",
            moves=("roll back: zkmigrate rollback", "check the disk: zkmigrate status"),
        ),
    )


def _holds(tail: Tail, needed: int) -> bool:
    # A server that has just joined an epoch shows epoch << 32 although no such transaction exists.
    no_transaction = counter(needed) == 0
    return tail.zxid >= needed or (no_transaction and epoch(tail.zxid) == epoch(needed) - 1)


MEANINGS = meanings(
    """
    stop.down: ZooKeeper of a dest host still runs. Cause: The service does not stop, or something restarts
    it. To do: Find the cause, stop ZooKeeper, then run again.

    stop.tail: A dest disk does not hold every transaction that the host had applied. Cause: The last record
    is torn or was not written (ZOOKEEPER-4712). To do: Let the run go back: zkmigrate rollback. Check that
    disk.

    stop.stamp: The state of a dest host's data directory could not be read. Cause: The host does not
    answer, or a file cannot be read. To do: Find out why, then run again.
    """
)
