"""The playbook kafka_reassign on real brokers: there and back, and killed with a move in flight."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from tests.ports import free_port
from tests.servers.brokers import Broker, serve
from tests.servers.process import ADDRESS, RELEASES, START_SECONDS
from tests.servers.test_versions import zookeeper
from zkmigrate.cluster.reassign.throttle import (
    FOLLOWER_LIST,
    FOLLOWER_RATE,
    INSIDE_RATE,
    LEADER_LIST,
    LEADER_RATE,
)
from zkmigrate.cluster.removal.rules import OWN_POLICY, POLICY
from zkmigrate.kafka.changes import KAFKA, AlterTopicConfig, CancelReassignment, ReassignPartition
from zkmigrate.kafka.clients import admin, connections, log_dirs, log_ends, reassignments, topics
from zkmigrate.kafka.questions import LogEnd, TopicSetting
from zkmigrate.lab import provision
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.fact import Reading, Seen

IDS = (1, 2, 3)
SETS = {0: (1, 2), 1: (2, 1)}
MEGABYTES = 4
WAIT_S = 240
"""Seconds for what a quiet machine does in five."""
LAG_MS = {1: 10_000, 2: 600_000, 3: 30_000}
"""How long a follower may lag behind each broker. Kafka's default was 10 s, and is 30 s since 2.5."""
FETCH_BYTES = 100_000
"""A whole fetch passes every throttle, so this keeps a slow move slow."""


@dataclass(frozen=True)
class Brokers:
    """A cluster at work. at: the addresses by id. processes: by id. zookeeper: the client port. folder: what
    they keep."""

    release: str
    at: Mapping[int, str]
    processes: Mapping[int, subprocess.Popen[bytes]]
    zookeeper: int
    folder: Path


@contextmanager
def cluster(version: str, folder: Path) -> Iterator[Brokers]:
    """Three brokers with two log directories each, and topic a with two partitions on brokers 1 and 2; the
    first holds 4 MB."""
    hosts = {id: ADDRESS.replace("127.1.", f"127.{10 + id}.", 1) for id in IDS}
    at = {id: f"{host}:{free_port()}" for id, host in hosts.items()}
    first, *others = (
        Broker(
            version,
            f"replica.lag.time.max.ms={LAG_MS[id]}\nreplica.fetch.max.bytes={FETCH_BYTES}\n"
            # Else Kafka elects preferred leaders every five minutes. One that hangs shrinks no ISR.
            "auto.leader.rebalance.enable=false\n"
            f"{POLICY}={OWN_POLICY}\nzkmigrate.excluded.brokers.file={excluded(folder)}\n",
            id=id,
            log_dirs=",".join(disks(folder, id)),
            address=at[id],
            jars=(provision.policy_jar(),),
        )
        for id in IDS
    )
    # The first to begin is the controller, and tests stop another.
    with (
        zookeeper("3.5.8", folder) as port,
        serve(folder, port, first) as one,
        serve(folder, port, *others) as more,
    ):
        client = KafkaAdminClient(bootstrap_servers=list(at.values()))
        client.create_topics([NewTopic("a", replica_assignments={n: list(ids) for n, ids in SETS.items()})])
        client.close()
        wait_until("topic a in sync", lambda: odd(at, SETS), START_SECONDS)
        producer = KafkaProducer(bootstrap_servers=list(at.values()), acks="all")
        for _ in range(MEGABYTES * 5):
            producer.send("a", bytes(200_000), partition=0).get(START_SECONDS)
        producer.close()
        yield Brokers(version, at, dict(zip(IDS, (*one, *more), strict=True)), port, folder)


def excluded(folder: Path) -> Path:
    """The file that our CreateTopicPolicy reads."""
    return folder / "excluded"


def disks(folder: Path, id: int) -> tuple[str, str]:
    """The log directories of a broker."""
    return str(folder / f"logs{id}a"), str(folder / f"logs{id}b")


def places(at: Mapping[int, str]) -> dict[tuple[int, int], tuple[str, ...]]:
    """Where the replicas of topic a are, by broker and partition. One that moves inside its broker is in
    two."""
    told, found = log_dirs.log_dirs(list(at.values()), IDS, None), dict[tuple[int, int], tuple[str, ...]]()
    assert isinstance(told, Seen)
    for id, dirs in told.value.items():
        assert isinstance(dirs, Seen), dirs
        for path, one in dirs.value.items():
            assert isinstance(one, Seen), one
            for replica in one.value.replicas:
                if replica.topic == "a":
                    found[id, replica.partition] = (*found.get((id, replica.partition), ()), path)
    return found


def kept(at: Mapping[int, str]) -> dict[tuple[int, int], tuple[str, ...]]:
    """The same on brokers 1 and 2. Broker 3 may still have a copy that was cancelled."""
    return {own: paths for own, paths in places(at).items() if own[0] != 3}


def elsewhere(at: Mapping[int, str], before: Mapping[tuple[int, int], tuple[str, ...]]) -> str | None:
    """Where the replicas of topic a are, if not where they were before."""
    now = kept(at)
    return None if now == before else str(now)


def other(folder: Path, id: int, path: str) -> str:
    """The other log directory of a broker."""
    [one] = set(disks(folder, id)) - {path}
    return one


def by_hand(at: Mapping[int, str], file: Path, *act: str) -> str:
    """What Kafka's own tool says about a map. That of 2.8.2 also serves later brokers; later ones have a jar
    of their own."""
    jars = ":".join(map(str, provision.kafka_classpath("2.8.2")))
    words = ["java", "-Xmx128m", "-cp", jars, "kafka.admin.ReassignPartitionsCommand"]
    words += ["--bootstrap-server", ",".join(at.values()), "--reassignment-json-file", str(file), *act]
    done = subprocess.run(words, capture_output=True, text=True, timeout=2 * WAIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def answering(at: Mapping[int, str]) -> Reading[int]:
    """How many brokers answer."""
    return connections.ask(list(at.values()), lambda _client, releases: Seen(len(releases)))


def odd(at: Mapping[int, str], sets: Mapping[int, Sequence[int]]) -> str | None:
    """What of topic a is not as these sets say, or not in sync."""
    told = topics.partitions(list(at.values()), ("a",), 3)
    topic = told.value.topics["a"] if isinstance(told, Seen) else told
    if not isinstance(topic, Seen):
        return str(topic)
    wrong = [
        p for p in topic.value if p.replicas != tuple(sets[p.partition]) or set(p.isr) != set(p.replicas)
    ]
    return str(wrong) if wrong or len(topic.value) != len(sets) else None


def ends(at: Mapping[int, str], id: int) -> LogEnd:
    """Where the log of a-0 on a broker ends."""
    told = log_ends.log_ends(list(at.values()), {id: {"a": [0]}})
    assert isinstance(told, Seen), told
    own = told.value[id]
    assert isinstance(own, Seen), own
    end = own.value["a", 0]
    assert isinstance(end, Seen), end
    return end.value


def settings(at: Mapping[int, str]) -> dict[str, str]:
    """Every throttle setting that is set, by broker and key, or topic and key."""
    brokers, found = list(at.values()), {}
    for key in (LEADER_RATE, FOLLOWER_RATE, INSIDE_RATE):
        told = reassignments.broker_settings(brokers, key, IDS)
        assert isinstance(told, Seen), told
        for id, own in told.value.items():
            assert isinstance(own, Seen), own
            found[f"{id} {key}"] = own.value.own
    for key in (LEADER_LIST, FOLLOWER_LIST):
        of_topics = topics.settings(brokers, key, ("a",))
        assert isinstance(of_topics, Seen), of_topics
        own = of_topics.value["a"]
        assert isinstance(own, Seen), own
        found[f"a {key}"] = own.value.own
    return {key: value for key, value in found.items() if value is not None}


def inventory(folder: Path, made: Brokers, rate: int, plan: str) -> Path:
    at = made.at
    told = topics.partitions(list(at.values()), ("a",), 1)
    assert isinstance(told, Seen)
    brokers = "".join(
        f"    - {{name: broker{id}, address: {address.replace(':', ', port: ')}, id: {id}}}\n"
        for id, address in at.items()
    )
    (folder / "plan.json").write_text(plan)
    file = folder / f"moves{rate}.yml"
    file.write_text(
        f"version: 1\nname: moves\nkafka:\n  cluster_id: {told.value.cluster_id}\n  chroot: /kafka\n"
        f"  brokers:\n{brokers}"
        f"reassign:\n  plan: plan.json\n  throttle_bytes_s: {rate}\n"
        f"  zookeeper: ['{ADDRESS}:{made.zookeeper}']\n"
    )
    return file


PLAN = (
    '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[3,2]},'
    '{"topic":"a","partition":1,"replicas":[1,2]}]}'
)
AFTER = {0: (3, 2), 1: (1, 2)}


def zkmigrate(folder: Path, file: Path, verb: str, *options: str) -> subprocess.Popen[str]:
    words = [
        sys.executable,
        "-m",
        "zkmigrate",
        verb,
        "-i",
        str(file),
        "--playbook",
        "kafka_reassign",
        *(("--findings", "all") if verb == "status" else ("--yes",)),
        *options,
    ]
    return subprocess.Popen(
        words,
        env={**os.environ, "ZKMIGRATE_RUNS": str(folder / "runs")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=2 * WAIT_S)
    return process.returncode, output


def test_real_brokers_move_partitions_there_and_back(brokers_at_work: Brokers, tmp_path: Path) -> None:
    at, brokers = brokers_at_work.at, list(brokers_at_work.at.values())
    alter = admin.Alter(brokers)
    assert alter(AlterTopicConfig(KAFKA, "a", LEADER_LIST, "0:9", None))[0] == 0, "of another tool"
    first = settings(at)
    assert first == {f"a {LEADER_LIST}": "0:9"}

    quick = inventory(tmp_path, brokers_at_work, 50_000_000, PLAN)
    code, output = ended(zkmigrate(tmp_path, quick, "run"))
    assert code == 0, output
    assert odd(at, AFTER) is None
    assert "reported by brokers and ZooKeeper" in ended(zkmigrate(tmp_path, quick, "status"))[1]
    assert settings(at) == first
    code, output = ended(zkmigrate(tmp_path, quick, "rollback"))
    assert code == 0, output
    assert odd(at, SETS) is None
    assert settings(at) == first

    # Four megabytes at 50 kB/s: killed with the move in flight, and then back.
    slow = inventory(tmp_path, brokers_at_work, 50_000, PLAN)
    running = zkmigrate(tmp_path, slow, "run")
    in_flight(brokers, running)
    assert settings(at)[f"3 {FOLLOWER_RATE}"] == "50000"
    running.send_signal(signal.SIGKILL)
    ended(running)
    told = reassignments.in_flight(brokers)
    assert isinstance(told, Seen)
    assert told.value["a", 0].target == (3, 2), "Kafka goes on by itself, throttled"
    leader, copy = ends(at, 1), ends(at, 3)
    assert (leader.offset, leader.high_watermark) == (MEGABYTES * 5, MEGABYTES * 5)
    assert copy.offset < leader.offset, "P14: a follower tells its own log end"
    assert (copy.high_watermark, copy.epoch) == (None, leader.epoch)
    code, output = ended(zkmigrate(tmp_path, slow, "rollback"))
    assert code == 0, output
    assert reassignments.in_flight(brokers) == Seen({})
    assert odd(at, SETS) is None, "in the original order"
    assert settings(at) == first

    # What the playbook rests on: the answers of Kafka itself.
    assert alter(CancelReassignment(KAFKA, "a", 0, (3, 2)))[0] == 0, "nothing was in flight"
    code, why = alter(ReassignPartition(KAFKA, "a", 0, (9, 2), (1, 2)))
    assert (code, why) == (1, "a-0: INVALID_REPLICATION_ASSIGNMENT")
    assert topics.settings(brokers, LEADER_LIST, ("a",)) == Seen({"a": Seen(TopicSetting("0:9"))})
    alter.close()


def in_flight(brokers: Sequence[str], running: subprocess.Popen[str]) -> None:
    """Wait until a move of this run is in flight."""

    def not_flying() -> str | None:
        assert running.poll() is None, ended(running)
        return None if reassignments.in_flight(brokers) != Seen({}) else "nothing is in flight"

    wait_until("a move in flight", not_flying, WAIT_S)


@pytest.mark.parametrize("brokers_at_work", RELEASES[:1], indirect=True)
def test_real_brokers_move_replicas_into_directories_and_kafkas_own_tool_takes_them_back(
    brokers_at_work: Brokers, tmp_path: Path
) -> None:
    at, folder = brokers_at_work.at, brokers_at_work.folder
    brokers = list(at.values())
    alter = admin.Alter(brokers)
    assert alter(AlterTopicConfig(KAFKA, "a", LEADER_LIST, "0:9", None))[0] == 0, "of another tool"
    first = settings(at)
    assert alter(ReassignPartition(KAFKA, "a", 0, (3, 2), (1, 2)))[0] == 0
    wait_until("the copy on broker 3", lambda: odd(at, {**SETS, 0: (3, 2)}), WAIT_S)
    (kafkas_choice,) = places(at)[3, 0]
    assert alter(ReassignPartition(KAFKA, "a", 0, (1, 2), (3, 2)))[0] == 0
    wait_until("the sets from before", lambda: odd(at, SETS), WAIT_S)
    alter.close()

    # Into directories that the plan names: broker 3 gets its copy in the one that Kafka would not choose,
    # and broker 2 moves its own.
    before = kept(at)
    wanted = {3: other(folder, 3, kafkas_choice), 2: other(folder, 2, before[2, 0][0])}
    named = PLAN.replace("[3,2]", f'[3,2],"log_dirs":["{wanted[3]}","{wanted[2]}"]')
    placed = inventory(tmp_path, brokers_at_work, 50_000_001, named)
    code, output = ended(zkmigrate(tmp_path, placed, "run"))
    assert code == 0, output
    assert odd(at, AFTER) is None
    assert (places(at)[3, 0], places(at)[2, 0]) == ((wanted[3],), (wanted[2],))
    assert settings(at) == first
    code, output = ended(zkmigrate(tmp_path, placed, "rollback"))
    assert code == 0, output
    assert odd(at, SETS) is None
    assert kept(at) == before, "in the directories from before"

    # Killed with a move in flight, and taken back by Kafka's own tool alone. A rollback finds that.
    slow = inventory(tmp_path, brokers_at_work, 50_002, named)
    running = zkmigrate(tmp_path, slow, "run")
    in_flight(brokers, running)
    running.send_signal(signal.SIGKILL)
    ended(running)
    *_, run_dir = sorted((tmp_path / "runs").glob("*/way-back.json"), key=lambda file: file.stat().st_mtime)
    assert "Successfully cancelled" in by_hand(at, run_dir, "--cancel", "--preserve-throttles")
    by_hand(at, run_dir, "--execute")
    wait_until("the sets from before", lambda: odd(at, SETS), WAIT_S)
    code, output = ended(zkmigrate(tmp_path, slow, "rollback"))
    assert code == 0, output
    assert str(run_dir) in output
    assert odd(at, SETS) is None
    assert settings(at) == first
    wait_until("the directories from before", lambda: elsewhere(at, before), WAIT_S)

    # Only a directory changes: killed while both hold the replica, and then back.
    moved = other(folder, 1, before[1, 0][0])
    only = f'{{"partitions":[{{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["{moved}","any"]}}]}}'
    inside = inventory(tmp_path, brokers_at_work, 50_001, only)
    running = zkmigrate(tmp_path, inside, "run")

    def not_inside() -> str | None:
        assert running.poll() is None, ended(running)
        return None if len(places(at)[1, 0]) == 2 else "in one directory"

    wait_until("a replica in two directories", not_inside, WAIT_S)
    assert settings(at)[f"1 {INSIDE_RATE}"] == "50001"
    running.send_signal(signal.SIGKILL)
    ended(running)
    assert len(places(at)[1, 0]) == 2, "the broker goes on by itself, throttled"
    code, output = ended(zkmigrate(tmp_path, inside, "rollback"))
    assert code == 0, output
    wait_until("the directories from before", lambda: elsewhere(at, before), WAIT_S)
    assert settings(at) == first
