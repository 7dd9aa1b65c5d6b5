"""H6 and H22 on real brokers: leaders that move and a broker that dies under a mirror, on source or target.

The two clusters differ in all that a cluster may be like.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError, NoError
from kafka.protocol.admin.topics import ElectionType
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.structs import OffsetAndMetadata

from tests.ports import free_port
from tests.servers.process import ADDRESS, START_SECONDS, server, wait_for
from tests.servers.test_gateway import ask
from tests.servers.test_mirror import WAIT_S, answers, behind, ended, ends, mirror, ran
from tests.servers.test_versions import zookeeper
from zkmigrate.errors import HostError
from zkmigrate.kafka.clients import connections
from zkmigrate.lab import provision
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.topics.mirror.clients.cluster import Cluster, Part

THREE, ONE = "2.8.2", "3.9.1"
GROUP = "across"
MOVES = 5
"""How often all leaders move, on each side."""


@dataclass(frozen=True)
class Sites:
    """three: the brokers of one cluster by id. one: the broker of the other. processes: of the three."""

    three: Mapping[int, str]
    one: str
    processes: Mapping[int, subprocess.Popen[bytes]]

    @property
    def all_three(self) -> str:
        return ",".join(self.three.values())


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    folder = tmp_path_factory.mktemp("moves")
    at = {id: f"{ADDRESS}:{free_port()}" for id in (1, 2, 3, 4)}
    processes, logs = dict[int, subprocess.Popen[bytes]](), dict[int, Path]()
    with zookeeper("3.5.8", folder) as port, ExitStack() as stack:
        for id, address in at.items():
            root, replicas, session_ms = ("three", 2, 6000) if id < 4 else ("one", 1, 600000)
            # The copier needs the coordinator of its group, also after two of three brokers have died.
            commits = 3 if id < 4 else 1
            parts, rack = (5, f"broker.rack=rack-{id}\n") if id < 4 else (3, "")
            config, logs[id] = folder / f"{id}.properties", folder / f"{id}.log"
            config.write_text(
                f"broker.id={id}\nlisteners=PLAINTEXT://{address}\nlog.dirs={folder / str(id)}\n"
                f"zookeeper.connect={ADDRESS}:{port}/{root}\nzookeeper.session.timeout.ms={session_ms}\n"
                f"offsets.topic.replication.factor={commits}\noffsets.topic.num.partitions={parts}\n{rack}"
                f"transaction.state.log.replication.factor={replicas}\ntransaction.state.log.min.isr=1\n"
                "transaction.state.log.num.partitions=1\nauto.create.topics.enable=false\n"
                "auto.leader.rebalance.enable=false\nlog.cleaner.dedupe.buffer.size=4000000\n"
            )
            jars = provision.kafka_classpath(THREE if id < 4 else ONE)
            main = ["-Xmx256m", "kafka.Kafka", str(config)]
            processes[id] = stack.enter_context(server("java", jars, main, logs[id]))
        for id, process in processes.items():
            word = f"/{'three' if id < 4 else 'one'}/brokers/ids/{id}"
            wait_for(f"broker {id}", process, logs[id], port, "dump", word)
        for address in at.values():
            wait_until(address, lambda at=address: answers(at), START_SECONDS)  # type: ignore[misc]
        yield Sites({id: at[id] for id in (1, 2, 3)}, at[4], processes)


def make(address: str, topic: str, sets: Sequence[Sequence[int]]) -> None:
    new = NewTopic(topic, replica_assignments={n: list(ids) for n, ids in enumerate(sets)})
    with closing(KafkaAdminClient(bootstrap_servers=address.split(","))) as client:
        client.create_topics([new])


@contextmanager
def writing(address: str, topic: str, partitions: int) -> Iterator[None]:
    """Records to each partition all the time, some of them twice when a leader moves."""
    over = threading.Event()
    producer = KafkaProducer(bootstrap_servers=address.split(","), acks="all", linger_ms=0, max_block_ms=2000)

    def write() -> None:
        number = 0
        while not over.wait(0.02):
            number += 1
            with suppress(KafkaError):
                producer.send(topic, b"value %d" % number, b"key", partition=number % partitions)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        producer.close(timeout=10)


def heard(look: Callable[[], str | None]) -> Callable[[], str | None]:
    """The same look, to be repeated where a broker that has just gone was asked."""

    def told() -> str | None:
        try:
            return look()
        except HostError as error:
            return str(error)

    return told


def led(address: str, topic: str) -> dict[int, int]:
    with closing(Cluster(address, address.split(","))) as site:
        return site.leaders([topic])[topic]


def lead(address: str, topic: str, sets: Sequence[Sequence[int]]) -> None:
    """The first broker of each set leads."""
    with closing(KafkaAdminClient(bootstrap_servers=address.split(","))) as client:
        client.alter_partition_reassignments(
            {TopicPartition(topic, n): list(ids) for n, ids in enumerate(sets)}
        )
        client.elect_leaders(ElectionType.PREFERRED, {topic: list(range(len(sets)))}, raise_errors=False)
    needed = {n: ids[0] for n, ids in enumerate(sets)}

    def other() -> str | None:
        found = led(address, topic)
        return None if found == needed else f"{found}, needed {needed}"

    wait_until("the leaders have moved", heard(other), WAIT_S)


@contextmanager
def copier(pair: tuple[str, str], topic: str) -> Iterator[subprocess.Popen[str]]:
    """A copier at work. A test that fails tells what it said."""
    copying = mirror(pair, "run", [topic], "--json")
    try:
        yield copying
    except BaseException as error:
        copying.kill()
        error.add_note(copying.communicate()[0])
        raise


def drill(
    pair: tuple[str, str],
    moved: str,
    topic: str,
    sets: Sequence[Sequence[int]],
    sites: Sites,
    beside: Callable[[], str | None] = lambda: None,
) -> None:
    """All leaders move several times and then one broker dies, while records are written and copied. beside:
    what the mirror has not done yet beside the records, awaited before."""
    count = len(sets)

    def go_on() -> None:
        needed = dict[Part, int]()

        def known() -> str | None:
            needed.update(ends(pair, [topic], count)[0])
            return None if len(needed) == count else str(needed)

        wait_until("source tells its ends", heard(known), WAIT_S)

        def stuck() -> str | None:
            _, found = ends(pair, [topic], count)
            late = {part: end for part, end in needed.items() if found.get(part, -1) < end}
            return f"{found}, needed {late}" if late else None

        wait_until("the mirror goes on", heard(stuck), WAIT_S)

    with copier(pair, topic) as copying:
        with writing(pair[0], topic, count):
            go_on()
            wait_until("what stands beside the records", heard(beside), WAIT_S)
            for _ in range(MOVES):
                sets = [list(reversed(ids)) for ids in sets]
                lead(moved, topic, sets)
                go_on()
            victim = sets[0][0]
            sites.processes[victim].kill()

            def leaderless() -> str | None:
                found = led(moved, topic)
                return str(found) if {-1, victim} & set(found.values()) else None

            wait_until("others lead", heard(leaderless), WAIT_S)
            go_on()
        wait_until("the mirror is even", heard(lambda: behind(pair, [topic], count)), WAIT_S)
        copying.send_signal(signal.SIGINT)
        code, output = ended(copying)
        assert code == 130, output
        assert json.loads(output.strip().splitlines()[-1])["failed"] == [], output
    code, output = ran(pair, "compare", [topic], "--json")
    assert code == 0, output
    found = json.loads(output)["partitions"]
    assert [one["state"] for one in found] == ["equal"] * count
    needed, _ = ends(pair, [topic], count)
    assert {(topic, one["partition"]): one["records"] for one in found} == needed, "no gap, none twice"


@dataclass(frozen=True)
class Shape:
    """What a cluster is like. racks: by node. releases: of its brokers. copies: of the topic's partitions.
    groups: partitions and copies of ``__consumer_offsets``."""

    racks: Mapping[int, str | None]
    releases: frozenset[str]
    copies: frozenset[int]
    groups: tuple[int, int]


def shape(address: str, topic: str) -> Shape:
    releases = connections.ask(
        address.split(","), lambda _client, releases: Seen(frozenset(releases.values()))
    )
    assert isinstance(releases, Seen), releases
    names = [MetadataRequest.MetadataRequestTopic(name=name) for name in (topic, "__consumer_offsets")]
    request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
    told = ask(address.split(",")[0], request, MetadataResponse, 9)
    copies = {one.name: [len(part.replica_nodes) for part in one.partitions] for one in told.topics}
    groups = copies["__consumer_offsets"]
    racks = {one.node_id: one.rack for one in told.brokers}
    return Shape(racks, releases.value, frozenset(copies[topic]), (len(groups), min(groups)))


def committed(address: str, topic: str) -> int:
    """The offset of the group, which stands on the first partition; -1 before."""
    at = TopicPartition(topic, 0)
    with closing(KafkaAdminClient(bootstrap_servers=address.split(","))) as client:
        try:
            return int(client.list_group_offsets({GROUP: [at]})[GROUP][at].offset)
        except KafkaError:
            return -1


def commit(address: str, topic: str, offset: int) -> None:
    """The first question for a coordinator makes the topic of groups; it fails until that is there."""
    at = TopicPartition(topic, 0)

    def failed() -> str | None:
        with closing(KafkaAdminClient(bootstrap_servers=address.split(","))) as client:
            try:
                told = client.alter_group_offsets(GROUP, {at: OffsetAndMetadata(offset, "", -1)})
            except KafkaError as error:
                return str(error)
        return None if told == {at: NoError} else str(told)

    wait_until("the group's offset", failed, WAIT_S)


def test_h6_h22_leaders_move_and_a_broker_dies_on_source_of_another_shape(sites: Sites) -> None:
    sets = [[1, 3], [2, 1], [3, 2]]
    make(sites.all_three, "onwards", sets)
    commit(sites.all_three, "onwards", 3)
    racks = {id: f"rack-{id}" for id in (1, 2, 3)}
    three = Shape(racks, frozenset({"2.8"}), frozenset({2}), (5, 3))
    assert shape(sites.all_three, "onwards") == three

    def other() -> str | None:
        found = committed(sites.one, "onwards")
        return None if found == 3 else f"{found}, needed 3"

    drill((sites.all_three, sites.one), sites.all_three, "onwards", sets, sites, other)
    one = Shape({4: None}, frozenset({"3.9"}), frozenset({1}), (3, 1))
    assert shape(sites.one, "onwards") == one, "unlike source in each of these"


def test_h6_leaders_move_and_a_broker_dies_on_target(sites: Sites) -> None:
    """With what the broker that died before has left."""
    sets = [[1, 2], [2, 1], [1, 2]]
    make(sites.one, "back", [[4], [4], [4]])
    make(sites.all_three, "back", sets)
    drill((sites.one, sites.all_three), sites.all_three, "back", sets, sites)
