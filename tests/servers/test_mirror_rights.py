"""The rights that docs/reference/mirror.md names suffice, and each missing one is found by name.

Real brokers with their authorizers: 3.9.1 with ZooKeeper and 4.3.1 with KRaft, by SASL/PLAIN.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.structs import OffsetAndMetadata

from tests.answers import Mirrored
from tests.ports import free_port
from tests.servers import kraft
from tests.servers.brokers import ALONE, Broker, serve
from tests.servers.process import ADDRESS
from tests.servers.test_mirror import WAIT_S, make, ran, send, transactions
from tests.servers.test_versions import zookeeper
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.topics.mirror.changes import MIRRORED, AlterAcls, CopyOffsets, SetDirection
from zkmigrate.topics.mirror.clients.alter import Alter
from zkmigrate.topics.mirror.clients.cluster import Cluster
from zkmigrate.topics.mirror.clients.transactions import transactional
from zkmigrate.topics.mirror.questions import ClusterAt, MirrorSurvey
from zkmigrate.topics.mirror.verbs import show
from zkmigrate.topics.mirror.verbs.request import Request

OLD, NEW = "3.9.1", "4.3.1"
ACCOUNTS = ("mirror", "run")
PAGE = Path(__file__).parents[2] / "docs/reference/mirror.md"
ROW = re.compile(r"\| (source|target) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|")
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS = (
    "sasl.enabled.mechanisms=PLAIN\nlistener.name.sasl_plaintext.plain.sasl.jaas.config="
    f"{MODULE} {' '.join(f'user_{name}={name}' for name in ACCOUNTS)};\n"
    "super.users=User:ANONYMOUS\nauthorizer.class.name="
)
IMPLIED = {
    ("mirror", "target", "topic", "DescribeConfigs"),  # by AlterConfigs
    ("mirror", "target", "cluster", "Describe"),  # by Alter
    ("run", "target", "cluster", "Describe"),
}
"""Rights that Kafka's authorizers derive from another one of the table."""
GROUP = "billing"
Missing = tuple[str, str, str, str]
"""Side, resource, name and operation."""


@dataclass(frozen=True)
class Right:
    """A cell of the page's table. name: of the resource; prefix: whether names begin so."""

    account: str
    side: str
    resource: str
    name: str
    operation: str
    prefix: bool = False

    @property
    def acl(self) -> ACL:
        kind = ResourceType[self.resource.upper().replace("-", "_")]
        pattern = ACLResourcePatternType.PREFIXED if self.prefix else ACLResourcePatternType.LITERAL
        operation = ACLOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.operation).upper()]
        return ACL(
            f"User:{self.account}",
            "*",
            operation,
            ACLPermissionType.ALLOW,
            ResourcePattern(kind, self.name or "kafka-cluster", pattern),
        )

    @property
    def filter(self) -> ACLFilter:
        acl = self.acl
        at = acl.resource_pattern
        where = ResourcePatternFilter(at.resource_type, at.resource_name, at.pattern_type)
        return ACLFilter(acl.principal, acl.host, acl.operation, acl.permission_type, where)

    def missing(self, topic: str) -> set[Missing]:
        """Return what a look names if this right alone is missing on its side."""
        where = ("topic", topic) if self.operation == "Create" else (self.resource, self.name)
        found = {(self.side, *where, self.operation)}
        hidden = (self.side, self.account) != ("target", "mirror") and self.operation == "Read"
        if hidden and self.name == topic:
            found.add((self.side, *where, "DescribeConfigs"))  # brokers tell nothing of a hidden topic
        return found


def documented(topics: Iterable[str]) -> list[Right]:
    """The rights that the page names, for these topics and ``GROUP``."""
    found = list[Right]()
    for side, what, *cells in ROW.findall(PAGE.read_text()):
        resource, _, name = what.strip().replace("transactional ids", "transactional-id").partition(" ")
        if resource == "the":
            resource, name = name.removesuffix("s"), ""
        names = {"topic": list(topics), "group": [GROUP]}.get(resource, [""]) if not name else [name]
        for account, cell in zip(ACCOUNTS, cells, strict=True):
            for one in names:
                plain = one.strip("`").removesuffix("…")
                found += [
                    Right(account, side, resource, plain, operation, one.endswith("…`"))
                    for operation in re.findall(r"`(\w+)`", cell)
                ]
    return found


@dataclass(frozen=True)
class Site:
    """One cluster. address: where everything is allowed. door: where the accounts log in."""

    address: str
    door: str

    def change(self, grant: Iterable[Right], revoke: Iterable[Right] = ()) -> None:
        with closing(KafkaAdminClient(bootstrap_servers=[self.address])) as admin:
            if added := [one.acl for one in grant]:
                admin.create_acls(added)
            if removed := [one.filter for one in revoke]:
                admin.delete_acls(removed)


@dataclass(frozen=True)
class Pair:
    """Source and target, and the files of client properties of the accounts."""

    source: Site
    target: Site
    files: dict[str, Path]

    @property
    def doors(self) -> tuple[str, str]:
        return self.source.door, self.target.door

    @property
    def ends(self) -> tuple[ClusterAt, ClusterAt]:
        """As an inventory has them."""
        here, there = (ClusterAt((one,), str(self.files["run"])) for one in self.doors)
        return here, there

    def change(self, grant: Iterable[Right], revoke: Iterable[Right] = ()) -> None:
        added, removed = list(grant), list(revoke)
        for side, site in (("source", self.source), ("target", self.target)):
            site.change(
                [one for one in added if one.side == side], [one for one in removed if one.side == side]
            )

    def copier(self, verb: str, topic: str, *more: str) -> tuple[int, str]:
        file = str(self.files["mirror"])
        configs = ("--source-config", file, "--target-config", file)
        return ran(self.doors, verb, [topic], *configs, *more)

    def plan(self, topic: str) -> set[Missing]:
        """What a plan says is missing for the copier: side, resource, name and operation."""
        told = list[str]()
        file = self.files["mirror"]
        show.plan(Request([self.source.door], [self.target.door], [topic], True, (), file, file), told.append)
        rights = json.loads(told[0])["rights"]
        for one in rights:
            assert "--add --allow-principal User:mirror " in one["command"]
        return {
            (one["side"], one["resource"], one["name"], operation)
            for one in rights
            for operation in one["operations"]
        }

    def survey(self, topic: str) -> MirrorSurvey:
        with closing(Mirrored(*self.ends)) as look:
            told = look.survey([topic], [GROUP])
        assert isinstance(told, Seen), told
        return told.value

    def preflight(self, topic: str) -> set[Missing]:
        """The same for the run, as the first look of a switch sees it."""
        return {
            (one.side, one.resource, one.name, operation)
            for one in self.survey(topic).lacking
            for operation in one.operations
        }


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("rights")
    doors = [f"{ADDRESS}:{free_port()}" for _ in range(2)]
    more = [f",SASL_PLAINTEXT://{one}" for one in doors]
    old = Broker(OLD, f"{SETTINGS}kafka.security.authorizer.AclAuthorizer\n{ALONE}", listeners=more[0])
    standard = f"{SETTINGS}org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
    files = {name: folder / f"{name}.properties" for name in ACCOUNTS}
    for name, file in files.items():
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={MODULE} username="{name}" password="{name}";\n'
        )
    with ExitStack() as stack:
        port = stack.enter_context(zookeeper("3.5.8", folder))
        stack.enter_context(serve(folder, port, old))
        new = stack.enter_context(kraft.broker(NEW, folder, 7, more[1], standard))
        yield Pair(Site(old.address, doors[0]), Site(new, doors[1]), files)


def fill(site: Site, topic: str) -> None:
    """Records, transactions that leave gaps, and a group that has committed."""
    make(site.address, topic, 2)
    send(site.address, topic, range(20))
    transactions(site.address, topic)
    consumer = KafkaConsumer(bootstrap_servers=[site.address], group_id=GROUP, enable_auto_commit=False)
    with closing(consumer):
        consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(5, "", -1)})


def until(look: Callable[[str], set[Missing]], topic: str, *needed: Missing) -> None:
    """Wait until exactly these rights are missing, for brokers hear of an ACL a moment later."""

    def other() -> str | None:
        found = look(topic)
        return None if found == {*needed} else f"{found}, needed {needed}"

    wait_until(f"the missing rights are {needed}", other, WAIT_S)


def rounds(rights: Iterable[Right]) -> Iterator[list[Right]]:
    """Yield the rights to revoke at once: at most one of each account on each side.

    Those of target come in the reverse order, because a topic or group that source hides is not looked for on
    target.
    """
    told = [one for one in rights if (one.account, one.side, one.resource, one.operation) not in IMPLIED]
    lists = [
        [one for one in told if (one.account, one.side) == (account, side)][::step]
        for account in ACCOUNTS
        for side, step in (("source", 1), ("target", -1))
    ]
    for some in zip_longest(*lists):
        yield [one for one in some if one is not None]


def test_the_documented_rights_are_enough_for_a_copier_and_a_run(pair: Pair) -> None:
    topic = "enough"
    fill(pair.source, topic)
    rights = documented([topic])
    reader = Right("app", "source", "topic", topic, "Read")
    pair.change([*rights, reader])
    until(pair.plan, topic)
    until(pair.preflight, topic)
    code, output = pair.copier("run", topic, "--once")
    assert code == 0, output
    assert "missing right" not in output
    assert f"added {reader.operation.upper()}" not in output
    for verb in ("status", "compare"):
        code, output = pair.copier(verb, topic)
        assert code == 0, f"{verb}: {output}"
    found = pair.survey(topic)
    assert (found.lacking, found.notes, found.refused, found.grants) == ((), {}, {}, ())
    assert {state for state, _ in found.partitions.values()} == {"equal"}
    assert found.groups[GROUP].state == "equal", found.groups
    assert (list(found.transactional), found.transactional_dark) == ([topic], "")
    writer = ("TOPIC", topic, "LITERAL", "User:app", "*", "WRITE", "ALLOW")
    with closing(Alter(pair)) as alter:
        for change in (
            AlterAcls(MIRRORED, "grant", (writer,)),
            CopyOffsets(MIRRORED, (topic,), (GROUP,)),
            SetDirection(MIRRORED, "none", (topic,), 1),
            SetDirection(MIRRORED, "backward", (topic,), 1),
        ):
            code, text = alter(change)
            assert code == 0, f"{change.describe()}: {text}"
    code, output = pair.copier("run", topic, "--once")
    assert code == 5, output
    assert "use target, since the run with number 1" in output


def test_each_missing_right_is_named_before_anything_is_changed(pair: Pair) -> None:
    topic = "missing"
    fill(pair.source, topic)
    rights = documented([topic])
    pair.change(rights)
    looks = {"mirror": pair.plan, "run": pair.preflight}
    for look in looks.values():
        until(look, topic)
    before: list[Right] = []
    for revoked in rounds(rights):
        pair.change(before, revoked)
        for account, look in looks.items():
            needed = [one.missing(topic) for one in revoked if one.account == account]
            until(look, topic, *set[Missing]().union(*needed))
        before = revoked


def test_a_copier_that_may_not_write_a_topic_does_not_make_it(pair: Pair) -> None:
    topic = "unwritten"
    fill(pair.source, topic)
    pair.change(one for one in documented([topic]) if one.operation != "Write" or one.resource != "topic")
    until(pair.plan, topic, ("target", "topic", topic, "Write"))
    code, output = pair.copier("run", topic, "--once")
    assert code == 2, output
    command = f"--operation Write --topic {topic}"
    assert f"REFUSED {topic}: User:mirror lacks Write on topic {topic} at target" in output
    assert command in output
    with closing(KafkaAdminClient(bootstrap_servers=[pair.target.address])) as admin:
        assert topic not in admin.list_topics()


def test_before_kafka_3_0_a_log_of_transactions_that_is_hidden_is_unknown(tmp_path: Path) -> None:
    door = f"{ADDRESS}:{free_port()}"
    settings = f"{SETTINGS}kafka.security.authorizer.AclAuthorizer\n{ALONE}"
    old = Broker("2.8.2", settings, listeners=f",SASL_PLAINTEXT://{door}")
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    login |= dict.fromkeys(("sasl_plain_username", "sasl_plain_password"), "mirror")
    with zookeeper("3.5.8", tmp_path) as port, serve(tmp_path, port, old):
        site = Site(old.address, door)
        fill(site, "orders")
        site.change([Right("mirror", "source", "topic", "orders", one) for one in ("Read", "Describe")])
        log = Right("mirror", "source", "topic", "__transaction_state", "Read")
        with closing(Cluster("source", [door], login)) as cluster:

            def told(dark: str) -> str | None:
                found = transactional(cluster, ["orders"])
                return None if found.dark == dark and (dark or found.named) else str(found)

            hidden = "source does not report topic __transaction_state: TOPIC_AUTHORIZATION_FAILED"
            needed = f"transactional ids: {hidden}. Needed: the rights Read and Describe on that topic"
            wait_until("the log to be hidden", lambda: told(needed), WAIT_S)
            site.change([log])
            wait_until("the log to be read", lambda: told(""), WAIT_S)
