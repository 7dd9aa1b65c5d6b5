"""What: remove what the move left on the hosts: the cut's rules, the guard, the images, zkm-host itself.

Why now: dest is verified and needs none of it.

Clients may notice: nothing.

Way back: none; the images are gone after it. Dest stays as it is.

Proof: zkm-host is gone, after it removed every rule, set, guard and state of this run. A dest host that
VERIFY left out and that still does not answer is named; a host that answers again gets its GO first.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.hosts.facts.runs import own_program, stays_for
from zkmigrate.hosts.facts.status import HostPhase
from zkmigrate.hosts.zkm_host import program
from zkmigrate.move.dependent import OfDependent, program_hosts
from zkmigrate.move.facts.dest_status import Statuses, every_host_in, statuses, unanswered
from zkmigrate.move.facts.records import Verified
from zkmigrate.move.steps.go import GoFacts, GoStep, door_is_open
from zkmigrate.move.steps.verify import LATE_HOST_S
from zkmigrate.runbook.model.change import Applied, Changes, HostVerb, UninstallProgram
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Severity, claim, meanings
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
from zkmigrate.runbook.model.window import IDLE, Phase
from zkmigrate.zookeeper.facts.config import ZooConfig, zoo_config


@dataclass(frozen=True)
class FinalizeFacts:
    """The remains of the move on the hosts.

    programs: host → the installed zkm-host, Absent once removed. configs: dest host → its zoo.cfg. hosts: the
    phase of each dest host.
    """

    programs: dict[str, Reading[bytes]]
    configs: dict[str, Reading[ZooConfig]]
    hosts: Statuses[HostPhase]

    @property
    def opened(self) -> tuple[str, ...]:
        """Dest hosts whose phase is open, or that run the reformed config and are no longer armed."""
        return tuple(
            host
            for host, config in self.configs.items()
            if self.hosts.phase(host) == Phase.OPEN
            or (self.hosts.phase(host) in ("", IDLE) and isinstance(config, Seen) and _reformed(config.value))
        )


class FinalizeStep(OfDependent, Step[FinalizeFacts]):
    id = "finalize"
    title = "Remove the move's files and rules"
    hazard = Hazard.FINAL

    def observe(self, c: Context, look: Look) -> FinalizeFacts:
        hosts, dest = program_hosts(self.dependent, c.inventory), c.inventory.dest
        return FinalizeFacts(
            look.each(hosts, lambda host: own_program(look, host, c.run)),
            look.each(
                c.inventory.dest_names,
                lambda host: zoo_config(look, host, dest.config, dest.service, dest.commands),
            ),
            statuses(c, look),
        )

    def check(self, c: Context, f: FinalizeFacts) -> Verdict:
        if c.way is Way.BACK:
            opened = (door_is_open(self.dependent.words, f.opened),)
            return Blocked(opened, no_way_back=True) if f.opened else Done()
        verified = known(Verified, c)
        missing = verified.missing if verified is not None else ()
        silent = {h: r for h, r in f.programs.items() if isinstance(r, Unknown)}
        unread = unanswered("finalize.answer", {h: r for h, r in silent.items() if h not in missing})
        if unread:
            return Blocked(unread)
        # A host that VERIFY left out may answer again; a sealed one is sent its GO below.
        if joining := f.hosts.in_phase(Phase.GO, Phase.STARTED, Phase.CHECKED):
            limit = c.inventory.policy.open_limit_s + LATE_HOST_S
            return Waiting("every dest host lets clients in", f"not yet: {', '.join(joining)}", limit, 1.0)
        todo = tuple(h for h, r in f.programs.items() if isinstance(r, Seen))
        if todo:  # a dest host's rules go before a broker beside it is asked to remove the program
            return Ready(c.inventory.one_a_machine(todo))
        removed = ((h, stays_for(r)) for h, r in f.programs.items() if h not in silent)
        sentence = "no file or rule of the move remains"
        return Done(
            (
                *(claim("finalize.gone", sentence, True, target=h, seen=seen) for h, seen in removed),
                *(_may_remain(host, reading) for host, reading in silent.items()),
            )
        )

    def plan(self, c: Context, f: FinalizeFacts, target: str) -> Changes:
        if f.hosts.phase(target) == Phase.SEALED:
            return GoStep(self.dependent).plan(c, GoFacts(f.hosts, ()), target)
        if target in c.inventory.dest_names:
            return (HostVerb(target, "finalize"), UninstallProgram(target))
        return (UninstallProgram(target),)

    def undo(self, c: Context, f: FinalizeFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()

    def forecast(self, c: Context, look: Look) -> Forecast[FinalizeFacts]:
        programs: dict[str, Reading[bytes]] = dict.fromkeys(
            program_hosts(self.dependent, c.inventory), Seen(program())
        )
        return Forecast(FinalizeFacts(programs, {}, every_host_in(c, Phase.OPEN).phases))


def _may_remain(host: str, reading: Reading[bytes]) -> Finding:
    return claim(
        "finalize.left",
        "no file or rule of the move remains",
        None,
        severity=Severity.WARN,
        target=host,
        seen=str(reading),
        needed="an answer",
        moves=("clean the host up when it is back, or replace it: docs/how-to/host-died.md",),
    )


def _reformed(config: ZooConfig) -> bool:
    """Return whether this config makes dest an independent ensemble: it has servers and no observer.

    With reconfigEnabled ZooKeeper moves the servers to a dynamic file; the servers are looked for there too.
    """
    roles = {server.role for server in config.servers.values()}
    return roles == {"participant"} and config.values.get("peerType", "participant") != "observer"


MEANINGS = meanings(
    """
    finalize.left: A dest host may still hold files or rules of zkm-host. Cause: The host does not answer. To
    do: Clean the host up when it is back, or replace it: docs/how-to/host-died.md.

    finalize.gone: A dest host still holds files or rules of zkm-host. Cause: FINALIZE has not reached it
    yet. To do: Resume.

    finalize.answer: It is not known what remains on a dest host. Cause: The host does not answer. To do: Find
    out why it does not answer, then resume.
    """
)
