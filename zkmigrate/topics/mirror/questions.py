"""Define the requests for facts about two clusters where one cluster mirrors topics of the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from zkmigrate.inventory.login import KafkaClient
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

    brokers: ``host:port`` of each broker. config: the path of a file of client properties. client: the same
    settings as a section of the inventory. Both are None to connect without TLS and SASL.
    """

    brokers: tuple[str, ...]
    config: str | None = None
    client: KafkaClient | None = None


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
        """The number of offsets that target does not have yet; None if it is not known."""
        return None if self.source is None or self.target is None else self.source - self.target

    @property
    def equal(self) -> bool:
        """Whether both logs end at the same offset and no transaction is open."""
        return self.source is not None and self.source == self.stable == self.target


@dataclass(frozen=True)
class GroupPair:
    """A comparison of a consumer group's commits on target with its commits on source.

    state: equal, behind, ahead, active, refused (the group cannot switch), or unknown. behind: how many
    offsets the commits on target are behind. why: an explanation for the operator.
    """

    state: str
    behind: int
    why: str


@dataclass(frozen=True)
class MirrorSurvey:
    """The topics, groups and ACLs that a mirror copies, and those that it cannot copy.

    ids: the cluster ids of source and target.
    brokers: the broker ids of source and target.
    refused: by topic, why it cannot be mirrored.
    differ: by ``topic: key``, a text about a setting that has another value on target.
    partitions: by partition, its state (missing, behind, equal, held, failed, unknown) and the reason for the
    state.
    groups: by group, a comparison of its commits.
    grants: the ACLs that target lacks, except ACLs that permit writing.
    later: the ACLs that target lacks and that permit writing.
    notes: by subject that could not be read, the reason.
    others: by group that was not named, how it uses the topics.
    super_users: the clusters where ``super.users`` is set.
    left: by ``topic: key``, why a setting is not copied, for example because only one release has it.
    transactional: by producer that writes to source's topics in transactions, a text about it.
    transactional_dark: why there may be further such producers; empty if all are known.
    lacking: the rights that the run lacks.
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
    """The ACLs, among those that a request named, that exist on target.

    everywhere: the ACLs that each broker has. somewhere: the ACLs that at least one broker has.
    """

    everywhere: frozenset[Acl]
    somewhere: frozenset[Acl]


@dataclass(frozen=True)
class GroupReads:
    """The partitions that the members of a group read on source.

    parts: by assigned partition, the group's committed offset, or None without a commit. why: the reason why
    the partitions are not known; empty if they are known.
    """

    parts: Mapping[tuple[str, int], int | None]
    why: str = ""


@dataclass(frozen=True)
class RangeCompared:
    """The result of a comparison of the committed records in a range of offsets.

    first: a description of the first difference; empty if there is none. records: the number of equal
    records. note: the offsets that were not compared, and why; empty if all were compared.
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
    """A request for the ends of these topics' logs on both clusters, by partition of source."""

    topics: Sequence[str]
    answered_by = f"{_ANSWERS}.ends"


@dataclass(frozen=True)
class ReadDirection(MirrorRequest[Reading[Direction]]):
    """A request for the clusters on which copiers may write these topics, as recorded on both clusters."""

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
    """A request to find out which of these ACLs exist on target."""

    acls: Sequence[Acl]
    answered_by = f"{_ANSWERS}.granted"


@dataclass(frozen=True)
class FindGroupReads(MirrorRequest[Reading[Mapping[str, GroupReads]]]):
    """A request for the partitions of these topics that the members of groups read on source now.

    groups: the groups; empty for all groups. Groups without members are left out. Only source is read.
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
