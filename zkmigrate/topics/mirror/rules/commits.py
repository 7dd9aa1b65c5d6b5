"""Decide which group offsets to commit on target, and compare the commits of both clusters.

If a consumer's offset is beyond the end of the log, Kafka resets it. So the offset on target is never above
the end of target's log. It is not above the offset on source either, because records would be skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

INACTIVE = frozenset({"Empty", "Dead"})
"""Kafka's states of a group without members. Dead means that the group does not exist."""


class Commit(NamedTuple):
    """A committed offset.

    metadata: the consumer's own text, which Kafka Streams needs.
    """

    offset: int
    metadata: str = ""


Commits = Mapping[tuple[str, int], Commit]
"""Commits by topic and partition."""


@dataclass(frozen=True)
class Group:
    """A consumer group's commits for the mirrored topics.

    state: Kafka's name of the group's state on target. refused: why the group cannot switch; empty if it can.
    """

    name: str
    state: str
    source: Commits
    target: Commits
    refused: str = ""


_BARE = (
    "the group has no commit: after a switch its consumers begin at the position that auto.offset.reset names"
)


@dataclass(frozen=True)
class Committed:
    """The offsets that the mirror has committed on target for a group."""

    group: str
    commits: Commits


@dataclass(frozen=True)
class Standing:
    """A comparison of a group's commits on target with its commits on source.

    state: equal, behind, ahead, active or refused. behind: how many offsets the commits on target are behind.
    why: an explanation for the operator.
    """

    state: str
    behind: int
    why: str


def to_commit(group: Group, ends: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], Commit]:
    """Return the offsets to commit on target for a group now.

    ends: by partition, the end of target's log. Partitions that are not in ``ends`` are left out.
    """
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
    """Compare a group's commits on target with its commits on source.

    A switch needs the state ``equal`` for each group.
    """
    behind = sum(
        max(0, commit.offset - (group.target[part].offset if part in group.target else 0))
        for part, commit in group.source.items()
    )
    if group.refused:
        return Standing("refused", behind, group.refused)
    if group.state not in INACTIVE:
        return Standing(
            "active", behind, f"the group is active on target ({group.state}), so its commits are not copied"
        )
    for (topic, number), commit in group.target.items():
        if (topic, number) not in group.source:
            why = (
                f"target has a commit for {topic}-{number}, but source has none. Next: if the commit on "
                "source has expired, delete the commit on target with kafka-consumer-groups --delete-offsets"
            )
            return Standing("ahead", behind, why)
        if commit.offset > group.source[topic, number].offset:
            return Standing("ahead", behind, f"target's commit for {topic}-{number} is above source's")
    if group.source == group.target:
        return Standing("equal", 0, "equal" if group.source else _BARE)
    return Standing("behind", behind, f"target's commits are behind by {behind} offsets")


_MOST_NAMED = 3


def beyond(commits: Commits, ends: Mapping[tuple[str, int], int | None]) -> str:
    """Return why a group's consumers cannot continue from their commits; empty if they can.

    A commit cannot be used if it is beyond the end of source's log, or in a partition that does not exist.
    ends: by partition of source, the end of its log, or None if no leader reports it.
    """
    wrong = []
    for (topic, number), commit in sorted(commits.items()):
        end = ends.get((topic, number), -1)
        if end == -1:
            wrong.append(f"{topic}-{number}, which source does not have")
        elif end is not None and commit.offset > end:
            wrong.append(f"{topic}-{number} at {commit.offset:,}, where source's log ends at {end:,}")
    return _reset(
        wrong,
        "stop the group's consumers, and set these commits to the log's end or delete them with "
        "kafka-consumer-groups",
    )


def lacking(
    commits: Commits, source: Mapping[tuple[str, int], int], target: Mapping[tuple[str, int], int]
) -> str:
    """Return why target lacks the records that a group's consumers would read next; empty if it has them.

    Target lacks them if its log begins later than source's log. source, target: by partition, the log start
    offsets that leaders report.
    """
    wrong = []
    for (topic, number), commit in sorted(commits.items()):
        here, there = source.get((topic, number)), target.get((topic, number))
        if here is not None and there is not None and here <= commit.offset < there:
            wrong.append(
                f"{topic}-{number} at {commit.offset:,}, where source's log begins at {here:,} and "
                f"target's at {there:,}"
            )
    return _reset(
        wrong,
        "let the group's consumers read further, or wait until retention has deleted the records on source "
        "too; otherwise delete target's topic and mirror it again",
    )


def _reset(wrong: Sequence[str], next: str) -> str:
    if not wrong:
        return ""
    more = f" and {len(wrong) - _MOST_NAMED} more" if len(wrong) > _MOST_NAMED else ""
    return (
        f"the group committed on {'; '.join(wrong[:_MOST_NAMED])}{more}: a consumer that starts there is "
        f"reset to another offset. Next: {next}"
    )
