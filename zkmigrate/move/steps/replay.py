"""What: repeat dest's transactions on source, in order, each one once.

Why now: the plan is made from disks that do not change any more, and no client uses the subtree on source.

Clients may notice: nothing more; other tenants of source see at most 200 writes a second.

Way back: repeated transactions stay on source, with their mark. No client uses them there, and a later return
continues from the mark. Brokers and dest start again as they were.

Proof: path, data, ACL and versions of the subtree are the same on the disks of source and dest.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.errors import ZkmigrateError
from zkmigrate.move.facts.records import Planned
from zkmigrate.move.facts.replay import Condition
from zkmigrate.move.facts.replay_disks import host_disks, mark_on
from zkmigrate.move.rules.outage import consenting_owner, owner_consent
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, claim, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Hazard, Ready, Step, Verdict, Waiting, Way
from zkmigrate.runbook.model.step_record import known, needed
from zkmigrate.zookeeper.changes import SOURCE, BeginReplay, ReplayTransactions
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.proofs import Proved
from zkmigrate.zookeeper.data.replay import Mark, marker_of
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.facts.ensemble import source_view

BEGIN = "begin"
DISK_S = 60.0


@dataclass(frozen=True)
class ReplayFacts:
    """The state of the replay on source.

    mark: the marker on source. own: whether the disk that was read as source's shows the mark; this is
    checked before the first transaction. same: the comparison of the subtrees, made once every transaction is
    repeated. wall: when the facts were read, in seconds since the epoch.
    """

    mark: Reading[Mark]
    own: Proved
    same: Reading[Condition]
    wall: float


class ReplayStep(Step[ReplayFacts]):
    id = "replay"
    title = "Repeat dest's transactions on source"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> ReplayFacts:
        unread = Absent("not read")
        wall = look.wall()
        leader = source_view(c.inventory, look).leader
        if c.way is Way.BACK or leader is None:
            return ReplayFacts(Unknown("failed", "source has no single leader"), None, unread, wall)
        found = mark_on(look, leader, c.inventory.kafka.subtree)
        if not isinstance(found, Seen):
            return ReplayFacts(found, None, unread, wall)
        mark, at = found.value
        plan = known(Planned, c)
        try:
            disks = host_disks(c.inventory, look, leader)
            marker = marker_of(c.inventory.kafka.subtree)
            own = disks.is_of(marker, mark.created) if not mark.version else True
            if plan is None or batches_left(plan, mark):
                return ReplayFacts(Seen(mark), own, unread, wall)
            return ReplayFacts(Seen(mark), own, Seen(disks.compare(plan.disk, plan.upto, at)), wall)
        except (ZkmigrateError, ZkDataError) as error:
            return ReplayFacts(Seen(mark), None, Unknown("failed", str(error)), wall)

    def check(self, c: Context, f: ReplayFacts) -> Verdict:
        if c.way is Way.BACK:
            return Done()
        plan = needed(Planned, c)
        if isinstance(f.mark, Unknown):
            what = "source shows the progress of the replay"
            return Waiting(what, str(f.mark), c.inventory.policy.step_deadline_s, 1.0)
        if isinstance(f.mark, Absent):
            total = sum(count for _, count, _ in plan.batches)
            consent = owner_consent(c.inventory, f.wall, f"{total} transactions are to be replayed")
            return Blocked((consent,)) if consent.blocks else Ready((BEGIN,), (consent,))
        mark = f.mark.value
        if f.own is None:
            return Waiting("the disk of source's leader shows the mark", str(f.same), DISK_S, 1.0)
        if not f.own:
            return Blocked((_foreign(c),))
        if remaining := batches_left(plan, mark):
            return Ready((format_zxid(remaining[0][0]),))
        if not isinstance(f.same, Seen):
            return Waiting("the disks can be compared", str(f.same), DISK_S, 1.0)
        same = f.same.value
        if same.held is None:
            return Waiting("the disk of source's leader is up to date", same.seen, DISK_S, 0.5)
        compared = claim(
            same.id,
            same.claim,
            same.held,
            seen=f"{mark.version} transactions; {same.seen}",
            needed="the same znodes",
            moves=(
                "find out who else writes under the chroot",
                "roll back, so that the brokers continue with dest: zkmigrate rollback",
            ),
        )
        return Done.unless_blocked((compared,))

    def plan(self, c: Context, f: ReplayFacts, target: str) -> Changes:
        plan, chroot = needed(Planned, c), c.inventory.kafka.chroot
        cut = format_zxid(plan.cut)
        if target == BEGIN:
            return (BeginReplay(SOURCE, chroot, plan.disk, cut, consenting_owner(c.inventory, f.wall)),)
        return tuple(
            ReplayTransactions(SOURCE, chroot, plan.disk, cut, target, count, fingerprint)
            for upto, count, fingerprint in plan.batches
            if format_zxid(upto) == target
        )

    def undo(self, c: Context, f: ReplayFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()

    def forecast(self, c: Context, look: Look) -> None:
        """Return None, because dest takes writes until it stops, so the extent of the replay is not known
        yet.
        """


def batches_left(plan: Planned, mark: Mark) -> tuple[tuple[int, int, str], ...]:
    """Return the batches that the mark does not cover yet: last zxid, number of transactions, fingerprint."""
    return tuple(batch for batch in plan.batches if batch[0] > mark.done)


def _foreign(c: Context) -> Finding:
    return claim(
        "replay.disk",
        "the disk that was read as source's belongs to the ensemble that receives the replay",
        False,
        seen=f"the disk's log does not show {marker_of(c.inventory.kafka.subtree)}",
        needed="source.data_dir and source.log_dir of the servers that source.hosts names",
        moves=("correct source in migration.yml, then resume",),
    )


MEANINGS = meanings(
    """
    replay.disk: The disk that was read as source's does not belong to the ensemble that receives the replay.
    Cause: source.data_dir or source.log_dir names another ensemble's directory. To do: Correct source in
    migration.yml, then resume.
    """
)
