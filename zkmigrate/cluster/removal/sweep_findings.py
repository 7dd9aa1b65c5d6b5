"""Findings about brokers that are to become empty."""

from __future__ import annotations

from collections.abc import Collection

from zkmigrate.cluster.placement.plan import Refused
from zkmigrate.cluster.reassign.answers import Cluster
from zkmigrate.cluster.reassign.moves import Move
from zkmigrate.cluster.removal.survey import Survey
from zkmigrate.kafka.questions import PartitionState
from zkmigrate.runbook.model.finding import Finding, claim, few
from zkmigrate.runbook.model.report import counted


def in_flight_elsewhere(p: PartitionState) -> str:
    return f"{p.topic}-{p.partition} is being moved by another tool, on brokers {list(p.replicas)}"


def came(s: Survey) -> Finding:
    """Check that new partitions on the brokers to be removed can be placed elsewhere."""
    reasons = s.plan.reasons if isinstance(s.plan, Refused) else ()
    named = [f"{p.topic}-{p.partition}" for p in s.naming if (p.topic, p.partition) in s.only]
    return claim(
        "remove.came",
        "partitions created on the brokers meanwhile can be placed on the others",
        not reasons,
        seen=few(f"{one.id}: {one.text}" for one in reasons) if reasons else f"{len(named):,}: {few(named)}",
        needed="a broker with enough space for each, in as many racks as before",
    )


def only_there(s: Survey) -> Finding:
    """Check that each partition has a leader. Data that is only on stopped brokers stays there."""
    dark = [f"{p.topic}-{p.partition} on brokers {list(p.replicas)}" for p in s.naming if p.leader < 0]
    return claim(
        "remove.only-there",
        "no partition has all of its replicas on brokers that are down",
        not dark,
        seen=few(dark) if dark else "each partition has a leader",
        needed="a leader, from which the new replicas copy",
    )


def empty(
    brokers: Collection[int], every: Cluster, moved: Collection[Move], left: Collection[PartitionState]
) -> Finding:
    """Return the finding that the brokers are empty, with its evidence.

    left: partitions that were created since the brokers were last emptied.
    """
    down = [id for id in brokers if id not in every.alive]
    seen = f"{counted(len(every.partitions), 'partition')} of the cluster checked twice; "
    seen += f"{len(moved):,} partitions were created on these brokers meanwhile"
    seen += (
        f"; the disks of {few(map(str, down))} could not be read, because these brokers are down"
        if down
        else ""
    )
    names = [f"{p.topic}-{p.partition}" for p in left]
    seen += f"; topics are being created continuously, so a later stage moves {few(names)}" if names else ""
    return claim(
        "remove.empty", "no partition names the brokers, and their disks have no replica", True, seen=seen
    )
