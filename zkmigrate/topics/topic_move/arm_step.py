"""What: stage the new route at every gateway, wait until the mirror is close behind, and compare records.

Why now: work that is done before clients wait shortens their wait.

Clients may notice: nothing.

Way back: nothing needs to be done, because a staged route has no effect.

Proof: each gateway has the route staged, and clients know the outcome of each batch. The mirror lags less
than the limit in two measurements in a row, and the last records of each partition are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import claim, few, meanings
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
from zkmigrate.topics.mirror.questions import CompareRecords, RangeCompared
from zkmigrate.topics.topic_move.facts import Armed, Ends, Gateways, Part, both_ends, forward, gateways
from zkmigrate.topics.topic_move.rules import cannot_read, check_in_sync, check_outcomes, lag, part_name
from zkmigrate.topics.topic_move.section import move_of

_POLL_S, _MOST_S = 0.5, 600.0
_LOOKS = 2
Range = tuple[int, int]
Compared = Reading[Mapping[Part, Reading[RangeCompared]]]


@dataclass(frozen=True)
class ArmFacts:
    """Facts for the step arm.

    now: a clock in seconds. compared: the comparison of the last records, or None until the lag is small.
    """

    gateways: Gateways
    ends: Reading[Ends]
    now: float
    compared: Compared | None = None


class ArmStep(Step[ArmFacts]):
    id = Armed.step
    title = "Stage the route and wait for the mirror"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> ArmFacts:
        found = gateways(c, look)
        ends = both_ends(c, look)
        compared: Compared | None = None
        most = move_of(c.inventory).topic_move.proved
        close = c.way is Way.FORWARD and c.kept.get("close", 0) >= _LOOKS
        if close and isinstance(ends, Seen):
            known = all(None not in (one.stable, one.target) for one in ends.value.values())
            ranges = ranges_to_compare({}, ends.value, most)
            compared = look.ask(CompareRecords(*forward(c), ranges)) if known else None
        return ArmFacts(found, ends, look.now(), compared)

    def check(self, c: Context, f: ArmFacts) -> Verdict:
        move = move_of(c.inventory).topic_move
        if c.way is Way.BACK:
            return Done()
        if f.gateways.unknown:
            return Blocked(f.gateways.unknown)
        check_direction = f"open on {move.source}"
        if wrong := f.gateways.not_in_state(
            "switch.arm-gate", lambda app: app.gate == "open" and app.route == move.source, check_direction
        ):
            return Blocked(wrong)
        if todo := f.gateways.hosts(lambda app: app.staged != move.target):
            return Ready(todo)
        if wrong := check_outcomes(f.gateways):
            what = "clients have resent the batches whose outcome they do not know, or have given up on them"
            return Waiting(what, few(one.seen for one in wrong), _MOST_S, poll_s=_POLL_S, keep=c.kept)
        if not isinstance(f.ends, Seen):
            return Waiting("both clusters report where their logs end", str(f.ends), _MOST_S, poll_s=_POLL_S)
        if short := check_in_sync(f.ends.value):
            return Blocked(short)
        if f.compared is not None:
            return _compared(f.compared, f.ends.value)
        return _waiting(c, f, move.lag_ms / 1000)

    def plan(self, c: Context, f: ArmFacts, target: str) -> Changes:
        to = move_of(c.inventory).topic_move.target
        return f.gateways.orders(target, "route", lambda app: app.staged != to, to=to)

    def undo(self, c: Context, f: ArmFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()

    def forecast(self, c: Context, look: Look) -> Forecast[ArmFacts]:
        return Forecast(ArmFacts(gateways(c, look), both_ends(c, look), look.now()))


def ranges_to_compare(compared: Mapping[Part, int], ends: Ends, most: int) -> dict[Part, Range]:
    """Return, by partition, the range of offsets that both logs have and that were not compared yet.

    compared: by partition, the offset up to which records were compared already. most: how many offsets to
    compare of a partition that is not in ``compared``.
    """
    found = {}
    for part, one in ends.items():
        if one.stable is None or one.target is None:
            continue
        end = min(one.stable, one.target)
        begin = compared.get(part, max(0, end - most))
        if begin < end:
            found[part] = begin, end
    return found


def _waiting(c: Context, f: ArmFacts, limit_s: float) -> Verdict:
    """Return a wait until the lag is at most ``limit_s`` seconds in several measurements in a row."""
    found = lag(f.ends, f.now, before := c.kept.get("before"))
    close = c.kept.get("close", 0) + 1 if found.within(limit_s) else 0
    keep = {"before": found.mark or before, "close": close}
    what = f"the mirror lags less than {limit_s:g} s"
    return Waiting(what, found.words, _MOST_S, poll_s=_POLL_S, keep=keep)


def equal_records(compared: Compared) -> tuple[bool | None, str]:
    """Return whether the records that both logs still have are equal, and a text about the comparison.

    The first value is None if it is not known whether they are equal.
    """
    if not isinstance(compared, Seen):
        return None, str(compared)
    dark = [
        f"{part_name(part)}: {told}" for part, told in compared.value.items() if not isinstance(told, Seen)
    ]
    read = {part: told.value for part, told in compared.value.items() if isinstance(told, Seen)}
    if apart := [f"{part_name(part)}: {one.first}" for part, one in read.items() if one.first]:
        return False, few(apart)
    if dark:
        return None, few(dark)
    seen = f"{sum(one.records for one in read.values()):,} records, {len(read):,} partitions"
    left = [f"{part_name(part)}: {one.note}" for part, one in read.items() if one.note]
    return True, f"{seen}; not compared: {few(left)}" if left else seen


def _compared(compared: Compared, ends: Ends) -> Verdict:
    held, seen = equal_records(compared)
    if held is None and not isinstance(compared, Seen):
        return Blocked((cannot_read("the last records", compared),))
    found = claim(
        "switch.arm-records",
        "the last records of each partition are equal, as far as both clusters still have them",
        held,
        seen=seen,
        needed="the same offsets, timestamps, keys, values and headers",
    )
    upto = tuple(
        (topic, n, min(one.stable, one.target))
        for (topic, n), one in sorted(ends.items())
        if one.stable is not None and one.target is not None
    )
    return Done.unless_blocked((found,), Armed(upto).encode())


MEANINGS = meanings(
    """
    switch.arm-gate: An application is not open on source when its route is staged. Cause: Another run holds
    it. To do: Look at zkmigrate gateway status on that host, then resume.

    switch.arm-records: Records differ between the clusters, or could not be compared. Cause: Another client
    wrote on target, or retention deletes records faster than they are compared, or there is a defect. To do:
    Do not switch. Run zkmigrate mirror compare to see the first difference, and repair the mirror as
    docs/reference/mirror.md explains. If retention is the cause, raise retention.ms and retention.bytes on
    both clusters, then resume.
    """
)
