"""Define the changes of two clusters where one cluster mirrors topics of the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from zkmigrate.kafka.rights import Acl
from zkmigrate.runbook.model.change import ClusterChange
from zkmigrate.topics.mirror.rules.direction import Copies

MIRRORED = "mirrored"
"""The name that changes use for the cluster to which the inventory's topics are mirrored."""


@dataclass(frozen=True)
class CopyOffsets(ClusterChange):
    """A change that commits on target the offsets that the groups have committed on source for these topics.

    If one of the groups has members on target, nothing is committed.
    """

    cluster: str
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    verb = "copy-offsets"
    expect = ""

    def describe(self) -> str:
        return f"copy the commits of {len(self.groups):,} groups from source to target"


@dataclass(frozen=True)
class SetDirection(ClusterChange):
    """A change that records on both clusters where copiers may write these topics.

    number: the run's fencing number. If a cluster has recorded a higher number, nothing is changed.
    """

    cluster: str
    copies: Copies
    topics: tuple[str, ...]
    number: int
    verb = "set-direction"
    expect = ""

    def describe(self) -> str:
        where = {"forward": "on target only", "none": "on neither cluster", "backward": "on source only"}
        return f"let copiers write {where[self.copies]}, topics: {len(self.topics):,}"


@dataclass(frozen=True)
class AlterAcls(ClusterChange):
    """A change that adds ACLs to target, or deletes exactly these ACLs from target.

    acls: the fields of each :class:`Acl`.
    """

    cluster: str
    action: Literal["grant", "revoke"]
    acls: tuple[tuple[str, ...], ...]
    verb = "alter-acls"
    expect = ""

    def describe(self) -> str:
        return f"{self.action} on target: {'; '.join(str(Acl(*one)) for one in self.acls)}"
