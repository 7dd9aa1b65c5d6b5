"""Describe the results of a comparison as text and exit code, and compare two logs on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from zkmigrate.topics.mirror.rules.join import Joined
from zkmigrate.topics.mirror.rules.log import Log

CLAIM, UNKNOWN = 10, 11
"""The exit code for a difference, and the exit code if target is behind or a partition could not be read."""


@dataclass(frozen=True)
class Compared:
    """The result of the comparison of one partition.

    state: equal, behind, different or unknown. records: the number of equal records. begun, end: the offsets
    between which records were compared. why: the reason for the state.
    """

    topic: str
    partition: int
    state: str
    records: int
    begun: int
    end: int
    why: str = ""


@dataclass(frozen=True)
class ComparedLogs(Compared):
    """The result of the comparison of a partition's two logs on disk.

    differing: the number of differing records by kind. notes: further observations.
    """

    differing: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()


def code(found: Sequence[Compared]) -> int:
    """Return the exit code for the compared partitions."""
    states = {one.state for one in found}
    return CLAIM if "different" in states else UNKNOWN if states & {"behind", "unknown"} else 0


def line(one: Compared) -> str:
    """Return the result of one partition as a line of text."""
    text = f"{one.topic}-{one.partition}: {one.state}"
    if one.why:
        return f"{text}: {one.why}"
    return f"{text}, compared records: {one.records}, offsets {one.begun} to {one.end}"


def more(one: ComparedLogs) -> Iterator[str]:
    """Yield further lines of text about one partition, which follow the line that ``line`` returns."""
    if one.differing:
        yield f"    differing records: {kinds(one.differing)}"
    yield from (f"    note: {note}" for note in one.notes)


def kinds(differing: Mapping[str, int]) -> str:
    """Return the kinds of differences as text, each with its number of records."""
    return ", ".join(f"{kind} {count}" for kind, count in sorted(differing.items()))


def total(found: Sequence[Compared]) -> str:
    """Return the last line, with the totals of all partitions."""
    differ = sum(one.state == "different" for one in found)
    return f"partitions: {len(found)}, different: {differ}, records: {sum(one.records for one in found)}"


def bounds(source: Log, target: Log) -> tuple[int, int]:
    """Return the offsets between which both logs have committed records."""
    begun = max(source.start, target.start)
    return begun, max(begun, min(source.stable, target.stable))


def verdict(
    topic: str, partition: int, source: Log, target: Log, found: Sequence[Joined | str]
) -> ComparedLogs:
    """Return the result of a comparison of a partition's two logs.

    found: the results for consecutive ranges of offsets, in order; a text if a range could not be read, with
    the reason.
    """
    begun, end = bounds(source, target)
    joined = Joined()
    for one in found:
        joined = joined.then(one) if isinstance(one, Joined) else joined
    unread = list(dict.fromkeys(one for one in found if isinstance(one, str)))
    why, notes = joined.first, list(_notes(source, target))
    if joined.first:
        state = "different"
        notes += unread
    elif unread:
        state, why = "unknown", unread[0]
        notes += unread[1:]
    elif target.stable > source.end:
        state = "unknown"
        why = (
            f"target's log ends at offset {target.stable}, source's at {source.end}; needed: a copy of "
            "source's log that is not older than target's"
        )
    else:
        state = "equal" if end >= source.stable else "behind"
    return ComparedLogs(
        topic, partition, state, joined.equal, begun, end, why, dict(joined.differing), tuple(notes)
    )


def _notes(source: Log, target: Log) -> Iterator[str]:
    for name, log in (("source", source), ("target", target)):
        if log.rest:
            yield f"{name}'s log ends with an unfinished batch or zeros: {log.rest}"
        if log.transactions.begun:
            yield f"{name}'s oldest open transaction begins at offset {min(log.transactions.begun.values())}"
