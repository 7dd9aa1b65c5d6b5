"""Findings about the moves of a run."""

from __future__ import annotations

from collections.abc import Collection

from zkmigrate.cluster.reassign.facts import Stands
from zkmigrate.cluster.reassign.moves import Move, Stand
from zkmigrate.cluster.reassign.moves_facts import MovesFacts
from zkmigrate.inventory.hours import Closed
from zkmigrate.runbook.accepted import TARGET_DOWN, accepted
from zkmigrate.runbook.model.finding import Finding, Severity, claim, few
from zkmigrate.runbook.model.report import counted
from zkmigrate.runbook.model.step import (
    Context,
    Way,
)


def left_for_later(c: Context, f: MovesFacts, left: Collection[Move]) -> tuple[Finding, ...]:
    """Return one finding for each given-up broker, with the moves that are left for another plan."""
    findings = [
        claim(
            TARGET_DOWN,
            "the brokers of the new replica lists are up",
            False,
            target=f"broker-{broker}",
            seen=f"broker {broker} is down; its moves are planned again: {few(named)}",
            needed="every broker of the new replica lists",
            moves=("nothing: a later stage plans and makes these moves",),
        )
        for broker in sorted(f.given_up)
        if (named := [move.target for move in left if broker in move.after])
    ]
    return accepted(c.inventory.accept, findings, f.wall)


def hours_over(shut: Closed) -> Finding:
    return claim(
        "reassign.hours",
        "moves begin only inside the maintenance window",
        False,
        seen=f"now it is {shut.why}",
        needed="a maintenance window that has not ended",
    )


def changed(f: MovesFacts, odd: list[Move]) -> Finding:
    assert f.found is not None
    partitions = f.found.partitions
    named = (f"{move.target} has {','.join(map(str, partitions[move.name].replicas))}" for move in odd)
    return claim(
        "reassign.changed",
        "no other person or tool moves a partition of this run",
        False,
        seen=few(named),
        needed="the replica list of the plan, or the one from before the run",
    )


def moved(c: Context, stands: Stands) -> Finding:
    whose = "the new" if c.way is Way.FORWARD else "their old"
    done, gone = stands.at(Stand.DONE), stands.at(Stand.GONE)
    seen = f"{len(done):,} of {counted(len(stands.moves), 'partition')}"
    other, left = stands.at(Stand.TO_SUBMIT, Stand.FOREIGN), stands.at(Stand.LEFT)
    seen += f"; deleted since: {few(move.target for move in gone)}" if gone else ""
    seen += f"; changed by other tools: {few(move.target for move in other)}" if other else ""
    seen += f"; remaining for another plan: {len(left):,}" if left else ""
    return claim(
        "reassign.moved",
        f"the partitions have {whose} replicas, in order and in sync",
        not (gone or other),
        seen=seen,
        needed="all partitions of the run",
        severity=Severity.WARN,
    )
