"""Decide how long to wait for a returning broker: while it makes progress, up to the policy's limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkmigrate.kafka.facts.recovery import Recovery

UNSEEN = Recovery(0, 0, 0)


def patience(
    seen: Recovery, behind: int, kept: Mapping[str, Any], now: float, still_s: float, most_s: float
) -> tuple[float, dict[str, Any]]:
    """Return how many seconds the wait may last from its first reading, and the marks for the next call.

    The wait ends after ``still_s`` seconds without progress. Progress is one more log or segment loaded, or
    one more partition in sync. ``most_s`` ends the wait in any case, unless it is shorter than ``still_s``.

    behind: the number of partitions in which the broker is not in sync. kept: the marks that the previous
    call returned, empty at first. now: monotonic time in seconds.
    """
    first = kept.get("first", now)
    loaded = [seen.logs, seen.of, seen.segments]
    least = kept.get("behind", behind)
    moved = loaded != kept.get("loaded", loaded) or behind < least
    at = now if moved else kept.get("at", now)
    marks = {"first": first, "at": at, "loaded": loaded, "behind": min(behind, least)}
    return min(at - first + still_s, max(still_s, most_s)), marks
