"""The mirror on real brokers: 2.8.2 to 3.9.1, read back by Kafka's own rules for consumers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic, ScramMechanism, UserScramCredentialUpsertion

from tests.servers.process import ADDRESS, START_SECONDS, free_port, server, wait_for
from tests.servers.test_versions import zookeeper
from zkmigrate.errors import HostError
from zkmigrate.kafka.clients import admin
from zkmigrate.lab import provision
from zkmigrate.lab.wait import wait_until
from zkmigrate.mirror.clients import cluster
from zkmigrate.mirror.clients.cluster import Cluster, Part
from zkmigrate.mirror.clients.security import settings
from zkmigrate.mirror.rules.position import Ends
from zkmigrate.model.fact import Seen

WAIT_S = 120
SECRET = "s3cr3t of alice"
RELEASES = {"source": "2.8.2", "target": "3.9.1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mirror")


@pytest.fixture(scope="module")
def doors() -> dict[str, str]:
    """Where the brokers listen with TLS or SASL: SASL_PLAINTEXT is source's, the others are target's."""
    return {name: f"{ADDRESS}:{free_port()}" for name in ("SASL_PLAINTEXT", "SSL", "SASL_SSL")}


def secured(folder: Path, doors: dict[str, str]) -> dict[str, str]:
    """The listeners and settings of each broker for them."""
    own = folder / "own.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    words += ["-keyout", str(folder / "key.pem"), "-out", str(own), "-days", "2", "-subj", "/CN=mirror"]
    subprocess.run([*words, "-addext", f"subjectAltName=IP:{ADDRESS}"], check=True, capture_output=True)
    own.write_text((folder / "key.pem").read_text() + own.read_text())
    modules = "org.apache.kafka.common.security"
    plain = f'{modules}.plain.PlainLoginModule required user_alice="{SECRET}";'
    return {
        "source": f",SASL_PLAINTEXT://{doors['SASL_PLAINTEXT']}\nsasl.enabled.mechanisms=SCRAM-SHA-256\n"
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config="
        f"{modules}.scram.ScramLoginModule required;\n",
        "target": f",SSL://{doors['SSL']},SASL_SSL://{doors['SASL_SSL']}\n{tls(own)}"
        "ssl.client.auth=required\nlistener.name.sasl_ssl.ssl.client.auth=none\n"
        f"sasl.enabled.mechanisms=PLAIN\nlistener.name.sasl_ssl.plain.sasl.jaas.config={plain}\n",
    }


def tls(own: Path) -> str:
    """Key, certificate and whom to trust: a broker's settings or a client's."""
    stores = ("truststore", "keystore")
    return "".join(f"ssl.{one}.type=PEM\nssl.{one}.location={own}\n" for one in stores)


@pytest.fixture(scope="module")
def clusters(folder: Path, doors: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Source and target, one broker each, as ``host:port``."""
    addresses, begun, more = [], [], secured(folder, doors)
    with zookeeper("3.5.8", folder) as port, ExitStack() as stack:
        for name, release in RELEASES.items():
            address = f"{ADDRESS}:{free_port()}"
            config, log = folder / f"{name}.properties", folder / f"{name}.log"
            config.write_text(
                f"broker.id=1\nlisteners=PLAINTEXT://{address}{more[name]}log.dirs={folder / name}\n"
                f"zookeeper.connect={ADDRESS}:{port}/{name}\nzookeeper.session.timeout.ms=600000\n"
                "offsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n"
                "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
                "transaction.state.log.num.partitions=1\nlog.cleaner.dedupe.buffer.size=4000000\n"
                "log.cleaner.backoff.ms=100\nauto.create.topics.enable=false\n"
            )
            main = ["-Xmx256m", "kafka.Kafka", str(config)]
            process = stack.enter_context(server("java", provision.kafka_classpath(release), main, log))
            begun.append((f"Kafka {release}", process, log, port, "dump", f"/{name}/brokers/ids/1"))
            addresses.append(address)
        for one in begun:
            wait_for(*one)
        for address in addresses:
            wait_until(address, lambda at=address: answers(at), START_SECONDS)  # type: ignore[misc]
        source, target = addresses
        yield source, target


def answers(address: str) -> str | None:
    told = admin.ask([address], lambda _client, releases: Seen(len(releases)))
    return None if told == Seen(1) else str(told)


def make(address: str, topic: str, partitions: int = 1, **settings: str) -> None:
    configs = {key.replace("_", "."): value for key, value in settings.items()}
    with closing(KafkaAdminClient(bootstrap_servers=[address])) as client:
        client.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])


def send(
    address: str, topic: str, values: Sequence[int], keys: int = 1000, partition: int = 0, **producer: Any
) -> None:
    with closing(KafkaProducer(bootstrap_servers=[address], linger_ms=0, **producer)) as sender:
        for n in values:
            sender.send(
                topic, b"value %d" % n, b"key %d" % (n % keys), [("n", b"%d" % n)], partition=partition
            )
            if n % 10 == 9:
                sender.flush()
        sender.flush()


def transactions(address: str, topic: str) -> None:
    """Committed and aborted ones in turns, five records each."""
    with closing(KafkaProducer(bootstrap_servers=[address], transactional_id=topic)) as sender:
        sender.init_transactions()
        for n in range(12):
            sender.begin_transaction()
            for one in range(5):
                sender.send(topic, b"%d of %d" % (one, n), partition=0)
            sender.flush()
            (sender.commit_transaction if n % 3 else sender.abort_transaction)()


def read(address: str, topic: str) -> list[tuple[Any, ...]]:
    """What a read_committed consumer sees of partition 0."""
    at, found = TopicPartition(topic, 0), list[tuple[Any, ...]]()
    with closing(
        KafkaConsumer(bootstrap_servers=[address], isolation_level="read_committed", enable_auto_commit=False)
    ) as consumer:
        consumer.assign([at])
        consumer.seek_to_beginning(at)
        end = consumer.end_offsets([at])[at]

        def unread() -> str | None:
            for one in consumer.poll(200).get(at, ()):
                found.append((one.offset, one.timestamp, one.key, one.value, tuple(one.headers)))
            here = consumer.position(at)
            return None if here >= end else f"at {here} of {end}"

        wait_until(f"all of {topic}", unread, WAIT_S)
    return found


def mirror(clusters: tuple[str, str], verb: str, topics: Sequence[str], *more: str) -> subprocess.Popen[str]:
    source, target = clusters
    words = [sys.executable, "-m", "zkmigrate", "mirror", verb, "--source", source, "--target", target]
    words += [word for topic in topics for word in ("--topic", topic)] + list(more)
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=WAIT_S)
    return process.returncode, output


def ends(clusters: tuple[str, str], topics: Sequence[str], partitions: int) -> list[dict[Part, int]]:
    """Source's last stable offsets, and target's ends; none without a topic."""
    found = []
    for address in clusters:
        with closing(Cluster(address, address.split(","))) as site:
            parts = [(topic, n) for topic in topics for n in range(partitions)]
            told = site.ends(parts, committed=True)
        found.append({part: one.end for part, one in told.items() if isinstance(one, Ends)})
    return found


def behind(clusters: tuple[str, str], topics: Sequence[str], partitions: int = 1) -> str | None:
    source, target = ends(clusters, topics, partitions)
    return None if source == target else f"{target}, needed {source}"


TOPICS = ("plain", "packed", "compacted", "transactional", "deleted")


def fill(source: str) -> None:
    for topic in TOPICS[:2]:
        make(source, topic, retention_ms="-1", max_message_bytes="900000")
    send(source, "plain", range(200))
    send(source, "packed", range(200), compression_type="gzip")
    make(
        source, "compacted", cleanup_policy="compact", segment_bytes="2000", min_cleanable_dirty_ratio="0.01"
    )
    send(source, "compacted", range(300), keys=70)
    make(source, "transactional")
    transactions(source, "transactional")
    make(source, "deleted")
    send(source, "deleted", range(150))
    with closing(KafkaAdminClient(bootstrap_servers=[source])) as client:
        client.delete_records({TopicPartition("deleted", 0): 95})

    def whole() -> str | None:
        seen = len(read(source, "compacted"))
        return None if seen < 200 else f"{seen} records"

    wait_until("compaction", whole, WAIT_S)


def test_h1_h8_a_mirror_is_equal_however_often_its_copier_is_killed(
    clusters: tuple[str, str], tmp_path: Path
) -> None:
    source, target = clusters
    fill(source)
    for last in (1, 3, 8):
        words = [sys.executable, "-m", "tests.servers.killed_copier", source, target, str(last), *TOPICS]
        done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr

    # The newer of two copiers goes on, the older stops.
    older = mirror(clusters, "run", TOPICS)
    wait_until("the mirror is even", lambda: behind(clusters, TOPICS), WAIT_S)
    send(source, "plain", range(200, 230))
    wait_until("it follows", lambda: behind(clusters, TOPICS), WAIT_S)
    newer = mirror(clusters, "run", TOPICS)
    code, output = ended(older)
    assert code == 5, output
    assert "another copier has taken over" in output
    send(source, "packed", range(200, 230), compression_type="gzip")
    wait_until("the newer follows", lambda: behind(clusters, TOPICS), WAIT_S)
    newer.send_signal(signal.SIGINT)
    code, output = ended(newer)
    assert code == 130, output
    assert "failed: none" in output

    code, output = ended(mirror(clusters, "compare", TOPICS, "--json"))
    assert code == 0, output
    told = json.loads(output)
    assert {one["state"] for one in told["partitions"]} == {"equal"}
    assert [one["differ"] for one in told["topics"]] == [{}] * len(TOPICS)
    settings = {one["topic"]: one["settings"] for one in told["topics"]}
    assert settings["plain"]["max.message.bytes"] == "900000"
    for topic in TOPICS:
        seen = read(source, topic)
        assert seen == read(target, topic)
        assert len(seen) == {one["topic"]: one["records"] for one in told["partitions"]}[topic]
    assert read(target, "deleted")[0][0] == 95
    assert len(read(target, "transactional")) == 40


def test_h2_a_foreign_write_on_target_fails_the_partition_by_name(clusters: tuple[str, str]) -> None:
    source, target = clusters
    make(source, "foreign")
    send(source, "foreign", range(10))
    copying = mirror(clusters, "run", ["foreign"])
    wait_until("the mirror is even", lambda: behind(clusters, ["foreign"]), WAIT_S)
    send(target, "foreign", [99])
    code, output = ended(copying)
    assert code == 8, output
    assert "FAILED foreign-0: target's log goes on at offset 11, needed: 10" in output

    # Source catches up: no later copier goes on over it.
    send(source, "foreign", range(10, 20))
    code, output = ended(mirror(clusters, "run", ["foreign"], "--once"))
    assert code == 8, output
    assert "another producer" in output
    code, output = ended(mirror(clusters, "status", ["foreign"]))
    assert code == 10, output
    code, output = ended(mirror(clusters, "compare", ["foreign"]))
    assert code == 10, output
    assert "foreign-0: different: offset 10: source's time is" in output


def test_two_copiers_share_partitions_and_a_third_takes_all_of_them(clusters: tuple[str, str]) -> None:
    """None of them knows of the others."""
    source, _ = clusters
    count, values = 6, range(30)
    make(source, "common", partitions=count)

    def more() -> None:
        for n in range(count):
            send(source, "common", values, partition=n)
        wait_until("the mirror is even", lambda: behind(clusters, ["common"], count), WAIT_S)

    sharing = [mirror(clusters, "run", ["common"], "--share", share) for share in ("1/2", "2/2")]
    more()
    alone = mirror(clusters, "run", ["common"])
    for one in sharing:
        code, output = ended(one)
        assert code == 5, output
        assert output.count("TAKEN common-") == 3, output
    more()
    alone.send_signal(signal.SIGINT)
    code, output = ended(alone)
    assert code == 130, output
    code, output = ended(mirror(clusters, "compare", ["common"], "--json"))
    assert code == 0, output
    told = json.loads(output)["partitions"]
    assert [(one["state"], one["records"]) for one in told] == [("equal", 2 * len(values))] * count
    code, output = ended(mirror(clusters, "run", ["common"], "--share", "99/99", "--once"))
    assert (code, "share 99/99 has no partition of these topics" in output) == (2, True), output


def test_both_clusters_are_reached_by_tls_and_sasl(
    clusters: tuple[str, str], doors: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _ = clusters
    make(source, "secured")
    send(source, "secured", range(20))
    with closing(KafkaAdminClient(bootstrap_servers=[source])) as client:
        client.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("alice", ScramMechanism.SCRAM_SHA_256, SECRET)]
        )
    modules = "org.apache.kafka.common.security"
    login = f'required username="alice" password="{SECRET}";'
    scram, keys, plain = (folder / f"{name}.properties" for name in ("scram", "keys", "plain"))
    scram.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f"sasl.jaas.config={modules}.scram.ScramLoginModule {login}\n"
    )
    keys.write_text(f"security.protocol=SSL\n{tls(folder / 'own.pem')}")
    trust = f"ssl.truststore.type=PEM\nssl.truststore.location={folder / 'own.pem'}\n"
    plain.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n{trust}"
        f"sasl.jaas.config={modules}.plain.PlainLoginModule {login}\n"
    )
    for verb, door, config, more in (("run", "SSL", keys, ["--once"]), ("compare", "SASL_SSL", plain, [])):
        files = ["--source-config", str(scram), "--target-config", str(config)]
        pair = (doors["SASL_PLAINTEXT"], doors[door])
        code, output = ended(mirror(pair, verb, ["secured"], *files, *more))
        assert code == 0, output
    assert "records: 20" in output

    # Who may not come in is told why, and not the secret.
    monkeypatch.setattr(cluster, "REQUEST_S", 4.0)
    scram.write_text(scram.read_text().replace(SECRET, f"{SECRET} of old"))
    with pytest.raises(HostError, match=r"SaslAuthenticationFailed") as caught:
        Cluster("source", [doors["SASL_PLAINTEXT"]], settings(scram))
    assert SECRET not in str(caught.value)
    keys.write_text("security.protocol=SSL\n")
    with pytest.raises(HostError, match="CERTIFICATE_VERIFY_FAILED"):
        Cluster("target", [doors["SSL"]], settings(keys))
