"""Topics that target does not have: what its release takes of them, and that one refused ends no other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.topics.mirror.model_cluster import Alone
from zkmigrate.errors import UsageError
from zkmigrate.topics.mirror.clients.cluster import Topic
from zkmigrate.topics.mirror.clients.survey import topics
from zkmigrate.topics.mirror.rules.topic import AFTER, BEFORE, NO_LIMIT, Settings
from zkmigrate.topics.mirror.verbs import run
from zkmigrate.topics.mirror.verbs.run import Printer
from zkmigrate.topics.mirror.verbs.show import plan_lines

LEAST = "Invalid value 1000 for configuration segment.bytes: Value must be at least 1048576"
STOCK = {"segment.bytes": "1073741824", AFTER: "3600000", BEFORE: NO_LIMIT, "min.insync.replicas": "1"}
"""Some settings of Kafka 4.3."""


class Source:
    what = "source"

    def __init__(self, **own: Mapping[str, str]) -> None:
        self.own = own

    def topics(self, names: Sequence[str]) -> tuple[dict[str, Topic], dict[str, str]]:
        defaults = {"segment.bytes": "1073741824", "min.insync.replicas": "1", "old": "0"}
        found = {
            name: Topic({0: 1}, 3, Settings({**defaults, **self.own[name]}, frozenset(self.own[name])))
            for name in names
            if name in self.own and name != "dark"
        }
        return found, {"dark": "source does not report topic dark"} if "dark" in names else {}


class Target(Alone):
    """Kafka 4.3 with one broker. policy: names of topics that it refuses to make, once it is not a trial."""

    what = "target"

    def __init__(self, *policy: str, lazy: int = 0) -> None:
        self.policy, self.lazy = policy, lazy
        self.made: dict[str, dict[str, str]] = {}

    def topics(self, names: Iterable[str]) -> tuple[dict[str, Topic], dict[str, str]]:
        return {}, {}

    def brokers(self) -> list[int]:
        return [1]

    def controller(self) -> int:
        return 1

    def leaders(self, names: Iterable[str]) -> dict[str, dict[int, int]]:
        self.lazy -= 1
        return {name: {0: 1 if self.lazy < 0 else -1} for name in names}

    def begin(self, request: Any, _node: int | None = None) -> Any:
        return request

    def end(self, sent: Any) -> Any:
        [topic] = sent.topics
        own = {one.name: one.value for one in topic.configs}
        assert topic.replication_factor == 1
        code, why = 0, None
        if unknown := own.keys() - STOCK.keys():
            code, why = 40, f"Unknown topic config name: {min(unknown)}"
        elif int(own.get("segment.bytes", "1048576")) < 1 << 20:
            code, why = 40, LEAST
        elif topic.name in self.policy and not sent.validate_only:
            code, why = 44, "not here"
        elif not sent.validate_only:
            self.made[topic.name] = own
        configs = [SimpleNamespace(name=key, value=value, config_source=5) for key, value in STOCK.items()]
        told = SimpleNamespace(error_code=code, error_message=why, configs=[] if code else configs)
        return SimpleNamespace(topics=[told])


def test_plan_names_what_targets_release_does_not_take_and_goes_on() -> None:
    source = Source(seg={"segment.bytes": "1000"}, plain={}, old={"old": "1"}, dark={}, __internal={})
    found = topics(
        cast(Any, source), cast(Any, Target()), ["seg", "plain", "old", "dark", "gone", "__internal"]
    )
    told = {one.topic: one for one in found}
    assert f"segment.bytes=1000: INVALID_CONFIG: {LEAST}. Needed: " in told["seg"].refused
    assert AFTER not in told["seg"].refused
    assert told["plain"].refused == told["old"].refused == ""
    assert told["plain"].settings == {AFTER: NO_LIMIT}, (
        "target's default is another, source has no such limit"
    )
    assert told["old"].left == {"old": "target's Kafka has no such setting"}
    assert told["dark"].refused == "source does not report topic dark"
    assert told["gone"].refused == "source does not have this topic"
    assert "internal" in told["__internal"].refused
    lines = list(plan_lines(found))
    assert f"    {AFTER}={NO_LIMIT}" in lines
    assert "    not copied: old: target's Kafka has no such setting" in lines


def test_a_name_that_no_topic_of_source_has_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="source has no topic nobody"):
        topics(cast(Any, Source(plain={})), cast(Any, Target()), ["nobody"])


def test_run_makes_the_topics_that_target_takes_and_names_the_others() -> None:
    source = Source(seg={"segment.bytes": "1000"}, plain={}, odd={})
    target, said = Target("odd", lazy=2), list[str]()
    found = topics(cast(Any, source), cast(Any, target), ["seg", "odd", "plain"])
    tell = Printer(said.append, as_json=False)
    ready, refused = run._create_topics(cast(Any, target), found, tell)
    assert [one.topic for one in ready] == ["plain"]
    assert refused == ["seg", "odd"]
    assert target.made == {"plain": {AFTER: NO_LIMIT}}
    assert target.lazy < 0, "it waits until target names the leaders"
    assert said[0].startswith(
        "REFUSED seg: target would not create the topic: segment.bytes=1000: INVALID_CONFIG"
    )
    assert said[1:] == [
        "REFUSED odd: target did not create topic odd: POLICY_VIOLATION: not here",
        "created topic plain, partitions: 1",
    ]
    tell.ended([], refused, 8)
    assert said[-1].endswith(", refused: seg, odd")
    with pytest.raises(UsageError, match="seg: target would not create the topic"):
        run._create_topics(cast(Any, target), found[:1], tell)
