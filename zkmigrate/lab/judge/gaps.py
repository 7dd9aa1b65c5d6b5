"""Compute the times during which a client received no acknowledgement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from zkmigrate.lab.judge.history import RunHistory, Span
from zkmigrate.lab.load.json_lines import Event, Recording

Gap = tuple[int, int]


def ack_gaps(acks: Iterable[Event], end_ns: int) -> list[Gap]:
    """Return the times between acknowledgements, in order, and from the last one to ``end_ns``.

    Each gap is a pair of start and end in ns of CLOCK_MONOTONIC. end_ns: when the client stopped sending. The
    last gap shows a service that never came back.
    """
    times = sorted(event["mono_ns"] for event in acks)
    if times and end_ns > times[-1]:
        times.append(end_ns)
    return list(pairwise(times))


def longest_s(gaps: Iterable[Gap]) -> float | None:
    """Return the longest gap in seconds, or None if there is no gap."""
    lengths = [end - start for start, end in gaps]
    return round(max(lengths) / 1e9, 3) if lengths else None


def longest_by_step(gaps: Sequence[Gap], steps: Sequence[Span]) -> dict[str, float | None]:
    """Return for each step the full length in seconds of the longest gap that overlaps the step.

    A step that ran twice has one entry. The value is None if no gap overlaps the step.
    """
    found: dict[str, float | None] = {}
    for step in steps:
        inside = longest_s(gap for gap in gaps if gap[0] < step.end_ns and gap[1] > step.start_ns)
        known = [value for value in (found.get(step.name), inside) if value is not None]
        found[step.name] = max(known) if known else None
    return found


def end_of_asking(recording: Recording) -> int:
    """Return when the client stopped sending, in ns of CLOCK_MONOTONIC.

    This is the time of the recording's ``stopping`` line, otherwise of its last line, or 0 without lines.
    """
    stopping = recording.of("stopping")
    if stopping:
        return int(stopping[0]["mono_ns"])
    return max((int(event["mono_ns"]) for event in recording.events), default=0)


def gaps_of(history: RunHistory) -> dict[str, list[Gap]]:
    """Return the gaps of each client: ``producer``, ``tenant``, and ``raw-HOST`` for each host."""
    found = {}
    for kind in ("producer", "tenant"):
        recording = history.recording(kind)
        found[kind] = ack_gaps(recording.of("ack"), end_of_asking(recording))
    raw = history.recording("raw")
    for host in history.trees:
        acks = [event for event in raw.of("ack") if event["host"] == host]
        found[f"raw-{host}"] = ack_gaps(acks, end_of_asking(raw))
    return found
