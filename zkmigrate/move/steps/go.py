"""What: send GO to every dest host with its place in the start order; each then finishes by itself.

Why now: every host is sealed. The decision is journaled first, so that a resumed run knows that it was made.

Clients may notice: nothing more than at the fence.

Way back: only if every host can be reached: stop all of them, then put the images back (the step before).

Proof: every host has recorded GO, or enough of them to form the quorum while the others do not answer. The
hosts that hold the newest transaction start first; the others never reach a majority by themselves. A host
without GO stays closed until VERIFY can send it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from zkmigrate.hosts.facts.status import HostPhase
from zkmigrate.move.dependent import OfDependent, Words
from zkmigrate.move.facts.dest_status import SERVING, Statuses, every_host_in, phases, statuses
from zkmigrate.move.facts.records import Freshest, Proved
from zkmigrate.move.rules.start_order import forms_quorum, places
from zkmigrate.move.steps.arm import endpoint, word_port
from zkmigrate.runbook.model.change import Applied, Changes, Go, HostVerb
from zkmigrate.runbook.model.finding import NO_WAY_BACK, Finding, Severity, claim, meanings
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
from zkmigrate.runbook.model.window import Phase

HAVE_GO = Phase.GO.until(Phase.OPEN)
TOO_LATE_S = 4.0
"""The seconds within which all hosts must have stopped."""


@dataclass(frozen=True)
class GoFacts:
    """The phases of the dest hosts.

    alive: the hosts whose ZooKeeper may run, read only on the way back.
    """

    hosts: Statuses[HostPhase]
    alive: tuple[str, ...]


class GoStep(OfDependent, Step[GoFacts]):
    id = "go"
    title = "Let dest reform"
    hazard = Hazard.WINDOW

    def observe(self, c: Context, look: Look) -> GoFacts:
        if c.way is Way.FORWARD:
            return GoFacts(phases(c, look), ())
        hosts = statuses(c, look)
        return GoFacts(
            hosts, hosts.where(lambda s: s.phase in HAVE_GO or s.unit_state not in ("inactive", "failed"))
        )

    def check(self, c: Context, f: GoFacts) -> Verdict:
        hosts = f.hosts
        if c.way is Way.BACK and (opened := hosts.in_phase(Phase.OPEN)):
            return Blocked((door_is_open(self.dependent.words, opened),), no_way_back=True)
        # From the first GO on the hosts finish alone, so a silent one does not hold the others back.
        sent = c.begun or bool(hosts.in_phase(*HAVE_GO, Phase.OPEN))
        if hosts.unknown and (c.way is Way.BACK or c.rehearsal or not sent):
            # Before the first GO no host can be part of a quorum, so those that answer can be walked back.
            return Blocked(hosts.unknown, others_back=c.way is Way.BACK and not sent)
        if c.way is Way.BACK:
            running = hosts.in_phase(*HAVE_GO)
            late = [h for h in running if _opens_in(c, hosts.at[h]) < TOO_LATE_S]
            # A host opens only as part of a quorum; once the others are down, it waits forever.
            if late and len(f.alive) >= c.inventory.dest.majority:
                # Stopping some hosts while another opens would end a quorum that clients have already seen.
                progress = ", ".join(f"{h} in {_opens_in(c, hosts.at[h]):.0f} s" for h in late)
                return Waiting(
                    "the hosts have let clients in by themselves at policy.open_limit_s", progress, 60.0
                )
            return Ready(running) if running else Done()
        if wrong := hosts.outside("go", Phase.SEALED, *HAVE_GO, Phase.OPEN):
            return Blocked(wrong)
        if todo := hosts.in_phase(Phase.SEALED):
            return Ready(todo)
        if hosts.unknown and not _form_quorum(c, hosts):
            return Blocked((_too_few(c, hosts), *hosts.unknown))
        given = hosts.claims(
            "go.sent", "the host has received GO", lambda s: s.phase != Phase.SEALED, lambda s: s.phase
        )
        return Done((*given, *(_unconfirmed(x) for x in hosts.unknown)))

    def plan(self, c: Context, f: GoFacts, target: str) -> Changes:
        # Without the journal the newest disk is not known; a quorum that has opened is led by it.
        freshest = known(Freshest, c)
        first = freshest.first if freshest else f.hosts.in_phase(Phase.OPEN)
        inventory = c.inventory
        port = word_port(inventory.dest)
        # An argument holds no brackets; what follows the last colon is the port.
        endpoints = (endpoint(inventory.dest_host(host), port) for host in first)
        addresses = tuple(x.replace("[", "").replace("]", "") for x in endpoints)
        limit_ms = round(inventory.policy.open_limit_s * 1000)
        place = places(inventory.dest_names, first)[target] if freshest else "rest"
        return (Go(target, place, addresses, inventory.dest.majority, limit_ms),)

    def undo(self, c: Context, f: GoFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return (HostVerb(target, "halt"),)

    def forecast(self, c: Context, look: Look) -> Forecast[GoFacts]:
        # PROVE will say who holds the newest transaction; after DRAIN that is normally every host.
        facts = GoFacts(every_host_in(c, Phase.SEALED).phases, ())
        return Forecast(facts, records={Freshest.step: Freshest(c.inventory.dest_names).encode()})


def _opens_in(c: Context, status: HostPhase) -> float:
    """Return the seconds until the host opens by itself; infinite before it serves."""
    return math.inf if status.served_s is None else c.inventory.policy.open_limit_s - status.served_s


def _form_quorum(c: Context, hosts: Statuses[HostPhase]) -> bool:
    """Return whether the hosts known to have GO can form the quorum, or have formed it."""
    if hosts.in_phase(*SERVING):
        return True
    sent, proved = hosts.in_phase(*HAVE_GO, Phase.OPEN), known(Proved, c)
    if proved is None:
        return len(sent) >= c.inventory.dest.majority
    return forms_quorum(c.inventory.dest_names, proved.first, sent)


def _too_few(c: Context, hosts: Statuses[HostPhase]) -> Finding:
    sent = ", ".join(hosts.in_phase(*HAVE_GO, Phase.OPEN)) or "no host that answers"
    silent = ", ".join(x.target for x in hosts.unknown)
    return claim(
        "go.majority",
        "enough dest hosts have received GO to form a quorum",
        None,
        seen=f"GO sent to: {sent}; no answer from: {silent}",
        needed=f"{c.inventory.dest.majority} of the hosts that hold the newest transaction",
        moves=(
            "bring back a host that does not answer, and the run sends it GO; "
            "if the run has ended: zkmigrate resume",
            "nothing is lost meanwhile: no host serves, no session expires; docs/how-to/host-died.md",
        ),
    )


def _unconfirmed(found: Finding) -> Finding:
    return claim(
        "go.not-heard",
        "the host has received GO",
        None,
        severity=Severity.WARN,
        target=found.target,
        seen=found.seen,
        needed="an answer",
        moves=(
            "the other hosts continue without this host. If it has received GO, it joins them by itself. "
            "If not, it stays closed, and VERIFY sends GO once it answers. "
            "If the host is lost: docs/how-to/host-died.md",
        ),
    )


def door_is_open(words: Words, hosts: tuple[str, ...]) -> Finding:
    """Return the finding that refuses a way back after OPEN and names the cost of going back anyway."""
    return claim(
        NO_WAY_BACK,
        "no dest host has let clients in",
        False,
        seen=f"{', '.join(hosts)} let clients in: {words.many} have seen dest's transactions",
        needed="dest hosts that have refused clients until now",
        moves=(
            "repair forward: zkmigrate resume",
            f"a rollback now would lose or replay dest's transactions. It needs every {words.one} down at "
            f"once, and the source owner's consent: see the playbook {words.kind}_zookeeper_return and "
            "docs/how-to/going-back.md. zkmigrate replay list shows the transactions",
        ),
    )


MEANINGS = meanings(
    """
    go.majority: Too few dest hosts have received GO to form a quorum. Cause: Hosts stopped answering between
    SEAL and GO. Nothing is lost meanwhile: no host serves and no session expires. To do: Bring back a host
    that does not answer: the run then sends GO to it. If the run has ended, run zkmigrate resume. See
    docs/how-to/host-died.md.

    go.not-heard: A dest host did not confirm its GO. Cause: The host does not answer. If the host has
    received GO, it joins the others by itself. If not, it keeps refusing clients. To do: Bring the host back:
    VERIFY sends GO once it answers. If the host is lost: docs/how-to/host-died.md.

    go.sent: A sealed dest host has no GO yet. Cause: The message has not reached it. To do: Wait, or
    resume.

    open.no-way-back: A dest host has let clients in, so this run cannot go back. Cause: Clients have seen
    dest's transactions. Going back would lose these transactions. To do: Repair forward: zkmigrate resume. A
    return needs an outage and the owner of source: docs/how-to/going-back.md.
    """
)
