"""What: do again on source what dest did, in order, each transaction once.

Why now: the plan is made from disks that do not change any more, and nobody uses the subtree on source.

Clients may notice: nothing more; other tenants of source see at most 200 writes a second.

Way back: what was done stays on source, with its mark. Nobody uses it there, and a later return goes on
behind the mark. Brokers and dest start again as they were.

Proof: path, data, ACL and versions of the subtree are the same on the disks of source and dest.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.errors import ZkmigrateError
from zkmigrate.model.change import SOURCE, Applied, BeginReplay, Changes, ReplayTransactions
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.finding import Finding, claim, meanings
from zkmigrate.model.look import Look
from zkmigrate.model.step import Blocked, Context, Done, Hazard, Ready, Step, Verdict, Waiting, Way
from zkmigrate.model.step_record import known, needed
from zkmigrate.moves.facts.records import Planned
from zkmigrate.moves.facts.replay import Condition
from zkmigrate.moves.facts.replay_disks import looking, mark_on
from zkmigrate.moves.rules.outage import agreed, consenting
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.proofs import Held
from zkmigrate.zookeeper.data.replay import Mark, marker_of
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.facts.ensemble import source_view

BEGIN = "begin"
DISK_S = 60.0


@dataclass(frozen=True)
class ReplayFacts:
    """The mark on source. own: whether the disk that is read as source's shows it; asked before the first
    transaction. same: how the subtrees compare; read once all is done. wall: seconds since the epoch."""

    mark: Reading[Mark]
    own: Held
    same: Reading[Condition]
    wall: float


class ReplayStep(Step[ReplayFacts]):
    """See the module."""

    id = "replay"
    title = "Do it again on source"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> ReplayFacts:
        unread: Absent = Absent("not asked")
        wall = look.wall()
        leader = source_view(c.inventory, look).leader
        if c.way is Way.BACK or leader is None:
            return ReplayFacts(Unknown("failed", "source has no one leader"), None, unread, wall)
        found = mark_on(look, leader, c.inventory.kafka.chroot)
        if not isinstance(found, Seen):
            return ReplayFacts(found, None, unread, wall)
        mark, at = found.value
        plan = known(Planned, c)
        try:
            disks = looking(c.inventory, look, leader)
            own = disks.is_of(marker_of(c.inventory.kafka.chroot), mark.created) if not mark.version else True
            if plan is None or left(plan, mark):
                return ReplayFacts(Seen(mark), own, unread, wall)
            return ReplayFacts(Seen(mark), own, Seen(disks.compare(plan.disk, plan.upto, at)), wall)
        except (ZkmigrateError, ZkDataError) as error:
            return ReplayFacts(Seen(mark), None, Unknown("failed", str(error)), wall)

    def check(self, c: Context, f: ReplayFacts) -> Verdict:
        if c.way is Way.BACK:
            return Done()
        plan = needed(Planned, c)
        if isinstance(f.mark, Unknown):
            return Waiting("source tells how far it is", str(f.mark), c.inventory.policy.step_deadline_s, 1.0)
        if isinstance(f.mark, Absent):
            consent = agreed(c.inventory, f.wall, f"{_total(plan)} transactions are to be replayed")
            return Blocked((consent,)) if consent.blocks else Ready((BEGIN,), (consent,))
        mark = f.mark.value
        if f.own is None:
            return Waiting("the disk of source's leader shows the mark", str(f.same), DISK_S, 1.0)
        if not f.own:
            return Blocked((_foreign(c),))
        if ahead := left(plan, mark):
            return Ready((format_zxid(ahead[0][0]),))
        if not isinstance(f.same, Seen):
            return Waiting("the disks can be compared", str(f.same), DISK_S, 1.0)
        if f.same.value.held is None:
            return Waiting("the disk of source's leader is up to date", f.same.value.seen, DISK_S, 0.5)
        same = claim(
            f.same.value.id,
            f.same.value.claim,
            f.same.value.held,
            seen=f"{mark.version} transactions; {f.same.value.seen}",
            needed="the same znodes",
            moves=("find out who else writes under the chroot", "rollback: brokers go on with dest"),
        )
        return Blocked((same,)) if same.blocks else Done((same,))

    def plan(self, c: Context, f: ReplayFacts, target: str) -> Changes:
        plan, chroot = needed(Planned, c), c.inventory.kafka.chroot
        cut = format_zxid(plan.cut)
        if target == BEGIN:
            return (BeginReplay(SOURCE, chroot, plan.disk, cut, consenting(c.inventory, f.wall)),)
        return tuple(
            ReplayTransactions(SOURCE, chroot, plan.disk, cut, target, count, fingerprint)
            for upto, count, fingerprint in plan.batches
            if format_zxid(upto) == target
        )

    def undo(self, c: Context, f: ReplayFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()

    def forecast(self, c: Context, look: Look) -> None:
        """Dest goes on until it is stopped: what there will be to replay is not known."""


def left(plan: Planned, mark: Mark) -> tuple[tuple[int, int, str], ...]:
    """The batches that are not done, as the mark says."""
    return tuple(batch for batch in plan.batches if batch[0] > mark.done)


def _total(plan: Planned) -> int:
    return sum(count for _, count, _ in plan.batches)


def _foreign(c: Context) -> Finding:
    return claim(
        "replay.disk",
        "the disk that is read as source's is one of the ensemble that takes the replay",
        False,
        seen=f"its log does not show {marker_of(c.inventory.kafka.chroot)}",
        needed="source.data_dir and source.log_dir of the servers that source.hosts names",
        moves=("correct source in migration.yml, then resume",),
    )


MEANINGS = meanings(
    """
    replay.disk: The disk read as source's is not one of the ensemble that takes the replay. Cause:
    source.data_dir or source.log_dir names another ensemble's directory. To do: Correct source in
    migration.yml, then resume.
    """
)
