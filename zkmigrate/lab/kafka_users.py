"""Create the users and the ACLs of a secured Kafka cluster, as its administrator."""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from zkmigrate.lab.kafka_login import KafkaLogin
from zkmigrate.lab.kafka_metadata import wait_for_metadata

_LIMIT_S = 60.0
_ITERATIONS = 4096
_ALL = (
    (ResourceType.TOPIC, "*"),
    (ResourceType.GROUP, "*"),
    (ResourceType.TRANSACTIONAL_ID, "*"),
    (ResourceType.BROKER, "kafka-cluster"),
)
"""Everything that the load uses; Kafka names the cluster as a whole by the last of these."""


def create(
    login: KafkaLogin, bootstrap: str, brokers: int, passwords: dict[str, str], principals: list[str]
) -> None:
    """Create users for SCRAM-SHA-256, and allow principals everything.

    login: that of an administrator. brokers: their number. passwords: by user. principals: as ACLs name them,
    such as ``User:client``. Raises NotReady or KafkaException.
    """
    wait_for_metadata(bootstrap, brokers, _LIMIT_S, login)
    admin = AdminClient(login.librdkafka(bootstrap))
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, _ITERATIONS)
    answers: list[Any] = []
    if passwords:
        users: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, scram, secret.encode()) for user, secret in passwords.items()
        ]
        answers += admin.alter_user_scram_credentials(users, request_timeout=_LIMIT_S).values()
    if principals:
        literal, right = ResourcePatternType.LITERAL, (AclOperation.ALL, AclPermissionType.ALLOW)
        acls = [AclBinding(*one, literal, principal, "*", *right) for one in _ALL for principal in principals]
        answers += admin.create_acls(acls, request_timeout=_LIMIT_S).values()
    for answer in answers:
        answer.result(_LIMIT_S)
