"""What brokers answer about topics: only a broker that knows its cluster can say that one is gone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from kafka.admin import AlterConfigOp

from zkmigrate.errors import HostError
from zkmigrate.mirror.clients import topics
from zkmigrate.mirror.clients.cluster import Topic
from zkmigrate.mirror.rules.follow import Configure, Grow, State


class Answers:
    """A cluster that answers one request, and kafka-python's client of it."""

    what = "source"

    def __init__(self, answer: Any = None, said: str = "OK") -> None:
        self._answer, self._said = answer, said
        self.settings: Any = None

    def begin(self, request: Any, node: int | None = None) -> Any:
        return request

    def end(self, sent: Any) -> Any:
        if sent.name == "CreatePartitionsRequest":
            return SimpleNamespace(results=[SimpleNamespace(error_code=37, error_message=None)])
        return self._answer

    def topics(self, names: list[str]) -> dict[str, Topic]:
        return {name: Topic({0: 1}, 1, {"a": "1"}, frozenset({"a"}), frozenset({"a"})) for name in names}

    def call(self, do: Any) -> Any:
        return do(self)

    def alter_configs(self, resources: Any, **_: Any) -> Any:
        [one] = resources
        self.settings = one.configs
        return {"topic": {one.name: self._said}}


def metadata(controller: int = 1, error: int = 0, id: UUID | None = None, partitions: int = 1) -> Any:
    told = SimpleNamespace(name="orders", error_code=error, topic_id=id, partitions=[None] * partitions)
    return SimpleNamespace(controller_id=controller, topics=[told])


def states(answer: Any) -> dict[str, State | None]:
    return topics.states(cast(Any, Answers(answer)), ["orders"])


@pytest.mark.parametrize(("id", "told"), [(UUID(int=0), ""), (None, ""), (UUID(int=1), str(UUID(int=1)))])
def test_h4_a_topic_has_the_id_that_its_brokers_tell(id: UUID | None, told: str) -> None:
    one = states(metadata(id=id))["orders"]
    assert one == State(told, 1, 1, {"a": "1"}, frozenset({"a"}), frozenset({"a"}))


def test_h4_a_topic_is_gone_if_a_broker_with_a_controller_says_so() -> None:
    assert states(metadata(error=3, partitions=0)) == {"orders": None}
    with pytest.raises(HostError, match="has just started"):
        states(metadata(controller=-1, error=3, partitions=0))


def test_h4_a_topic_that_may_not_be_seen_is_not_gone() -> None:
    with pytest.raises(HostError, match="source does not show topic orders: TopicAuthorizationFailed"):
        states(metadata(error=29, partitions=0))


def test_h4_a_growth_that_kafka_refuses_is_told() -> None:
    with pytest.raises(HostError, match="did not add partitions to topic orders: InvalidPartitions"):
        topics.grow(cast(Any, Answers(metadata())), Grow("orders", 3))


def test_h7_settings_are_set_and_removed_and_a_refusal_is_told() -> None:
    change = Configure("orders", {"a": "1"}, ("b",))
    there = Answers()
    topics.configure(cast(Any, there), change)
    assert there.settings == {"a": (AlterConfigOp.SET, "1"), "b": (AlterConfigOp.DELETE, None)}
    with pytest.raises(HostError, match="did not change settings of topic orders: policy"):
        topics.configure(cast(Any, Answers(said="policy")), change)
