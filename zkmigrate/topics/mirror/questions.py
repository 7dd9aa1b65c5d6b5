"""Define the requests for facts about two clusters, of which one mirrors topics of the other."""

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
"""A topic's name and a partition's number."""

_ANSWERS = "zkmigrate.topics.mirror.clients.answers:MirrorAnswers"


@dataclass(frozen=True)
class ClusterAt:
    """The addresses and the client properties of a cluster.

    brokers: ``host:port`` of each. config: the path of a file of client properties; None to connect without
    one.
    """

    brokers: tuple[str, ...]
    config: str | None = None


@dataclass(frozen=True)
class BothEnds:
    """The ends of a mirrored partition's logs on both clusters.

    An offset is None if no leader reported it, or if the partition does not exist.

    source: the log end offset of source's leader. stable: source's last stable offset, which is lower while a
    transaction is open or replicas lag. target: target's high watermark. held: why some records of source
    cannot be read yet; empty if all can. below, target_below: why fewer than min.insync.replicas are in sync
    on source and on target; empty if enough are.
    """

    source: int | None
    stable: int | None
    target: int | None
    held: str = ""
    below: str = ""
    target_below: str = ""

    @property
    def lag(self) -> int | None:
        """The number of offsets that target lacks; None if it is not known."""
        return None if self.source is None or self.target is None else self.source - self.target

    @property
    def equal(self) -> bool:
        """Whether both logs end at one offset, with no transaction open."""
        return self.source is not None and self.source == self.stable == self.target


@dataclass(frozen=True)
class GroupPair:
    """How a consumer group's commits on target compare with its commits on source.

    state: equal, behind, ahead, active, refused (the group cannot switch), or unknown. behind: how many
    offsets target's commits are behind. why: an explanation for the operator.
    """

    state: str
    behind: int
    why: str


@dataclass(frozen=True)
class MirrorSurvey:
    """The topics, groups and ACLs that a mirror copies, and those that it cannot copy.

    ids, brokers: the cluster ids, and the broker ids, of source and target. refused: by topic, why it cannot
    be mirrored. differ: by ``topic: key``, the settings that have another value on target. partitions: the
    state (missing, behind, equal, held, failed, unknown) and the reason for it. groups: how the commits of
    each group compare.

    grants: the ACLs that target lacks, except those that permit writing. later: the ACLs that permit writing.
    notes: what could not be read, and why. others: by group that was not named, how it uses the topics.
    super_users: the clusters where ``super.users`` is set. left: by ``topic: key``, why a setting is not
    copied, for example because only one release has it.

    transactional: the producers that write to source's topics in transactions, and what is known of each.
    transactional_dark: why there may be further such producers; empty if these are all. lacking: the rights
    that the run lacks.
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
    """The ACLs, among the requested ones, that target has.

    everywhere: the ACLs that each broker has. somewhere: the ACLs that at least one broker has.
    """

    everywhere: frozenset[Acl]
    somewhere: frozenset[Acl]


@dataclass(frozen=True)
class GroupReads:
    """The partitions that the members of a group read on source.

    parts: the assigned partitions, each with the group's committed offset, or None without a commit. why: why
    the partitions are not known; empty if they are.
    """

    parts: Mapping[tuple[str, int], int | None]
    why: str = ""


@dataclass(frozen=True)
class RangeCompared:
    """The result of a comparison of the committed records in a range of offsets.

    first: the first difference; empty if there is none. records: the number of equal records. note: which
    offsets were not compared, and why; empty if all were.
    """

    first: str
    records: int
    note: str = ""


@dataclass(frozen=True)
class MirrorRequest(Request[T]):
    """A request about two clusters, where topics of source are mirrored to target."""

    source: ClusterAt
    target: ClusterAt


@dataclass(frozen=True)
class SurveyMirror(MirrorRequest[Reading[MirrorSurvey]]):
    """A request to compare the topics, groups and ACLs of both clusters.

    groups: the groups to compare; empty for all groups that use the topics.
    """

    topics: Sequence[str]
    groups: Sequence[str]
    answered_by = f"{_ANSWERS}.survey"


@dataclass(frozen=True)
class ReadMirrorEnds(MirrorRequest[Reading[Mapping[Part, BothEnds]]]):
    """A request for where the logs of these topics end on both clusters, by source's partitions."""

    topics: Sequence[str]
    answered_by = f"{_ANSWERS}.ends"


@dataclass(frozen=True)
class ReadDirection(MirrorRequest[Reading[Direction]]):
    """A request for where copiers may write these topics, as recorded on both clusters."""

    topics: Sequence[str]
    answered_by = f"{_ANSWERS}.direction"


@dataclass(frozen=True)
class CompareCommits(MirrorRequest[Reading[Mapping[str, GroupPair]]]):
    """A request to compare both clusters' commits of these groups for these topics.

    groups: the groups to compare; empty for all groups that use the topics.
    """

    topics: Sequence[str]
    groups: Sequence[str]
    answered_by = f"{_ANSWERS}.commits"


@dataclass(frozen=True)
class FindGranted(MirrorRequest[Reading[Granted]]):
    """A request for which of these ACLs target has."""

    acls: Sequence[Acl]
    answered_by = f"{_ANSWERS}.granted"


@dataclass(frozen=True)
class FindGroupReads(MirrorRequest[Reading[Mapping[str, GroupReads]]]):
    """A request for what the members of these groups read from these topics on source now.

    groups: the groups; empty for all. Groups without members are left out. Only source is read.
    """

    topics: Sequence[str]
    groups: Sequence[str]
    answered_by = f"{_ANSWERS}.reads"


@dataclass(frozen=True)
class CompareRecords(MirrorRequest[Reading[Mapping[Part, Reading[RangeCompared]]]]):
    """A request to compare the committed records in ranges of offsets.

    ranges: by partition, the first offset and the offset after the last. Records that one of the logs no
    longer has are not compared.
    """

    ranges: Mapping[Part, tuple[int, int]]
    answered_by = f"{_ANSWERS}.differences"
