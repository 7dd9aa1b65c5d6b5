"""What: check the conditions for going back to source, and estimate the cost; change nothing.

Why now: once the first broker is stopped, clients are served less with each minute.

Clients may notice: nothing; the step only reads, but it reads all of the disks of source's leader and of
dest.

Way back: nothing was changed.

Proof: every server of source serves, except one that is accepted to be down, and no other client wrote under
the chroot there. Each of dest's transactions can be repeated. Every broker is known, names dest and is in
sync. The owner of source agrees by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.errors import ZkmigrateError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.facts.cluster import kafka_view
from zkmigrate.kafka.questions import KafkaView
from zkmigrate.kafka.rules.next_wave import out_of_sync
from zkmigrate.move.facts.outage import BrokerState, brokers
from zkmigrate.move.facts.replay import ReplayScope
from zkmigrate.move.facts.replay_disks import host_disks, mark_on
from zkmigrate.move.preflight.kafka import registered_moves
from zkmigrate.move.rules.outage import owner_consent
from zkmigrate.move.rules.server_down import down_finding
from zkmigrate.runbook.accepted import accepted
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Severity, claim, each, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Done, Reads, Verdict
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.replay import Mark
from zkmigrate.zookeeper.facts.ensemble import (
    Down,
    EnsembleView,
    dest_view,
    mntr_of_leader,
    server_down,
    source_view,
)

PACE = 200
"""The most transactions per second that a replay sends."""

LATER = ("source.at-rest", "dest.at-rest")
"""The conditions of a replay that can hold only once the brokers are down."""


@dataclass(frozen=True)
class ReturnFacts:
    """Both ensembles, Kafka as its brokers report it, the brokers' files, and the content of the disks.

    replay: the transactions to replay with their conditions. wall: when the facts were read, in seconds since
    the epoch. down: the source server that is down, or why no single server is known to be down.
    """

    source: EnsembleView
    dest: EnsembleView
    view: Reading[KafkaView]
    brokers: Mapping[str, BrokerState]
    replay: Reading[ReplayScope]
    wall: float
    down: Down | str = ""


class ReturnPreflightStep(Reads[ReturnFacts]):
    id = "preflight"
    title = "Check what going back costs"

    def observe(self, c: Context, look: Look) -> ReturnFacts:
        source = source_view(c.inventory, look)
        return ReturnFacts(
            source,
            dest_view(c.inventory, look),
            kafka_view(c, look),
            brokers(c.inventory, look),
            replayable(c, look, source.leader),
            look.wall(),
            server_down(source, mntr_of_leader(look, source)),
        )

    def check(self, c: Context, f: ReturnFacts) -> Verdict:
        findings = (
            *accepted(c.inventory.accept, _source_serves(f.source, f.down), f.wall),
            _dest_serves(f.dest),
            *_kafka(c.inventory, f.view),
            *_files(c.inventory, f.brokers),
            *disks(f.replay, LATER),
            owner_consent(c.inventory, f.wall, cost(f.replay)),
        )
        return Done.unless_blocked(findings)


def replayable(c: Context, look: Look, leader: str | None) -> Reading[ReplayScope]:
    """Read from the disks of source's leader and of dest which transactions to replay.

    If source has a mark, the replay continues from that mark.
    """
    if leader is None:
        return Unknown("failed", "source has no single leader, so there is no disk to read")
    mark = mark_on(look, leader, c.inventory.kafka.subtree)
    if isinstance(mark, Unknown):
        return mark
    begun: Mark | None = mark.value[0] if isinstance(mark, Seen) else None
    try:
        return Seen(host_disks(c.inventory, look, leader).examine(begun))
    except (ZkmigrateError, ZkDataError) as error:
        return Unknown("failed", str(error))


def disks(replay: Reading[ReplayScope], later: tuple[str, ...] = ()) -> tuple[Finding, ...]:
    """Return the conditions of a replay as findings. later: the ids of conditions to leave out."""
    if not isinstance(replay, Seen):
        return (
            claim("return.disks", "dest's transactions can be read from the disks", None, seen=str(replay)),
        )
    return tuple(
        claim(
            x.id,
            x.claim,
            x.held,
            seen=x.seen,
            moves=("docs/reference/replay.md explains each condition", "repair forward instead"),
        )
        for x in replay.value.conditions
        if x.id not in later
    )


def cost(replay: Reading[ReplayScope]) -> str:
    """Return the known cost of going back, as text."""
    if not isinstance(replay, Seen):
        return "every broker is down until the end. The number of transactions to replay is not known"
    tally = replay.value.tally
    took, ephemerals = tally.transactions / PACE, tally.kinds["Count"] + replay.value.passed
    return (
        "every broker is down from the last one's stop until source serves the first one again; "
        f"{tally.transactions} transactions are replayed meanwhile, in about {took:.0f} s. Lost for good: "
        f"dest's zxids and times, {ephemerals} transactions of ephemerals, and the znodes that "
        "systems other than Kafka keep on dest"
    )


def _source_serves(view: EnsembleView, down: Down | str) -> tuple[Finding, ...]:
    """Check that every server of source serves, or all but one, which is judged by itself."""
    why = "" if isinstance(down, Down) else down
    if isinstance(down, Down):
        view = view.without(down.host)
    modes = view.modes()
    unknown = any(isinstance(reading, Unknown) for reading in view.servers.values())
    held = view.complete
    serve = claim(
        "return.source",
        "one server of source leads, and all others follow that are not accepted to be down",
        None if unknown and not held else held,
        seen="; ".join(filter(None, (each(modes), why))),
        needed=view.wanted,
        moves=("repair source first",),
    )
    return (serve, down_finding(view, down)) if isinstance(down, Down) else (serve,)


def _dest_serves(view: EnsembleView) -> Finding:
    return claim(
        "return.dest",
        "a majority of dest serves, so that brokers hand over in order and their sessions end",
        view.has_quorum(),
        seen=each(view.modes()),
        needed="a quorum of participants",
        moves=("bring dest hosts back first",),
    )


def _kafka(inventory: Inventory, view: Reading[KafkaView]) -> tuple[Finding, ...]:
    if not isinstance(view, Seen):
        return (claim("return.brokers", "the brokers answer", None, seen=str(view)),)
    kafka = view.value
    wanted = {broker.id for broker in inventory.kafka.brokers}
    behind = out_of_sync(kafka, frozenset())
    moving = kafka.reassigning
    return (
        claim(
            "return.brokers",
            "exactly the brokers of the inventory are registered",
            set(kafka.brokers) == wanted,
            seen=str(sorted(kafka.brokers)),
            needed=str(sorted(wanted)),
            moves=registered_moves(kafka.brokers, wanted),
        ),
        claim(
            "return.in-sync",
            "every replica of every partition is in sync",
            not behind,
            seen=f"{len(behind)} of {len(kafka.partitions)} partitions lack a replica",
            needed="none",
            moves=("wait until the replicas are in sync",),
        ),
        claim(
            "return.reassignment",
            "no partition is being reassigned",
            None if moving is None else not moving,
            severity=Severity.WARN if moving is None else Severity.BLOCK,
            seen="these brokers cannot report it" if moving is None else f"{len(moving)} partitions",
            needed="none",
            moves=("wait until the reassignment ends, or cancel it",),
        ),
    )


def _files(inventory: Inventory, states: Mapping[str, BrokerState]) -> tuple[Finding, ...]:
    def held(state: BrokerState) -> bool | None:
        ensembles = inventory.dest.hosts, inventory.source.hosts
        dest, source = state.names(*ensembles), state.names(*reversed(ensembles))
        if source or dest is False:
            return False
        return True if dest and source is False else None

    known = {host: held(state) for host, state in states.items()}
    return tuple(
        claim(
            "return.file",
            "the broker's file names dest and not source",
            known[host],
            target=host,
            seen=f"zookeeper.connect={state.connect}" if known[host] is not None else state.why_unknown(host),
            needed="dest alone, as the roll left it",
            moves=("check zookeeper.connect of that broker; each name in it must resolve on its host",),
        )
        for host, state in states.items()
    )


MEANINGS = meanings(
    """
    return.source: A server of source does not serve. Cause: The server is down, or out of sync. To do: Repair
    source first. One server may stay down by source.server-down.

    return.dest: No majority of dest serves. Cause: Dest hosts are down. Brokers need dest to hand over in
    order. To do: Bring dest hosts back first.

    return.brokers: Other brokers are registered than the inventory names, or no broker answers. Cause: A
    broker is down, or the inventory lacks one. To do: Start the brokers that are missing. Add the missing
    entries to migration.yml.

    return.in-sync: A partition lacks a replica. Cause: A broker is down or behind. To do: Wait until
    every replica is in sync.

    return.reassignment: A partition is being reassigned, or the brokers cannot report whether one is. Cause:
    An operator or a tool started a reassignment. To do: Wait until the reassignment ends, or cancel it.

    return.disks: zkmigrate cannot read dest's transactions from the disks. Cause: A directory cannot be
    read, or a host does not answer. To do: Fix the cause that the finding names, then run again.

    return.file: A broker's file does not name dest alone. Cause: Somebody changed the file after the roll. Or
    a name in the file does not resolve on that host. To do: Correct zookeeper.connect of that broker, or let
    the name resolve.
    """
)
