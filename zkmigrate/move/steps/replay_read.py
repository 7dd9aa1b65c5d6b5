"""What: read dest's transactions after the cut from the disks, and plan their replay.

Why now: brokers and dest are down; no disk changes any more.

Clients may notice: nothing more; no broker serves them.

Way back: nothing was changed.

Proof: every condition of a replay holds, and the plan has a fingerprint of all its requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.hosts.facts.status import HostStatus, runs
from zkmigrate.move.facts.outage import Registered, dest_services, registered
from zkmigrate.move.facts.records import Planned
from zkmigrate.move.facts.replay import ReplayScope
from zkmigrate.move.steps.return_preflight import disks, replayable
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.finding import blocking, claim, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Reads, Verdict, Waiting
from zkmigrate.zookeeper.facts.ensemble import source_view

SESSION_S = 120.0


@dataclass(frozen=True)
class ReadFacts:
    """The services, registrations and disks after the brokers have stopped.

    services: the state of ZooKeeper on every dest host. source: Kafka's registrations on source. replay: the
    transactions to replay with their conditions. It is read only once no broker is registered on source,
    because whole disks are read for it.
    """

    services: Mapping[str, Reading[HostStatus]]
    source: Reading[Registered]
    replay: Reading[ReplayScope]


class ReplayReadStep(Reads[ReadFacts]):
    id = "read"
    title = "Read dest's transactions"

    def observe(self, c: Context, look: Look) -> ReadFacts:
        inventory = c.inventory
        services = dest_services(inventory, look)
        view = source_view(inventory, look)
        source = registered(look, view.leader_first, inventory.kafka.prefix)
        if isinstance(source, Seen) and source.value.any_registered:
            return ReadFacts(services, source, Absent("not read"))
        return ReadFacts(services, source, replayable(c, look, view.leader))

    def check(self, c: Context, f: ReadFacts) -> Verdict:
        down = tuple(
            claim(
                "read.dest-down",
                "dest's ZooKeeper is stopped, so its disks do not change",
                None if (up := runs(status)) is None else not up,
                target=host,
                seen="it runs" if up else str(status) if up is None else "stopped",
                needed="stopped",
                moves=("stop this ZooKeeper and find out who started it, then resume",),
            )
            for host, status in f.services.items()
        )
        if blocking(down):
            return Blocked(down)
        if isinstance(f.source, Seen) and f.source.value.any_registered:
            what = "the brokers' old sessions on source have ended"
            return Waiting(what, f.source.value.words, SESSION_S, 1.0)
        findings = (*down, *disks(f.replay))
        if blocking(findings) or not isinstance(f.replay, Seen):
            return Blocked(findings)
        scope = f.replay.value
        batches = tuple((batch.upto, batch.count, batch.fingerprint) for batch in scope.batches)
        return Done(findings, Planned(scope.dest, scope.cut, scope.upto, batches).encode())


MEANINGS = meanings(
    """
    read.dest-down: ZooKeeper of a dest host runs, so its disk can still change. Cause: Somebody started
    ZooKeeper. To do: Stop ZooKeeper there and find out who started it, then resume.
    """
)
