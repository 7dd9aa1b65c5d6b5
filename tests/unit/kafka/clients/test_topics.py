"""Topics and their configs as kafka-python's requests tell of them, in the library's own types."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.admin import ConfigResourceType
from kafka.errors import KafkaConnectionError
from kafka.protocol.admin import DescribeConfigsResponse

from tests.ports import free_port
from tests.unit.kafka.clients.fake_cluster import CLUSTER_ID, KEY, FakeCluster
from zkmigrate.kafka.clients import topics
from zkmigrate.kafka.questions import ClusterTopics, TopicSetting
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown

BROKERS = ("10.0.0.1:9092",)
DEFAULT, OWN = 5, 1
Result: Any = DescribeConfigsResponse.DescribeConfigsResult


def described(topic: str, *configs: Any, error: int = 0, said: str | None = None) -> Any:
    return Result(
        error_code=error,
        error_message=said,
        resource_type=ConfigResourceType.TOPIC,
        resource_name=topic,
        configs=list(configs),
    )


def config(value: str | None, source: int, *, read_only: bool = False, sensitive: bool = False) -> Any:
    return Result.DescribeConfigsResourceResult(
        name=KEY,
        value=value,
        read_only=read_only,
        config_source=source,
        is_sensitive=sensitive,
        synonyms=[],
        config_type=0,
        documentation=None,
    )


def cause(reading: Reading[Any]) -> tuple[str, str]:
    assert isinstance(reading, Unknown), reading
    return reading.cause, reading.why


def test_the_names_come_in_order_with_the_id_of_their_cluster(cluster: FakeCluster) -> None:
    cluster.topics = [{"name": name} for name in ("b", "__consumer_offsets", "a")]
    assert topics.names(BROKERS) == Seen(ClusterTopics(CLUSTER_ID, ("__consumer_offsets", "a", "b")))


def test_what_a_topic_sets_itself_is_told_from_a_default(cluster: FakeCluster) -> None:
    cluster.described = {
        "a": described("a", config("1", OWN)),
        "b": described("b", config("604800000", DEFAULT)),
        "c": described("c", config("604800000", 4)),
        "d": described("d", config("", OWN, read_only=True)),
    }
    assert topics.settings(BROKERS, KEY, ("a", "b", "c", "d")) == Seen(
        {
            "a": Seen(TopicSetting("1")),
            "b": Seen(TopicSetting(None)),
            "c": Seen(TopicSetting(None)),
            "d": Seen(TopicSetting("", read_only=True)),
        }
    )


def test_one_topic_that_is_gone_or_forbidden_hides_no_other(cluster: FakeCluster) -> None:
    cluster.described = {
        "gone": described("gone", error=3, said="The topic 'gone' does not exist."),
        "denied": described("denied", error=29),
        "odd": described("odd", error=42, said="no"),
        "hidden": described("hidden", config(None, OWN, sensitive=True)),
        "a": described("a", config("1", OWN)),
    }
    found = topics.settings(BROKERS, KEY, tuple(cluster.described))
    assert isinstance(found, Seen)
    assert found.value["gone"] == Absent("gone")
    assert found.value["a"] == Seen(TopicSetting("1"))
    assert cause(found.value["denied"]) == (
        "denied", "config retention.ms of topic denied: TOPIC_AUTHORIZATION_FAILED"
    )  # fmt: skip
    assert cause(found.value["odd"]) == ("failed", "config retention.ms of topic odd: INVALID_REQUEST: no")
    assert cause(found.value["hidden"])[0] == "denied"


def test_a_config_that_kafka_does_not_have_is_absent(cluster: FakeCluster) -> None:
    cluster.described = {"gone": described("gone", error=3), "a": described("a")}
    assert topics.settings(BROKERS, KEY, ("gone", "a")) == Absent(KEY)


def test_many_topics_take_few_requests(cluster: FakeCluster) -> None:
    names = tuple(f"t{n}" for n in range(2 * topics.BATCH + 1))
    cluster.described = {name: described(name, config("1", OWN)) for name in names}
    found = topics.settings(BROKERS, KEY, names)
    assert isinstance(found, Seen)
    assert tuple(found.value) == names
    assert [len(asked) for _, asked in cluster.asked] == [topics.BATCH, topics.BATCH, 1]


@pytest.mark.parametrize(
    ("trouble", "why"),
    [(KafkaConnectionError("reset"), "failed"), (OSError("reset"), "failed"), (KeyError("x"), "garbled")],
)
def test_whatever_goes_wrong_is_a_reading(cluster: FakeCluster, trouble: Exception, why: str) -> None:
    cluster.trouble = trouble
    assert cause(topics.names(BROKERS))[0] == why
    assert cause(topics.settings(BROKERS, KEY, ("a",)))[0] == why


def test_no_broker_at_all_is_a_timeout() -> None:
    at = [f"127.0.0.1:{free_port()}"]
    assert cause(topics.names(at))[0] == "timeout"
    assert cause(topics.settings(at, KEY, ("a",)))[0] == "timeout"
