"""Read the reassignments in flight and one dynamic config of brokers, through the brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka.admin import ConfigResourceType
from kafka.errors import IncompatibleBrokerVersion
from kafka.protocol.admin import DescribeConfigsRequest

from zkmigrate.kafka.changes import AlterAtController
from zkmigrate.kafka.clients import controller
from zkmigrate.kafka.clients.connections import ask
from zkmigrate.kafka.clients.each_broker import of_each
from zkmigrate.kafka.clients.library import send
from zkmigrate.kafka.error_text import describe_error
from zkmigrate.kafka.questions import InFlight, TopicSetting
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown

_OWN = 2
"""The config_source of a broker's own dynamic value in DescribeConfigs (DYNAMIC_BROKER_CONFIG)."""
_DENIED = 31
"""CLUSTER_AUTHORIZATION_FAILED."""


def in_flight(brokers: Sequence[str]) -> Reading[Mapping[tuple[str, int], InFlight]]:
    """Return the reassignments in flight of the cluster at ``brokers`` (``host:port``)."""

    def question(admin: Any, _: object) -> Reading[Mapping[tuple[str, int], InFlight]]:
        try:
            listed = admin.list_partition_reassignments()
        except IncompatibleBrokerVersion:
            return Absent("ListPartitionReassignments")
        return Seen(
            {
                (at.topic, at.partition): InFlight(
                    tuple(moving["replicas"]),
                    tuple(moving["adding_replicas"]),
                    tuple(moving["removing_replicas"]),
                )
                for at, moving in listed.items()
            }
        )

    return ask(brokers, question)


def broker_settings(
    brokers: Sequence[str], key: str, ids: Sequence[int]
) -> Reading[Mapping[int, Reading[TopicSetting]]]:
    """Return one dynamic config of the brokers with these ids; each broker reports its own value."""

    def question(admin: Any, id: int) -> Reading[TopicSetting]:
        return _setting(id, key, send(admin, _request(id, key), id))

    return of_each(brokers, ids, question)


def refused_at_controller(brokers: Sequence[str], change: AlterAtController) -> Reading[str]:
    """Return why the controller would refuse to change a config; empty if it would accept.

    Returns Absent for a cluster with ZooKeeper, which has no such controller. The controller only validates.
    """

    def question(admin: Any, _: object) -> Reading[str]:
        try:
            return Seen(controller.validate(admin, change))
        except IncompatibleBrokerVersion:
            return Absent("DescribeQuorum")

    return ask(brokers, question)


def _request(id: int, key: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(resources=[(ConfigResourceType.BROKER, str(id), [key])], min_version=1)


def _setting(id: int, key: str, answer: Mapping[str, Any]) -> Reading[TopicSetting]:
    """Return the value of one config from a broker's answer.

    A config that the answer lacks is unset, because brokers list the rates of throttles only if they are set.
    """
    [result] = answer["results"]
    if code := result["error_code"]:
        why = describe_error(code, result["error_message"])
        return Unknown("denied" if code == _DENIED else "failed", f"config {key} of broker {id}: {why}")
    for config in result["configs"]:
        if config["name"] == key:
            own = config["value"] if config["config_source"] == _OWN else None
            return Seen(TopicSetting(own, config["read_only"], config["value"]))
    return Seen(TopicSetting(None))
