"""What: check that target is ready for the first request.

Why now: the applications still wait, so the switch can still go on or back without loss.

Clients may notice: they still wait.

Way back: nothing was changed.

Proof: every gateway has the new route and reaches each broker of target. Each partition there has a leader
that responds, and both its logs still end where they were drained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Severity, blocking, claim, few, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Reads, Verdict, Waiting
from zkmigrate.runbook.model.step_record import needed
from zkmigrate.topics.topic_move.facts import Drained, Ends, Gateways, both_ends, by_part, gateways
from zkmigrate.topics.topic_move.go_step import opened_on
from zkmigrate.topics.topic_move.rules import moved, part_name, reached, silent_source, unread
from zkmigrate.topics.topic_move.section import move_of

_REACH_S, _POLL_S = 3.0, 0.1


@dataclass(frozen=True)
class CheckFacts:
    gateways: Gateways
    ends: Reading[Ends]


class CheckStep(Reads[CheckFacts]):
    id = "check"
    title = "Check target"

    def observe(self, c: Context, look: Look) -> CheckFacts:
        return CheckFacts(gateways(c, look), both_ends(c, look))

    def check(self, c: Context, f: CheckFacts) -> Verdict:
        target = move_of(c.inventory).topic_move.target
        if f.gateways.unknown:
            return Blocked(f.gateways.unknown)
        if wrong := f.gateways.outside("switch.check-route", lambda app: app.route == target, f"on {target}"):
            return Blocked(wrong)
        if not isinstance(f.ends, Seen):
            return Blocked((unread("ends", f.ends),))
        drained, opened = by_part(needed(Drained, c).ends), opened_on(f.gateways, target)
        beside = moved(drained, f.ends.value)
        if not opened and beside:
            return Blocked(beside)
        if not opened and (waiting := silent_source(f.ends.value, _REACH_S, _POLL_S)):
            return waiting
        ends = {part: one.target for part, one in f.ends.value.items()}
        dark = [part_name(part) for part in drained if ends.get(part) is None]
        odd = [
            f"{part_name(part)}: {end:,}, now {now:,}"
            for part, end in drained.items()
            if (now := ends.get(part)) is not None and now != end
        ]
        reach = reached(f.gateways, target)
        if blocking((reach,)) and not opened:
            # A gateway soon queries the broker again, which may have been slow once.
            return Waiting("every gateway reaches each broker of target", reach.seen, _REACH_S, _POLL_S)
        return Done.unless_blocked(
            (
                *(() if opened else (reach,)),
                *(replace(one, severity=Severity.WARN) for one in beside),
                claim(
                    "switch.check-leaders",
                    "each partition of target has a leader that answers",
                    not dark,
                    seen=f"silent: {few(dark)}" if dark else f"{len(drained):,} partitions",
                    needed="an answer for each",
                    moves=("let the run walk back", "see which broker is down"),
                ),
                claim(
                    "switch.check-ends",
                    "target's logs end where they were drained, unless an application went on by itself",
                    not odd or bool(opened),
                    seen=few(odd) or "all of them",
                    needed="no record by anybody else",
                    moves=("let the run walk back", "find out who writes on target"),
                ),
            )
        )


MEANINGS = meanings(
    """
    switch.check-route: A gateway still leads an application to source. Cause: It did not get its order.
    To do: Resume, or let the run walk back.

    switch.check-leaders: A partition of target has no leader that answers. Cause: A broker is down. To
    do: Let the run walk back. Repair the broker.

    switch.check-ends: A log of target grew while the applications waited. Cause: Somebody writes there
    beside the gateways. To do: Let the run walk back. Find out who it is.
    """
)
