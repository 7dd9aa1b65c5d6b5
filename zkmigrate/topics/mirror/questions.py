"""The questions about two clusters, of which one mirrors topics of the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from zkmigrate.kafka.rights import Acl
from zkmigrate.runbook.model.fact import Reading
from zkmigrate.runbook.model.look import Request
from zkmigrate.topics.mirror.rules.direction import Direction
from zkmigrate.topics.mirror.rules.needed import Lacking

T = TypeVar("T")
Part: TypeAlias = tuple[str, int]
"""Topic and partition."""

_ANSWERS = "zkmigrate.topics.mirror.clients.answers:MirrorAnswers"


@dataclass(frozen=True)
class ClusterAt:
    """Where a cluster is reached. brokers: ``host:port``. config: a file of client properties; None: none."""

    brokers: tuple[str, ...]
    config: str | None = None


@dataclass(frozen=True)
class BothEnds:
    """Where a mirrored partition ends on both clusters. An offset is None if no leader reported it, or
    there is no such partition.

    source: the end of the log of source's leader. stable: source's last stable offset, which is lower while
    a transaction is open or replicas lag. target: target's high watermark. held: why records of source
    cannot be read yet; empty if all can. below, target_below: why fewer than min.insync.replicas are in
    sync on that side; empty if enough are.
    """

    source: int | None
    stable: int | None
    target: int | None
    held: str = ""
    below: str = ""
    target_below: str = ""

    @property
    def lag(self) -> int | None:
        """Offsets that target lacks; None where that is not known."""
        return None if self.source is None or self.target is None else self.source - self.target

    @property
    def equal(self) -> bool:
        """Whether both logs end at the same offset, with no transaction open."""
        return self.source is not None and self.source == self.stable == self.target


@dataclass(frozen=True)
class GroupPair:
    """How a consumer group's commits on target compare with source's.

    state: equal, behind, ahead, active, refused (the group cannot switch), or unknown. behind: how many
    offsets target's commits are behind. why: an explanation for the operator.
    """

    state: str
    behind: int
    why: str


@dataclass(frozen=True)
class MirrorSurvey:
    """Everything that a mirror copies, and what it cannot copy.

    ids, brokers: of source and target. refused: topics that cannot be mirrored, and why. differ: settings
    with another value on target, by ``topic: key``. partitions: state (missing, behind, equal, held,
    failed, unknown) and why. grants: ACLs that target lacks, except those that let somebody write. later:
    the ACLs that let somebody write. notes: what could not be read, and why. others: groups that are not
    named but have members or commits on the topics, and which. super_users: the clusters where
    ``super.users`` is set. left: settings that only one release has, or that the mirror does not copy, by
    ``topic: key``, and why. transactional: the producers that write to source's topics in transactions, and
    what is known of each. transactional_dark: why there may be more of them; empty if these are all. lacking:
    the rights that the run lacks.
    """

    ids: tuple[str, str]
    brokers: tuple[Sequence[int], Sequence[int]]
    refused: Mapping[str, str]
    differ: Mapping[str, str]
    partitions: Mapping[tuple[str, int], tuple[str, str]]
    groups: Mapping[str, GroupPair]
    grants: tuple[str, ...]
    later: tuple[Acl, ...]
    notes: Mapping[str, str]
    others: Mapping[str, str]
    super_users: tuple[str, ...]
    left: Mapping[str, str] = field(default_factory=dict)
    transactional: Mapping[str, str] = field(default_factory=dict)
    transactional_dark: str = ""
    lacking: tuple[Lacking, ...] = ()


@dataclass(frozen=True)
class Granted:
    """Which ACLs target has. everywhere: on each of its brokers. somewhere: on one of them at least."""

    everywhere: frozenset[Acl]
    somewhere: frozenset[Acl]


@dataclass(frozen=True)
class GroupReads:
    """What the members of a group read on source. parts: the partitions that they are assigned, each with the
    group's committed offset, None without one. why: why neither is known, else empty."""

    parts: Mapping[tuple[str, int], int | None]
    why: str = ""


@dataclass(frozen=True)
class RangeCompared:
    """What a comparison of the committed records in a range of offsets showed.

    first: the first difference; empty if there is none. records: how many are equal. note: which offsets
    were not compared, and why; empty if all were.
    """

    first: str
    records: int
    note: str = ""


@dataclass(frozen=True)
class MirrorRequest(Request[T]):
    """A question about two clusters. Topics of source are mirrored to target."""

    source: ClusterAt
    target: ClusterAt


@dataclass(frozen=True)
class SurveyMirror(MirrorRequest[Reading[MirrorSurvey]]):
    """Ask how topics, groups and ACLs compare. groups: empty for all that committed on the topics."""

    topics: Sequence[str]
    groups: Sequence[str]
    answered_by = f"{_ANSWERS}.survey"


@dataclass(frozen=True)
class ReadMirrorEnds(MirrorRequest[Reading[Mapping[Part, BothEnds]]]):
    """Ask where the logs of these topics end, by source's partitions."""

    topics: Sequence[str]
    answered_by = f"{_ANSWERS}.ends"


@dataclass(frozen=True)
class ReadDirection(MirrorRequest[Reading[Direction]]):
    """Ask where copiers may write these topics, as recorded on both clusters."""

    topics: Sequence[str]
    answered_by = f"{_ANSWERS}.direction"


@dataclass(frozen=True)
class CompareCommits(MirrorRequest[Reading[Mapping[str, GroupPair]]]):
    """Ask how the commits of these groups on these topics compare. groups: as in SurveyMirror."""

    topics: Sequence[str]
    groups: Sequence[str]
    answered_by = f"{_ANSWERS}.commits"


@dataclass(frozen=True)
class FindGranted(MirrorRequest[Reading[Granted]]):
    """Ask which of these ACLs target has."""

    acls: Sequence[Acl]
    answered_by = f"{_ANSWERS}.granted"


@dataclass(frozen=True)
class FindGroupReads(MirrorRequest[Reading[Mapping[str, GroupReads]]]):
    """Ask what these groups read of these topics on source now, if they have members. groups: empty for
    all. It asks nothing of target."""

    topics: Sequence[str]
    groups: Sequence[str]
    answered_by = f"{_ANSWERS}.reads"


@dataclass(frozen=True)
class CompareRecords(MirrorRequest[Reading[Mapping[Part, Reading[RangeCompared]]]]):
    """Compare the committed records in each range of offsets. A range is its first offset and the offset
    after its last. Records that one of the logs no longer has are not compared."""

    ranges: Mapping[Part, tuple[int, int]]
    answered_by = f"{_ANSWERS}.differences"
