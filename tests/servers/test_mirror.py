"""The mirror on real brokers: 2.8.2 to 3.9.1, read back by Kafka's own rules for consumers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Literal

import pytest
from click.testing import CliRunner
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    NewTopic,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka.errors import TopicAlreadyExistsError, TopicAuthorizationFailedError
from kafka.structs import OffsetAndMetadata

from tests.answers import Mirrored
from tests.ports import free_port
from tests.servers.brokers import ALONE, Broker, serve
from tests.servers.process import ADDRESS
from tests.servers.process import answers as answers
from tests.servers.test_versions import zookeeper
from zkmigrate.cli.main import cli
from zkmigrate.errors import HostError
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.topics.mirror.changes import MIRRORED, AlterAcls
from zkmigrate.topics.mirror.clients import cluster, groups
from zkmigrate.topics.mirror.clients import topics as followed
from zkmigrate.topics.mirror.clients.alter import Alter
from zkmigrate.topics.mirror.clients.cluster import Cluster, Part
from zkmigrate.topics.mirror.clients.security import of, settings
from zkmigrate.topics.mirror.clients.transactions import transactional
from zkmigrate.topics.mirror.questions import ClusterAt, GroupReads
from zkmigrate.topics.mirror.rules.commits import Commit
from zkmigrate.topics.mirror.rules.position import Ends
from zkmigrate.topics.mirror.rules.transactions import Writers

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


def secured(folder: Path, doors: dict[str, str]) -> dict[str, tuple[str, str]]:
    """The listeners and settings of each broker for them."""
    own = folder / "own.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    words += ["-keyout", str(folder / "key.pem"), "-out", str(own), "-days", "2", "-subj", "/CN=mirror"]
    subprocess.run([*words, "-addext", f"subjectAltName=IP:{ADDRESS}"], check=True, capture_output=True)
    own.write_text((folder / "key.pem").read_text() + own.read_text())
    modules = "org.apache.kafka.common.security"
    users = f'user_alice="{SECRET}" user_app="{SECRET}"'
    plain = f"{modules}.plain.PlainLoginModule required {users};"
    return {
        "source": (
            f",SASL_PLAINTEXT://{doors['SASL_PLAINTEXT']}",
            "sasl.enabled.mechanisms=SCRAM-SHA-256\n"
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config="
            f"{modules}.scram.ScramLoginModule required;\n",
        ),
        "target": (
            f",SSL://{doors['SSL']},SASL_SSL://{doors['SASL_SSL']}",
            f"{tls(own)}ssl.client.auth=required\nlistener.name.sasl_ssl.ssl.client.auth=none\n"
            f"sasl.enabled.mechanisms=PLAIN\nlistener.name.sasl_ssl.plain.sasl.jaas.config={plain}\n",
        ),
    }


def tls(own: Path) -> str:
    """Key, certificate and whom to trust: a broker's settings or a client's."""
    stores = ("truststore", "keystore")
    return "".join(f"ssl.{one}.type=PEM\nssl.{one}.location={own}\n" for one in stores)


@pytest.fixture(scope="module")
def clusters(folder: Path, doors: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Source and target, one broker each, as ``host:port``."""
    more = secured(folder, doors)
    source, target = (
        Broker(
            release,
            f"{more[name][1]}{ALONE}log.cleaner.backoff.ms=100\n"
            "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\n"
            "super.users=User:ANONYMOUS;User:alice;User:CN=mirror\n",
            chroot=name,
            listeners=more[name][0],
        )
        for name, release in RELEASES.items()
    )
    with zookeeper("3.5.8", folder) as port, serve(folder, port, source, target):
        yield source.address, target.address


def make(address: str, topic: str, partitions: int = 1, **settings: str) -> None:
    configs = {key.replace("_", "."): value for key, value in settings.items()}
    with closing(KafkaAdminClient(bootstrap_servers=[address])) as client:
        client.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])


def send(
    address: str, topic: str, values: Sequence[int], keys: int = 1000, partition: int = 0, **producer: Any
) -> None:
    with closing(KafkaProducer(bootstrap_servers=[address], linger_ms=0, **producer)) as sender:
        for n in values:
            key, headers = b"key %d" % (n % keys), [("n", b"%d" % n)]
            sender.send(topic, b"value %d" % n, key, headers, partition=partition)
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


def mirror(
    clusters: tuple[str, str], verb: str, topics: Sequence[str], *more: str, output: Any = subprocess.PIPE
) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "zkmigrate", *asked(clusters, verb, topics, *more)]
    return subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, text=True)


def asked(clusters: tuple[str, str], verb: str, topics: Sequence[str], *more: str) -> list[str]:
    """The words of the command line."""
    source, target = clusters
    named = [word for topic in topics for word in ("--topic", topic)]
    return ["mirror", verb, "--source", source, "--target", target, *named, *more]


def ran(clusters: tuple[str, str], verb: str, topics: Sequence[str], *more: str) -> tuple[int, str]:
    """Run a verb to its end in this process, which is quicker: the exit code, and what it said."""
    done = CliRunner().invoke(cli, asked(clusters, verb, topics, *more))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


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

    code, output = ran(clusters, "compare", TOPICS, "--json")
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

    # Kafka 2.8 keeps its transactional ids in a topic. The mirror's own end markers are no transactions.
    with closing(Cluster("source", [source])) as here, closing(Cluster("target", [target])) as there:
        [(name, why)] = transactional(here, TOPICS).named.items()
        assert (name, why.split(",")[0]) == ("transactional", "the producer wrote to transactional-0")
        assert transactional(here, TOPICS[:3]) == Writers({})
        assert transactional(there, TOPICS) == Writers({})


def test_h2_a_foreign_write_on_target_fails_the_partition_by_name(clusters: tuple[str, str]) -> None:
    source, target = clusters
    make(source, "foreign")
    send(source, "foreign", range(10))
    copying = mirror(clusters, "run", ["foreign"])
    wait_until("the mirror is even", lambda: behind(clusters, ["foreign"]), WAIT_S)
    send(target, "foreign", [99])
    code, output = ended(copying)
    assert code == 8, output
    assert "FAILED foreign-0: target's log continues at offset 11; needed: 10" in output

    # Source catches up: no later copier goes on over it.
    send(source, "foreign", range(10, 20))
    code, output = ran(clusters, "run", ["foreign"], "--once")
    assert code == 8, output
    assert "another producer (id" in output
    code, output = ran(clusters, "status", ["foreign"])
    assert code == 10, output
    code, output = ran(clusters, "compare", ["foreign"])
    assert code == 10, output
    assert "foreign-0: different: offset 10: source's time is" in output


GROWN = [("grown", n) for n in range(3)]


def commit(address: str, group: str, offset: int) -> None:
    with closing(
        KafkaConsumer(bootstrap_servers=[address], group_id=group, enable_auto_commit=False)
    ) as consumer:
        consumer.commit({TopicPartition("grown", 0): OffsetAndMetadata(offset, "mine", -1)})


def acl(
    name: str,
    operation: ACLOperation,
    pattern: ACLResourcePatternType,
    kind: ResourceType = ResourceType.TOPIC,
) -> ACL:
    return ACL("User:app", "*", operation, ACLPermissionType.ALLOW, ResourcePattern(kind, name, pattern))


class Side:
    """What one cluster shows beside the records."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        self.address = address
        self.admin = stack.enter_context(closing(KafkaAdminClient(bootstrap_servers=[address])))
        self.cluster = stack.enter_context(closing(Cluster(address, [address])))

    def committed(self, group: str) -> tuple[int, str]:
        told = self.admin.list_group_offsets(group)[group][TopicPartition("grown", 0)]
        return told.offset, told.metadata

    def ends(self) -> dict[tuple[str, int], int]:
        told = self.cluster.ends(GROWN)
        return {part: one.end for part, one in told.items() if isinstance(one, Ends)}

    def retention(self) -> str | None:
        return self.cluster.topics(["grown"])[0]["grown"].settings.values["retention.ms"]

    def retain(self, operation: AlterConfigOp, value: str | None) -> None:
        settings = {"retention.ms": (operation, value)}
        self.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "grown", settings)])

    def rights(self) -> set[ACL]:
        every = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
        which = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, every)
        return set(self.admin.describe_acls(which)[0])


def lacks(seen: object, needed: object) -> str | None:
    return None if seen == needed else f"{seen}, needed {needed}"


def test_h4_h5_h7_partitions_settings_offsets_and_acls_follow(
    clusters: tuple[str, str], folder: Path, doors: dict[str, str], tmp_path: Path
) -> None:
    source, target = clusters
    make(source, "grown", retention_ms="86400000")
    make(source, "anew")
    send(source, "grown", range(20))
    send(source, "anew", range(5))
    for group in ("reader", "busy"):
        commit(source, group, 12)
    code, output = ran(clusters, "run", ["grown", "anew"], "--once")
    assert code == 0, output
    with ExitStack() as stack:
        here, there = Side(source, stack), Side(target, stack)
        # When it ends, offsets are equal.
        assert there.committed("reader") == there.committed("busy") == (12, "mine")
        busy = KafkaConsumer("grown", bootstrap_servers=[target], group_id="busy", enable_auto_commit=False)
        stack.enter_context(closing(busy))

        def inactive() -> str | None:
            busy.poll(500)
            return lacks(there.admin.describe_groups(["busy"])["busy"]["group_state"], "Stable")

        wait_until("the group is active", inactive, WAIT_S)
        assert groups.reads(there.cluster, ["grown"], []) == {"busy": GroupReads({("grown", 0): 12})}
        # A commit without a member is refused by the broker itself.
        assert groups.commit(there.cluster, {"busy": (1, {("grown", 0): Commit(1)})}) == {
            "busy": "the group is active on target, so its commits are not copied"
        }
        here.admin.create_partitions({"grown": 2})
        log = tmp_path / "run.json"
        with log.open("w") as told:
            named = ("reader", "busy", "nobody")
            words = ["--refresh", "1", "--json", *(word for one in named for word in ("--group", one))]
            running = mirror(clusters, "run", ["grown", "anew"], *words, output=told)
        try:
            wait_until("a look", lambda: lacks("group busy" in log.read_text(), True), WAIT_S)
            follow(here, there)
            code, output = ran(clusters, "status", ["grown"], "--json")
            assert code == 0, output
            body = json.loads(output)
            states = {one["group"]: one["state"] for one in body["groups"]}
            assert states == {"reader": "equal", "busy": "active"}
            assert body["acls"]["grant"] == []
            assert list(body["acls"]["not_copied"].values()) == ["granted at the switch"]

            former = followed.states(here.cluster, ["anew"])[0]["anew"]
            here.admin.delete_topics(["anew"])
            wait_until("deletion", lambda: still_there(source, "anew"), WAIT_S)
            send(source, "anew", range(100, 110))
            now = followed.states(here.cluster, ["anew"])[0]["anew"]
            assert now is not None
            assert former is not None
            assert "" != former.id != now.id != ""
            wait_until("it fails", lambda: lacks("PartitionFailed" in log.read_text(), True), WAIT_S)
            send(source, "grown", range(30, 40))
            wait_until("the others go on", lambda: lacks(there.ends(), here.ends()), WAIT_S)
            assert there.cluster.ends([("anew", 0)]) == {("anew", 0): Ends(0, 5)}
        finally:
            running.send_signal(signal.SIGINT)
            code = running.wait(WAIT_S)
        the_switch_grants_writing(clusters, there, folder, doors["SASL_SSL"])
    assert code == 8, log.read_text()
    events = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    kinds = {one["event"] for one in events}
    assert {"SettingsChanged", "OffsetsCommitted", "AclsChanged"} <= kinds
    assert [one["partitions"] for one in events if one["event"] == "PartitionsAdded"] == [2, 3]
    findings = {one["about"]: one["why"] for one in events if one["event"] == "Finding"}
    assert findings["group busy"] == "the group is active on target (Stable), so its commits are not copied"
    assert findings["group nobody"] == "source does not have this group"
    [failed] = [one for one in events if one["event"] == "PartitionFailed"]
    assert failed["topic"] == "anew"


def still_there(address: str, topic: str) -> str | None:
    """Makes a topic anew, once ZooKeeper has forgotten the old one."""
    try:
        make(address, topic)
    except TopicAlreadyExistsError:
        return "the old topic is still there"
    return None


def follow(here: Side, there: Side) -> None:
    """Changes at source, each until target has it."""
    literal, prefixed = ACLResourcePatternType.LITERAL, ACLResourcePatternType.PREFIXED
    topic = acl("gro", ACLOperation.READ, prefixed)
    group = acl("reader", ACLOperation.READ, literal, ResourceType.GROUP)
    here.admin.create_acls([topic, group, acl("grown", ACLOperation.WRITE, literal)])
    here.admin.create_partitions({"grown": 3})
    wait_until("source's partitions", lambda: lacks(len(here.ends()), 3), WAIT_S)
    for partition in range(3):
        send(here.address, "grown", range(30), partition=partition)
    here.retain(AlterConfigOp.SET, "3600000")
    wait_until("partitions", lambda: lacks(there.ends(), here.ends()), WAIT_S)
    wait_until("the setting", lambda: lacks(there.retention(), "3600000"), WAIT_S)
    wait_until("the ACLs", lambda: lacks(there.rights(), {topic, group}), WAIT_S)
    for offset in (20, 35, 50):
        commit(here.address, "reader", offset)
        commit(here.address, "busy", offset)

        def sample(needed: int = offset) -> str | None:
            seen, _ = there.committed("reader")
            assert seen <= min(here.committed("reader")[0], there.ends()["grown", 0])
            return lacks(seen, needed)

        wait_until("the group's offset", sample, WAIT_S)
    assert there.committed("busy") == (12, "mine")
    here.retain(AlterConfigOp.DELETE, None)
    here.admin.delete_acls([topic])
    wait_until("the setting's removal", lambda: lacks(there.retention(), "604800000"), WAIT_S)
    wait_until("the ACL's removal", lambda: lacks(there.rights(), {group}), WAIT_S)


class Switch:
    """An inventory of both clusters."""

    def __init__(self, clusters: tuple[str, str]) -> None:
        source, target = clusters
        self.ends = ClusterAt((source,)), ClusterAt((target,))


def the_switch_grants_writing(clusters: tuple[str, str], there: Side, folder: Path, door: str) -> None:
    """And takes it away again. Before and afterwards target refuses what the application writes."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    login = f'{module} required username="app" password="{SECRET}";'
    app = of(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": login,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(folder / "own.pem"),
        }
    )
    switch, before = Switch(clusters), there.rights()
    with closing(Mirrored(*switch.ends)) as look, closing(Alter(switch)) as alter:
        survey = look.survey(["grown"], ["reader"])
        assert isinstance(survey, Seen), survey
        assert survey.value.super_users == ("source", "target")
        acls = survey.value.later
        assert [str(one) for one in acls] == ["ALLOW WRITE to User:app from * on topic grown"]
        assert not may_write(door, app)
        both: tuple[tuple[Literal["grant", "revoke"], int], ...] = (("grant", 1), ("revoke", 0))
        for action, count in both:
            assert alter(AlterAcls(MIRRORED, action, acls)) == (0, f"{action} on target: 1 ACLs")

            def known(count: int = count) -> str | None:
                told = look.granted(acls)
                assert isinstance(told, Seen), told
                return lacks((len(told.value.everywhere), len(told.value.somewhere)), (count, count))

            wait_until(action, known, WAIT_S)
            assert len(there.rights()) == len(before) + count
            assert may_write(door, app) == bool(count)
    assert there.rights() == before


def may_write(address: str, client: dict[str, Any]) -> bool:
    """Whether the cluster takes a record of this client."""
    with closing(KafkaProducer(bootstrap_servers=[address], enable_idempotence=False, **client)) as sender:
        try:
            sender.send("grown", b"of the application", partition=0).get(WAIT_S)
        except TopicAuthorizationFailedError:
            return False
    return True


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
    code, output = ran(clusters, "compare", ["common"], "--json")
    assert code == 0, output
    told = json.loads(output)["partitions"]
    assert [(one["state"], one["records"]) for one in told] == [("equal", 2 * len(values))] * count
    code, output = ran(clusters, "run", ["common"], "--share", "99/99", "--once")
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
        code, output = ran(pair, verb, ["secured"], *files, *more)
        assert code == 0, output
    assert "records: 20" in output

    # Who may not come in is told why, and not the secret.
    monkeypatch.setattr(cluster, "REQUEST_S", 4.0)
    scram.write_text(scram.read_text().replace(SECRET, f"{SECRET} of old"))
    with pytest.raises(HostError, match="check the user and the password first") as caught:
        Cluster("source", [doors["SASL_PLAINTEXT"]], settings(scram))
    assert SECRET not in str(caught.value)
    keys.write_text("security.protocol=SSL\n")
    with pytest.raises(HostError, match="CERTIFICATE_VERIFY_FAILED"):
        Cluster("target", [doors["SSL"]], settings(keys))
