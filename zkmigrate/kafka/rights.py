"""Decide which ACLs of source's cluster the target cluster gets.

No client gets the right to write to target before the switch, because a foreign write ends the mirror.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

TOPIC, GROUP = "TOPIC", "GROUP"
LITERAL, PREFIXED = "LITERAL", "PREFIXED"
ALLOW, DENY = "ALLOW", "DENY"
_EVERY, _EVERYBODY = "*", "User:*"

_READING: Mapping[str, tuple[str, ...]] = {
    TOPIC: ("READ", "DESCRIBE", "DESCRIBE_CONFIGS"),
    GROUP: ("READ", "DESCRIBE"),
}
"""The operations that do not change a topic. READ on a group is needed to consume as that group."""

LATER = "granted at the switch"


class Acl(NamedTuple):
    """One ACL in Kafka's terms.

    It has the resource type, its name and pattern type, the principal, the host, the operation and the
    permission.
    """

    resource: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        pattern = "" if self.pattern == LITERAL else " prefixed"
        return (
            f"{self.permission} {self.operation} to {self.principal} from {self.host} on"
            f"{pattern} {self.resource.lower()} {self.name}"
        )


@dataclass(frozen=True)
class Changed:
    """The ACLs that the mirror has added to and deleted from the target cluster."""

    granted: frozenset[Acl]
    revoked: frozenset[Acl]


@dataclass(frozen=True)
class Rights:
    """The ACL changes that the target cluster needs.

    grant, revoke: ACLs to add and to delete on target. left: ACLs of source that target does not get, and
    ACLs of target that let somebody write, each with the reason. keep: ACLs that the mirror maintains, for
    the next comparison. later: ACLs that target lacks and gets at the switch, in order.
    """

    grant: frozenset[Acl]
    revoke: frozenset[Acl]
    left: Mapping[Acl, str]
    keep: frozenset[Acl]
    later: tuple[Acl, ...] = ()


def rights(
    source: Iterable[Acl],
    target: Collection[Acl],
    topics: Collection[str],
    groups: Collection[str],
    before: frozenset[Acl] = frozenset(),
) -> Rights:
    """Compare the ACLs of source and target, and return the changes that target needs.

    topics, groups: names of the mirrored topics and groups. before: ``keep`` of this run's last comparison.
    Only those ACLs are revoked, when source no longer has them.
    """
    names = {TOPIC: topics, GROUP: groups}
    needed, later, left = set[Acl](), set[Acl](), dict[Acl, str]()
    for rule in source:
        if matched := _covered(rule, names):
            for copy in _copies(rule, left):
                needed.update(_for_names(copy, matched))
            if _allows_change(rule):
                later.update(_for_names(rule, matched))
    for rule in target:
        if rule not in needed | before and _covered(rule, names) and _allows_writing(rule):
            left[rule] = "already on target; its principal may write there"
    there = set(target)
    revoke = (before - needed) & there
    keep = frozenset(needed | revoke)
    return Rights(frozenset(needed - there), frozenset(revoke), left, keep, tuple(sorted(later - there)))


def _allows_change(acl: Acl) -> bool:
    """Return whether an ACL lets somebody change what is mirrored."""
    return acl.permission == ALLOW and acl.operation not in _READING[acl.resource]


def _covered(rule: Acl, names: Mapping[str, Collection[str]]) -> list[str]:
    """Return the mirrored topics or groups that an ACL covers."""
    if rule.pattern == PREFIXED:
        return [name for name in names.get(rule.resource, ()) if name.startswith(rule.name)]
    return [name for name in names.get(rule.resource, ()) if rule.name in (name, _EVERY)]


def _copies(rule: Acl, left: dict[Acl, str]) -> Iterator[Acl]:
    """Yield the ACLs that target gets for one ACL of source.

    left: receives the ACLs that target does not get, with the reason.
    """
    if rule.permission == DENY and rule.principal == _EVERYBODY:
        left[rule] = "it would also deny the mirror"
    elif not _allows_change(rule):
        yield rule
    else:
        left[rule] = LATER
        if rule.operation == "ALL":
            yield from (rule._replace(operation=one) for one in _READING[rule.resource])


def _for_names(rule: Acl, matched: Iterable[str]) -> Iterator[Acl]:
    """Yield an ACL for each mirrored name in place of an ACL for every name.

    The target cluster may have other topics, which the ACL must not cover. Any other ACL is yielded
    unchanged.
    """
    if rule.pattern == LITERAL and rule.name == _EVERY:
        yield from (rule._replace(name=name) for name in matched)
    else:
        yield rule


def _allows_writing(rule: Acl) -> bool:
    return rule.resource == TOPIC and _allows_change(rule)
