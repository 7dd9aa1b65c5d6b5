"""What: give each throttle setting the value that the run found before it began.

Why now: all moves are complete. A throttle that stays slows each follower that falls behind later.

Clients may notice: nothing.

Way back: the throttle is set again, for the moves back.

Proof: a new query shows the former value of every broker's and topic's setting.
"""

from __future__ import annotations

from zkmigrate.cluster.reassign.throttle_step import ThrottleStep
from zkmigrate.runbook.model.step import Way


class UnthrottleStep(ThrottleStep):
    id = "unthrottle"
    title = "Remove the throttle"
    sets = Way.BACK
