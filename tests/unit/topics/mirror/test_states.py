"""What brokers answer about topics: only a broker that knows its cluster can say that one is gone."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from tests.unit.topics.mirror.model_cluster import Alone
from zkmigrate.errors import HostError
from zkmigrate.topics.mirror.clients import topics
from zkmigrate.topics.mirror.clients.cluster import Cluster, Topic
from zkmigrate.topics.mirror.clients.topics import New, RefusedError, Tried
from zkmigrate.topics.mirror.rules.follow import Configure, Grow, State
from zkmigrate.topics.mirror.rules.topic import Settings

OWN = Settings({"a": "1"}, frozenset({"a"}), {"a": None})
POLICY = "the policy of this site needs two replicas"


class Answers(Alone):
    """A cluster that answers one request for metadata. It takes the settings that are not in ``bad``, by
    Kafka's error, and makes no topic whose name is in it."""

    what = "source"

    def __init__(self, answer: Any = None, **bad: int) -> None:
        self._answer, self._bad = answer, bad
        self.taken: list[Any] = []

    def controller(self) -> int:
        return 1

    def begin(self, request: Any, node: int | None = None) -> Any:
        return request

    def end(self, sent: Any) -> Any:
        if sent.name == "CreatePartitionsRequest":
            return SimpleNamespace(results=[SimpleNamespace(error_code=37, error_message=None)])
        if sent.name == "CreateTopicsRequest":
            [topic] = sent.topics
            told = self._told([topic.name, *(one.name for one in topic.configs)])
            told.configs = [SimpleNamespace(name="a", value="7", config_source=3)]
            return SimpleNamespace(topics=[told])
        if sent.name == "IncrementalAlterConfigsRequest":
            responses = []
            for one in sent.resources:
                told = self._told([each.name for each in one.configs])
                told.resource_name = one.resource_name
                responses.append(told)
                if not told.error_code and not sent.validate_only:
                    self.taken += [(each.name, each.config_operation, each.value) for each in one.configs]
            return SimpleNamespace(responses=responses)
        return self._answer

    def _told(self, names: Sequence[str]) -> SimpleNamespace:
        wrong = [name for name in names if name in self._bad]
        code = self._bad[wrong[0]] if wrong else 0
        return SimpleNamespace(error_code=code, error_message=f"{wrong[0]}: {POLICY}" if wrong else None)

    def topics(self, names: list[str]) -> tuple[dict[str, Topic], dict[str, str]]:
        return {name: Topic({0: 1}, 1, OWN) for name in names}, {}


def metadata(controller: int = 1, error: int = 0, id: UUID | None = None, partitions: int = 1) -> Any:
    told = SimpleNamespace(name="orders", error_code=error, topic_id=id, partitions=[None] * partitions)
    return SimpleNamespace(controller_id=controller, topics=[told])


def states(answer: Any) -> tuple[dict[str, State | None], dict[str, str]]:
    return topics.states(cast(Any, Answers(answer)), ["orders"])


@pytest.mark.parametrize(("id", "told"), [(UUID(int=0), ""), (None, ""), (UUID(int=1), str(UUID(int=1)))])
def test_h4_a_topic_has_the_id_that_its_brokers_tell(id: UUID | None, told: str) -> None:
    assert states(metadata(id=id)) == ({"orders": State(told, 1, 1, OWN)}, {})


def test_h4_a_topic_is_gone_if_a_broker_with_a_controller_says_so() -> None:
    assert states(metadata(error=3, partitions=0)) == ({"orders": None}, {})
    with pytest.raises(HostError, match="has just started"):
        states(metadata(controller=-1, error=3, partitions=0))


def test_h4_a_topic_that_may_not_be_seen_is_not_gone_and_others_are_told() -> None:
    found, hidden = states(metadata(error=29, partitions=0))
    assert found == {}
    [why] = hidden.values()
    assert why.startswith("source does not report topic orders: TOPIC_AUTHORIZATION_FAILED")


def test_h4_a_growth_that_kafka_refuses_is_told() -> None:
    with pytest.raises(RefusedError, match=r"did not add partitions to topic orders: INVALID_PARTITIONS$"):
        topics.grow(cast(Any, Answers(metadata())), Grow("orders", 3))


def test_h7_settings_are_set_and_removed_and_a_refused_one_does_not_stop_the_others() -> None:
    change = Configure("orders", {"a": "1"}, ("b",))
    there = Answers()
    topics.configure(cast(Any, there), change)
    assert there.taken == [("a", 0, "1"), ("b", 1, None)]
    there = Answers(a=40)
    with pytest.raises(RefusedError) as told:
        topics.configure(cast(Any, there), change)
    what = "source did not change settings of topic orders"
    assert str(told.value) == f"{what}: a: INVALID_CONFIG: a: {POLICY}"
    assert there.taken == [("b", 1, None)]
    with pytest.raises(RefusedError, match=f"{what}: POLICY_VIOLATION: a: {POLICY}$"):
        topics.configure(cast(Any, Answers(a=44)), Configure("orders", {"a": "1"}, ()))


def test_a_trial_names_each_setting_that_target_does_not_take_and_changes_nothing() -> None:
    there = Answers(a=40, c=44)
    tried = [Configure("orders", {"a": "1", "b": "2"}, ("c",)), Configure("audit", {"b": "2"}, ())]
    assert topics.try_configuring(cast(Any, there), tried) == {
        "orders": {"a": f"INVALID_CONFIG: a: {POLICY}", "c": f"POLICY_VIOLATION: c: {POLICY}"}
    }
    assert topics.try_configuring(cast(Any, there), []) == {}
    assert there.taken == []


def test_a_trial_tells_the_settings_that_a_topic_would_have_or_why_it_is_refused() -> None:
    would = Settings({"a": "7"}, frozenset({"a"}))
    orders, audit = (New(name, 1, 1, {"b": "2"}) for name in ("orders", "audit"))
    assert topics.try_making(cast(Any, Answers(audit=44)), [orders, audit]) == {
        "orders": Tried("", would),
        "audit": Tried(f"POLICY_VIOLATION: audit: {POLICY}", would),
    }
    # Another broker is the controller now: that says nothing about the topic.
    with pytest.raises(HostError, match="source: NOT_CONTROLLER: "):
        topics.try_making(cast(Any, Answers(orders=41)), [orders])


def test_a_topic_that_is_refused_is_told_in_kafkas_words_and_one_that_exists_is_made() -> None:
    topics.make(cast(Any, Answers(orders=36)), New("orders", 1, 1, {}))
    with pytest.raises(RefusedError) as told:
        topics.make(cast(Any, Answers(b=40)), New("orders", 1, 1, {"b": "2"}))
    assert str(told.value) == f"source did not create topic orders: INVALID_CONFIG: b: {POLICY}"


def described(name: str, code: int = 0) -> SimpleNamespace:
    beneath = SimpleNamespace(name="log.a", value="1", source=5)
    own = SimpleNamespace(name="a", value="2", source=1)
    one = SimpleNamespace(name="a", value="2", config_source=1, synonyms=[own, beneath])
    return SimpleNamespace(resource_name=name, error_code=code, error_message=None, configs=[one])


def test_a_topic_whose_settings_are_hidden_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that this account may not see at all: neither is taken for one that does not exist."""
    part = SimpleNamespace(partition_index=0, leader_id=1, replica_nodes=[1, 2])
    rows = [("orders", 0, [part]), ("dark", 0, [part]), ("closed", 29, []), ("gone", 3, [])]
    listed = [SimpleNamespace(name=name, error_code=code, partitions=own) for name, code, own in rows]

    def ask(_: Cluster, request: Any, _node: int | None = None) -> SimpleNamespace:
        if request.name == "MetadataRequest":
            return SimpleNamespace(topics=listed)
        return SimpleNamespace(results=[described("orders"), described("dark", 29)])

    monkeypatch.setattr(Cluster, "ask", ask)
    cluster = Cluster.__new__(Cluster)
    cluster.what = "source"
    found, hidden = cluster.topics(["orders", "dark", "closed", "gone"])
    assert found == {"orders": Topic({0: 1}, 2, Settings({"a": "2"}, frozenset({"a"}), {"a": "1"}))}
    assert hidden.keys() == {"dark", "closed"}
    assert all("TOPIC_AUTHORIZATION_FAILED" in why for why in hidden.values())
