"""Brokers that are emptied and go on running, and sets in three racks, by the verbs on real brokers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic

from tests.ports import free_port
from tests.servers.brokers import Broker, serve
from tests.servers.process import ADDRESS, START_SECONDS
from tests.servers.test_new_partitions import WAIT_S, Racks, two
from tests.servers.test_versions import zookeeper
from tests.unit import sshd
from zkmigrate.cluster.reassign.throttle import FOLLOWER_RATE, LEADER_RATE
from zkmigrate.cluster.removal.rules import CORDON_ALL, CORDONED
from zkmigrate.kafka.clients import reassignments
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.fact import Seen

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
LEAVES = 2
Events = list[dict[str, Any]]
RATE, RECORDS, RECORD = 1_000_000, 240, 100_000
"""Of 24 megabytes the throttle holds up 23."""


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Racks]:
    """Six brokers in three racks, and ZooKeeper."""
    folder = tmp_path_factory.mktemp("six")
    at = {id: f"{ADDRESS.replace('127.1.', f'127.{20 + id}.', 1)}:{free_port()}" for id in RACKS}
    made = [
        Broker("2.8.2", f"broker.rack={rack}\n", id=id, address=at[id], session_ms=6000)
        for id, rack in RACKS.items()
    ]
    with zookeeper("3.5.8", folder) as port, serve(folder, port, *made) as processes:
        yield Racks(at, processes[-1], folder)


def create(made: Racks, wanted: NewTopic) -> None:
    """As Kafka's own tool does it."""
    client = KafkaAdminClient(bootstrap_servers=made.addresses)
    client.create_topics([wanted], timeout_ms=WAIT_S * 1000)
    client.close()
    wait_until(f"topic {wanted.name}", lambda: None if made.sets(wanted.name) else "not there", WAIT_S)


def own(made: Racks, key: str) -> dict[int, str | None]:
    """What each broker sets itself."""
    told = reassignments.broker_settings(made.addresses, key, tuple(made.at))
    assert isinstance(told, Seen), told
    return {id: one.value.own if isinstance(one, Seen) else str(one) for id, one in told.value.items()}


def emptied(made: Racks, sets: Sequence[Sequence[int]], records: int, more: str = "") -> tuple[str, Events]:
    """Fill a topic, and remove the broker that leads it, which goes on running. What ``plan`` said, and what
    the run told. more: another section of the inventory."""
    create(made, NewTopic("full", replica_assignments=dict(enumerate(map(list, sets)))))
    producer = KafkaProducer(bootstrap_servers=made.addresses, acks="all")
    for _ in range(records):
        producer.send("full", bytes(RECORD), partition=0).get(START_SECONDS)
    producer.close()
    section = f"removal:\n  brokers: [{LEAVES}]\n  shutdown: false\n  throttle_bytes_s: {RATE}\n"
    words = ("-i", str(made.inventory(more=section + more)), "--playbook", "kafka_remove_brokers")
    code, planned = made.zkmigrate("plan", *words)
    assert code == 0, planned
    code, output = made.zkmigrate("run", *words, "--yes", "--json")
    assert code == 0, output
    assert made.check()["down"] == [], "it goes on running"
    assert not [ids for ids in made.sets("full").values() if LEAVES in ids]
    assert {*own(made, LEADER_RATE).values(), *own(made, FOLLOWER_RATE).values()} == {None}
    return planned, [json.loads(one) for one in output.splitlines() if one.startswith("{")]


def as_foretold(planned: str, told: Events) -> None:
    """``plan`` tells how long the copies take. Each look tells when they end, and is wrong by a quarter of
    the whole time at most.

    The copies never take less: the throttle holds them up, not the machine. A slow machine may add to that,
    so only the looks, which see it, are held against a longer time.
    """
    found = re.search(r"about ([0-9,]+) s at 1,000,000 bytes/s", planned)
    assert found, planned
    at = [(one["at"], one["event"], one.get("left_s")) for one in told if one.get("step") == "replicas"]
    began, ended = at[0][0], at[-1][0]
    took_s, told_s = ended - began, float(found[1].replace(",", ""))
    print(f"told {told_s:.0f} s, took {took_s:.1f} s: {told_s / took_s:.2f}")
    assert took_s >= 0.75 * told_s
    ends = [when + left for when, event, left in at if event == "Progressed" and left is not None]
    assert len(ends) > 5
    late = ends[len(ends) // 2 :] if took_s > 1.25 * told_s else ends
    print("the looks told", [round((end - began) / took_s, 2) for end in ends])
    assert all(abs(end - ended) <= 0.25 * took_s for end in late)


def test_x11_x15_a_broker_is_emptied_and_goes_on_running(six: Racks) -> None:
    """Before 4.3 Kafka has no exclusion to keep. Free bytes are told by ``df``."""
    folder = six.folder / "ssh"
    folder.mkdir()
    with sshd.running(folder) as daemon:
        daemon.pin(at.partition(":")[0] for at in six.addresses)
        login = f"user: {sshd.user()}, port: {daemon.port}, key: {folder}/user_key"
        hosts = f"ssh: {{{login}, known_hosts: {folder}/known_hosts}}\n"
        planned, told = emptied(six, ((2, 3), (3, 1)), RECORDS, hosts)
    as_foretold(planned, told)
    assert "exclusion: by watch: Kafka before 4.3 has no cordoned.log.dirs" in planned
    assert {RACKS[id] for id in six.sets("full")[0]} > {"c"}


def test_x9_x11_the_exclusion_stays_with_a_broker_that_goes_on_running(tmp_path: Path) -> None:
    """Kafka 4.3 puts what is created then elsewhere."""
    with two("4.3.1", tmp_path) as made:
        planned, _ = emptied(made, ((2,), (1,)), 1)
        assert "exclusion: by cordon" in planned
        assert own(made, CORDONED) == {1: None, LEAVES: CORDON_ALL}
        create(made, NewTopic("later", 4, 1))
        assert set(made.sets("later").values()) == {(1,)}


def test_p5_three_racks_get_the_sets_that_kafka_itself_gives(six: Racks) -> None:
    """Kafka draws the start and the shift of a new topic by chance. It grows one from its first leader."""
    create(six, NewTopic("theirs", 12, 3))
    theirs = six.sets("theirs")
    start = list(RACKS).index(theirs[0][0])  # racks take turns, so the order is that of the ids
    for shift in range(len(RACKS)):
        words = ("--topic", "ours", "--partitions", "12", "--replication", "3")
        body = six.plan(f"ours{shift}", "new-topic", *words, "--start", str(start), "--shift", str(shift))
        if {one["partition"]: tuple(one["replicas"]) for one in body["sets"]} == theirs:
            break
    else:
        pytest.fail(f"no shift gives {theirs}")
    code, output = six.walk("run", f"ours{shift}")
    assert code == 0, output
    assert six.sets("ours") == theirs

    client = KafkaAdminClient(bootstrap_servers=six.addresses)
    client.create_partitions({"theirs": NewPartitions(20)}, timeout_ms=WAIT_S * 1000)
    client.close()
    wait_until("theirs to grow", lambda: None if len(six.sets("theirs")) == 20 else "small", WAIT_S)
    six.plan("more", "grow", "--topic", "ours", "--partitions", "20", "--start", "kafka")
    code, output = six.walk("run", "more")
    assert code == 0, output
    grown = six.sets("ours")
    assert grown == six.sets("theirs")
    assert all({RACKS[id] for id in replicas} == {*"abc"} for replicas in grown.values())
