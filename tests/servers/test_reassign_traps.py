"""What real brokers do that a run must know of, and what the run makes of it: one trap a test."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from tests.servers.process import ADDRESS, START_SECONDS, stand_still
from tests.servers.test_reassign import IDS, LAG_MS, Brokers, answering, ended, zkmigrate
from zkmigrate.cluster.placement import maps
from zkmigrate.cluster.reassign import answers
from zkmigrate.cluster.reassign.facts import stands
from zkmigrate.cluster.reassign.moves import Move, Stand
from zkmigrate.cluster.reassign.throttle import FOLLOWER_LIST, LEADER_LIST, LEADER_RATE, LISTS, RATES
from zkmigrate.cluster.throttle.kafka_settings import with_entries
from zkmigrate.kafka.changes import (
    KAFKA,
    AlterBrokerConfig,
    AlterTopicConfig,
    CancelReassignment,
    ElectLeaders,
    ReassignPartition,
)
from zkmigrate.kafka.clients import admin, cluster_view, log_dirs, reassignments, topics
from zkmigrate.kafka.questions import InFlight, PartitionState
from zkmigrate.lab import provision
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.change import ClusterChange
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.step import Way

LATE_S = 300.0
"""Seconds. A command takes minutes on a machine with ten times as much to do."""
QUICK, CRAWL = 50_000_000, 1000
"""Bytes per second. At the lower rate one fetch passes in 11 s, so four megabytes take minutes: a move that
is over together with a free one was not throttled."""


class Cluster:
    """The brokers, by the clients that a run uses."""

    def __init__(self, made: Brokers, folder: Path) -> None:
        self.made, self.folder = made, folder
        self.addresses = list(made.at.values())
        self._alter = admin.Alter(self.addresses)

    def close(self) -> None:
        self._alter.close()

    # --- changes -------------------------------------------------------------------------------------------

    def done(self, change: ClusterChange) -> None:
        assert self._alter(change)[0] == 0, change

    def refused(self, change: ClusterChange) -> str:
        code, why = self._alter(change)
        assert code == 1, change
        return why

    def create(self, topic: str, sets: Mapping[int, Sequence[int]], megabytes: int = 0) -> None:
        """A topic with these sets, in sync; its first partition holds so many megabytes."""
        with closing(self.client()) as client:
            client.create_topics(
                [NewTopic(topic, replica_assignments={n: list(ids) for n, ids in sets.items()})]
            )
        self.until_in_sync(topic, sets)
        self.produce(topic, megabytes)

    def produce(self, topic: str, megabytes: int) -> None:
        with closing(KafkaProducer(bootstrap_servers=self.addresses, acks="all")) as producer:
            for _ in range(megabytes * 5):
                producer.send(topic, bytes(200_000), partition=0).get(START_SECONDS)

    def move(self, partition: str, after: Sequence[int], before: Sequence[int]) -> None:
        topic, _, number = partition.rpartition("-")
        self.done(ReassignPartition(KAFKA, topic, int(number), tuple(after), tuple(before)))

    def limit(self, topic: str) -> None:
        """The lists of a topic as a run writes them, for its first partition."""
        for key in LISTS:
            now = self.own(topic, key)
            value = with_entries(now, [f"0:{id}" for id in IDS])
            self.done(AlterTopicConfig(KAFKA, topic, key, value, now))

    @contextmanager
    def crawling(self) -> Iterator[None]:
        """Every broker throttles what lists name down to nearly nothing."""
        self.rates(dict.fromkeys(IDS, str(CRAWL)), None)
        try:
            yield
        finally:
            self.rates(dict.fromkeys(IDS), str(CRAWL))

    def rates(self, wanted: Mapping[int, str | None], now: str | None) -> None:
        """Set both rates of these brokers, and wait: a broker hears of its own settings by ZooKeeper, a
        little later than the call returns."""
        for key in RATES:
            for id, value in wanted.items():
                self.done(AlterBrokerConfig(KAFKA, id, key, value, now))

            def odd(key: str = key) -> str | None:
                there = self.broker_rates(key, tuple(wanted))
                return None if there == wanted else str(there)

            wait_until(f"{key} {wanted}", odd, LATE_S)

    @contextmanager
    def everywhere(self, config: Mapping[str, str]) -> Iterator[None]:
        """These are the defaults of all brokers, which this library cannot set."""
        zookeeper = KazooClient(f"{ADDRESS}:{self.made.zookeeper}/kafka")
        zookeeper.start(START_SECONDS)

        def told(now: Mapping[str, str]) -> None:
            zookeeper.ensure_path("/config/brokers/<default>")
            zookeeper.set(
                "/config/brokers/<default>", json.dumps({"version": 1, "config": dict(now)}).encode()
            )
            notice = json.dumps({"version": 2, "entity_path": "brokers/<default>"}).encode()
            zookeeper.create("/config/changes/config_change_", notice, sequence=True)

        told(config)
        try:
            yield
        finally:
            told({})
            zookeeper.stop()
            zookeeper.close()

    @contextmanager
    def stopped(self, broker: int) -> Iterator[None]:
        """A broker that hangs."""
        process = self.made.processes[broker]
        stand_still(process.pid)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)
            everybody = Seen(len(IDS))
            wait_until("every broker", lambda: None if answering(self.made.at) == everybody else "no", LATE_S)

    # --- looks ---------------------------------------------------------------------------------------------

    def client(self) -> Any:
        """The library's own client."""
        return KafkaAdminClient(bootstrap_servers=self.addresses, request_timeout_ms=60_000)

    def partitions(self, topic: str) -> dict[int, PartitionState]:
        told = topics.partitions(self.addresses, (topic,), len(IDS))
        found = told.value.topics[topic] if isinstance(told, Seen) else told
        return {one.partition: one for one in found.value} if isinstance(found, Seen) else {}

    def until_in_sync(self, topic: str, sets: Mapping[int, Sequence[int]]) -> None:
        """Until nothing of it is in flight, and it has these sets, in order and in sync."""
        wanted = {n: (tuple(ids), set(ids)) for n, ids in sets.items()}

        def odd() -> str | None:
            there = {n: (p.replicas, set(p.isr)) for n, p in self.partitions(topic).items()}
            flying = [name for name in self.flights() if name[0] == topic]
            return None if there == wanted and not flying else f"{there}, in flight {flying}"

        wait_until(f"{topic} as {sets}", odd, LATE_S)

    def until_flying(self, topic: str, running: subprocess.Popen[str] | None = None) -> None:
        def not_flying() -> str | None:
            assert running is None or running.poll() is None, ended(running)
            return None if (topic, 0) in self.flights() else "it is not"

        wait_until(f"{topic}-0 in flight", not_flying, LATE_S)

    def flights(self) -> Mapping[tuple[str, int], InFlight]:
        told = reassignments.in_flight(self.addresses)
        assert isinstance(told, Seen), told
        return told.value

    def size(self, broker: int, topic: str) -> int:
        """Bytes of the replica of the first partition on a broker."""
        told = log_dirs.log_dirs(self.addresses, (broker,), {topic: [0]})
        assert isinstance(told, Seen), told
        dirs = told.value[broker]
        assert isinstance(dirs, Seen), dirs
        return sum(r.size for d in dirs.value.values() if isinstance(d, Seen) for r in d.value.replicas)

    def own(self, topic: str, key: str) -> str | None:
        told = topics.settings(self.addresses, key, (topic,))
        assert isinstance(told, Seen), told
        setting = told.value[topic]
        assert isinstance(setting, Seen), setting
        return setting.value.own

    def broker_rates(self, key: str, brokers: Sequence[int]) -> dict[int, str | None]:
        """What these brokers say of their own setting."""
        told = reassignments.broker_settings(self.addresses, key, brokers)
        assert isinstance(told, Seen), told
        return {id: one.value.own for id, one in told.value.items() if isinstance(one, Seen)}

    def leaders(self, topic: str) -> list[tuple[int, int]]:
        """The leader and its epoch of each partition."""
        with closing(self.client()) as client:
            [told] = client.describe_topics([topic])
        ordered = sorted(told["partitions"], key=lambda p: int(p["partition_index"]))
        return [(p["leader_id"], p["leader_epoch"]) for p in ordered]

    # --- the tools -----------------------------------------------------------------------------------------

    def inventory(self, topic: str, sets: Mapping[int, Sequence[int]], rate: int = QUICK) -> Path:
        """An inventory of the cluster. sets: what its plan gives a topic."""
        told = topics.names(self.addresses)
        assert isinstance(told, Seen), told
        split = {id: address.split(":") for id, address in self.made.at.items()}
        brokers = [
            {"name": f"broker{id}", "address": host, "port": int(port), "id": id}
            for id, (host, port) in split.items()
        ]
        plan, file = self.folder / f"{topic}.json", self.folder / f"{topic}.yml"
        plan.write_text(plan_of(topic, sets))
        body = {
            "version": 1,
            "name": topic,
            "kafka": {"cluster_id": told.value.cluster_id, "brokers": brokers},
            "reassign": {"plan": plan.name, "throttle_bytes_s": rate},
        }
        file.write_text(json.dumps(body))
        return file

    def tool(self, inventory: Path, verb: str, *options: str) -> tuple[int, str]:
        """A verb of the playbook, to its end."""
        return ended(zkmigrate(self.folder, inventory, verb, *options))

    def candidate(self, topic: str, brokers: str) -> dict[int, tuple[int, ...]]:
        """The sets that ``placement`` gives a topic on these brokers alone."""
        now = [
            {"topic": topic, "partition": n, "replicas": list(p.replicas), "size": self.size(p.leader, topic)}
            for n, p in self.partitions(topic).items()
        ]
        there = {str(id): {"storage_free": 1 << 30} for id in IDS}
        (self.folder / "cluster.json").write_text(json.dumps({"brokers": there, "partitions": now}))
        out = self.folder / "candidate.json"
        words = ["--topics", topic, "--brokers", brokers, "--out", str(out), "--use-meta", "false"]
        words = ["placement", "rebuild", "--cluster", str(self.folder / "cluster.json"), *words]
        subprocess.run([sys.executable, "-m", "zkmigrate", *words], check=True)
        return {n: sets for (_, n), sets in maps.parse(out.read_bytes(), out.name).items()}

    def kafkas_own(self, topic: str, sets: Mapping[int, Sequence[int]]) -> str:
        """What Kafka's own tool says of a plan; its releases from 3.5 on are not among the lab's files."""
        plan = self.folder / "own.json"
        plan.write_text(plan_of(topic, sets))
        jars = ":".join(map(str, provision.kafka_classpath(self.made.release)))
        words = ["--bootstrap-server", ",".join(self.addresses), "--reassignment-json-file", str(plan)]
        main = ["java", "-cp", jars, "kafka.admin.ReassignPartitionsCommand"]
        told = [*main, *words, "--verify", "--preserve-throttles"]
        return subprocess.run(told, check=True, capture_output=True, text=True, timeout=120).stdout


def plan_of(topic: str, sets: Mapping[int, Sequence[int]]) -> str:
    moves = [{"topic": topic, "partition": n, "replicas": list(ids)} for n, ids in sets.items()]
    return json.dumps({"version": 1, "partitions": moves})


@pytest.fixture
def cluster(brokers_at_work: Brokers, tmp_path: Path) -> Iterator[Cluster]:
    with closing(Cluster(brokers_at_work, tmp_path)) as made:
        yield made


def test_a_second_target_is_taken_silently_so_the_run_lists_first(cluster: Cluster) -> None:
    """Kafka replaces a target without a word, and a cancel leaves the target's order."""
    cluster.create("second", {0: (1, 2)}, 4)
    cluster.limit("second")
    with cluster.crawling():
        cluster.move("second-0", (3, 2), (1, 2))
        cluster.done(CancelReassignment(KAFKA, "second", 0, (3, 2)))
        cluster.until_in_sync("second", {0: (2, 1)})
        cluster.move("second-0", (1, 2), (2, 1))
        cluster.until_in_sync("second", {0: (1, 2)})

        cluster.move("second-0", (3, 2), (1, 2))
        assert cluster.flights()["second", 0].target == (3, 2)
        cluster.move("second-0", (3, 1), (1, 2))
        assert cluster.flights()["second", 0].target == (3, 1), "nothing is said of the first target"
        code, output = cluster.tool(cluster.inventory("second", {0: (2, 3)}), "run")
        assert (code, "1 in flight: second-0 to 3,1" in output) == (3, True), output
        assert cluster.flights()["second", 0].target == (3, 1), "the run leaves it"
        cluster.done(CancelReassignment(KAFKA, "second", 0, (3, 1)))


def test_a_list_that_an_append_spoiled_is_mended_for_the_run_and_given_back(cluster: Cluster) -> None:
    """2.8.2 writes an empty entry, and then throttles nothing, without an error. The run throttles. It gives
    the list back byte for byte, and the set in its order."""
    cluster.create("spoiled", {0: (1, 2)}, 4)
    cluster.create("free", {0: (1, 2)}, 4)
    old, entries = cluster.made.release == "2.8.2", "0:1,0:2,0:3"
    with closing(cluster.client()) as client:
        for key in LISTS:
            append = {key: (AlterConfigOp.APPEND, entries)}
            wanted = ConfigResource(ConfigResourceType.TOPIC, "spoiled", append)
            assert client.alter_configs([wanted], incremental=True) == {"topic": {"spoiled": "OK"}}
    found = f",{entries}" if old else entries
    assert [cluster.own("spoiled", key) for key in LISTS] == [found, found]
    if old:
        with cluster.crawling():
            cluster.move("spoiled-0", (3, 2), (1, 2))
            cluster.until_in_sync("spoiled", {0: (3, 2)})
        cluster.move("spoiled-0", (1, 2), (3, 2))
        cluster.until_in_sync("spoiled", {0: (1, 2)})

    slow = cluster.inventory("spoiled", {0: (3, 2)}, CRAWL)
    running = zkmigrate(cluster.folder, slow, "run")
    cluster.until_flying("spoiled", running)
    running.kill()
    ended(running)
    assert [cluster.own("spoiled", key) for key in LISTS] == [entries, entries]
    cluster.move("free-0", (3, 2), (1, 2))
    cluster.until_in_sync("free", {0: (3, 2)})
    cluster.produce("spoiled", 1)
    assert ("spoiled", 0) in cluster.flights(), "replicas in sync got a megabyte; they are not throttled"
    # What passed for another test may use up the first seconds.
    wait_until("a burst passes", lambda: None if cluster.size(3, "spoiled") else "none", LATE_S)
    assert cluster.size(3, "spoiled") < cluster.size(1, "spoiled")

    code, output = cluster.tool(slow, "rollback")
    assert code == 0, output
    cluster.until_in_sync("spoiled", {0: (1, 2)})
    assert [cluster.own("spoiled", key) for key in LISTS] == [found, found]


def test_what_the_library_cannot_ask_the_run_asks_otherwise(cluster: Cluster) -> None:
    """Rates of brokers, and with 2.8.2 the cluster and free bytes."""
    old = cluster.made.release == "2.8.2"
    rate = ConfigResource(ConfigResourceType.BROKER, "1", {LEADER_RATE: (AlterConfigOp.SET, "1000000")})
    with closing(cluster.client()) as client:
        with pytest.raises(ValueError, match="Unrecognized configs"):
            client.alter_configs([rate], incremental=True)
        with pytest.raises(KeyError, match="endpoint_type") if old else nullcontext():
            client.describe_cluster()
    for value, now in (("1000000", None), (None, "1000000")):
        cluster.rates({1: value}, now)
    seen = topics.partitions(cluster.addresses, ("a",), len(IDS))
    assert isinstance(seen, Seen)
    assert seen.value.brokers == set(IDS)
    code, output = cluster.tool(cluster.inventory("a", {0: (1, 3)}), "run", "--until", "preflight")
    assert code == 0, output
    assert ("not reported by broker 3;" in output) is old, output


def test_t3_t11_throttles_of_others_are_as_they_were(cluster: Cluster) -> None:
    """A list for all, a list, a broker's rate, and the rate of the whole cluster."""
    cluster.create("merged", {0: (1, 2), 1: (1, 2)}, 1)
    cluster.done(AlterTopicConfig(KAFKA, "merged", LEADER_LIST, "1:9", None))
    cluster.done(AlterTopicConfig(KAFKA, "merged", FOLLOWER_LIST, "*", None))
    cluster.done(AlterBrokerConfig(KAFKA, 1, LEADER_RATE, "30000000", None))
    with cluster.everywhere({LEADER_RATE: "40000000"}):

        def throttles() -> tuple[object, ...]:
            rates = [reassignments.broker_settings(cluster.addresses, key, IDS) for key in RATES]
            return (*rates, *(cluster.own("merged", key) for key in LISTS))

        def odd() -> str | None:
            told = reassignments.broker_settings(cluster.addresses, LEADER_RATE, IDS)
            rates = [
                (one.value.own, one.value.value)
                for one in (told.value if isinstance(told, Seen) else {}).values()
                if isinstance(one, Seen)
            ]
            default = (None, "40000000")
            return None if rates == [("30000000", "30000000"), default, default] else str(rates)

        wait_until("the rate of the cluster", odd, LATE_S)
        first = throttles()
        code, output = cluster.tool(cluster.inventory("merged", {0: (3, 2)}), "run")
        assert code == 0, output
        cluster.until_in_sync("merged", {0: (3, 2), 1: (1, 2)})
        assert throttles() == first
    cluster.done(AlterBrokerConfig(KAFKA, 1, LEADER_RATE, None, "30000000"))


def test_a_reassignment_by_znode_is_listed_and_named(cluster: Cluster) -> None:
    """The old way still works, a batch at a time and without a cancel."""
    cluster.create("znode", {0: (1, 2)}, 4)
    cluster.limit("znode")
    zookeeper = KazooClient(f"{ADDRESS}:{cluster.made.zookeeper}/kafka")
    zookeeper.start(START_SECONDS)
    batch = plan_of("znode", {0: (3, 2)}).encode()
    with cluster.crawling():
        zookeeper.create(cluster_view.REASSIGNMENTS, batch)
        cluster.until_flying("znode")
        told = json.loads(zookeeper.get("/brokers/topics/znode")[0])
        assert (told["adding_replicas"], told["removing_replicas"]) == ({"0": [3]}, {"0": [1]})
        with pytest.raises(NodeExistsError):
            zookeeper.create(cluster_view.REASSIGNMENTS, batch)
        code, output = cluster.tool(cluster.inventory("znode", {0: (2, 3)}), "run")
        assert (code, "1 in flight: znode-0 to 3,2" in output) == (3, True), output
        cluster.done(CancelReassignment(KAFKA, "znode", 0, (3, 2)))
        cluster.until_in_sync("znode", {0: (2, 1)})

        def left() -> str | None:
            return None if zookeeper.exists(cluster_view.REASSIGNMENTS) is None else "it is there"

        wait_until("Kafka removes the znode", left, LATE_S)
    zookeeper.stop()
    zookeeper.close()


def test_t5_a_candidate_is_made_submitted_and_verified_by_partition(cluster: Cluster) -> None:
    """The tool of Kafka 2.8.2 answers the same."""
    before = {0: (1, 2), 1: (1, 2), 2: (1, 2)}
    cluster.create("verified", before, 4)
    after = cluster.candidate("verified", "2,3")
    assert {n: set(ids) for n, ids in after.items()} == {n: {2, 3} for n in before}
    moves = [Move("verified", n, before[n], after[n], 0, 1) for n in before]
    cluster.limit("verified")
    with cluster.crawling():
        cluster.move("verified-0", after[0], before[0])
        cluster.move("verified-1", after[1], before[1])

        nowhere = answers.Disks({}, {})

        def verified() -> list[Stand]:
            seen = topics.partitions(cluster.addresses, ("verified",), len(IDS))
            told = stands(moves, answers.Cluster(Seen(cluster.flights()), seen), Way.FORWARD, nowhere)
            return [told.of[move.name] for move in moves]

        def odd() -> str | None:
            now = verified()
            return None if now == [Stand.MOVING, Stand.DONE, Stand.TO_SUBMIT] else str(now)

        wait_until("one in flight, one done and one not begun", odd, LATE_S)
        if cluster.made.release == "2.8.2":
            said = cluster.kafkas_own("verified", after)
            assert "Reassignment of partition verified-0 is still in progress." in said
            assert "Reassignment of partition verified-1 is complete." in said
            assert "no active reassignment of partition verified-2, but replica set is 1,2 rather" in said
        cluster.done(CancelReassignment(KAFKA, "verified", 0, after[0]))
    code, output = cluster.tool(cluster.inventory("verified", after), "run")
    assert code == 0, output
    cluster.until_in_sync("verified", after)
    assert verified() == [Stand.DONE] * 3


def test_p7_an_election_moves_only_leaders_outside_the_preferred_one(cluster: Cluster) -> None:
    cluster.create("prefer", {0: (1, 2), 1: (2, 1), 2: (2, 1)})
    cluster.move("prefer-2", (1, 2), (2, 1))
    cluster.until_in_sync("prefer", {0: (1, 2), 1: (2, 1), 2: (1, 2)})
    first = cluster.leaders("prefer")
    assert [leader for leader, _ in first] == [1, 2, 2]
    cluster.done(ElectLeaders(KAFKA, (("prefer", 0), ("prefer", 1), ("prefer", 2))))
    now = cluster.leaders("prefer")
    assert [leader for leader, _ in now] == [1, 2, 1]
    assert now[:2] == first[:2], "no new epoch where the preferred one led"
    assert now[2][1] > first[2][1]


@pytest.mark.parametrize("brokers_at_work", ["2.8.2"], indirect=True)
def test_p8_p9_a_follower_that_hangs_holds_the_mark_until_it_leaves_the_isr(cluster: Cluster) -> None:
    """The high watermark is the smallest LEO of the ISR, and nobody reads past it. The leader's own limit
    takes a follower out of the ISR, and only who is in it can be elected."""
    cluster.create("marks", {0: (2, 3)})
    cluster.create("lags", {0: (1, 3)})
    cluster.move("lags-0", (3, 1), (1, 3))
    cluster.until_in_sync("lags", {0: (3, 1)})
    others, partition = [cluster.made.at[id] for id in (1, 2)], TopicPartition("marks", 0)
    with (
        closing(KafkaProducer(bootstrap_servers=others, acks=1)) as producer,
        closing(KafkaConsumer(bootstrap_servers=others, auto_offset_reset="earliest")) as consumer,
    ):
        consumer.assign([partition])

        def mark() -> int:
            return int(consumer.end_offsets([partition])[partition])

        def sent() -> int:
            """The leader's LEO after one more record."""
            return int(producer.send("marks", b"x", partition=0).get(START_SECONDS).offset) + 1

        assert sent() == 1
        # So the producer need not ask for the leader later, perhaps the broker that hangs.
        producer.send("lags", b"x", partition=0).get(START_SECONDS)
        wait_until("a first record for consumers", lambda: None if mark() == 1 else "none", LATE_S)
        with cluster.stopped(3):
            assert [sent(), sent(), sent()] == [2, 3, 4]
            producer.send("lags", b"x", partition=0).get(START_SECONDS)  # at its LEO one stays
            assert (mark(), set(cluster.partitions("marks")[0].isr)) == (1, {2, 3})
            assert [r.offset for r in consumer.poll(timeout_ms=2000).get(partition, ())] == [0]

            def lagging() -> str | None:
                isr = cluster.partitions("lags")[0].isr
                return None if isr == (1,) else str(isr)

            # Of all three, so that the client knows which one hangs.
            limits = reassignments.broker_settings(cluster.addresses, "replica.lag.time.max.ms", (1, 2))
            assert isinstance(limits, Seen)
            told = {id: one.value.value for id, one in limits.value.items() if isinstance(one, Seen)}
            assert told == {id: str(LAG_MS[id]) for id in (1, 2)}
            wait_until("3 leaves the ISR of its partition on 1", lagging, LATE_S)
            assert set(cluster.partitions("marks")[0].isr) == {2, 3}, "broker 2 waits longer"
            why = cluster.refused(ElectLeaders(KAFKA, (("lags", 0),)))
            assert why == "lags-0: PREFERRED_LEADER_NOT_AVAILABLE"
        wait_until("all records for consumers", lambda: None if mark() == 4 else str(mark()), LATE_S)
        cluster.until_in_sync("lags", {0: (3, 1)})
    cluster.done(ElectLeaders(KAFKA, (("lags", 0),)))
    assert cluster.partitions("lags")[0].leader == 3
