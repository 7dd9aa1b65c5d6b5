"""What: start the copiers from target to source.

Why now: clients write on target, and source is to stay equal, for the way back.

Clients may notice: nothing.

Way back: stop these copiers.

Proof: the copiers run, and each partition of source is mirrored from target, none failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zkmigrate.model.change import Applied, Changes, SetService
from zkmigrate.model.fact import Reading, Seen
from zkmigrate.model.finding import Finding, claim, few, meanings
from zkmigrate.model.look import BothEnds, Look
from zkmigrate.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Waiting, Way
from zkmigrate.topic_move.facts import Copiers, Ends, Part, backward, backward_unit, copiers, ends_back
from zkmigrate.topic_move.rules import not_silent, part_name
from zkmigrate.topic_move.section import mirror_hosts, move_of, switched

_POLL_S, _MOST_S = 0.5, 300.0


@dataclass(frozen=True)
class TurnFacts:
    """ends: target's as source's, for the copiers that run now. failed: partitions that are not mirrored, and
    why."""

    copiers: Copiers
    ends: Reading[Ends]
    failed: Sequence[str] = ()


class TurnStep(Step[TurnFacts]):
    id = "turn"
    title = "Turn the copiers round"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> TurnFacts:
        move = move_of(c.inventory).topic_move
        running = copiers(c, look, move.source)
        if c.way is Way.BACK or "first" not in c.kept:
            return TurnFacts(running, ends_back(c, look) if c.way is Way.FORWARD else Seen({}))
        # What a copier gave up will never come.
        topics = switched(c.inventory)
        survey = backward(c, look).survey(topics.topics, topics.groups)
        found = survey.value.partitions if isinstance(survey, Seen) else {}
        failed = [f"{part_name(part)}: {why}" for part, (state, why) in found.items() if state == "failed"]
        return TurnFacts(running, ends_back(c, look), failed)

    def check(self, c: Context, f: TurnFacts) -> Verdict:
        if wrong := not_silent(f.copiers):
            return Blocked(wrong)
        if c.way is Way.BACK:
            return Ready(f.copiers.running) if f.copiers.running else Done()
        if f.copiers.down:
            return Ready(f.copiers.down)
        if not isinstance(f.ends, Seen):
            return Waiting("both clusters to tell their ends", str(f.ends), _MOST_S, poll_s=_POLL_S)
        ends = f.ends.value
        told: dict[Part, int] = {p: one.source for p, one in ends.items() if one.source is not None}
        first = {**told, **c.kept.get("first", {})}
        behind = [part_name(p) for p in {**first, **ends} if not _come(ends.get(p), first.get(p))]
        if f.failed:
            return Blocked((_turned(False, few(f.failed)),))
        if behind:
            what = "source to get what clients wrote on target before this step"
            return Waiting(what, few(behind), _MOST_S, poll_s=_POLL_S, keep={"first": first})
        return Done((_turned(True, f"{f.copiers.unit}, {len(first):,} partitions"),))

    def plan(self, c: Context, f: TurnFacts, target: str) -> Changes:
        return (SetService(target, backward_unit(c), "start"),)

    def undo(self, c: Context, f: TurnFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return (SetService(target, backward_unit(c), "stop"),)

    def forecast(self, c: Context, look: Look) -> Forecast[TurnFacts]:
        return Forecast(TurnFacts(Copiers(backward_unit(c), {}), Seen({})), mirror_hosts(c.inventory))


def _turned(held: bool, seen: str) -> Finding:
    return claim(
        "switch.turned",
        "copiers from target to source run, and source follows",
        held,
        seen=seen,
        needed="no partition failed: what a copier gave up never comes, and then there is no way back",
        moves=("repair the mirror: docs/reference/mirror.md", "resume"),
    )


def _come(ends: BothEnds | None, end: int | None) -> bool:
    """Whether the copy has come to this offset. None: target has not told one yet."""
    return end is not None and ends is not None and ends.target is not None and ends.target >= end


MEANINGS = meanings(
    """
    switch.turned: Source does not follow target. Cause: Somebody wrote on source beside the gateways, or the
    copiers do not run. To do: See zkmigrate mirror status, then resume.
    """
)
