"""What: remove the throttle: from brokers that stop before they stop, from all other brokers at the end.

Why now: with ZooKeeper no other broker can unset a broker's rate, so a broker that is down would keep its
rate.

Clients may notice: nothing. The followers' rates still limit copies from these brokers.

Way back: the throttle is set again, for the moves back.

Proof: a new query shows the former value of every broker's and topic's setting.
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
