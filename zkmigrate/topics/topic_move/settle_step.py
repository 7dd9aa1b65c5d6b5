"""What: give consumers no more records for a while. All other requests are served.

Why now: consumers commit the records that they received, so that no record is delivered twice after the
switch.

Clients may notice: consumers get no records for topic_move.settle_ms. Producers notice nothing.

Way back: consumers get records again. A gateway does that by itself when the lease ends.

Proof: every gateway holds fetch requests back for the whole time. At the end of this time the mirror lags
less than the limit, and clients know the outcome of each batch.
"""

from __future__ import annotations

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
from zkmigrate.topics.topic_move.facts import AppSeen, Ends, Gateways, both_ends, every_app, gateways
from zkmigrate.topics.topic_move.rules import Lag, check_in_sync, check_outcomes, lag
from zkmigrate.topics.topic_move.section import move_of

LONGER_MS = 10_000
"""How many milliseconds the lease lasts longer than the time to settle.

The next step, hold, follows within this time.
"""
LATE_S = 4.0
"""How many more seconds consumers wait if the mirror is too far behind.

This is less than the rest of the lease.
"""
_POLL_S = 0.2


@dataclass(frozen=True)
class SettleFacts:
    """Facts for the step settle.

    now: a clock in seconds. ends: where the logs end, which is only read at first and after the time to
    settle; None in between.
    """

    gateways: Gateways
    now: float
    ends: Reading[Ends] | None = None


class SettleStep(Step[SettleFacts]):
    id = "settle"
    title = "Let consumers settle"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> SettleFacts:
        found, now = gateways(c, look), look.now()
        since = c.kept.get("since")
        due = since is None or now - since >= _limit_s(c)
        return SettleFacts(found, now, both_ends(c, look) if due and c.way is Way.FORWARD else None)

    def check(self, c: Context, f: SettleFacts) -> Verdict:
        move = move_of(c.inventory).topic_move
        if f.gateways.unknown:
            return Blocked(f.gateways.unknown, others_back=True)
        if c.way is Way.BACK:
            todo = f.gateways.hosts(settling)
            return Ready(todo) if todo else Done()
        needed = f"open or settling on {move.source}"
        if wrong := f.gateways.not_in_state(
            "switch.settle-gate",
            lambda app: app.gate in ("open", "settling") and app.route == move.source,
            needed,
        ):
            return Blocked(wrong)
        if todo := f.gateways.hosts(lambda app: not settling(app)):
            return Ready(todo, keep={"since": None})
        return _check_settled(c, f)

    def plan(self, c: Context, f: SettleFacts, target: str) -> Changes:
        ttl = move_of(c.inventory).topic_move.settle_ms + LONGER_MS
        return f.gateways.orders(target, "settle", lambda app: not settling(app), ttl_ms=ttl)

    def undo(self, c: Context, f: SettleFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return f.gateways.orders(target, "unhold", settling)

    def forecast(self, c: Context, look: Look) -> Forecast[SettleFacts]:
        return Forecast(SettleFacts(every_app(c, "open"), 0.0))


def _limit_s(c: Context) -> float:
    """Return how many seconds consumers get no records."""
    return move_of(c.inventory).topic_move.settle_ms / 1000


def _check_settled(c: Context, f: SettleFacts) -> Verdict:
    """Return the verdict of the step while all gateways hold FETCH requests back.

    At the end of the time to settle the lag must be small, because in the step hold all requests wait until
    the missing records are copied.
    """
    began, mark = c.kept.get("since"), c.kept.get("mark")
    since = f.now if began is None else began
    limit_s, most_s = _limit_s(c), move_of(c.inventory).topic_move.lag_ms / 1000
    found = lag(f.ends, f.now, mark) if f.ends is not None else None
    keep = {"since": since, "mark": mark or (found and found.mark)}
    if f.now - since < limit_s or found is None:
        told = f"{f.now - since:.1f} of {limit_s:g} s"
        return Waiting("consumers have committed", told, limit_s + 60, poll_s=_POLL_S, keep=keep)
    if isinstance(f.ends, Seen) and (short := check_in_sync(f.ends.value)):
        return Blocked(short)
    close, open_ = found.within(most_s), check_outcomes(f.gateways)
    if close and not open_:
        return Done()
    if f.now - since >= limit_s + LATE_S:
        return Blocked(open_ if close else (_lag_finding(found, most_s), *open_))
    if close:
        what, told = (
            "clients have resent the batches whose outcome they do not know",
            few(one.seen for one in open_),
        )
    else:
        what, told = f"the mirror lags less than {most_s:g} s before the hold", found.words
    return Waiting(what, told, 2 * LATE_S, poll_s=_POLL_S, keep=keep)


def _lag_finding(found: Lag, most_s: float) -> Finding:
    """Return the finding that the mirror is too far behind for a hold."""
    return claim(
        "switch.settle-lag",
        "the mirror is close behind source when the hold begins",
        None if found.mark is None else False,
        seen=found.words,
        needed=f"a lag of at most {most_s:g} s, because held requests wait until all records are copied",
    )


def settling(app: AppSeen) -> bool:
    """Return whether an application's consumers get no records while its other requests go on."""
    return app.gate == "settling"


MEANINGS = meanings(
    """
    switch.settle-gate: An application is neither open nor settling on source. Cause: Another run holds it. To
    do: Look at zkmigrate gateway status on that host, then resume.

    switch.settle-lag: The mirror was too far behind when the hold was to begin. Cause: Source received more
    records than usual, or a copier is slow or down. To do: Look at zkmigrate mirror status, and run again
    when the mirror keeps up. Or raise topic_move.lag_ms; then requests wait longer.
    """
)
