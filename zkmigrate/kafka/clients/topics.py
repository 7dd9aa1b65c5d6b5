"""Read topics, their partitions and one of their configs through the brokers.

kafka-python's ``describe_configs`` drops a broker's error about a topic, so this module sends the request
itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka.admin import ConfigResourceType
from kafka.errors import IncompatibleBrokerVersion, KafkaError
from kafka.protocol.admin import DescribeConfigsRequest

from zkmigrate.kafka.changes import CreateTopic, GrowTopic
from zkmigrate.kafka.clients import admin as kafka
from zkmigrate.kafka.clients.cluster_view import merge_partitions, reachable
from zkmigrate.kafka.clients.connections import ask
from zkmigrate.kafka.clients.library import metadata, send
from zkmigrate.kafka.error_text import describe_error, describe_exception
from zkmigrate.kafka.questions import ClusterTopics, PartitionState, Settings, TopicPartitions, TopicSetting
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown

BATCH = 500
"""The largest number of topics in one request, because a broker reads each topic's config from ZooKeeper."""

_OWN = 1
"""The config_source of a topic's own value in DescribeConfigs (DYNAMIC_TOPIC_CONFIG)."""
_NO_TOPIC, _DENIED = 3, (29, 31)
"""UNKNOWN_TOPIC_OR_PARTITION; TOPIC_AUTHORIZATION_FAILED and CLUSTER_AUTHORIZATION_FAILED."""

_NO_ID = str(uuid.UUID(int=0))
"""The topic id that a broker reports if it knows none."""


def names(brokers: Sequence[str]) -> Reading[ClusterTopics]:
    """Return the names of all topics of the cluster at ``brokers`` (``host:port``)."""

    def question(admin: Any, _: object) -> Reading[ClusterTopics]:
        answer = metadata(admin, None)
        return Seen(ClusterTopics(answer["cluster_id"], tuple(sorted(t["name"] for t in answer["topics"]))))

    return ask(brokers, question)


def partitions(brokers: Sequence[str], topics: Sequence[str], witnesses: int) -> Reading[TopicPartitions]:
    """Return the partitions of these topics, as reported by at most ``witnesses`` brokers."""

    def question(admin: Any, releases: Mapping[str, str]) -> Reading[TopicPartitions]:
        cluster = metadata(admin, None, ())
        ids = reachable(cluster, releases, everybody=len(releases) == len(set(brokers)))
        answers: dict[int, dict[str, Any]] = {}
        for id in ids[:witnesses]:
            with suppress(KafkaError):  # it went down meanwhile
                answers[id] = metadata(admin, id, topics)
        if not answers:
            return Unknown("timeout", f"none of the brokers {ids[:witnesses]} described its topics")
        by_topic: dict[str, list[dict[str, Any]]] = {topic: [] for topic in topics}
        for answer in answers.values():
            for topic in answer["topics"]:
                by_topic[topic["name"]].append(topic)
        named = [frozenset(broker["node_id"] for broker in a["brokers"]) for a in answers.values()]
        found = {
            topic: _partitions(topic, topic_answers, len(answers))
            for topic, topic_answers in by_topic.items()
        }
        topic_ids = {name: own for name, answered in by_topic.items() if (own := _topic_id(answered))}
        common = frozenset.intersection(*named)
        return Seen(TopicPartitions(cluster["cluster_id"], common, tuple(answers), found, topic_ids))

    return ask(brokers, question)


def _topic_id(answers: Sequence[Mapping[str, Any]]) -> str:
    """Return the id that all queried brokers report for a topic.

    The text is empty if they report none, or different ones.
    """
    ids = {id for answer in answers if (id := str(answer.get("topic_id") or _NO_ID)) != _NO_ID}
    return ids.pop() if len(ids) == 1 else ""


def _partitions(
    topic: str, answers: Sequence[Mapping[str, Any]], witnesses: int
) -> Reading[tuple[PartitionState, ...]]:
    """Return the partitions of one topic on which all queried brokers agree.

    Brokers that do not know the topic are ignored, because they may have just started.
    """
    codes = {answer["error_code"] for answer in answers}
    if len(answers) != witnesses:
        return Unknown("garbled", f"{len(answers)} of {witnesses} brokers answered about topic {topic}")
    if codes == {_NO_TOPIC}:
        return Absent(topic)
    if denied := codes & set(_DENIED):
        return Unknown("denied", f"metadata of topic {topic}: {describe_error(min(denied))}")
    found = merge_partitions([answer] for answer in answers if answer["error_code"] != _NO_TOPIC)
    return found if isinstance(found, Unknown) else Seen(found)


def settings(brokers: Sequence[str], key: str, topics: Sequence[str]) -> Settings:
    """Return one config of these topics."""

    def question(admin: Any, _: object) -> Settings:
        found: dict[str, Reading[TopicSetting] | None] = {}
        for batch in _batches(topics):
            results = send(admin, _request(key, batch))["results"]
            found |= {result["resource_name"]: _setting(result, key) for result in results}
        there = {topic: found[topic] for topic in topics}
        if any(setting is None for setting in there.values()):
            return Absent(key)
        return Seen({topic: setting for topic, setting in there.items() if setting is not None})

    return ask(brokers, question)


def refused_topic(brokers: Sequence[str], change: CreateTopic | GrowTopic) -> Reading[str]:
    """Return why Kafka would refuse to create or grow a topic; empty if it would accept.

    Kafka only validates the request.
    """

    def question(admin: Any, _: object) -> Reading[str]:
        try:
            if isinstance(change, CreateTopic):
                why = kafka.create_topic(admin, change, only_validate=True)
            else:
                why = kafka.grow_topic(admin, change, only_validate=True)
        except IncompatibleBrokerVersion as error:  # the client knows that before it sends
            return Unknown("failed", describe_exception(error))
        return Unknown("timeout", why) if kafka.TIMED_OUT in why else Seen(why)

    return ask(brokers, question)


def _batches(topics: Sequence[str]) -> Iterator[Sequence[str]]:
    return (topics[at : at + BATCH] for at in range(0, len(topics), BATCH))


def _request(key: str, topics: Sequence[str]) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[(ConfigResourceType.TOPIC, topic, [key]) for topic in topics], min_version=1
    )


def _setting(result: Mapping[str, Any], key: str) -> Reading[TopicSetting] | None:
    """Return one topic's own value from an answer, or None if Kafka has no config of this name."""
    topic, code = result["resource_name"], result["error_code"]
    if code == _NO_TOPIC:
        return Absent(topic)
    if code:
        why = describe_error(code, result["error_message"])
        return Unknown("denied" if code in _DENIED else "failed", f"config {key} of topic {topic}: {why}")
    for config in result["configs"]:
        if config["name"] == key:
            own = config["config_source"] == _OWN
            if own and config["is_sensitive"]:
                return Unknown("denied", f"Kafka does not show the value of {key} of topic {topic}")
            return Seen(TopicSetting(config["value"] if own else None, config["read_only"]))
    return None
