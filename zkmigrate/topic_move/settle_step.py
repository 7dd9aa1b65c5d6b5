"""What: let consumers get no more records for a while; everything else goes on.

Why now: they commit what they were delivered. Then nothing is delivered twice after the switch.

Clients may notice: consumers get no records for topic_move.settle_ms. Producers notice nothing.

Way back: consumers get records again. A gateway does that by itself when the lease ends.

Proof: every gateway keeps FETCH back for the whole time.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.model.change import Applied, Changes
from zkmigrate.model.finding import meanings
from zkmigrate.model.look import Look
from zkmigrate.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Waiting, Way
from zkmigrate.topic_move.facts import AppSeen, Gateways, every_app, gateways
from zkmigrate.topic_move.section import move_of

LONGER_MS = 10_000
"""The lease outlasts the time by so much: the hold follows at once, on a slow machine a little later."""
_POLL_S = 0.2


@dataclass(frozen=True)
class SettleFacts:
    """now: seconds."""

    gateways: Gateways
    now: float


class SettleStep(Step[SettleFacts]):
    id = "settle"
    title = "Let consumers settle"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> SettleFacts:
        return SettleFacts(gateways(c, look), look.now())

    def check(self, c: Context, f: SettleFacts) -> Verdict:
        move = move_of(c.inventory).topic_move
        if f.gateways.unknown:
            return Blocked(f.gateways.unknown, others_back=True)
        if c.way is Way.BACK:
            todo = f.gateways.hosts(settling)
            return Ready(todo) if todo else Done()
        needed = f"open or settling on {move.source}"
        if wrong := f.gateways.outside(
            "switch.settle-gate",
            lambda app: app.gate in ("open", "settling") and app.route == move.source,
            needed,
        ):
            return Blocked(wrong)
        if todo := f.gateways.hosts(lambda app: not settling(app)):
            return Ready(todo, keep={"since": None})
        began = c.kept.get("since")
        since = f.now if began is None else began
        limit_s = move.settle_ms / 1000
        if f.now - since >= limit_s:
            return Done()
        told = f"{f.now - since:.1f} of {limit_s:g} s"
        return Waiting("consumers to commit", told, limit_s + 60, poll_s=_POLL_S, keep={"since": since})

    def plan(self, c: Context, f: SettleFacts, target: str) -> Changes:
        ttl = move_of(c.inventory).topic_move.settle_ms + LONGER_MS
        return f.gateways.orders(target, "settle", lambda app: not settling(app), ttl_ms=ttl)

    def undo(self, c: Context, f: SettleFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return f.gateways.orders(target, "unhold", settling)

    def forecast(self, c: Context, look: Look) -> Forecast[SettleFacts]:
        return Forecast(SettleFacts(every_app(c, "open"), 0.0))


def settling(app: AppSeen) -> bool:
    """Whether its consumers get no records, and everything else goes on."""
    return app.gate == "settling"


MEANINGS = meanings(
    """
    switch.settle-gate: An application is neither open nor settling on source. Cause: Another run holds
    it. To do: Look at zkmigrate gateway status, then resume.
    """
)
