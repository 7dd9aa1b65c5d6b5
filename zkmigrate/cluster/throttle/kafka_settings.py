"""Compute the values to write to Kafka's throttle settings.

A list is ``*``, or ``PARTITION:BROKER`` entries between commas. It is read, merged and SET whole: an APPEND
to an unset list writes a leading comma, after which Kafka 2.8.2 throttles nothing. None means unset, and
is written by DELETE: a SUBTRACT of all entries would leave an empty list.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

EVERY = "*"
"""The list entry that names every replica of the topic."""


def with_entries(now: str | None, entries: Iterable[str]) -> str | None:
    """Return the list with these entries added, and without empty entries that an APPEND left.

    now: the current value. It is returned unchanged if there is nothing to throttle or to add.
    """
    there, ours = _entries(now), tuple(dict.fromkeys(entries))
    if EVERY in there or not ours:
        return now
    added = [entry for entry in ours if entry not in there]
    spoiled = len(there) != (now or "").count(",") + 1
    return ",".join((*there, *added)) if added or spoiled else now


def without_entries(found: str | None, entries: Iterable[str], now: str | None) -> str | None:
    """Return the list without our entries; entries that others have added stay.

    found: the value before our first change. It is returned byte for byte unless others have changed the
    list.
    """
    kept = _entries(found)
    ours = {entry for entry in entries if entry not in kept}
    left = [entry for entry in _entries(now) if entry not in ours]
    return found if set(left) == set(kept) else ",".join(left) or None


def without_rate(found: str | None, sent: Collection[int], now: str | None) -> str | None:
    """Return the rate to leave behind: the rate from before, unless another tool has set one meanwhile.

    found: the rate before our first change. sent: every rate that we may have set. Any other rate belongs to
    another tool and stays.
    """
    return found if now is not None and now in {str(rate) for rate in sent} else now


def _entries(value: str | None) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in (value or "").split(",") if entry.strip())
