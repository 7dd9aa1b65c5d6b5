"""What to write to Kafka's throttle settings, given what was found there.

A list is ``*``, or ``PARTITION:BROKER`` entries between commas. It is read, merged and SET whole: an APPEND
to an unset list writes a leading comma, after which Kafka 2.8.2 throttles nothing. None stands for unset, so
for DELETE: a SUBTRACT of all entries leaves an empty list behind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

EVERY = "*"
"""In a list: every replica of the topic."""


def with_entries(now: str | None, entries: Iterable[str]) -> str | None:
    """The list with these entries, and without the empty one of an APPEND. now: its value. The same value
    where nothing is to be throttled or added."""
    there, ours = _entries(now), tuple(dict.fromkeys(entries))
    if EVERY in there or not ours:
        return now
    added = [entry for entry in ours if entry not in there]
    spoiled = len(there) != (now or "").count(",") + 1
    return ",".join((*there, *added)) if added or spoiled else now


def without_entries(found: str | None, entries: Iterable[str], now: str | None) -> str | None:
    """The list without our entries. found: its value before our first change, which comes back byte for byte
    unless others have changed the list meanwhile; their entries stay."""
    kept = _entries(found)
    ours = {entry for entry in entries if entry not in kept}
    left = [entry for entry in _entries(now) if entry not in ours]
    return found if set(left) == set(kept) else ",".join(left) or None


def without_rate(found: str | None, sent: Collection[int], now: str | None) -> str | None:
    """The rate to leave behind. sent: every rate that we may have set; another one is somebody else's and
    stays."""
    return found if now is not None and now in {str(rate) for rate in sent} else now


def _entries(value: str | None) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in (value or "").split(",") if entry.strip())
