"""What: take the throttle off in two parts: off the removed brokers before they stop, off the others last.

Why now: with ZooKeeper nobody else can unset a broker's rate, so that of a broker that is down would stay.

Clients may notice: nothing. What still leaves these brokers is held up by the followers' rates.

Way back: the throttle is set again, for the moves back.

Proof: every broker and topic has the value that was found, when it is looked at again.
"""

from __future__ import annotations

from collections.abc import Collection

from zkmigrate.cluster.reassign.unthrottle_step import UnthrottleStep
from zkmigrate.cluster.removal.section import removal
from zkmigrate.runbook.model.step import Context


class LoosenStep(UnthrottleStep):
    id = "loosen"
    title = "Remove the throttle from the brokers that stop"

    def brokers(self, c: Context, rated: Collection[int]) -> tuple[int, ...]:
        return tuple(id for id in rated if id in removal(c.inventory).brokers)

    def topics(self, c: Context, moved: tuple[str, ...]) -> tuple[str, ...]:
        return ()


class OthersUnthrottleStep(UnthrottleStep):
    def brokers(self, c: Context, rated: Collection[int]) -> tuple[int, ...]:
        wanted = removal(c.inventory)
        return tuple(id for id in rated if not (wanted.shutdown and id in wanted.brokers))
