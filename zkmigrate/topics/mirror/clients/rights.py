"""Read a cluster's ACLs of topics and groups, and add and delete them."""

from __future__ import annotations

from collections.abc import Iterable

from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import BrokerResponseError, KafkaError, NoError, SecurityDisabledError
from kafka.protocol.admin import DescribeAclsRequest

from zkmigrate.errors import HostError
from zkmigrate.kafka.clients.library import acls_of
from zkmigrate.kafka.error_text import describe_error, describe_exception
from zkmigrate.kafka.rights import GROUP, TOPIC, Acl
from zkmigrate.topics.mirror.clients.cluster import Cluster


def read(cluster: Cluster, node: int | None = None) -> frozenset[Acl] | None:
    """Return all ACLs of topics and groups, or None if the cluster has no authorizer.

    node: the id of the broker that lists the ACLs; None for any broker. Raises HostError with Kafka's reason.
    """
    found = set[Acl]()
    for kind in (TOPIC, GROUP):
        every = DescribeAclsRequest(
            resource_type_filter=ResourceType[kind],
            resource_name_filter=None,
            pattern_type_filter=ACLResourcePatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=ACLOperation.ANY,
            permission_type=ACLPermissionType.ANY,
        )
        # kafka-python's describe_acls would wait longer than the deadline.
        answer = cluster.ask(every, node)
        try:
            told = acls_of(answer)
        except SecurityDisabledError:
            return None
        except KafkaError as error:
            raise HostError(f"{cluster.what} does not return its ACLs: {describe_exception(error)}") from None
        found.update(map(_rule, told))
    return frozenset(found)


def _rule(acl: ACL) -> Acl:
    at = acl.resource_pattern
    return Acl(
        at.resource_type.name,
        at.resource_name,
        at.pattern_type.name,
        acl.principal,
        acl.host,
        acl.operation.name,
        acl.permission_type.name,
    )


def _may(rule: Acl) -> tuple[str, str, ACLOperation, ACLPermissionType]:
    return rule.principal, rule.host, ACLOperation[rule.operation], ACLPermissionType[rule.permission]


def _where(rule: Acl) -> tuple[ResourceType, str, ACLResourcePatternType]:
    return ResourceType[rule.resource], rule.name, ACLResourcePatternType[rule.pattern]


def grant(cluster: Cluster, rules: Iterable[Acl]) -> None:
    """Add ACLs. ACLs that exist already stay as they are.

    Raises HostError with Kafka's reason.
    """
    acls = [ACL(*_may(one), ResourcePattern(*_where(one))) for one in rules]
    told = cluster.call(lambda admin: admin.create_acls(acls))
    _refused(cluster, told["failed"])


def revoke(cluster: Cluster, rules: Iterable[Acl]) -> None:
    """Delete exactly these ACLs.

    Raises HostError with Kafka's reason.
    """
    which = [ACLFilter(*_may(one), ResourcePatternFilter(*_where(one))) for one in rules]
    told = cluster.call(lambda admin: admin.delete_acls(which))
    _refused(cluster, [error for _, _, error in told if error is not NoError])


def _refused(cluster: Cluster, errors: list[type[BrokerResponseError]]) -> None:
    if errors:
        names = "; ".join(sorted({describe_error(one.errno) for one in errors}))
        raise HostError(f"{cluster.what} did not change {len(errors)} ACLs: {names}")
