"""What: check that target is ready for the first request.

Why now: the applications still wait, so the switch can still go on or be rolled back without loss.

Clients may notice: they still wait.

Way back: nothing was changed.

Proof: every gateway has the new route and reaches each broker of target. Each partition on target has a
leader that responds, and both its logs still end at the offsets that the step drain recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Severity, blocking, claim, few, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Reads, Verdict, Waiting
from zkmigrate.runbook.model.step_record import needed
from zkmigrate.topics.topic_move.facts import Drained, Ends, Gateways, both_ends, by_part, gateways
from zkmigrate.topics.topic_move.go_step import hosts_open_on
from zkmigrate.topics.topic_move.rules import (
    cannot_read,
    check_reach,
    check_source_ends,
    part_name,
    wait_for_leaders,
)
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
        if wrong := f.gateways.not_in_state(
            "switch.check-route", lambda app: app.route == target, f"on {target}"
        ):
            return Blocked(wrong)
        if not isinstance(f.ends, Seen):
            return Blocked((cannot_read("ends", f.ends),))
        drained, opened = by_part(needed(Drained, c).ends), hosts_open_on(f.gateways, target)
        beside = check_source_ends(drained, f.ends.value)
        if not opened and beside:
            return Blocked(beside)
        if not opened and (waiting := wait_for_leaders(f.ends.value, _REACH_S, _POLL_S)):
            return waiting
        ends = {part: one.target for part, one in f.ends.value.items()}
        dark = [part_name(part) for part in drained if ends.get(part) is None]
        odd = [
            f"{part_name(part)}: {end:,}, now {now:,}"
            for part, end in drained.items()
            if (now := ends.get(part)) is not None and now != end
        ]
        reach = check_reach(f.gateways, target)
        if blocking((reach,)) and not opened:
            # A gateway soon queries the broker again, which may have been slow once.
            return Waiting("every gateway reaches each broker of target", reach.seen, _REACH_S, _POLL_S)
        return Done.unless_blocked(
            (
                *(() if opened else (reach,)),
                *(replace(one, severity=Severity.WARN) for one in beside),
                claim(
                    "switch.check-leaders",
                    "each partition of target has a leader that responds",
                    not dark,
                    seen=f"no response: {few(dark)}" if dark else f"{len(drained):,} partitions",
                    needed="a response for each partition",
                ),
                claim(
                    "switch.check-ends",
                    "target's logs still end at the drained offsets, unless an application is open on target",
                    not odd or bool(opened),
                    seen=few(odd) or "all logs end there",
                    needed="no record from another client",
                ),
            )
        )


MEANINGS = meanings(
    """
    switch.check-route: A gateway still routes an application to source. Cause: It did not receive its order.
    To do: Resume, or let the run roll back.

    switch.check-leaders: A partition of target has no leader that responds. Cause: A broker is down. To do:
    Let the run roll back. Repair the broker.

    switch.check-ends: A log of target grew while the applications waited. Cause: A client writes there
    without going through the gateways. To do: Let the run roll back. Find that client.
    """
)
