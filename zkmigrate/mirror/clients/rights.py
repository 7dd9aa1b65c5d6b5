"""Reads a cluster's ACLs of topics and groups, and adds and deletes them."""

from __future__ import annotations

from collections.abc import Iterable

from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import NoError, SecurityDisabledError

from zkmigrate.errors import HostError
from zkmigrate.mirror.clients.cluster import Cluster
from zkmigrate.mirror.rules.rights import GROUP, TOPIC, Rule


def read(cluster: Cluster) -> frozenset[Rule] | None:
    """All ACLs of topics and groups; None without an authorizer."""
    found = set[Rule]()
    for kind in (TOPIC, GROUP):
        every = ACLFilter(
            None,
            None,
            ACLOperation.ANY,
            ACLPermissionType.ANY,
            ResourcePatternFilter(ResourceType[kind], None, ACLResourcePatternType.ANY),
        )
        told = cluster.call(lambda admin, every=every: _described(admin, every))  # type: ignore[misc]
        if told is None:
            return None
        found.update(map(_rule, told))
    return frozenset(found)


def _described(admin: KafkaAdminClient, which: ACLFilter) -> list[ACL] | None:
    try:
        return list(admin.describe_acls(which)[0])
    except SecurityDisabledError:
        return None


def _rule(acl: ACL) -> Rule:
    at = acl.resource_pattern
    return Rule(
        at.resource_type.name,
        at.resource_name,
        at.pattern_type.name,
        acl.principal,
        acl.host,
        acl.operation.name,
        acl.permission_type.name,
    )


def _may(rule: Rule) -> tuple[str, str, ACLOperation, ACLPermissionType]:
    return rule.principal, rule.host, ACLOperation[rule.operation], ACLPermissionType[rule.permission]


def _where(rule: Rule) -> tuple[ResourceType, str, ACLResourcePatternType]:
    return ResourceType[rule.resource], rule.name, ACLResourcePatternType[rule.pattern]


def grant(cluster: Cluster, rules: Iterable[Rule]) -> None:
    """Add ACLs; one that is there already stays. HostError with Kafka's reason."""
    acls = [ACL(*_may(one), ResourcePattern(*_where(one))) for one in rules]
    told = cluster.call(lambda admin: admin.create_acls(acls))
    _refused(cluster, told["failed"])


def revoke(cluster: Cluster, rules: Iterable[Rule]) -> None:
    """Delete exactly these ACLs. HostError with Kafka's reason."""
    which = [ACLFilter(*_may(one), ResourcePatternFilter(*_where(one))) for one in rules]
    told = cluster.call(lambda admin: admin.delete_acls(which))
    _refused(cluster, [error for _, _, error in told if error is not NoError])


def _refused(cluster: Cluster, errors: list[type[Exception]]) -> None:
    if errors:
        names = ", ".join(sorted({one.__name__ for one in errors}))
        raise HostError(f"{cluster.what} did not change {len(errors)} ACLs: {names}")
