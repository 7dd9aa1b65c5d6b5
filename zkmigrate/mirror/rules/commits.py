"""Committed offsets of groups: what to commit on target, and whether both sides are equal.

A consumer whose offset lies beyond the log's end is reset. So target's offset is never above target's end.
Nor is it above source's offset, else records would be skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

INACTIVE = frozenset({"Empty", "Dead"})
"""Kafka's states of a group without members; Dead: the group does not exist."""


class Commit(NamedTuple):
    """metadata: the consumer's own words, which Kafka Streams needs."""

    offset: int
    metadata: str = ""


Commits = Mapping[tuple[str, int], Commit]
"""By topic and partition."""


@dataclass(frozen=True)
class Group:
    """A group's commits for the mirrored topics. state: on target, as Kafka calls it."""

    name: str
    state: str
    source: Commits
    target: Commits


@dataclass(frozen=True)
class Committed:
    """What the mirror has committed on target for a group."""

    group: str
    commits: Commits


@dataclass(frozen=True)
class Standing:
    """state: equal, behind, ahead or active. behind: offsets that target's commits lack. why: for people."""

    state: str
    behind: int
    why: str


def to_commit(group: Group, ends: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], Commit]:
    """What to commit on target now. ends: target's, of the partitions that are sound; no others."""
    if group.state not in INACTIVE:
        return {}
    found = {}
    for part, commit in group.source.items():
        if part not in ends:
            continue
        needed = commit if commit.offset <= ends[part] else Commit(ends[part])
        if group.target.get(part) != needed:
            found[part] = needed
    return found


def standing(group: Group) -> Standing:
    """How a group stands on target. The switch needs ``equal`` of each."""
    behind = sum(
        max(0, commit.offset - (group.target[part].offset if part in group.target else 0))
        for part, commit in group.source.items()
    )
    if group.state not in INACTIVE:
        return Standing("active", behind, f"active on target ({group.state}), left alone")
    for (topic, number), commit in group.target.items():
        if (topic, number) not in group.source:
            return Standing("ahead", behind, f"target has a commit for {topic}-{number}, source has none")
        if commit.offset > group.source[topic, number].offset:
            return Standing("ahead", behind, f"target's commit for {topic}-{number} is above source's")
    if group.source == group.target:
        return Standing("equal", 0, "equal")
    return Standing("behind", behind, f"behind by {behind}")
