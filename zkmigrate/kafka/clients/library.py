"""Hold every use of kafka-python's private attributes, which another release may rename.

The names are those of kafka-python 3.0.12.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka import KafkaProducer, TopicPartition
from kafka.admin import ACL, KafkaAdminClient
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import MetadataRequest


def send(admin: Any, request: ApiMessage, broker: int | None = None) -> dict[str, Any]:
    """Send a request to the broker with this id (None for any broker) and return its answer."""
    answer: dict[str, Any] = admin._manager.run(_send, admin, request, broker)
    return answer


async def _send(admin: Any, request: ApiMessage, broker: int | None) -> dict[str, Any]:
    answer: dict[str, Any] = (await admin._manager.send(request, node_id=broker)).to_dict()
    return answer


def metadata(admin: Any, broker: int | None, topics: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the metadata of these topics (None for all) from one broker (None for any).

    kafka-python has no public call for this, and its describe_cluster fails on brokers 2.8 to 3.6
    (KeyError: endpoint_type).
    """
    named = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=t) for t in topics]
    return send(admin, MetadataRequest(topics=named, allow_auto_topic_creation=False), broker)


def known_brokers(admin: Any) -> list[Any]:
    """Return the brokers that a client knows, each with node_id, host and port."""
    return list(admin._manager.cluster.brokers())


def accepts(admin: Any, request: type[ApiMessage]) -> bool:
    """Return whether the brokers of a client accept this kind of request."""
    return request.API_KEY in admin._manager.broker_version_data.api_versions


def use_as_controller(admin: Any, broker: int | None) -> None:
    """Send the requests for the controller to the broker with this id."""
    admin._controller_id = broker


def acls_of(answer: Any) -> list[ACL]:
    """Return the ACLs in a DescribeAcls answer. Raises KafkaError."""
    acls, _error = KafkaAdminClient._convert_describe_acls_response_to_acls(answer)
    return list(acls)


def security_of(admin: Any) -> dict[str, Any]:
    """Return the settings with which a client connects and logs in."""
    keys = "security_protocol ssl_context sasl_mechanism sasl_plain_username sasl_plain_password"
    return {key: admin.config[key] for key in keys.split()}


def internals(admin: Any) -> tuple[Any, Any]:
    """Return the event loop and the connection manager of a client, for requests with their own deadline."""
    return admin._net, admin._manager


def leader_of(producer: KafkaProducer, partition: TopicPartition) -> int | None:
    """Return the id of the current leader of a partition, or None if a producer knows none."""
    leader: int | None = producer._metadata.leader_for_partition(partition)
    return leader
