"""The gateway between real clients and two real clusters: 2.8.2 on ZooKeeper, and 4.3.1 with KRaft."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as RdError
from confluent_kafka import TopicPartition as RdPartition
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import CoordinatorNotAvailableError, KafkaError, NoError
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.structs import OffsetAndMetadata
from kazoo.client import KazooClient

from tests.answers import Mirrored
from tests.ports import free_port
from tests.servers import kraft
from tests.servers.brokers import ALONE, Broker, serve
from tests.servers.process import ADDRESS, START_SECONDS
from tests.servers.test_versions import zookeeper
from zkmigrate.lab import provision
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.topics.gateway.order import GatewayOrder
from zkmigrate.topics.gateway.rules.apis import PRODUCE
from zkmigrate.topics.mirror.changes import MIRRORED, CopyOffsets
from zkmigrate.topics.mirror.clients.alter import Alter
from zkmigrate.topics.mirror.clients.cluster import Cluster
from zkmigrate.topics.mirror.questions import BothEnds, ClusterAt, RangeCompared
from zkmigrate.topics.mirror.rules.position import Ends

T = TypeVar("T")

WAIT_S = 120
OLD, NEW, NEW_NODE = "2.8.2", "4.3.1", 7
TOPIC, OTHER, GROUPS, EPOCH = "orders", "audit", ("readers", "rd-readers"), 7


def ask(address: str, request: Any, kind: Any, version: int) -> Any:
    """One request on a connection of its own."""
    host, _, port = address.rpartition(":")
    request.API_VERSION = version
    request.with_header(1, "looker")
    with socket.create_connection((host, int(port)), WAIT_S) as connection:
        connection.sendall(request.encode(version=version, header=True, framed=True))
        with connection.makefile("rb") as stream:
            frame = stream.read(int.from_bytes(stream.read(4), "big"))
    return kind.decode(frame, version=version, header=True)


def epochs(address: str, topic: str) -> set[int]:
    names = [MetadataRequest.MetadataRequestTopic(name=topic)]
    told = ask(address, MetadataRequest(topics=names, allow_auto_topic_creation=False), MetadataResponse, 9)
    return {p.leader_epoch for one in told.topics for p in one.partitions}


def brokers(address: str) -> list[tuple[int, str]]:
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    told = ask(address, request, MetadataResponse, 9).brokers
    return [(one.node_id, f"{one.host}:{one.port}") for one in told]


def make(address: str, *topics: str) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=[address])) as client:
        client.create_topics([NewTopic(topic, 1, 1) for topic in topics])


def end(address: str, topic: str = TOPIC) -> int:
    with closing(Cluster(address, [address])) as cluster:
        told = cluster.ends([(topic, 0)])[topic, 0]
    assert isinstance(told, Ends)
    return told.end


def committed(address: str) -> dict[str, int]:
    """The offset of each group."""
    at, found = TopicPartition(TOPIC, 0), {}
    with closing(KafkaAdminClient(bootstrap_servers=[address])) as client:
        for group in GROUPS:
            found[group] = int(client.list_group_offsets({group: [at]})[group][at].offset)
    return found


class Gateway:
    """Its file and its process. ports: by cluster, and of the listener whose clients read the new one."""

    def __init__(self, folder: Path, addresses: dict[str, str]) -> None:
        self.ports = {name: free_port() for name in (*addresses, "mirror")}
        self.file, self.log = folder / "gateway.yml", folder / "gateway.log"
        self.file.write_text(
            f"state: {folder / 'state'}\nlisten: {ADDRESS}\nroute: old\n"
            f"clusters:\n  old: {{1: '{addresses['old']}'}}\n  new: {{{NEW_NODE}: '{addresses['new']}'}}\n"
            f"listeners:\n  shop:\n    advertise: {ADDRESS}\n    ports:\n"
            f"      old: {{1: {self.ports['old']}}}\n      new: {{{NEW_NODE}: {self.ports['new']}}}\n"
            f"  mirror:\n    advertise: {ADDRESS}\n    read_only: new\n    mirrored_groups: ['*readers']\n"
            f"    ports:\n      new: {{{NEW_NODE}: {self.ports['mirror']}}}\n"
            "apps:\n  app: {route: old, client_ids: ['app-*']}\n"
        )
        self.begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.terminate()
        assert self.process.wait(WAIT_S) == 0

    def address(self, port: str) -> str:
        return f"{ADDRESS}:{self.ports[port]}"

    def words(self, verb: str, *more: str) -> list[str]:
        return [sys.executable, "-m", "zkmigrate", "gateway", verb, "--config", str(self.file), *more]

    def begin(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.words("serve"), stdout=log, stderr=subprocess.STDOUT)
        begun = self.log.read_text().count('"Serving"')

        def silent() -> str | None:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            return None if self.log.read_text().count('"Serving"') > begun else "it does not serve"

        wait_until("the gateway", silent, WAIT_S)

    def order(self, *words: str, fencing: int = 2, code: int = 0) -> str:
        argv = self.words("order", "--as", str(fencing), *words)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == code, done.stdout + done.stderr + self.log.read_text()[-3000:]
        return done.stdout + done.stderr

    def status(self) -> dict[str, Any]:
        done = subprocess.run(self.words("status", "--json"), capture_output=True, check=True, timeout=WAIT_S)
        told: dict[str, Any] = json.loads(done.stdout)
        return told


def raise_epoch(zookeeper_port: int, address: str) -> None:
    """Give the topic's leader a leader epoch above 0, as elections do: the next controller tells it."""
    client, path = (
        KazooClient(f"{ADDRESS}:{zookeeper_port}"),
        f"/old/brokers/topics/{TOPIC}/partitions/0/state",
    )
    client.start(START_SECONDS)
    try:
        state = json.loads(client.get(path)[0])
        client.set(path, json.dumps(state | {"leader_epoch": EPOCH}).encode())
        client.delete("/old/controller")
        low = lambda: None if epochs(address, TOPIC) == {EPOCH} else str(epochs(address, TOPIC))  # noqa: E731
        wait_until("the leader epoch", low, WAIT_S)
    finally:
        client.stop()
        client.close()


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Both clusters. The old one's topic has a leader epoch."""
    folder, old = tmp_path_factory.mktemp("clusters"), Broker(OLD, ALONE, chroot="old")
    here = old.address
    with (
        zookeeper("3.5.8", folder) as port,
        serve(folder, port, old),
        kraft.broker(NEW, folder, NEW_NODE) as there,
    ):
        make(here, TOPIC, OTHER)
        make(there, OTHER)
        raise_epoch(port, here)
        yield {"old": here, "new": there}


@contextmanager
def reader(address: str, folder: Path, login: str = "") -> Iterator[Path]:
    """Java's console consumer, in a group; yields the file with the values that it got.

    login: more settings."""
    config, out = folder / "reader.properties", folder / "reader.out"
    config.write_text(
        "client.id=app-reader\nauto.commit.interval.ms=100\nauto.offset.reset=earliest\n" + login
    )
    jars = ":".join(map(str, provision.kafka_classpath(OLD)))
    words = [
        "--bootstrap-server",
        address,
        "--topic",
        TOPIC,
        "--group",
        GROUPS[0],
        "--consumer.config",
        str(config),
    ]
    argv = ["java", "-Xmx64m", "-XX:TieredStopAtLevel=1", "-cp", jars, "kafka.tools.ConsoleConsumer", *words]
    with out.open("wb") as output, (folder / "reader.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=output, stderr=log)
    try:
        yield out
    finally:
        process.terminate()
        process.wait(WAIT_S)


def send(producer: KafkaProducer, topic: str, values: Sequence[int]) -> list[Any]:
    return [producer.send(topic, b"%d" % n, partition=0) for n in values]


def acknowledged(sent: Sequence[Any]) -> list[int]:
    return [one.get(WAIT_S).offset for one in sent]


def mirror(addresses: dict[str, str], topic: str) -> None:
    """What the old topic holds now, and its groups' offsets, to the new cluster."""
    words = ["mirror", "run", "--once", "--source", addresses["old"], "--target", addresses["new"]]
    argv = [sys.executable, "-m", "zkmigrate", *words, "--topic", topic]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def copy(addresses: dict[str, str]) -> None:
    """The old topic's records to the new one, at the same offsets, and the groups' offsets."""
    mirror(addresses, TOPIC)
    at, offsets = TopicPartition(TOPIC, 0), committed(addresses["old"])

    def failed() -> str | None:
        """The first question for a coordinator makes the topic of groups; it fails until that is there."""
        with closing(KafkaAdminClient(bootstrap_servers=[addresses["new"]])) as admin:
            try:
                for group, offset in offsets.items():
                    told = admin.alter_group_offsets(group, {at: OffsetAndMetadata(offset, "", -1)})
                    if told != {at: NoError}:
                        return str(told)
            except KafkaError as error:
                return str(error)
        return None

    wait_until("the groups' offsets", failed, WAIT_S)


class Librdkafka:
    """A producer and two consumers, of which one takes its partition by assign() and commits nothing. seen,
    assigned: the values that each of them got."""

    def __init__(self, address: str, login: Mapping[str, str] | None = None) -> None:
        common = {"bootstrap.servers": address, **(login or {})}
        self.producer = Producer(common | {"client.id": "app-rd-writer", "acks": "all", "linger.ms": 0})
        group = {"group.id": GROUPS[1], "auto.offset.reset": "earliest", "auto.commit.interval.ms": 100}
        self.consumer = Consumer(common | group | {"client.id": "app-rd-reader"})
        self.consumer.subscribe([TOPIC])
        alone = {"group.id": "nobody", "enable.auto.commit": False, "client.id": "app-rd-assigned"}
        self.alone = Consumer(common | alone)
        self.alone.assign([RdPartition(TOPIC, 0, 0)])
        self.seen: list[int] = []
        self.assigned: list[int] = []

    def send(self, values: Sequence[int]) -> list[int]:
        """The offsets of values that were acknowledged."""
        offsets: list[int] = []

        def told(error: Any, message: Any) -> None:
            assert error is None, str(error)
            offsets.append(message.offset())

        for n in values:
            self.producer.produce(TOPIC, b"%d" % n, partition=0, on_delivery=told)
        assert self.producer.flush(WAIT_S) == 0
        return offsets

    def behind(self, last: int) -> str | None:
        for consumer, seen in ((self.consumer, self.seen), (self.alone, self.assigned)):
            message = consumer.poll(0.1)
            while message is not None:
                if message.error() is None:
                    seen.append(int(message.value() or b""))
                message = consumer.poll(0.01)
        short = [seen for seen in (self.seen, self.assigned) if not seen or seen[-1] < last]
        return f"{len(short[0])} records" if short else None

    def close(self) -> None:
        self.consumer.close()
        self.alone.close()


def on_the_mirror(address: str, records: int) -> None:
    """Readers of the mirror, with a client id of the application: served, also while that is held. What they
    may not do is Kafka's own error, after which they go on."""
    common = {"bootstrap.servers": address, "client.id": "app-mirror"}
    errors: list[int] = []

    def told(error: Any, _message: Any) -> None:
        errors.append(error.code())

    plain = Producer(common | {"acks": "all"})
    plain.produce(TOPIC, b"not here", partition=0, on_delivery=told)
    assert plain.flush(WAIT_S) == 0
    assert errors == [RdError.TOPIC_AUTHORIZATION_FAILED]

    group = {"group.id": "spark", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    seen: list[int] = []

    def read(consumer: Consumer, most: int) -> str | None:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, str(message.error())
            seen.append(int(message.value() or b""))
        return None if len(seen) >= most else f"{len(seen)} records"

    with closing(Consumer(common | group)) as consumer:
        consumer.subscribe([TOPIC])
        wait_until("the mirror is read", lambda: read(consumer, records), WAIT_S)
        assert seen == list(range(records))
        assert [one.error for one in consumer.commit(asynchronous=False)] == [None]

    seen.clear()
    with closing(Consumer(common | group | {"group.id": GROUPS[0]})) as consumer:
        consumer.assign([RdPartition(TOPIC, 0, 0)])
        wait_until("the mirror is read", lambda: read(consumer, 1), WAIT_S)
        with pytest.raises(KafkaException) as error:
            consumer.commit(asynchronous=False)
        assert error.value.args[0].code() == RdError.GROUP_AUTHORIZATION_FAILED
        wait_until("it goes on", lambda: read(consumer, records), WAIT_S)

    with closing(Consumer(common | group | {"group.id": GROUPS[1]})) as consumer:
        consumer.subscribe([TOPIC])

        def admitted() -> str | None:
            message = consumer.poll(0.1)
            error = message.error() if message is not None else None
            if error is None:
                return "no error"
            return None if error.code() == RdError.GROUP_AUTHORIZATION_FAILED else str(error)

        wait_until("a mirrored group is refused", admitted, WAIT_S)


def test_h3_h9_h10_an_application_is_led_to_another_cluster(clusters: dict[str, str], tmp_path: Path) -> None:
    with Gateway(tmp_path, clusters) as gateway:
        led(gateway, clusters, tmp_path)


def led(gateway: Gateway, clusters: dict[str, str], folder: Path) -> None:
    left = gateway.address("old")

    # Hidden from the first connection on.
    assert epochs(clusters["old"], TOPIC) == {EPOCH}
    assert epochs(left, TOPIC) == {-1}
    assert brokers(left) == [(1, left)]
    told = ask(left, ApiVersionsRequest(), ApiVersionsResponse, 0)
    versions = {one.api_key: one.max_version for one in told.api_keys}
    assert (versions[1], versions[3]) == (11, 9)
    assert not versions.keys() & {23, 60, 68, 75, 76}

    with ExitStack() as stack:

        def producer(name: str) -> KafkaProducer:
            made = KafkaProducer(bootstrap_servers=[left], client_id=name, acks="all", linger_ms=0)
            return stack.enter_context(closing(made))

        app, other = producer("app-writer"), producer("other-writer")
        out = stack.enter_context(reader(left, folder))
        librdkafka = stack.enter_context(closing(Librdkafka(left)))
        assert acknowledged(send(app, TOPIC, range(40))) == list(range(40))
        assert librdkafka.send(range(40, 50)) == list(range(40, 50))

        def behind(last: int) -> str | None:
            seen = out.read_text().split()
            java = None if seen and int(seen[-1]) >= last else f"{len(seen)} records"
            return librdkafka.behind(last) or java

        wait_until("the readers have all", lambda: behind(49), WAIT_S)
        copy(clusters)

        # Settle: the commit catches up with what was delivered. Then hold.
        gateway.order("route", "o-1", "app", "--to", "new")
        gateway.order("settle", "o-2", "app", "--ttl-ms", "60000")

        def uncommitted() -> str | None:
            librdkafka.behind(49)
            told = committed(clusters["old"])
            return None if set(told.values()) == {50} else str(told)

        wait_until("what was delivered is committed", uncommitted, WAIT_S)
        gateway.order("hold", "o-3", "app", "--ttl-ms", "120000")
        waits = send(app, TOPIC, range(50, 60))
        assert acknowledged(send(other, OTHER, range(30))) == list(range(30)), "another application flows"

        def held() -> str | None:
            told = gateway.status()["apps"]["app"]
            quiet = told["requests_in_flight"] == 0 and "PRODUCE" in told["parked"]
            return None if quiet else f"in flight {told['in_flight']}, parked {told['parked']}"

        wait_until("nothing is in flight, and the producer waits", held, WAIT_S)
        assert end(clusters["old"]) == 50
        assert not any(one.is_done for one in waits)
        copy(clusters)
        before = committed(clusters["new"])
        on_the_mirror(gateway.address("mirror"), 50)
        assert (end(clusters["new"]), committed(clusters["new"])) == (50, before)
        reads = gateway.status()["readers"]["mirror"]
        assert reads["cluster"] == "new"
        for name in ("PRODUCE", "OFFSET_COMMIT", "JOIN_GROUP"):
            assert f"{name}: listener mirror is read-only" in reads["refused"]
        assert not any(one.is_done for one in waits), "the hold is as it was"
        assert "fencing number 1 is outdated; the current number of app is 2" in gateway.order(
            "seal", "o-4", "app", "--hold", "o-3", fencing=1, code=5
        )
        gateway.order("seal", "o-4", "app", "--hold", "o-3")
        gateway.order("go", "o-5", "app")

        # Both know ports of the old cluster only.
        assert acknowledged(waits) == list(range(50, 60))
        assert librdkafka.send(range(60, 65)) == list(range(60, 65))
        wait_until("the readers go on", lambda: behind(64), WAIT_S)
        assert (end(clusters["old"]), end(clusters["new"])) == (50, 65)
        assert (end(clusters["old"], OTHER), end(clusters["new"], OTHER)) == (30, 0)
        seen = gateway.status()["apps"]["app"]
        assert seen["acks"].keys() == {"-1"}
        assert {"apache-kafka-java 2.8.2"} <= seen["software"].keys()
        assert any("confluent-kafka" in name for name in seen["software"]), seen["software"]

        # Killed: the last durable route, and the same operation is answered as before.
        gateway.process.kill()
        gateway.process.wait(WAIT_S)
        gateway.begin()
        assert gateway.status()["apps"]["app"]["route"] == "new"
        assert "app: open on new" in gateway.order("go", "o-5", "app")
        assert acknowledged(send(app, TOPIC, range(65, 70))) == list(range(65, 70))
        wait_until("the readers go on", lambda: behind(69), WAIT_S)
        assert end(clusters["old"]) == 50
        assert [int(one) for one in out.read_text().split()] == list(range(70)), "each once, in order"
        assert librdkafka.seen == list(range(70)), "each once, in order"
        assert librdkafka.assigned == list(range(70)), "by its own position, with no commit"

        # New clients of the newest release that know only the left port.
        jars = ":".join(map(str, provision.kafka_classpath(NEW)))
        options = ["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars]
        words = ["java", *options, str(Path(__file__).with_name("Newest.java")), left, TOPIC, "70"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert [int(one) for one in done.stdout.split()] == [70, *range(71)]
        wait_until("its record is there", lambda: behind(70), WAIT_S)
        assert end(clusters["new"]) == 71
        software = gateway.status()["apps"]["app"]["software"]
        assert "apache-kafka-java 4.3.1" in software


BILLS = "bills"
BILL = (BILLS, 0)


def commit(address: str, groups: Sequence[str], offset: int) -> None:
    """Commit an offset for groups without members, once their coordinator is there."""
    at = TopicPartition(BILLS, 0)
    with closing(KafkaAdminClient(bootstrap_servers=[address])) as admin:

        def committed() -> str | None:
            try:
                for group in groups:
                    done = admin.alter_group_offsets(group, {at: OffsetAndMetadata(offset, "", -1)})
                    assert done == {at: NoError}
            except CoordinatorNotAvailableError as error:
                return str(error)
            return None

        wait_until("the groups have a coordinator", committed, WAIT_S)


def seen(reading: Reading[T]) -> T:
    assert isinstance(reading, Seen), reading
    return reading.value


def test_h11_a_run_sees_what_is_mirrored_and_makes_commits_equal(clusters: dict[str, str]) -> None:
    here, there = clusters["old"], clusters["new"]
    names = [f"billing-{n}" for n in range(20)]
    make(here, BILLS)
    with (
        closing(KafkaProducer(bootstrap_servers=[here], acks="all", linger_ms=0)) as producer,
        closing(Mirrored(ClusterAt((here,)), ClusterAt((there,)))) as look,
        closing(Alter(Mirroring(clusters))) as alter,
    ):
        assert acknowledged(send(producer, BILLS, range(30))) == list(range(30))
        commit(here, names, 10)
        assert seen(look.survey([BILLS], [])).partitions == {BILL: ("missing", "")}
        mirror(clusters, BILLS)
        assert seen(look.ends([BILLS])) == {BILL: BothEnds(30, 30, 30)}
        assert acknowledged(send(producer, BILLS, range(30, 35))) == list(range(30, 35))
        assert seen(look.ends([BILLS])) == {BILL: BothEnds(35, 35, 30)}
        commit(here, names, 33)

        # The commits may not pass target's end.
        assert alter(CopyOffsets(MIRRORED, (BILLS,), tuple(names)))[0] == 0
        pairs = seen(look.commits([BILLS], names))
        assert {(one.state, one.behind) for one in pairs.values()} == {("behind", 3)}
        mirror(clusters, BILLS)
        assert alter(CopyOffsets(MIRRORED, (BILLS,), ()))[0] == 0
        pairs = seen(look.commits([BILLS], []))
        assert {name: one.state for name, one in pairs.items()} == dict.fromkeys(names, "equal")
        found = seen(look.survey([BILLS], names[:2]))
        assert (found.refused, found.partitions) == ({}, {BILL: ("equal", "")})
        assert found.groups.keys() == set(names[:2])
        # A group of an earlier test may be joining, and then what it reads is not known.
        assert [one for one in found.notes if one.removeprefix("group ") in (*names, "groups", "ACLs")] == []
        assert seen(look.differences({BILL: (5, 35)})) == {BILL: Seen(RangeCompared("", 30))}

        # A group with a member on target is left alone, and so are the others.
        commit(here, names, 34)
        member = Consumer({"bootstrap.servers": there, "group.id": names[3], "enable.auto.commit": False})
        member.subscribe([BILLS])
        try:

            def refused() -> str | None:
                member.poll(0.1)
                told = alter(CopyOffsets(MIRRORED, (BILLS,), (names[3], names[4])))
                active = (
                    f"group {names[3]}: the group is active on target (Stable), so its commits are not copied"
                )
                return None if told == (1, f"nothing was sent: {active}") else str(told)

            wait_until("the group has a member", refused, WAIT_S)
        finally:
            member.close()

        # Each side gets another record at the same offset.
        with closing(KafkaProducer(bootstrap_servers=[there], acks="all", linger_ms=0)) as other:
            assert acknowledged(send(producer, BILLS, [35])) == acknowledged(send(other, BILLS, [36])) == [35]
        [told] = seen(look.differences({BILL: (30, 36)})).values()
        assert isinstance(told, Seen)
        assert told.value.first.startswith("offset 35: ")


class Mirroring:
    """The part of an inventory that names both clusters."""

    def __init__(self, addresses: dict[str, str]) -> None:
        self.ends = ClusterAt((addresses["old"],)), ClusterAt((addresses["new"],))


class Relay:
    """The relay of a run beside a gateway, on two pipes."""

    def __init__(self, gateway: Gateway, run: str, fencing: int) -> None:
        words = gateway.words("relay", "--run", run, "--as", str(fencing))
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._asked = 0

    def ask(self, *words: str) -> tuple[int, str]:
        """The exit code and the lines of an answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._asked += 1
        self.process.stdin.write(f"{self._asked} {' '.join(words)}\n")
        self.process.stdin.flush()
        lines = []
        while not (line := self.process.stdout.readline()).startswith(". "):
            assert line.startswith("= "), line
            lines.append(line[2:])
        assert line.split()[1] == str(self._asked)
        return int(line.split()[2]), "".join(lines).strip()

    def order(self, operation: str, order: str, **more: Any) -> str:
        """What the gateway responds to an order that it carries out."""
        change = GatewayOrder("g1", order, "app", **more)  # type: ignore[arg-type]
        code, text = self.ask(change.verb, operation, *change.arguments())
        assert code == 0, text
        return text

    def app(self) -> dict[str, Any]:
        code, text = self.ask("status")
        assert code == 0, text
        told: dict[str, Any] = json.loads(text)["apps"]["app"]
        return told

    def close(self) -> None:
        self.process.communicate(timeout=WAIT_S)
        assert self.process.returncode == 0


def test_h16_h17_a_relay_takes_a_gateway_there_and_back(clusters: dict[str, str], tmp_path: Path) -> None:
    with (
        Gateway(tmp_path, clusters) as gateway,
        closing(Relay(gateway, "move-1", 3)) as relay,
        closing(Relay(gateway, "move-0", 2)) as former,
    ):
        there, back = ("old", "new", "there"), ("new", "old", "back")
        for here, to, way in (there, back):
            # On the way back it is gone when it is held, and nobody has opened it in between.
            held = relay.order(f"{way}.1", "hold", ttl_ms=120_000)
            assert held == f"done: app: held on {here}"
            assert relay.order(f"{way}.2", "route", to=to) == f"done: app: held on {here}"
            app = relay.app()
            assert (app["hold"], app["staged"], app["requests_in_flight"]) == (f"move-1.{way}.1", to, 0)
            assert relay.order(f"{way}.3", "seal", hold=app["hold"]) == f"done: app: sealed on {here}"
            gone = relay.order(f"{way}.4", "go", ttl_ms=120_000)
            assert gone == f"done: app: gone on {to}"
            assert relay.order(f"{way}.4", "go", ttl_ms=120_000) == gone, "again: the first answer"
        assert former.ask("order", "1", "unhold", "app", "to=", "hold=", "ttl_ms=0") == (
            9,
            "fenced: fencing number 2 is outdated; the current number of app is 3",
        )
        assert relay.order("5", "unhold") == "done: app: open on old"
        assert gateway.status()["apps"]["app"]["route"] == "old"


class Lossy:
    """A relay before a broker. It loses the next answer to PRODUCE: it calls ``lost``, and ends the
    connection."""

    def __init__(self, address: str) -> None:
        self.lost: Callable[[], object] | None = None
        self._to = address
        self._server = socket.create_server((ADDRESS, 0))
        self.address = f"{ADDRESS}:{self._server.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._server.accept()
                host, _, port = self._to.rpartition(":")
                there = socket.create_connection((host, int(port)), WAIT_S)
                there.settimeout(None)
                asked: list[int] = []
                for one, other, up in ((here, there, True), (there, here, False)):
                    passing = partial(self._pass, one, other, asked, up=up)
                    threading.Thread(target=passing, daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, asked: list[int], *, up: bool) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                if up:
                    asked.append(int.from_bytes(data[4:6], "big"))
                elif self.lost is not None and asked[-1] == PRODUCE:
                    lost, self.lost = self.lost, None
                    lost()
                    break
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def test_a_batch_whose_answer_was_lost_keeps_its_producer_on_its_cluster(tmp_path: Path) -> None:
    """An idempotent producer between two clusters of stock settings. Behind the switch its retry was a second
    record: the copy of the first one has the mirror's producer id."""
    folders = [tmp_path / name for name in ("old", "new")]
    for folder in folders:
        folder.mkdir()
    with (
        kraft.broker("3.9.1", folders[0]) as here,
        kraft.broker(NEW, folders[1], NEW_NODE) as there,
        closing(Lossy(here)) as lossy,
        Gateway(tmp_path, {"old": lossy.address, "new": there}) as gateway,
    ):
        make(here, TOPIC)
        offsets: list[int] = []
        common = {"bootstrap.servers": gateway.address("old"), "client.id": "app-once", "linger.ms": 0}
        producer = Producer(common | {"enable.idempotence": True})

        def send(value: str) -> None:
            def told(error: Any, message: Any) -> None:
                assert error is None, str(error)
                offsets.append(message.offset())

            producer.produce(TOPIC, value, partition=0, on_delivery=told)

        def parked() -> str | None:
            app = gateway.status()["apps"]["app"]
            quiet = app["requests_in_flight"] == 0 and app["parked"].get("PRODUCE") == 1
            return None if quiet else f"in flight {app['in_flight']}, parked {app['parked']}"

        def switch(hold: str) -> None:
            mirror({"old": here, "new": there}, TOPIC)
            gateway.order("seal", f"seal-{hold}", "app", "--hold", hold)
            gateway.order("go", f"go-{hold}", "app")

        send("first")
        assert producer.flush(WAIT_S) == 0
        gateway.order("route", "route", "app", "--to", "new")
        lossy.lost = lambda: gateway.order("hold", "hold-1", "app", "--ttl-ms", "120000")
        send("lost")
        producer.poll(0)
        wait_until("its retry waits at the gate", parked, WAIT_S)
        assert (end(here), offsets) == (2, [0]), "it is in the log, and the producer does not know it"
        assert [name.split(",")[1:] for name in gateway.status()["apps"]["app"]["outcomes"]["names"]] == [
            [f" {TOPIC}-0", " sequences 1 to 1"]
        ]
        refused = gateway.order("seal", "seal-1", "app", "--hold", "hold-1", code=6)
        assert "the clients of app do not know the outcome of 1 batches" in refused
        gateway.order("unhold", "unhold-1", "app")
        assert producer.flush(WAIT_S) == 0
        assert (end(here), offsets) == (2, [0, 1]), "its broker knew it again"
        gateway.order("hold", "hold-2", "app", "--ttl-ms", "120000")
        switch("hold-2")
        send("last")
        assert producer.flush(WAIT_S) == 0
        assert (end(there), offsets) == (3, [0, 1, 2]), "each once"
