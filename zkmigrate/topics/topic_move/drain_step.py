"""What: wait until both logs of every partition have equal ends, stop the copiers, record on both clusters
that no copier may write, and copy the groups' offsets.

Why now: nothing writes on source, so its ends do not move. A copier that went on could later write on
target besides the clients. That could also be one outside the mirror hosts, or one that starts again at
boot.

Clients may notice: they still wait.

Way back: both clusters let copiers write on target, and the copiers run again.

Proof: the ends are equal in two measurements in a row and have not moved since the hold, no copier runs or
may write, and the commits are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.runbook.model.change import Applied, Changes, SetService
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import blocking, claim, few, meanings
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
from zkmigrate.topics.mirror.changes import MIRRORED, CopyOffsets
from zkmigrate.topics.mirror.questions import BothEnds, CompareCommits, GroupPair
from zkmigrate.topics.mirror.rules.direction import Direction
from zkmigrate.topics.topic_move.direction import DIRECTION, record_direction, recorded_direction
from zkmigrate.topics.topic_move.facts import (
    Copiers,
    Drained,
    Ends,
    Gateways,
    Part,
    both_ends,
    copiers,
    every_app,
    forward,
    forward_unit,
    gateways,
    offsets,
)
from zkmigrate.topics.topic_move.rules import (
    cannot_read,
    check_commits,
    check_copiers_report,
    check_in_sync,
    check_leases,
    check_source_ends,
    part_name,
    wait_for_leaders,
)
from zkmigrate.topics.topic_move.section import mirror_hosts, move_of, switched

OFFSETS = "group-offsets"
"""The name that the step uses as target of the change that copies the groups' offsets."""
_POLL_S = 0.05
_LOOKS = 2


@dataclass(frozen=True)
class DrainFacts:
    """Facts for the step drain.

    copiers, direction: None until the ends are equal. groups: None until no copier runs or may write.
    """

    gateways: Gateways
    ends: Reading[Ends]
    copiers: Copiers | None = None
    groups: Reading[Mapping[str, GroupPair]] | None = None
    direction: Reading[Direction] | None = None


class DrainStep(Step[DrainFacts]):
    id = Drained.step
    title = "Drain the mirror"
    hazard = Hazard.WINDOW

    def observe(self, c: Context, look: Look) -> DrainFacts:
        move = move_of(c.inventory).topic_move
        if c.way is Way.BACK:
            running, direction = copiers(c, look, move.target), recorded_direction(c, look)
            return DrainFacts(Gateways({}, ()), Seen({}), running, direction=direction)
        found, ends = gateways(c, look), both_ends(c, look)
        if c.kept.get("equal", 0) < _LOOKS:
            return DrainFacts(found, ends)
        running, direction = copiers(c, look, move.target), recorded_direction(c, look)
        if running.running or running.silent or not _no_copier_may_write(direction):
            return DrainFacts(found, ends, running, direction=direction)
        topics = switched(c.inventory)
        groups = look.ask(CompareCommits(*forward(c), topics.topics, topics.groups))
        return DrainFacts(found, ends, running, groups, direction)

    def check(self, c: Context, f: DrainFacts) -> Verdict:
        if c.way is Way.BACK:
            return _check_back(f)
        if f.gateways.unknown:
            return Blocked(f.gateways.unknown)
        if wrong := check_leases(f.gateways):
            return Blocked(wrong)
        limit_s = move_of(c.inventory).topic_move.hold_ms / 1000
        if not isinstance(f.ends, Seen):
            return Waiting(
                "both clusters report where their logs end", str(f.ends), limit_s, _POLL_S, keep=c.kept
            )
        ends = f.ends.value
        if not c.kept and (waiting := wait_for_leaders(ends, limit_s, _POLL_S)):
            return waiting
        before: dict[Part, int] = c.kept.get("before") or {
            part: one.source for part, one in ends.items() if one.source is not None
        }
        if wrong := check_source_ends(before, ends):
            return Blocked(wrong)
        open_parts = {part: one for part, one in ends.items() if not one.equal}
        if short := check_in_sync(open_parts):
            return Blocked(short)
        apart = [f"{part_name(part)}: {one.lag}{_copy_obstacle(one)}" for part, one in open_parts.items()]
        equal = 0 if apart else c.kept.get("equal", 0) + 1
        keep = {"before": before, "equal": equal}
        if apart or equal < _LOOKS:
            told = f"behind: {few(apart)}" if apart else "equal in one of two measurements"
            return Waiting(
                "the mirror has copied everything up to source's ends", told, limit_s, _POLL_S, keep=keep
            )
        if f.copiers is None:
            return Waiting("the copiers report their state", "equal ends", limit_s, 0.0, keep=keep)
        return _check_equal(f, f.copiers, ends, keep)

    def plan(self, c: Context, f: DrainFacts, target: str) -> Changes:
        topics = switched(c.inventory)
        if target == OFFSETS:
            return (CopyOffsets(MIRRORED, topics.topics, topics.groups),)
        if target == DIRECTION:
            return record_direction(c, "none")
        return (SetService(target, forward_unit(c), "stop"),)

    def undo(self, c: Context, f: DrainFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        if target == DIRECTION:
            return record_direction(c, "forward")
        if target not in mirror_hosts(c.inventory):
            return ()
        return (SetService(target, forward_unit(c), "start"),)

    def forecast(self, c: Context, look: Look) -> Forecast[DrainFacts]:
        held = DrainFacts(every_app(c, "held"), Seen({}))
        return Forecast(held, (*mirror_hosts(c.inventory), DIRECTION, OFFSETS))


def _copy_obstacle(ends: BothEnds) -> str:
    """Return why records of source cannot be copied yet, in brackets; empty if they can."""
    if ends.held:
        return f" ({ends.held})"
    if ends.stable is None or ends.source is None or ends.stable >= ends.source:
        return ""
    return f" (a transaction is open from offset {ends.stable:,} on)"


def _check_equal(f: DrainFacts, found: Copiers, ends: Ends, keep: dict[str, object]) -> Verdict:
    """Return the verdict of the step once both logs of each partition have equal ends.

    First the copiers are stopped, and both clusters record that no copier may write. Then the groups' commits
    are copied. keep: values that the verdict keeps for the next check.
    """
    if wrong := check_copiers_report(found):
        return Blocked(wrong)
    assert f.direction is not None
    if not isinstance(f.direction, Seen):
        return Blocked((cannot_read("the recorded direction of the mirror", f.direction),))
    if todo := (*found.running, *(() if _no_copier_may_write(f.direction) else (DIRECTION,))):
        return Ready(todo, keep=keep)
    assert f.groups is not None
    if not isinstance(f.groups, Seen):
        return Blocked((cannot_read("groups", f.groups),))
    equal = check_commits(f.groups)
    states = {one.state for one in f.groups.value.values()}
    if states in ({"behind"}, {"behind", "equal"}):
        return Ready((OFFSETS,), keep=keep)
    if blocking((equal,)):
        return Blocked((equal,))
    drained = claim(
        "switch.drained",
        "both logs of every partition have equal ends, and no copier runs or may write",
        True,
        seen=f"{len(ends):,} partitions, {found.unit} stopped; {f.direction.value.words}",
    )
    return Done((drained, equal), Drained(offsets(ends)).encode())


def _check_back(f: DrainFacts) -> Verdict:
    assert f.copiers is not None
    assert f.direction is not None
    if not isinstance(f.direction, Seen):
        # Clients can go on at source meanwhile; the copiers could not write yet.
        return Blocked((cannot_read("the recorded direction of the mirror", f.direction),), others_back=True)
    if f.direction.value.copies not in ("", "forward"):
        return Ready((DIRECTION,))
    if f.copiers.down:
        return Ready(f.copiers.down)
    return Blocked(check_copiers_report(f.copiers), others_back=True) if f.copiers.silent else Done()


def _no_copier_may_write(direction: Reading[Direction]) -> bool:
    """Return whether both clusters have recorded that no copier may write."""
    return isinstance(direction, Seen) and direction.value.copies == "none"


MEANINGS = meanings(
    """
    switch.drained: The ends of the logs differ, or a copier runs or may write. Cause: The step is not
    finished. To do: Wait. If the hold ends first, the run rolls back.
    """
)
