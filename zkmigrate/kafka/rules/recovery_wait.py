"""How long to wait for a returning broker: while it makes progress, up to the policy's limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkmigrate.kafka.facts.recovery import Recovery

UNSEEN = Recovery(0, 0, 0)


def patience(
    seen: Recovery, behind: int, kept: Mapping[str, Any], now: float, still_s: float, most_s: float
) -> tuple[float, dict[str, Any]]:
    """The wait's limit in seconds from its first look, and the marks for the next call.

    The wait ends after ``still_s`` without progress: no further log or segment loaded, no further partition
    in sync. ``most_s`` ends it in any case, unless it is shorter than ``still_s``. behind: partitions in
    which the broker is not in sync. kept: the marks of the previous look, empty at first. now: monotonic, in
    seconds.
    """
    first = kept.get("first", now)
    loaded = [seen.logs, seen.of, seen.segments]
    least = kept.get("behind", behind)
    moved = loaded != kept.get("loaded", loaded) or behind < least
    at = now if moved else kept.get("at", now)
    marks = {"first": first, "at": at, "loaded": loaded, "behind": min(behind, least)}
    return min(at - first + still_s, max(still_s, most_s)), marks
