"""The verbs ``placement new-topic`` and ``grow``: sets, files, refusals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.answers import Answering
from tests.unit.cli.test_placement_check import INVENTORY, WELL
from zkmigrate.cli.main import cli
from zkmigrate.cluster.placement.check import sets_of
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.questions import KafkaView, LogDir, LogDirs
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown

SIX = {str(id_): {"rack": "one" if id_ < 3 else "two", "storage_free": 1} for id_ in range(6)}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    held = ((0, 3), (0, 4), (0, 5))
    partitions = [
        {"topic": "my.topic", "partition": number, "replicas": of, "size": 1}
        for number, of in enumerate(held)
    ]
    (tmp_path / "cluster.json").write_text(json.dumps({"brokers": SIX, "partitions": partitions}))
    return tmp_path


def call(verb: str, topic: str, partitions: int, *words: str) -> Result:
    given = ["placement", verb, "--topic", topic, "--partitions", str(partitions), *words]
    return CliRunner().invoke(cli, [*given, *([] if "-i" in words else ["--cluster", "cluster.json"])])


def placed(verb: str, topic: str, partitions: int, *words: str) -> dict[str, Any]:
    done = call(verb, topic, partitions, *words, "--json")
    assert done.exit_code == 0, done.output
    body: dict[str, Any] = json.loads(done.stdout)
    assert (body["schema"], bool(body["time"])) == (1, True)
    return body


def sets(body: Mapping[str, Any]) -> dict[int, tuple[int, ...]]:
    return {one["partition"]: tuple(one["replicas"]) for one in body["sets"]}


def test_p5_a_new_topic_gets_the_sets_of_the_reference_example(here: Path) -> None:
    words = ("--replication", "3", "--start", "3", "--shift", "0", "--out", "new.json")
    body = placed("new-topic", "new", 2, *words)
    assert sets(body) == {0: (4, 2, 5), 1: (2, 5, 0)}
    assert sets_of((here / "new.json").read_text()) == {("new", 0): (4, 2, 5), ("new", 1): (2, 5, 0)}
    assert [one["id"] for one in body["notices"]] == ["placement.few-racks"]
    assert body["command"].endswith("--create --topic new --replica-assignment 4:2:5,2:5:0")
    assert body["command"] in call("new-topic", "new", 2, *words[:-2]).stdout


def test_p2_p3_sets_drawn_by_chance_come_again_with_the_start_that_was_told(here: Path) -> None:
    body = placed("new-topic", "new", 30, "--replication", "2")
    again = ("--start", str(body["start"]), "--shift", str(body["shift"]))
    assert sets(placed("new-topic", "new", 30, "--replication", "2", *again)) == sets(body)
    assert {frozenset(of) & {0, 1, 2} != frozenset() for of in sets(body).values()} == {True}
    assert set(Counter(of[0] for of in sets(body).values()).values()) == {5}
    drawn = {placed("new-topic", "new", 30, "--replication", "2")["start"] for _ in range(40)}
    assert len(drawn) > 1


def test_p4_without_racks_the_order_is_that_of_the_ids(here: Path) -> None:
    words = ("--replication", "1", "--start", "0", "--shift", "0")
    assert [of[0] for of in sets(placed("new-topic", "new", 6, *words)).values()] == [0, 3, 1, 4, 2, 5]
    plain = placed("new-topic", "new", 6, *words, "--ignore-racks")
    assert [of[0] for of in sets(plain).values()] == [0, 1, 2, 3, 4, 5]


def test_p10_grow_sees_the_old_partitions_and_places_the_new_ones_only(here: Path) -> None:
    """Broker 0 leads all three: Kafka's own start would let it lead a fourth."""
    body = placed("grow", "my.topic", 8, "--out", "more.json")
    assert list(sets(body)) == [3, 4, 5, 6, 7]
    assert sorted(of[0] for of in sets(body).values()) == [1, 2, 3, 4, 5]
    assert set(sets_of((here / "more.json").read_text())) == {("my.topic", n) for n in range(3, 8)}
    assert [one["id"] for one in body["notices"]] == ["placement.only-grows"]
    told = body["command"].partition("--alter --topic my.topic --partitions 8 --replica-assignment ")[2]
    assert told.startswith("0:3,0:4,0:5,"), "Kafka's tool takes the old sets too"
    assert len(told.split(",")) == 8
    as_kafka = placed("grow", "my.topic", 8, "--start", "kafka")
    assert as_kafka["start"] == 0
    assert 0 not in [of[0] for of in sets(body).values()]
    assert [of[0] for of in sets(as_kafka).values()] == [4, 2, 5, 0, 3]
    again = ("--start", str(body["start"]), "--shift", str(body["shift"]))
    assert sets(placed("grow", "my.topic", 8, *again)) == sets(body)


def test_a_topic_that_is_as_large_already_is_no_plan_and_no_file(here: Path) -> None:
    done = call("grow", "my.topic", 3, "--out", "more.json")
    assert (done.exit_code, (here / "more.json").exists()) == (0, False)
    assert "nothing to do" in done.stdout


REPLICATED = ("--replication", "2")


@pytest.mark.parametrize(
    ("words", "id"),
    [
        (("new-topic", "my.topic", 1, *REPLICATED), "placement.topic-exists"),
        (("new-topic", "my_topic", 1, *REPLICATED), "placement.topic-collides"),
        (("new-topic", "a b", 1, *REPLICATED), "placement.topic-name"),
        (("new-topic", "..", 1, *REPLICATED), "placement.topic-name"),
        (("new-topic", "", 1, *REPLICATED), "placement.topic-name"),
        (("new-topic", "x" * 250, 1, *REPLICATED), "placement.topic-name"),
        (("new-topic", "__consumer_offsets", 50, *REPLICATED), "placement.topic-internal"),
        (("new-topic", "new", 1, "--replication", "7"), "placement.few-brokers"),
        (("grow", "__transaction_state", 60), "placement.topic-internal"),
        (("grow", "my.topic", 2), "placement.topic-shrinks"),
        (("grow", "other", 2), "placement.topic-unknown"),
    ],
)
def test_p1_p10_what_kafka_or_sense_forbids_is_refused_by_name(
    here: Path, words: Sequence[Any], id: str
) -> None:
    done = call(*words, "--out", "new.json")
    assert done.exit_code == 3, done.output
    assert f"{id}: " in done.stderr
    assert not (here / "new.json").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--start", "-1"), "a number from 0 on, or random"),
        (("--start", "even"), "a number from 0 on, or random"),
        (("--out", "-"), "needed: the name of a file"),
        (("--out", "cluster.json"), "already exists"),
        (("-i", "x.yml", "--cluster", "cluster.json"), "--cluster FILE or --inventory FILE"),
    ],
)
def test_bad_options_of_a_new_topic(here: Path, words: tuple[str, ...], told: str) -> None:
    done = call("new-topic", "new", 1, *REPLICATED, *words)
    assert done.exit_code == 2, done.output
    assert told in done.stderr
    assert CliRunner().invoke(cli, ["placement", "new-topic", "--topic", "a"]).exit_code == 2


@dataclass
class Site(Answering):
    """A site of three brokers, of which some are cordoned and some do not tell."""

    view: Reading[KafkaView] = field(default_factory=lambda: Seen(WELL))
    cordoned: frozenset[int] = frozenset()
    silent: frozenset[int] = frozenset()

    def __call__(self, _inventory: Inventory, _run: str) -> Site:
        return self

    @property
    def look(self) -> Site:
        return self

    def kafka(self, witnesses: int | None = None) -> Reading[KafkaView]:
        return self.view

    def log_dirs(
        self, _cluster: str, brokers: Sequence[int], partitions: Mapping[str, Sequence[int]]
    ) -> Reading[Mapping[int, LogDirs]]:
        assert len(partitions) == 1, "all partitions of all brokers are not needed"
        return Seen({id_: self._dirs(id_) for id_ in brokers})

    def _dirs(self, id_: int) -> LogDirs:
        if id_ in self.silent:
            return Unknown("denied", "CLUSTER_AUTHORIZATION_FAILED")
        return Seen({"/data": Seen(LogDir((), cordoned=id_ in self.cordoned))})

    def close(self) -> None:
        pass


def asked(folder: Path, site: Site, *words: str) -> Result:
    (folder / "live.yml").write_text(INVENTORY)
    return CliRunner().invoke(cli, ["placement", *words, "-i", "live.yml"], obj=site)


NEW = ("new-topic", "--topic", "new", "--partitions", "4", "--replication", "2")


def test_brokers_that_are_down_or_cordoned_get_no_replica(here: Path) -> None:
    done = asked(here, Site(cordoned=frozenset({2})), *NEW, "--json")
    body = json.loads(done.stdout)
    assert {broker for of in sets(body).values() for broker in of} == {1, 3}
    assert [one["text"] for one in body["notices"]] == ["cordoned, so they receive no replica: broker 2"]
    two = {id_: at for id_, at in WELL.brokers.items() if id_ != 3}
    down = Site(Seen(KafkaView(WELL.cluster_id, 1, two, WELL.partitions)), silent=frozenset({1}))
    body = json.loads(asked(here, down, *NEW, "--json").stdout)
    assert [one["id"] for one in body["notices"]] == ["placement.broker-down", "placement.cordon-unknown"]
    short = asked(here, Site(cordoned=frozenset({2, 3})), *NEW)
    assert (short.exit_code, "placement.few-brokers" in short.stderr) == (3, True)


def test_a_topic_that_is_being_reassigned_does_not_grow(here: Path) -> None:
    moving = KafkaView(WELL.cluster_id, 1, WELL.brokers, WELL.partitions, reassigning=(("t", 0),))
    done = asked(here, Site(Seen(moving)), "grow", "--topic", "t", "--partitions", "4")
    assert (done.exit_code, "placement.reassigning" in done.stderr) == (3, True)
    assert asked(here, Site(Seen(moving)), "grow", "--topic", "u", "--partitions", "4").exit_code == 0


def test_no_broker_and_another_cluster_are_told(here: Path) -> None:
    assert asked(here, Site(Unknown("timeout", "no broker answered")), *NEW).exit_code == 8
    other = KafkaView("B" * 22, 1, WELL.brokers, WELL.partitions)
    assert "placement.other-cluster" in asked(here, Site(Seen(other)), *NEW).stderr
