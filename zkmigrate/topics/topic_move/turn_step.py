"""What: record on both clusters that copiers may write on source only. Start the copiers from target to
source, now and at each boot. Disable the start at boot of the copiers from source to target.

Why now: clients write on target, and source must stay equal for the way back.

Clients may notice: nothing.

Way back: stop the copiers from target to source, and disable their start at boot.

Proof: only the copiers from target to source run or start at boot, and each cluster has recorded which
cluster leads. Each partition of source is mirrored from target, and none has failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Finding, claim, few, meanings
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
from zkmigrate.topics.mirror.questions import BothEnds, SurveyMirror
from zkmigrate.topics.mirror.rules.direction import Direction
from zkmigrate.topics.topic_move.direction import DIRECTION, record_direction, recorded_direction, start, stop
from zkmigrate.topics.topic_move.facts import (
    Copiers,
    Ends,
    Part,
    backward,
    backward_unit,
    copiers,
    ends_back,
    forward_unit,
)
from zkmigrate.topics.topic_move.rules import check_copiers_report, part_name
from zkmigrate.topics.topic_move.section import mirror_hosts, move_of, switched

_POLL_S, _MOST_S = 0.5, 300.0


@dataclass(frozen=True)
class TurnFacts:
    """Facts for the step turn.

    copiers: the copiers to source. there: the copiers to target. ends: where the logs end, with target as the
    source of the copiers that run now. failed: texts about the partitions that are not mirrored.
    """

    copiers: Copiers
    there: Copiers
    direction: Reading[Direction]
    ends: Reading[Ends]
    failed: Sequence[str] = ()


class TurnStep(Step[TurnFacts]):
    id = "turn"
    title = "Reverse the direction of the copiers"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> TurnFacts:
        move = move_of(c.inventory).topic_move
        running, there = copiers(c, look, move.source), copiers(c, look, move.target)
        if c.way is Way.BACK:
            return TurnFacts(running, there, Seen(Direction("", 0)), Seen({}))
        way = recorded_direction(c, look)
        if "first" not in c.kept:
            return TurnFacts(running, there, way, ends_back(c, look))
        # A copier does not retry a partition that failed.
        topics = switched(c.inventory)
        survey = look.ask(SurveyMirror(*backward(c), topics.topics, topics.groups))
        found = survey.value.partitions if isinstance(survey, Seen) else {}
        failed = [f"{part_name(part)}: {why}" for part, (state, why) in found.items() if state == "failed"]
        return TurnFacts(running, there, way, ends_back(c, look), failed)

    def check(self, c: Context, f: TurnFacts) -> Verdict:
        if wrong := check_copiers_report(f.copiers):
            return Blocked(wrong)
        if c.way is Way.BACK:
            todo = tuple(dict.fromkeys((*f.copiers.running, *f.copiers.enabled)))
            return Ready(todo) if todo else Done()
        if wrong := check_copiers_report(f.there):
            return Blocked(wrong)
        if not isinstance(f.direction, Seen):
            why = str(f.direction)
            return Waiting(
                "both clusters report the recorded direction", why, _MOST_S, poll_s=_POLL_S, keep=c.kept
            )
        old = dict.fromkeys((*f.there.running, *f.there.enabled))
        if todo := (*old, *(() if f.direction.value.copies == "backward" else (DIRECTION,))):
            return Ready(todo, keep=c.kept)
        if f.copiers.down:
            return Ready(f.copiers.down)
        if not isinstance(f.ends, Seen):
            return Waiting("both clusters report where their logs end", str(f.ends), _MOST_S, poll_s=_POLL_S)
        ends = f.ends.value
        told: dict[Part, int] = {p: one.source for p, one in ends.items() if one.source is not None}
        first = {**told, **c.kept.get("first", {})}
        behind = [part_name(p) for p in {**first, **ends} if not _has_reached(ends.get(p), first.get(p))]
        if f.failed:
            return Blocked((_mirror_back(False, few(f.failed)),))
        if behind:
            what = "source has the records that clients wrote on target before this step"
            return Waiting(what, few(behind), _MOST_S, poll_s=_POLL_S, keep={"first": first})
        return Done((_mirror_back(True, f"{f.copiers.unit}, {len(first):,} partitions"),))

    def plan(self, c: Context, f: TurnFacts, target: str) -> Changes:
        if target == DIRECTION:
            return record_direction(c, "backward")
        if target in (*f.there.running, *f.there.enabled):
            return stop(f.there, target)
        return start(f.copiers, target)

    def undo(self, c: Context, f: TurnFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return stop(f.copiers, target)

    def forecast(self, c: Context, look: Look) -> Forecast[TurnFacts]:
        facts = TurnFacts(
            Copiers(backward_unit(c), {}), Copiers(forward_unit(c), {}), Seen(Direction("none", 0)), Seen({})
        )
        return Forecast(facts, (DIRECTION, *mirror_hosts(c.inventory)))


def _mirror_back(held: bool, seen: str) -> Finding:
    return claim(
        "switch.turned",
        "copiers from target to source run, and source follows",
        held,
        seen=seen,
        needed="no failed partition: a copier does not retry one, and source would lack its records",
    )


def _has_reached(ends: BothEnds | None, end: int | None) -> bool:
    """Return whether the copy has reached an offset.

    ends: the ends of the partition's logs, or None if they are unknown. end: the offset, or None if it is
    unknown.
    """
    return end is not None and ends is not None and ends.target is not None and ends.target >= end


MEANINGS = meanings(
    """
    switch.turned: Source does not follow target. Cause: A client wrote on source without going through the
    gateways, or the copiers do not run. To do: Look at zkmigrate mirror status, repair the mirror as
    docs/reference/mirror.md explains, then resume.
    """
)
