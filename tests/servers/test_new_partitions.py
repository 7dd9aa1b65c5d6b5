"""Topics that are created and grow, and the check of a cluster, on real brokers with their verbs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient

from tests.ports import free_port
from tests.servers import kraft
from tests.servers.brokers import ALONE, Broker, serve
from tests.servers.process import ADDRESS, START_SECONDS
from tests.servers.test_versions import zookeeper
from zkmigrate.cluster.placement.cluster import Cluster
from zkmigrate.cluster.placement.cluster_file import parse
from zkmigrate.cluster.reassign.throttle import LEADER_RATE
from zkmigrate.cluster.removal.rules import CORDON_ALL, CORDONED
from zkmigrate.kafka.changes import (
    KAFKA,
    AlterAtController,
    AlterBrokerConfig,
    AlterTopicConfig,
    ReassignPartition,
    UnregisterBroker,
)
from zkmigrate.kafka.clients import admin, library, reassignments, topics
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.fact import Seen

RUN = "kafka_new_partitions"
WAIT_S = 240
"""Seconds for what a quiet machine does in five."""


@dataclass
class Racks:
    """Brokers in racks. other: the process of the last one."""

    at: Mapping[int, str]
    other: subprocess.Popen[bytes]
    folder: Path

    @property
    def addresses(self) -> list[str]:
        return list(self.at.values())

    def inventory(self, plan: str = "", more: str = "") -> Path:
        """The file of an inventory. plan: the name of one to carry out. more: another section."""
        told = topics.names(self.addresses)
        assert isinstance(told, Seen), told
        brokers = "".join(
            f"    - {{name: b{id}, address: {at.replace(':', ', port: ')}, id: {id}}}\n"
            for id, at in self.at.items()
        )
        file = self.folder / f"{plan or 'plain'}.yml"
        section = f"new_partitions:\n  plan: {plan}.json\n" if plan else ""
        file.write_text(
            f"version: 1\nname: {plan or 'two'}\nkafka:\n  cluster_id: {told.value.cluster_id}\n"
            f"  brokers:\n{brokers}"
            f"{section}{more}"
        )
        return file

    def zkmigrate(self, *words: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "zkmigrate", *words],
            env={**os.environ, "ZKMIGRATE_RUNS": str(self.folder / "runs")},
            capture_output=True,
            text=True,
            timeout=2 * WAIT_S,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def plan(self, name: str, *words: str) -> dict[str, Any]:
        out = str(self.folder / f"{name}.json")
        inventory = str(self.inventory())
        code, output = self.zkmigrate("placement", *words, "-i", inventory, "--out", out, "--json")
        assert code == 0, output
        body: dict[str, Any] = json.loads(next(one for one in output.splitlines() if one.startswith("{")))
        return body

    def walk(self, verb: str, plan: str) -> tuple[int, str]:
        return self.zkmigrate(verb, "-i", str(self.inventory(plan)), "--playbook", RUN, "--yes")

    def check(self) -> dict[str, Any]:
        code, output = self.zkmigrate("placement", "check", "-i", str(self.inventory()), "--json")
        body: dict[str, Any] = json.loads(output.splitlines()[0])
        assert body["code"] == code, output
        return body

    def sets(self, topic: str) -> dict[int, tuple[int, ...]]:
        """What the brokers tell of a topic; empty where the topic does not exist."""
        told = topics.partitions(self.addresses, (topic,), 2)
        assert isinstance(told, Seen), told
        found = told.value.topics[topic]
        return {one.partition: one.replicas for one in found.value} if isinstance(found, Seen) else {}


@contextmanager
def two(release: str, folder: Path) -> Iterator[Racks]:
    """Two brokers, without ZooKeeper where the release has none."""
    if release == "4.3.1":
        with kraft.two_brokers(release, folder) as (address, other):
            client = KafkaAdminClient(bootstrap_servers=address)
            brokers = client._manager.cluster.brokers
            wait_until("broker 2", lambda: None if len(brokers()) == 2 else _again(client), START_SECONDS)
            at = {one.node_id: f"{one.host}:{one.port}" for one in brokers()}
            client.close()
            yield Racks(dict(sorted(at.items())), other, folder)
        return
    at = {id: f"{host}:{free_port()}" for id, host in ((1, ADDRESS), (2, kraft.OTHER_ADDRESS))}
    made = [
        Broker(release, f"{ALONE}broker.rack=r{id}\n", id=id, address=at[id], session_ms=6000) for id in at
    ]
    with (
        zookeeper("3.5.8", folder) as port,
        serve(folder, port, made[0]),
        serve(folder, port, made[1]) as [other],
    ):
        yield Racks(at, other, folder)


def _again(client: KafkaAdminClient) -> str:
    library.metadata(client, None)
    return "one broker"


@pytest.mark.parametrize("release", ["2.8.2", "4.3.1"])
def test_p2_p6_p10_topics_are_created_grow_and_are_checked(release: str, tmp_path: Path) -> None:
    with two(release, tmp_path) as made:
        fixed = ("--replication", "2", "--start", "1", "--shift", "0")
        body = made.plan("new", "new-topic", "--topic", "t.one", "--partitions", "3", *fixed)
        assert [one["replicas"] for one in body["sets"]] == [[2, 1], [1, 2], [2, 1]]

        # There and back, and there again.
        code, output = made.walk("run", "new")
        assert code == 0, output
        assert made.sets("t.one") == {0: (2, 1), 1: (1, 2), 2: (2, 1)}
        assert made.check()["code"] == 0
        code, output = made.walk("rollback", "new")
        assert code == 0, output
        wait_until("the topic gone", lambda: "there" if made.sets("t.one") else None, WAIT_S)
        code, output = made.walk("run", "new")
        assert code == 0, output

        # What exists, or collides, is refused by the verb and by Kafka.
        for name in ("t.one", "t_one"):
            words = ("--topic", name, "--partitions", "1", "--replication", "2")
            assert made.zkmigrate("placement", "new-topic", *words, "-i", str(made.inventory()))[0] == 3
        clash = '{"partitions":[{"topic":"t_one","partition":0,"replicas":[1,2]}]}'
        (tmp_path / "clash.json").write_text(clash)
        code, output = made.walk("run", "clash")
        assert code == 3, output
        assert "collides" in output
        (tmp_path / "gone.json").write_text('{"partitions":[{"topic":"x","partition":0,"replicas":[1,7]}]}')
        code, output = made.walk("run", "gone")
        assert (code, "not registered: 7" in output) == (3, True), output

        # It holds a record: it stays.
        producer = KafkaProducer(bootstrap_servers=made.addresses, acks="all")
        producer.send("t.one", b"x", partition=1).get(START_SECONDS)
        producer.close()
        code, output = made.walk("rollback", "new")
        assert code == 6, output
        assert "records in its partitions: 1" in output
        assert len(made.sets("t.one")) == 3
        measured_by_two_looks(made, release)

        # It grows, and never back.
        body = made.plan("more", "grow", "--topic", "t.one", "--partitions", "5")
        code, output = made.walk("run", "more")
        assert code == 0, output
        assert list(made.sets("t.one")) == [0, 1, 2, 3, 4]
        assert [list(made.sets("t.one")[n]) for n in (3, 4)] == [one["replicas"] for one in body["sets"]]
        code, output = made.walk("rollback", "more")
        assert code == 6, output
        assert "has no way back" in output
        code, output = made.zkmigrate(
            "placement", "grow", "--topic", "t.one", "--partitions", "4", "-i", str(made.inventory())
        )
        assert (code, "placement.topic-shrinks" in output) == (3, True)

        # A broker is killed, and with it a rack: its replicas are behind, and below a min ISR.
        alter = admin.Alter(made.addresses)
        assert alter(AlterTopicConfig(KAFKA, "t.one", "min.insync.replicas", "2", None))[0] == 0
        wait_until("nothing wrong", lambda: str(made.check()) if made.check()["code"] else None, WAIT_S)
        single = '{"partitions":[{"topic":"solo","partition":0,"replicas":[2]}]}'
        (tmp_path / "solo.json").write_text(single)
        assert made.walk("run", "solo")[0] == 0
        cordoned = release == "4.3.1"
        if cordoned:
            placed_beside_a_cordon(made, alter)
        made.other.kill()
        made.other.wait()
        codes = set[int]()

        def named() -> str | None:
            found = made.check()
            codes.add(found["code"])
            return None if found["down"] == [2] else "up"

        wait_until("broker 2 down", named, WAIT_S)
        assert codes == {10}, "also while the others still name it"
        if cordoned:
            unset = AlterAtController(KAFKA, 2, CORDONED, None, CORDON_ALL)
            assert reassignments.refused_at_controller(made.addresses, unset) == Seen("")
            assert alter(unset)[0] == 0
            rates = [AlterAtController(KAFKA, 2, LEADER_RATE, value, None) for value in ("77", None)]
            assert [alter(one)[0] for one in rates] == [0, 0]
        assert alter(ReassignPartition(KAFKA, "t.one", 1, (1,), (1, 2)))[0] == 0

        def not_behind() -> str | None:
            behind = [one for one in made.check()["under_replicated"] if one["topic"] == "t.one"]
            return None if len(behind) == 4 else f"{len(behind)} are behind"

        wait_until("in flight or done", not_behind, WAIT_S)
        found = made.check()
        assert found["code"] == 10
        assert {one["partition"] for one in found["below_min_isr"]} >= {0, 2, 3, 4}
        assert [one["topic"] for one in found["offline"]] == ["solo"], "sets in two racks have a leader"
        words = ("--topic", "third", "--partitions", "2", "--replication", "2")
        code, output = made.zkmigrate("placement", "new-topic", *words, "-i", str(made.inventory()))
        assert (code, "placement.few-brokers" in output) == (3, True)
        if cordoned:
            assert alter(UnregisterBroker(KAFKA, 2))[0] == 0
            told = reassignments.refused_at_controller(made.addresses, unset)
            assert told == Seen("BROKER_ID_NOT_REGISTERED: No node with id 2 found.")
        alter.close()


def measured_by_two_looks(made: Racks, release: str) -> None:
    """Sizes, rates and free bytes are a cluster file. Brokers before 3.3 do not tell their free bytes."""
    out = made.folder / "measured.json"
    words = ["placement", "measure", "-i", str(made.inventory()), "--out", str(out), "--force"]
    if release == "2.8.2":
        code, output = made.zkmigrate(*words, "--minutes", "0.01")
        assert (code, "only its host can report its free bytes" in output) == (3, True), output
        return

    def written() -> str | None:
        """Write between both looks, and tell what is missing of the rates."""
        argv = [sys.executable, "-m", "zkmigrate", *words, "--minutes", "0.1"]
        with (
            closing(KafkaProducer(bootstrap_servers=made.addresses, acks="all")) as producer,
            subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        ):
            assert process.stderr is not None
            told = next(
                (one for one in process.stderr if one.startswith("the second measurement begins")), ""
            )
            assert told != "", "the first look has ended"
            producer.send("t.one", b"x" * 100_000, partition=1).get(START_SECONDS)
            said = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, said
        rates = {one.number: one.rate for one in seen().partitions if one.topic == "t.one"}
        assert (rates[0], rates[2]) == (0, 0)
        return None if rates[1] else "the record was written after the second look"

    def seen() -> Cluster:
        return parse(out.read_bytes(), str(out))

    wait_until("a rate", written, WAIT_S)
    size = seen().by_name["t.one", 1].size
    assert size is not None
    assert size > 100_000
    assert [(one.id, one.rack, one.free > 0) for one in seen().brokers.values()] == [
        (1, "r1", True),
        (2, "r2", True),
    ]
    code, output = made.zkmigrate("placement", "rebuild", "--cluster", str(out), "--placement", "storage")
    assert code == 0, output


def placed_beside_a_cordon(made: Racks, alter: admin.Alter) -> None:
    """A cordoned broker gets no replica of a new topic."""
    assert alter(AlterBrokerConfig(KAFKA, 2, CORDONED, CORDON_ALL, None))[0] == 0
    words = ("new-topic", "--topic", "beside", "--partitions", "2", "--replication")

    def notices() -> str | None:
        told = [one["id"] for one in made.plan(f"beside{time.monotonic()}", *words, "1")["notices"]]
        return None if told == ["placement.cordoned"] else str(told)

    wait_until("the cordon", notices, WAIT_S)
    assert [one["replicas"] for one in made.plan("beside", *words, "1")["sets"]] == [[1], [1]]
    code, output = made.zkmigrate("placement", *words, "2", "-i", str(made.inventory()))
    assert (code, "placement.few-brokers" in output) == (3, True), output
