"""Choose the lease of the block: how long the kernel keeps the block without a renewal.

``policy.lease`` gives its default. If the hosts answer too slowly for that, :func:`choose_lease` makes it
longer before FENCE, as far as the window's deadline allows. :func:`lease_in_force` returns the chosen lease.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from zkmigrate.inventory.checks import FENCE_OUTLIVES_CUT_MS
from zkmigrate.inventory.inventory import Lease
from zkmigrate.move.facts.records import TimeoutAndLease
from zkmigrate.move.rules.window_rules import FIND_DOOR_S, STEPS, deadlines, expected_way_back_s, rehearsed_s
from zkmigrate.runbook.model.step import Context
from zkmigrate.runbook.model.step_record import known

ROUND_TRIPS = 3
"""The number of round trips added to the renewal period.

A renewal may reach the host one period and two round trips after the previous renewal; the third round trip
is a margin.
"""
_SECOND_MS = 1000


@dataclass(frozen=True)
class Longest:
    """The longest permitted leases of fence and cut, in milliseconds."""

    fence_ms: float
    cut_ms: float


def needed_ms(lease: Lease, worst_s: float) -> int:
    """Return the shortest TTL of the cut that renewals can keep alive, in milliseconds.

    The result is rounded up to whole seconds, because the kernel counts in seconds. worst_s: the longest
    measured round trip, in seconds.
    """
    least = max(2 * lease.renew_every_ms, lease.renew_every_ms + ROUND_TRIPS * worst_s * 1000)
    return math.ceil(least / _SECOND_MS) * _SECOND_MS


def longest(c: Context, smallest_timeout_s: float | None) -> Longest:
    """Return the longest leases that the policy and the deadline allow.

    smallest_timeout_s: T; None if no client can lose a session.

    If the operator's machine fails right after FENCE, clients can reconnect to the observer when the fence's
    lease has ended; this must happen by T - T/3. If the machine fails right after CUT, the host goes back by
    itself when the cut's lease has ended; this must happen before the latest time to start the way back.
    """
    lease = c.inventory.policy.lease
    most = max(lease.longest_ms, lease.fence_ttl_ms)
    if smallest_timeout_s is None:
        return Longest(most, most)
    limits = deadlines(smallest_timeout_s, expected_way_back_s(c))
    to_cut = rehearsed_s(c, *STEPS.between(STEPS.begins, STEPS.cuts)) or 0.0
    return Longest(
        min(most, (limits.clients_back - FIND_DOOR_S) * 1000),
        min(most, (limits.start_back - to_cut) * 1000),
    )


def choose_lease(lease: Lease, worst_s: float, allowed: Longest) -> Lease | None:
    """Return the policy's lease, adjusted to renewals and deadline.

    The lease is made longer if renewals need that, and shorter if the deadline requires it. Returns None if
    no lease satisfies both. worst_s: the longest measured round trip, in seconds.
    """
    needed = needed_ms(lease, worst_s)
    most = _whole(min(allowed.cut_ms, allowed.fence_ms - FENCE_OUTLIVES_CUT_MS))
    if most < needed:
        return None
    cut = min(max(lease.cut_ttl_ms, needed), most)
    fence = min(max(lease.fence_ttl_ms, cut + FENCE_OUTLIVES_CUT_MS), _whole(allowed.fence_ms))
    return lease.model_copy(update={"fence_ttl_ms": fence, "cut_ttl_ms": cut})


def lease_in_force(c: Context) -> Lease:
    """Return the lease that SURVEY chose and recorded, or the policy's lease before SURVEY."""
    lease = c.inventory.policy.lease
    terms = known(TimeoutAndLease, c)
    picked = terms.lease if terms is not None else None
    return lease if picked is None else lease.model_copy(update=asdict(picked))


def _whole(milliseconds: float) -> int:
    return math.floor(milliseconds / _SECOND_MS) * _SECOND_MS
