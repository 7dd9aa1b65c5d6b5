"""What: check once more all partitions that the run has changed; change nothing.

Why now: the throttle is removed, and the leaders are elected. Another tool may have changed something since.

Clients may notice: nothing.

Way back: nothing was changed.

Proof: each partition has the plan's replica list, in order and in sync, no reassignment of it is in flight,
and its preferred leader leads.
"""

from __future__ import annotations

from dataclasses import replace

from zkmigrate.cluster.reassign.answers import cluster, placed
from zkmigrate.cluster.reassign.facts import disputed, stands
from zkmigrate.cluster.reassign.moves import Stand, originals
from zkmigrate.cluster.reassign.preferred_step import PreferredFacts, led
from zkmigrate.cluster.reassign.rules import originals_lost
from zkmigrate.cluster.reassign.section import ReassignInventory
from zkmigrate.runbook.model.finding import claim, few, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.report import counted
from zkmigrate.runbook.model.step import Blocked, Context, Done, Forecast, Reads, Verdict, Waiting, Way


class VerifyStep(Reads[PreferredFacts]):
    id = "sets"
    title = "Verify replica lists and leaders"

    def observe(self, c: Context, look: Look) -> PreferredFacts:
        plan = originals(c)
        if plan is None:
            return PreferredFacts(None, None)
        plan = replace(plan, moves=plan.whole)
        now = cluster(look, (move.name for move in plan.moves))
        where = placed(look, plan.moves, now.alive, Way.FORWARD)
        return PreferredFacts(plan, now, where, disputed(c, look, plan.moves, now, where))

    def check(self, c: Context, f: PreferredFacts) -> Verdict:
        if f.plan is None or f.now is None:
            return Blocked((originals_lost(),))
        if f.now.missing is not None:
            limit = c.inventory.policy.step_deadline_s
            return Waiting("a response of Kafka about partitions", str(f.now.missing), limit, poll_s=1.0)
        found = stands(f.plan.moves, f.now, Way.FORWARD, f.disks).but(f.disputes)
        odd = [move for move in f.plan.moves if found.of[move.name] not in (Stand.DONE, Stand.GONE)]
        whole = claim(
            "reassign.verified",
            "each partition has its new replica list, in order and in sync, in the directories of the plan",
            not odd,
            seen=few(f"{move.target}: {f.disputes.get(move.name, found.of[move.name].value)}" for move in odd)
            if odd
            else f"{counted(len(f.plan.moves), 'partition')}, {_witness(c)}",
            needed="the replica lists of the plan",
        )
        return Done.unless_blocked((whole, led(f.plan.moves, f.now.partitions)))

    def forecast(self, c: Context, look: Look) -> Forecast[PreferredFacts] | None:
        return None


def _witness(c: Context) -> str:
    if isinstance(c.inventory, ReassignInventory) and c.inventory.reassign.zookeeper:
        return "reported by brokers and ZooKeeper"
    return "reported only by brokers"


MEANINGS = meanings(
    """
    reassign.verified: A partition does not have its new replica list, or a replica is not in sync. Cause: A
    broker is down, or another person or tool moved the partition since. To do: Wait until the replica is in
    sync, or find out who moved the partition, then resume. Or roll back.
    """
)
