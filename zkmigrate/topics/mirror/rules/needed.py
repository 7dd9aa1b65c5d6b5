"""List the rights that a mirror and a switch need on each cluster, and find those that an account lacks.

Names of operations and resources are those of Kafka's ACLs.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

Purpose: TypeAlias = Literal["mirror", "switch"]
"""The use of an account: by a copier, or by a run of the playbook kafka_topic_move."""
Side: TypeAlias = Literal["source", "target"]

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = "topic", "group", "cluster", "transactional-id"
EVERY = "*"
OWNED = "zkmigrate-mirror-"
"""The prefix of the mirror's transactional ids. A copier uses these ids only to write end markers."""
COMMITS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
"""The names of Kafka's topics for commits and for transactions.

The leader of each partition of the first topic coordinates and lists the groups that have their commits in
the partition.
"""
_READ, _WRITE, _CREATE, _DELETE, _ALTER = "Read", "Write", "Create", "Delete", "Alter"
_DESCRIBE, _ACTION = "Describe", "ClusterAction"
_SETTINGS, _SET = "DescribeConfigs", "AlterConfigs"

_TOPICS: Mapping[tuple[Side, Purpose], tuple[str, ...]] = {
    ("source", "mirror"): (_READ, _SETTINGS),
    ("source", "switch"): (_READ, _SETTINGS),
    ("target", "mirror"): (_READ, _WRITE, _DELETE, _ALTER, _SET, _SETTINGS),
    ("target", "switch"): (_READ, _SETTINGS),
}
_CLUSTER: Mapping[tuple[Side, Purpose], tuple[str, ...]] = {
    ("source", "mirror"): (_DESCRIBE,),
    ("source", "switch"): (_DESCRIBE, _SETTINGS),
    ("target", "mirror"): (_DESCRIBE, _ACTION, _ALTER),
    ("target", "switch"): (_DESCRIBE, _ALTER, _SETTINGS),
}
_GROUPS: Mapping[Side, str] = {"source": _DESCRIBE, "target": _READ}
_OWN_GROUP: Mapping[Purpose, str] = {"mirror": _DESCRIBE, "switch": _READ}
_FOR_RECORDS = {
    ("source", _READ, TOPIC),
    ("target", _READ, TOPIC),
    ("target", _WRITE, TOPIC),
    ("target", _WRITE, TRANSACTIONAL_ID),
}
"""The rights on source and target that are needed to copy any record of a topic."""


class Right(NamedTuple):
    """An operation on a resource that an account needs.

    name: the name of the resource, empty for the cluster. topic: the topic for which the right is needed.
    """

    operation: str
    resource: str
    name: str = ""
    topic: str = ""


@dataclass(frozen=True)
class Permitted:
    """The operations that an account may do on a cluster, according to its brokers.

    topics, groups, ids: operations by name of topic, of group, and by transactional id. cluster: operations
    on the cluster. missing: the topics that do not exist. logged: whether transactional ids can only be read
    from the coordinators' log, as before Kafka 3.0.
    """

    topics: Mapping[str, Collection[str]]
    cluster: Collection[str]
    groups: Mapping[str, Collection[str]] = field(default_factory=dict)
    ids: Mapping[str, Collection[str]] = field(default_factory=dict)
    missing: Collection[str] = ()
    logged: bool = False

    def allows(self, right: Right) -> bool:
        """Return whether the account has a right."""
        if right.resource == CLUSTER:
            return right.operation in self.cluster
        known = {TOPIC: self.topics, GROUP: self.groups, TRANSACTIONAL_ID: self.ids}[right.resource]
        return right.operation in known.get(right.name, ())


@dataclass(frozen=True)
class Lacking:
    """The rights on one resource that an account lacks on one cluster.

    account: the principal of the account, such as ``User:mirror``. brokers: the addresses of the cluster.
    name: the name of the resource, empty for the cluster; for transactional ids of the mirror, the prefix of
    their names. topics: the topics that need the rights.
    """

    side: Side
    account: str
    brokers: str
    operations: tuple[str, ...]
    resource: str
    name: str
    topics: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """A text for messages with the account, its missing rights and the resource."""
        where = f"{self.resource.replace('-', ' ')} {self.name}{'…' if self._prefixed else ''}".rstrip()
        return f"{self.account} lacks {' and '.join(self.operations)} on {where} at {self.side}"

    @property
    def command(self) -> str:
        """The command of Kafka's tools that adds the rights."""
        words = ["kafka-acls.sh", "--bootstrap-server", self.brokers, "--add"]
        words += ["--allow-principal", self.account]
        words += [word for one in self.operations for word in ("--operation", one)]
        words += [f"--{self.resource}", *([self.name] if self.name else [])]
        words += ["--resource-pattern-type", "prefixed"] if self._prefixed else []
        return shlex.join(words)

    @property
    def _prefixed(self) -> bool:
        return self.resource == TRANSACTIONAL_ID and self.name != EVERY


def needed(
    side: Side,
    purpose: Purpose,
    topics: Collection[str],
    groups: Iterable[str],
    own_group: str,
    ids: Mapping[str, str],
    permitted: Permitted,
) -> Iterator[Right]:
    """Yield the rights that an account needs on a cluster.

    groups: the groups with offsets to copy. own_group: the group in which the mirror records which cluster
    leads a topic. ids: by transactional id of target, its topic. permitted: the rights that the account has.
    """
    creating = () if _CREATE in permitted.cluster else permitted.missing
    for topic in topics:
        yield from (Right(one, TOPIC, topic, topic) for one in _TOPICS[side, purpose])
        if (side, purpose) == ("target", "mirror") and topic in creating:
            yield Right(_CREATE, TOPIC, topic, topic)
    yield from (Right(one, CLUSTER) for one in _CLUSTER[side, purpose])
    yield Right(_DESCRIBE, TOPIC, COMMITS)
    yield from (Right(_GROUPS[side], GROUP, one) for one in groups)
    yield Right(_OWN_GROUP[purpose], GROUP, own_group)
    if side == "target":
        yield from (Right(_WRITE, TRANSACTIONAL_ID, one, topic) for one, topic in ids.items())
    elif permitted.logged:
        yield Right(_READ, TOPIC, TRANSACTIONS)
    else:
        yield Right(_DESCRIBE, TRANSACTIONAL_ID, EVERY)


def lacking(
    side: Side, account: str, brokers: str, rights: Iterable[Right], permitted: Permitted
) -> list[Lacking]:
    """Return the rights that the account lacks, one entry for each resource.

    rights: the rights that the account needs. If the account lacks Describe on the cluster, its other rights
    on the cluster are not known.
    """
    found: dict[tuple[str, str], list[Right]] = {}
    for right in rights:
        dark = right.resource == CLUSTER and _DESCRIBE not in permitted.cluster
        if not permitted.allows(right) and (not dark or right.operation == _DESCRIBE):
            own = right.resource == TRANSACTIONAL_ID and right.name != EVERY
            found.setdefault((right.resource, OWNED if own else right.name), []).append(right)
    return [
        Lacking(
            side,
            account,
            brokers,
            tuple(sorted({one.operation for one in some})),
            resource,
            name,
            tuple(sorted({one.topic for one in some if one.topic})),
        )
        for (resource, name), some in found.items()
    ]


def not_copied(found: Iterable[Lacking]) -> dict[str, str]:
    """Return the topics of which no record can be copied, each with the reason.

    found: the rights that accounts lack.
    """
    why: dict[str, list[str]] = {}
    for one in found:
        if any((one.side, each, one.resource) in _FOR_RECORDS for each in one.operations):
            for topic in one.topics:
                why.setdefault(topic, []).append(f"{one.words}. Next: {one.command}")
    return {topic: "; ".join(lines) for topic, lines in why.items()}


def only_warns(one: Lacking) -> bool:
    """Return whether a switch works although an account lacks these rights.

    The switch then cannot find out whether there are super users.
    """
    return one.resource == CLUSTER and one.operations == (_SETTINGS,)
