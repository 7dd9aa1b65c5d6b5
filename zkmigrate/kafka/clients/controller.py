"""Set or unset a broker's config at the active controller of a cluster without ZooKeeper.

A broker that is down accepts no config, and other brokers reject its id. The controller accepts it while the
broker is registered (4.3.1). DescribeQuorum reports the controllers' addresses since Kafka 3.8 (KIP-853).
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from kafka.admin import AlterConfigOp, ConfigResourceType
from kafka.errors import BrokerIdNotRegisteredError, for_code
from kafka.protocol.admin import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse

from zkmigrate.kafka.changes import AlterAtController
from zkmigrate.kafka.clients import library
from zkmigrate.kafka.clients.wire import BrokerConnection
from zkmigrate.kafka.error_text import describe_error

_ANSWER_S = 5.0


def alter(admin: Any, change: AlterAtController) -> str:
    """Set or unset a config and return why the controller refused; empty if it accepted.

    The result is also empty if the broker is no longer registered. Raises OSError, ValueError or KafkaError
    if there is no answer.
    """
    code, why = _send(admin, change, only_validate=False)
    return "" if for_code(code) is BrokerIdNotRegisteredError else why


def validate(admin: Any, change: AlterAtController) -> str:
    """Return why the controller would refuse a change, including for a broker that is no longer registered.

    The controller only validates the request. Raises the same errors as :func:`alter`.
    """
    return _send(admin, change, only_validate=True)[1]


def _send(admin: Any, change: AlterAtController, *, only_validate: bool) -> tuple[int, str]:
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    act = AlterConfigOp.DELETE if change.value is None else AlterConfigOp.SET
    config = kind.AlterableConfig(name=change.key, config_operation=act.value, value=change.value)
    resource = kind(
        resource_type=ConfigResourceType.BROKER.value, resource_name=str(change.broker), configs=[config]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=only_validate)
    connection = BrokerConnection(*_active(admin), partial(library.security_of, admin))
    try:
        body = request.encode(version=0)
        answer = connection.ask(request.API_KEY, 0, body, time.monotonic() + _ANSWER_S)
    except OSError as error:
        where = f"the controller at {connection.address}:{connection.port}"
        raise OSError(f"{where} did not answer: {error or type(error).__name__}") from None
    finally:
        connection.drop()
    [result] = IncrementalAlterConfigsResponse.decode(answer, version=0).responses
    return result.error_code, describe_error(
        result.error_code, result.error_message
    ) if result.error_code else ""


def _active(admin: Any) -> tuple[str, int]:
    """Return the address and port of the active controller.

    Raises ValueError if the brokers do not report it.
    """
    quorum = admin.describe_metadata_quorum()
    leader = quorum["topics"][0]["partitions"][0]["leader_id"]
    for node in quorum.get("nodes", ()):
        if node["node_id"] == leader:
            listener = node["listeners"][0]
            return listener["host"], listener["port"]
    raise ValueError("the brokers do not report the address of the controller")
