"""The checks of brokers' hosts and releases, and of the chroot: each holds, fails, and is unknown once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest

from tests.unit.move.preflight.test_checks import (
    PROPERTIES,
    Break,
    both,
    file,
    kafka,
    no_file,
    no_kafka,
    no_program,
    word,
)
from tests.unit.preflight_world import (
    CLUSTER_ID,
    CMDLINE,
    FACTS,
    OWNER,
    OWNERS,
    RUNS,
    TIMEOUT,
    WHITELIST,
    PreflightWorld,
    cons,
    context,
    facts_of,
    file_entry,
    healthy,
    inventory,
    recorded,
    run_preflight,
    server_properties,
    source_log,
    view,
    words_of,
)
from tests.unit.zkdata_fixtures import create_payload
from zkmigrate.inventory.inventory import Service
from zkmigrate.kafka.questions import KafkaView
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.preflight.evidence import gather
from zkmigrate.move.preflight.kafka_evidence import of_kafka
from zkmigrate.runbook.model.fact import Absent, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Held, Severity, blocking
from zkmigrate.runbook.model.look import DirEntry
from zkmigrate.runbook.model.step import Context
from zkmigrate.zookeeper.questions import Znode

CMD, ENVIRON, META = "/proc/311/cmdline", "/proc/311/environ", "/var/lib/kafka/meta.properties"
START = "/opt/kafka/service"
UNIT, DROP_IN = "/usr/lib/systemd/system/kafka.service", "/etc/systemd/system/kafka.service.d/zk.conf"
DEST = ("dest1", "dest2", "dest3")
STATE = "/kafka/brokers/topics/orders/partitions/0/state"


def _found(
    world: PreflightWorld, id: str, gate: str, target: str = "", asked: Context | None = None
) -> Finding:
    of_id = [f for f in run_preflight(asked or context(), world, gate) if f.id == id]
    found = [f for f in of_id if not target or f.target == target]
    assert found, id
    return next((f for f in found if f.held is not Held.YES), found[0])


def command(*more: str, host: str = "broker1", words: tuple[str, ...] = CMDLINE) -> Break:
    return lambda w: w.files.update({(host, CMD): words_of(*words, *more)})


def unit_stop(told: str, host: str = "broker1") -> Break:
    def apply(w: PreflightWorld) -> None:
        facts = w.programs[host, "facts"]
        assert isinstance(facts, Seen)
        told_now = facts.value.replace("TimeoutStopUSec=3min", f"TimeoutStopUSec={told}")
        w.programs[host, "facts"] = Seen(told_now)

    return apply


def jars(*names: str, host: str = "broker1") -> Break:
    listed = Seen(tuple(file_entry(name) for name in names))
    return lambda w: w.listings.update({(host, "/opt/kafka/libs"): listed})


def no_jars(w: PreflightWorld) -> None:
    w.listings["broker1", "/opt/kafka/libs"] = Seen(())


def answers(release: str, host: str = "broker1") -> Break:
    def apply(w: PreflightWorld) -> None:
        endpoint = inventory().broker(host).endpoint
        w.view = Seen(replace(view(), releases={**view().releases, endpoint: release}))

    return apply


def nothing_told(w: PreflightWorld) -> None:
    """Neither jars nor an answer tell broker1's release."""
    no_jars(w)
    w.view = Seen(replace(view(), releases={}))


def znode(path: str, *children: str, data: bytes = b"", modified_ms: int = 0) -> Break:
    node = Seen(Znode(data, 1, 1, 1, 0, 0, children, modified_ms))
    return lambda w: w.znodes.update({(host, path): node for host in DEST})


def no_znode(path: str) -> Break:
    return lambda w: w.znodes.update({(host, path): TIMEOUT for host in DEST})


def tenant(*hosts: str) -> Break:
    """A client of these source hosts that is nobody's, and owns what the recorded dumps show."""
    text = cons("10.71.0.99").replace("sid=0x1000000000001,", "sid=0x1000021c3000000,")
    return both(*(word(host, "cons", text) for host in hosts))


def shows(host: str, address: str) -> Break:
    """A host that has one more address than its own."""
    return lambda w: w.programs.update({
        (host, "facts"): Seen(facts_of(int(host[0] == "b") + 2, int(host[-1])) + f"address=e1 {address}/24\n")
    })  # fmt: skip


def no_sockets(host: str) -> Break:
    return lambda w: w.socket_lists.update({host: TIMEOUT})


def foreign_client(world: PreflightWorld) -> None:
    """A client of dest2 at nobody's address; brokers, the operator and a probe are there too."""
    told = cons("10.71.0.32", "10.71.0.2", "10.71.0.99").replace("sid=0x1000000000003,", f"sid={OWNER:#x},")
    told = told.replace("sid=0x1000000000001,", f"sid={OWNERS[2]:#x},")
    world.words["dest2", "cons"] = Seen(told.rstrip() + "\n /10.71.0.98:4[0](queued=0,recved=1,sent=0)\n\n")


def written(session: int, path: str, gap: int = 0) -> Break:
    """Somebody wrote to source; gap: so many transactions are missing before."""
    stray = create_payload((1 << 32) + 2 + gap, path, session=session)
    return lambda w: source_log(w, "source2", stray)


def old_brokers(view: KafkaView) -> KafkaView:
    return replace(view, reassigning=None)


# check, gate, target, what breaks it, what of it must be told; what makes it unknown.
# fmt: off
CASES: list[tuple[str, str, str, Break, str, Break]] = [
    (
        "kafka.controller", "roll", "", znode("/kafka/controller", data=b'{"brokerid":3}'),
        "the brokers name 2, ZooKeeper names 3", no_znode("/kafka/controller"),
    ),
    (
        "kafka.controller", "cutover", "",
        lambda w: w.znodes.update({(host, "/kafka/controller"): Absent() for host in DEST}),
        "ZooKeeper names no controller", no_znode("/kafka/controller_epoch"),
    ),
    (
        "kafka.config", "preflight", "broker1",
        file("broker1", PROPERTIES, server_properties(1).encode() + b"zookeeper.connect=10.71.0.11/kafka\n"),
        "2 zookeeper.connect lines",
        lambda w: w.listings.update({("broker1", "/etc/kafka"): Seen((
            DirEntry("server.properties", "o", 1, 1),))}),
    ),
    (
        "kafka.kraft", "preflight", "broker2",
        file("broker2", PROPERTIES,
        server_properties(2).encode() + b"zookeeper.metadata.migration.enable=true\n"),
        "zookeeper.metadata.migration.enable=true", no_file("broker2", PROPERTIES),
    ),
    (
        "dest.cut-ends", "cutover", "dest2",
        lambda w: w.socket_lists.update({"dest2": Seen("0 0 10.71.0.22:51000 10.71.0.13:8080\n")}),
        "port 51000 with source3 port 8080", lambda w: w.socket_lists.update({"dest2": TIMEOUT}),
    ),
    (
        "kafka.config", "preflight", "broker1",
        file("broker1", PROPERTIES, server_properties(1, "${file:/etc/zk:hosts}").encode()),
        "zookeeper.connect=${file:/etc/zk:hosts}/kafka is taken from a config provider",
        no_file("broker1", PROPERTIES),
    ),
    *(
        (
            "kafka.config", "preflight", "broker1",
            file("broker1", PROPERTIES, server_properties(1).replace("2181/kafka", f"2181{root}").encode()),
            "chroot /, in the inventory /kafka", no_file("broker1", PROPERTIES),
        )
        for root in ("", "/")
    ),
    (
        "kafka.authorizer", "roll", "broker2",
        file("broker2", PROPERTIES, f"{server_properties(2)}authorizer.zookeeper.url=zk9:21/a\n".encode()),
        "authorizer.zookeeper.url=zk9:21/a", no_file("broker2", PROPERTIES),
    ),
    (
        "kafka.started-with", "roll", "broker1",
        command("--override", "authorizer.zookeeper.url=zk9:2181"),
        "authorizer.zookeeper.url=zk9:2181", no_file("broker1", CMD),
    ),
    *(
        (
            "host.one-role", "preflight", host, shows(host, address),
            seen, lambda w, host=host: w.programs.update({(host, "facts"): TIMEOUT}),
        )
        for host, address, seen in (
            ("broker2", "10.71.0.33", "the address of broker3 (10.71.0.33)"),
            ("broker2", "10.71.0.22", "the address of dest2 (10.71.0.22)"),  # not so in migration.yml
            ("broker2", "10.71.0.12", "the address of source2 (10.71.0.12)"),  # nor this
            ("dest2", "10.71.0.12", "the address of source2 (10.71.0.12)"),
            ("dest3", "10.71.0.31", "the address of broker1 (10.71.0.31)"),
        )
    ),
    (
        "kafka.started-with", "preflight", "broker1",
        command("--override", "zookeeper.connect=10.71.0.11:2181/kafka"),
        "zookeeper.connect=10.71.0.11:2181/kafka", no_file("broker1", CMD),
    ),
    (
        "kafka.started-with", "preflight", "broker1",
        both(
            command(words=(*CMDLINE[:-1], "/opt/kafka/config/server.properties")),
            file("broker1", "/opt/kafka/config/server.properties", b""),
            lambda w: w.listings.update({("broker1", "/opt/kafka/config"): Seen((
                DirEntry("server.properties", "f", 100, 801 * 10**9),))}),
        ),
        "started with /opt/kafka/config/server.properties", command(words=("java", "-jar", "other.jar")),
    ),
    (
        "kafka.started-with", "preflight", "broker3",
        lambda w: w.files.update({("broker3", ENVIRON): words_of("KAFKA_ZOOKEEPER_CONNECT=10.71.0.11:2181")}),
        "environment: KAFKA_ZOOKEEPER_CONNECT", no_file("broker3", ENVIRON),
    ),
    (
        "kafka.only-place", "preflight", "broker2",
        file("broker2", START, b"#!/bin/sh\nsed -i s/^zookeeper.connect=.*/$ZK/ /etc/kafka/s.properties\n"),
        f"{START}:2", no_file("broker2", START),
    ),
    (
        "kafka.pending-config", "preflight", "broker1",
        lambda w: w.listings.update({("broker1", "/etc/kafka"): Seen((
            DirEntry("server.properties", "f", 100, 1021 * 10**9),))}),
        "changed 2 minutes after the broker's start", no_program("broker1", "status"),
    ),
    (
        "kafka.log-dirs", "preflight", "broker1",
        file("broker1", META, f"broker.id=1\ncluster.id={'x' * 22}\n".encode()), f"cluster.id={'x' * 22}",
        no_file("broker1", META),
    ),
    (
        "kafka.log-dirs", "preflight", "broker1",
        file("broker1", META, f"broker.id=2\ncluster.id={CLUSTER_ID}\n".encode()), "broker.id=2",
        no_file("broker1", PROPERTIES),
    ),
    (
        "kafka.log-dirs", "preflight", "broker1",
        lambda w: w.files.update({("broker1", META): Absent()}), f"no {META}", no_file("broker1", META),
    ),
    ("kafka.version", "preflight", "broker1", jars("kafka_2.12-2.8.1.jar"), "2.8.1", nothing_told),
    ("kafka.version", "preflight", "broker1", jars("kafka_2.12-5.5.1-ccs.jar"), "5.5.1-ccs", no_jars),
    ("kafka.version", "preflight", "broker1", both(no_jars, answers("2.6")),
     "2.6, inferred from the APIs that it offers", no_jars),
    ("kafka.version", "preflight", "broker1", answers("2.6"), "jars of 2.8.2, but it answers as 2.6",
     nothing_told),
    ("kafka.cluster-guard", "preflight", "broker1", both(jars("kafka_2.12-2.3.1.jar"), answers("2.3")),
     "2.3.1", nothing_told),
    ("kafka.cluster-guard", "preflight", "broker1", both(no_jars, answers("2.3")), "2.3", nothing_told),
    ("kafka.known-bugs", "preflight", "broker1", jars("kafka_2.12-2.4.0.jar"), "KAFKA-9307",
     both(no_jars, answers("2.4"))),
    ("kafka.admin-work", "roll", "", znode("/kafka/admin/delete_topics", "gone"), "Kafka is deleting gone",
     no_znode("/kafka/admin/delete_topics")),
    ("kafka.admin-work", "cutover", "", znode("/kafka/admin/preferred_replica_election"),
     "an election of preferred leaders", no_znode("/kafka/admin/preferred_replica_election")),
    ("kafka.quiet", "roll", "", znode(STATE, modified_ms=900_000),
     "1 of 3 partitions changed leader or ISR in the last 10 minutes: orders-0",
     no_znode(STATE)),
    ("kafka.quiet", "roll", "", znode(STATE, modified_ms=1_000_000), "orders-0",
     znode(STATE, modified_ms=1_060_000)),
    ("kafka.quiet", "roll", "", znode(STATE, modified_ms=1_000_000), "orders-0", no_kafka),
    (
        "kafka.tools", "roll", "", znode("/kafka", "brokers", "cluster", "CruiseControlBrokerList"),
        "/kafka/CruiseControlBrokerList (Cruise Control)", no_znode("/kafka"),
    ),
    ("kafka.tools", "roll", "", znode("/", "kafka", "kafka-manager"), "/kafka-manager (CMAK)", no_znode("/")),
    ("kafka.tools", "cutover", "", znode("/kafka/consumers", "g1", "g2"), "2 consumer groups: g1, g2",
     no_znode("/kafka/consumers")),
    (
        "kafka.other-clients", "preflight", "", tenant("source1", "source2"),
        "1 session on source1, source2, owns /kafka/controller, /kafka/brokers/ids/1",
        word("source3", "cons", "cons" + WHITELIST),
    ),
    *(
        ("dest.foreign-client", gate, "", foreign_client, "1 session on dest2, owns /kafka/controller, "
         "/kafka/brokers/ids/1", both(word("dest3", "cons", "cons" + WHITELIST), no_sockets("dest3")))
        for gate in ("roll", "cutover")
    ),
    ("kafka.writers", "cutover", "", written(0x99, "/kafka/config/topics/t"),
     "1 change to /kafka/config/topics (1) in the last minute", written(0x99, "/other", 5)),
    ("kafka.writers", "preflight", "", both(
        written(0x1000000000001, "/kafka/a"), word("source1", "cons", cons("10.71.0.99"))),
     "1 change from 10.71.0.99 to /kafka/a (1)", lambda w: w.contents.clear()),
]
# fmt: on


@pytest.mark.parametrize(("id", "gate", "target", "broken", "told", "hidden"), CASES)
def test_check(id: str, gate: str, target: str, broken: Break, told: str, hidden: Break) -> None:
    assert _found(healthy(), id, gate, target).held is Held.YES
    world = healthy()
    broken(world)
    failed = _found(world, id, gate, target)
    assert failed.held is Held.NO, failed
    assert told in failed.seen
    assert failed.moves
    world = healthy()
    hidden(world)
    unknown = _found(world, id, gate, target)
    assert unknown.held is Held.UNKNOWN, unknown
    assert failed.blocks == unknown.blocks == (failed.severity is Severity.BLOCK)


def runs(key: str, command: str) -> str:
    """One command of a unit as systemd prints it: without quotes, specifiers expanded."""
    program = command.partition(" ")[0]
    return (
        f"unit.{key}={{ path={program} ; argv[]={command} ; ignore_errors=no ; start_time=[n/a] ; pid=0 }}\n"
    )


STARTED = "/usr/bin/java kafka.Kafka /etc/kafka/server.properties"


@pytest.mark.parametrize(
    ("children", "own", "targets"),
    [
        (("zookeeper", "brokers", "admin"), (), [("", Held.YES)]),
        (("zookeeper", "brokers", "hbase", "tenant"), (), [("/hbase", Held.NO), ("/tenant", Held.NO)]),
        (("brokers", "schema", "tenant"), ("schema",), [("/tenant", Held.NO)]),
        (None, (), [("", Held.UNKNOWN)]),
    ],
)
def test_at_the_chroot_slash_each_znode_of_others_is_named(
    children: tuple[str, ...] | None, own: tuple[str, ...], targets: list[tuple[str, Held]]
) -> None:
    """Each is a finding of its own, so that a person accepts each by name; kafka.tools says none of it."""
    plain, world = inventory(), healthy()
    (no_znode("/") if children is None else znode("/", *children))(world)
    kafka = plain.kafka.model_copy(update={"chroot": "/", "znodes": own})
    asked = Context("r1", plain.model_copy(update={"kafka": kafka}))
    found = [f for f in run_preflight(asked, world, "roll") if f.id == "kafka.foreign-znodes"]
    assert [(f.target, f.held) for f in found] == targets
    assert all(f.severity is Severity.BLOCK for f in found)
    assert not [f for f in run_preflight(asked, world, "roll") if f.id == "kafka.tools" and "hbase" in f.seen]


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ((64 << 20) + 1, "source2: its newest snapshot has 64 MB, more than is read now. "),
        (1000, "source2: /var/lib/zookeeper/version-2/snapshot.100000000 cannot be read. "),
    ],
)
def test_before_the_join_a_snapshot_that_is_too_large_or_damaged_leaves_it_open(size: int, said: str) -> None:
    plain, world = inventory(), healthy()
    listing = (file_entry("snapshot.100000000", size), file_entry("log.100000001", 1 << 20))
    world.listings["source2", "/var/lib/zookeeper/version-2"] = Seen(listing)
    asked = Context("r1", plain.model_copy(update={"kafka": plain.kafka.model_copy(update={"chroot": "/"})}))
    (found,) = [f for f in run_preflight(asked, world, "preflight") if f.id == "kafka.foreign-znodes"]
    assert (found.held, found.severity) == (Held.UNKNOWN, Severity.INFO)
    assert found.seen == f"unknown (failed): {said}It is known after the join"


def test_with_a_chroot_of_its_own_kafka_does_not_share_the_top_level() -> None:
    world = healthy()
    znode("/", "kafka", "hbase")(world)
    asked = Context("r1", inventory())
    assert [f for f in run_preflight(asked, world, "roll") if f.id == "kafka.foreign-znodes"] == []


def shown(command: str = STARTED, *more: str) -> str:
    """What systemd shows of a broker's unit."""
    files = "unit.EnvironmentFiles=/etc/default/kafka (ignore_errors=yes)\n"
    lines = "".join(f"unit.{line}\n" for line in (f"FragmentPath={UNIT}", f"DropInPaths={DROP_IN}", *more))
    return lines + files + runs("ExecStartPre", "/opt/render.sh --all") + runs("ExecStart", command)


def systemd() -> tuple[Context, PreflightWorld]:
    """A world whose brokers have a unit with a drop-in and an environment file, as a package brings them."""
    plain = inventory()
    unit = Service(unit="kafka.service")
    world = healthy()
    for broker in plain.broker_names:
        world.programs[broker, "facts"] = Seen(FACTS + shown())
        world.files[broker, UNIT] = Seen(b"[Service]\n")
        world.files[broker, DROP_IN] = Seen(b"[Service]\nRestart=no\n")
        world.files[broker, "/etc/default/kafka"] = Seen(b"KAFKA_HEAP=1g\n")
        world.files[broker, "/opt/render.sh"] = Seen(b"#!/bin/sh\ntrue\n")
    kafka = plain.kafka.model_copy(update={"service": unit})
    return Context("r1", plain.model_copy(update={"kafka": kafka})), world


@pytest.mark.parametrize(
    ("path", "content", "place"),
    [
        (UNIT, b"[Service]\nExecStart=/usr/bin/java kafka.Kafka f --override zookeeper.connect=x\n", 2),
        (DROP_IN, b"[Service]\n# note\nEnvironment=KAFKA_ZOOKEEPER_CONNECT=x:2181\n", 3),
        ("/etc/default/kafka", b"KAFKA_CFG_ZOOKEEPER_CONNECT=x:2181\n", 1),
        ("/opt/render.sh", b"#!/bin/sh\n\necho zookeeper.connect=x >>/etc/kafka/server.properties\n", 3),
    ],
)
def test_every_file_that_starts_a_broker_is_looked_through(path: str, content: bytes, place: int) -> None:
    asked, world = systemd()
    assert _found(world, "kafka.only-place", "preflight", asked=asked).held is Held.YES
    world.files["broker2", path] = Seen(content)
    found = _found(world, "kafka.only-place", "preflight", "broker2", asked)
    assert (found.held, found.seen) == (Held.NO, f"{path}:{place}")


@pytest.mark.parametrize(
    "hide",
    [
        lambda w: w.files.update({("broker2", DROP_IN): TIMEOUT}),
        lambda w: w.programs.update(
            {("broker2", "facts"): Seen(FACTS + shown("/bin/sh -c exec $KAFKA_START"))}
        ),
        lambda w: w.programs.update(
            {("broker2", "facts"): Seen(FACTS + shown("/bin/sh -c $(cat /etc/start)"))}
        ),
        lambda w: w.programs.update({("broker2", "facts"): Seen(FACTS + shown("/usr/bin/nice -n 5 start"))}),
        lambda w: w.programs.update(
            {("broker2", "facts"): Seen(FACTS + f"unit.FragmentPath={UNIT}\nunit.LoadState=loaded\n")}
        ),
        lambda w: w.programs.update({("broker2", "facts"): Seen(FACTS)}),
        lambda w: w.programs.update({("broker2", "facts"): TIMEOUT}),
    ],
)
def test_a_start_file_that_cannot_be_followed_is_unknown(hide: Break) -> None:
    asked, world = systemd()
    hide(world)
    assert _found(world, "kafka.only-place", "preflight", "broker2", asked).held is Held.UNKNOWN


WRITER = b"#!/bin/sh\necho zookeeper.connect=x >>/etc/kafka/server.properties\n"


@pytest.mark.parametrize(
    ("command", "more", "path"),
    [
        ("/bin/sh -c exec /opt/start.sh /etc/k > /log 2>&1", (), "/opt/start.sh"),
        ("/bin/bash -lc ulimit -n 9 && cd /opt && . ./env.sh; exec bin/java x", (), "/opt/env.sh"),
        ("/usr/bin/env -i A=b /opt/start.sh", (), "/opt/start.sh"),
        ("/usr/bin/nice -n 5 /usr/bin/bash /opt/start.sh", (), "/opt/start.sh"),
        ("/usr/sbin/runuser -u kafka -- /opt/start.sh", (), "/opt/start.sh"),
        ("/bin/su kafka -s /bin/sh -c /opt/start.sh -daemon /etc/k", (), "/opt/start.sh"),
        ("/bin/sh -c $START_WITH", ("Environment=START_WITH=/opt/start.sh OTHER=1",), "/opt/start.sh"),
        ("/bin/sh -c ${HOME_OF}/start.sh", (), "/opt/start.sh"),
        ("$START_WITH", ('Environment="START_WITH=/opt/start.sh a b"',), "/opt/start.sh"),
        ("bin/start.sh", ("WorkingDirectory=/opt/kafka",), "/opt/kafka/bin/start.sh"),
        ("/bin/bash -euo pipefail -c exec /opt/start.sh /etc/k", (), "/opt/start.sh"),
        ("/usr/bin/flock -n /run/kafka.lock /opt/start.sh", (), "/opt/start.sh"),
        ("/usr/bin/flock /run/kafka.lock -c exec /opt/start.sh", (), "/opt/start.sh"),
        ("/usr/bin/env --chdir=/opt/a -u B bin/start.sh", (), "/opt/a/bin/start.sh"),
        ("/usr/bin/env -C /opt/a bin/start.sh", (), "/opt/a/bin/start.sh"),
        ("/bin/sh -c printf 'a\nunit.b'; exec /opt/start.sh", (), "/opt/start.sh"),
        ("/bin/sh -c start.sh", (), "/usr/bin/start.sh"),
        ("/bin/sh -c start.sh", ("Environment=PATH=/opt/a:/opt/b",), "/opt/b/start.sh"),
        ("/usr/bin/python3 /opt/start.py", (), "/opt/start.py"),
        (STARTED, ("EnvironmentFiles=/etc/sysconfig/kafka* (ignore_errors=no)",), "/etc/sysconfig/kafka.zk"),
    ],
)
def test_what_a_shell_or_a_wrapper_starts_is_looked_through(
    command: str, more: tuple[str, ...], path: str
) -> None:
    """A file that sets zookeeper.connect at the next start was passed over."""
    asked, world = systemd()
    world.programs["broker2", "facts"] = Seen(FACTS + shown(command, *more))
    world.files["broker2", "/etc/default/kafka"] = Seen(b"# ours\nHOME_OF='/opt'\n")
    world.listings["broker2", "/etc/sysconfig"] = Seen((file_entry("kafka.zk"), file_entry("zk")))
    world.files["broker2", path] = Seen(b"#!/bin/sh\ntrue\n")
    found = _found(world, "kafka.only-place", "preflight", "broker2", asked)
    assert found.held is Held.YES
    assert path in found.seen
    world.files["broker2", path] = Seen(WRITER)
    found = _found(world, "kafka.only-place", "preflight", "broker2", asked)
    assert (found.held, found.seen) == (Held.NO, f"{path}:2")


@pytest.mark.parametrize(
    ("path", "words"),
    [("/opt/start.sh", "kafka /etc/k"), ("/opt/of us/start.sh", "/opt/of us/start.sh /etc/k")],
)
def test_a_program_is_found_by_its_own_path_and_not_by_its_first_argument(path: str, words: str) -> None:
    """systemd prints ``path=/bin/sh ; argv[]=other -c …`` for ``@/bin/sh other -c …``."""
    asked, world = systemd()
    line = f"ExecStart={{ path={path} ; argv[]={words} ; ignore_errors=no ; start_time=[n/a] ; pid=0 }}"
    world.programs["broker2", "facts"] = Seen(FACTS + shown(STARTED, line))
    world.files["broker2", path] = Seen(WRITER)
    found = _found(world, "kafka.only-place", "preflight", "broker2", asked)
    assert (found.held, found.seen) == (Held.NO, f"{path}:2")


def test_a_program_below_the_home_of_an_account_is_not_looked_for_elsewhere() -> None:
    asked, world = systemd()
    world.programs["broker2", "facts"] = Seen(
        FACTS + shown("/bin/sh -c exec bin/start.sh", "WorkingDirectory=~")
    )
    found = _found(world, "kafka.only-place", "preflight", "broker2", asked)
    assert found.held is Held.UNKNOWN
    assert "bin/start.sh in the command /bin/sh -c exec bin/start.sh means" in found.seen


def test_a_command_that_only_a_shell_can_tell_is_said_not_to_be_read() -> None:
    asked, world = systemd()
    world.programs["broker2", "facts"] = Seen(FACTS + shown("/bin/sh -c exec $KAFKA_START"))
    found = _found(world, "kafka.only-place", "preflight", "broker2", asked)
    assert "$KAFKA_START in the command /bin/sh -c exec $KAFKA_START means" in found.seen


def test_a_broker_below_the_shell_of_its_unit_is_the_units() -> None:
    """The main process stayed the shell, and no check of the process ever passed."""
    world = healthy()
    words = world.files["broker1", CMD]
    world.files["broker1", CMD] = words_of("/bin/sh", "-c", "kafka-server-start.sh f > /log; exit 0")
    world.files["broker1", "/proc/311/task/311/children"] = Seen(b"312 ")
    world.files["broker1", "/proc/312/cmdline"] = words
    world.files["broker1", "/proc/312/environ"] = world.files["broker1", ENVIRON]
    found = _found(world, "kafka.started-with", "preflight", "broker1")
    assert (found.held, found.seen) == (Held.YES, f"process 312: {PROPERTIES}")
    world.files["broker1", "/proc/312/cmdline"] = words_of("sleep", "9")
    found = _found(world, "kafka.started-with", "preflight", "broker1")
    assert found.held is Held.UNKNOWN
    assert "process 311 is not a broker: none of its children runs kafka.Kafka" in found.seen


@pytest.mark.parametrize(
    ("spelled", "folder"),
    [("server.properties", "/proc/311/cwd"), ("bin/../conf/server.properties", "/proc/311/cwd/conf")],
)
def test_a_relative_path_of_any_spelling_is_found(spelled: str, folder: str) -> None:
    world = healthy()
    command(words=(*CMDLINE[:-1], spelled))(world)
    world.listings["broker1", folder] = world.listings["broker1", "/etc/kafka"]
    assert _found(world, "kafka.started-with", "preflight", "broker1").held is Held.YES


def test_a_path_that_leaves_the_working_directory_is_found_by_the_unit() -> None:
    """zkm-host reads no path with dots, so ``/proc/PID/cwd/..`` was refused."""
    asked, world = systemd()
    command(words=(*CMDLINE[:-1], "../etc/kafka/server.properties"))(world)
    world.programs["broker1", "facts"] = Seen(FACTS + shown(STARTED, "WorkingDirectory=~"))
    assert _found(world, "kafka.started-with", "preflight", "broker1", asked).held is Held.UNKNOWN
    world.programs["broker1", "facts"] = Seen(FACTS + shown(STARTED, "WorkingDirectory=/var"))
    assert _found(world, "kafka.started-with", "preflight", "broker1", asked).held is Held.YES


def test_a_start_program_that_is_no_script_is_not_searched() -> None:
    world = healthy()
    world.files["broker1", START] = Seen(b"\x7fELF zookeeper.connect=")
    assert _found(world, "kafka.only-place", "preflight", "broker1").held is Held.YES


def test_other_keys_that_begin_alike_are_another_thing() -> None:
    world = healthy()
    world.files["broker1", START] = Seen(b"#!/bin/sh\nexport KAFKA_ZOOKEEPER_CONNECTION_TIMEOUT_MS=1\n")
    command("--override", "zookeeper.connection.timeout.ms=1")(world)
    for id in ("kafka.only-place", "kafka.started-with"):
        assert _found(world, id, "preflight", "broker1").held is Held.YES


def test_a_relative_path_is_looked_up_where_the_process_works() -> None:
    world = healthy()
    command(words=(*CMDLINE[:-1], "config/server.properties"))(world)
    entries = world.listings["broker1", "/etc/kafka"]
    world.listings["broker1", "/proc/311/cwd/config"] = entries
    assert _found(world, "kafka.started-with", "preflight", "broker1").held is Held.YES
    del world.listings["broker1", "/proc/311/cwd/config"]
    found = _found(world, "kafka.started-with", "preflight", "broker1")
    assert (found.held, found.seen) == (Held.NO, "process 311: started with config/server.properties")


def test_a_symbolic_link_in_place_of_the_file_is_refused_beforehand() -> None:
    """zkm-host writes no file through a link, so the roll would stop at this broker."""
    world = healthy()
    world.listings["broker1", "/etc/kafka"] = Seen((DirEntry("server.properties", "o", 9, 1),))
    found = _found(world, "kafka.config", "preflight", "broker1")
    assert found.held is Held.UNKNOWN
    assert f"{PROPERTIES} is reached through a symbolic link. Next: name the file itself" in found.seen


def test_the_line_of_the_connect_string_is_told() -> None:
    world = healthy()
    world.files["broker1", PROPERTIES] = Seen(server_properties(1).replace("/kafka\n", "/other\n").encode())
    assert f"{PROPERTIES}:3: chroot /other" in _found(world, "kafka.config", "preflight", "broker1").seen


@pytest.mark.parametrize(
    ("edit", "held"),
    [
        (lambda text: text.replace(":2181", r"\:2181"), Held.YES),  # as java.util.Properties writes it
        (lambda text: text.replace("broker.id", r"broker\.\u0069d"), Held.YES),
        (lambda text: f"# caf\xe9\n{text}", Held.YES),
        (lambda text: text.replace("zookeeper.connect", "note=a,\\\n  zookeeper.connect"), Held.NO),
        (lambda text: text.replace("zookeeper.connect", r"zookeeper\.connect"), Held.NO),
        (lambda text: text.replace("\n", "\r"), Held.NO),
        (lambda text: f"{text}note=\\u12\n", Held.UNKNOWN),
    ],
)  # fmt: skip
def test_the_file_is_read_as_java_reads_it(edit: Callable[[str], str], held: Held) -> None:
    world = healthy()
    world.files["broker1", PROPERTIES] = Seen(edit(server_properties(1)).encode("iso-8859-1"))
    assert _found(world, "kafka.config", "preflight", "broker1").held is held


@pytest.mark.parametrize(
    ("line", "held_id", "held"),
    [("", 1, Held.YES), ("broker.id=-1\n", 1, Held.YES), ("", 2, Held.NO), ("broker.id=2\n", 1, Held.NO)],
)
def test_without_an_id_in_the_file_that_of_meta_properties_counts(
    line: str, held_id: int, held: Held
) -> None:
    world = healthy()
    world.files["broker1", PROPERTIES] = Seen(server_properties(1).replace("broker.id=1\n", line).encode())
    world.files["broker1", META] = Seen(f"version=0\nbroker.id={held_id}\ncluster.id={CLUSTER_ID}\n".encode())
    assert _found(world, "kafka.config", "preflight", "broker1").held is held


def test_before_2_4_a_log_directory_holds_no_cluster_id() -> None:
    world = healthy()
    world.files["broker1", META] = Seen(b"version=0\nbroker.id=1\n")
    found = _found(world, "kafka.log-dirs", "preflight", "broker1")
    assert (found.held, found.seen) == (Held.YES, "/var/lib/kafka; no cluster.id in /var/lib/kafka")


def test_every_log_directory_is_looked_at() -> None:
    world = healthy()
    more = server_properties(1).replace("log.dirs=/var/lib/kafka", "log.dirs=/var/lib/kafka, /data/2/")
    world.files["broker1", PROPERTIES] = Seen(more.encode())
    assert _found(world, "kafka.log-dirs", "preflight", "broker1").seen == "no /data/2/meta.properties"
    world.files["broker1", PROPERTIES] = Seen(
        server_properties(1).replace("log.dirs=", "log.dirs_=").encode()
    )
    assert "no /tmp/kafka-logs/" in _found(world, "kafka.log-dirs", "preflight", "broker1").seen


def test_where_no_broker_runs_that_is_said() -> None:
    world = healthy()
    world.programs["broker1", "status"] = Seen(RUNS.replace("unit_pid=311", "unit_pid=0"))
    found = _found(world, "kafka.started-with", "preflight", "broker1")
    assert (found.held, found.seen) == (Held.UNKNOWN, "absent: no broker is running")
    assert found.moves[0] == "start the broker"


def test_the_environment_of_a_process_is_not_kept() -> None:
    world = healthy()
    world.files["broker1", ENVIRON] = words_of("SECRET=hush", "KAFKA_ZOOKEEPER_CONNECT=user:hush@zk")
    assert "hush" not in "".join(f.seen + f.needed for f in run_preflight(context(), world, "preflight"))


def test_reassignments_that_old_brokers_cannot_tell_come_later() -> None:
    """Before the join nobody but source could tell, and a session there is a transaction."""
    world = healthy()
    kafka(old_brokers(view()))(world)
    first = _found(world, "kafka.reassignment", "preflight")
    assert (first.held, first.severity, first.blocks) == (Held.UNKNOWN, Severity.INFO, False)
    assert first.seen.startswith("later: ")
    due = _found(world, "kafka.reassignment", "roll")
    assert (due.held, due.blocks) == (Held.UNKNOWN, True)


def test_sockets_tell_the_clients_where_cons_is_not_allowed() -> None:
    world = healthy()
    world.words["source3", "cons"] = Seen("cons" + WHITELIST)
    world.socket_lists["source3"] = Seen("0 0 10.71.0.13:2181 10.71.0.99:50000\n")
    found = _found(world, "kafka.other-clients", "preflight")
    assert (found.held, found.target) == (Held.NO, "10.71.0.99")
    assert found.seen == "connected on source3, owns no ephemeral"


def test_brokers_the_operator_and_probes_are_no_tenants() -> None:
    world = healthy()
    probe = " /10.71.0.98:40000[0](queued=0,recved=1,sent=0)\n"
    world.words["source1", "cons"] = Seen(
        cons("10.71.0.31", "10.71.0.2", "127.0.0.1").rstrip() + f"\n{probe}\n"
    )
    assert _found(world, "kafka.other-clients", "preflight").held is Held.YES


def test_a_tenant_that_owns_a_part_of_the_chroot_is_told_first_and_otherwise() -> None:
    world = healthy()
    tenant("source1")(world)
    inside = _found(world, "kafka.other-clients", "preflight")
    assert inside.moves[0].startswith("list it as a broker")
    for host in ("source1", "source2", "source3"):
        world.words[host, "dump"] = Seen(recorded("leader.dump").replace("/kafka/", "/solr/"))
    outside = _found(world, "kafka.other-clients", "preflight")
    assert "owns /solr/" in outside.seen
    assert "leave other tenants alone" in outside.moves[0]


def test_a_warning_blocks_nothing() -> None:
    world = healthy()
    both(tenant("source1"), jars("kafka_2.12-2.3.1.jar"), answers("2.3"))(world)
    assert blocking(run_preflight(context(), world, "preflight")) == ()


@pytest.mark.parametrize(("after_s", "held"), [(-0.3, Held.YES), (0.015, Held.YES), (0.03, Held.NO)])
def test_a_file_that_was_changed_right_before_the_restart_is_not_pending(after_s: float, held: Held) -> None:
    """The start is known to a tick of a hundredth of a second; in the model world the roll's own change and
    restart fell into one."""
    world = healthy()
    started = of_kafka(gather(context(), KAFKA, world, "preflight")).brokers["broker1"].started
    assert started is not None
    changed = DirEntry("server.properties", "f", 100, round((started + after_s) * 1e9))
    world.listings["broker1", "/etc/kafka"] = Seen((changed,))
    assert _found(world, "kafka.pending-config", "preflight", "broker1").held is held


def test_a_process_that_is_gone_is_unknown() -> None:
    world = healthy()
    world.files["broker1", CMD] = Unknown("failed", "no such process")
    for id in ("kafka.started-with",):
        assert _found(world, id, "preflight", "broker1").held is Held.UNKNOWN


@pytest.mark.parametrize(
    ("told", "more", "held"),
    [
        ("1min 44s", b"", Held.NO),
        ("1min 45s", b"", Held.YES),
        ("infinity", b"", Held.YES),
        ("30s", b"controlled.shutdown.max.retries=1\ncontroller.socket.timeout.ms=20000\n", Held.YES),
        ("24s", b"controlled.shutdown.max.retries=1\ncontroller.socket.timeout.ms=20000\n", Held.NO),
        ("3min", b"controlled.shutdown.retry.backoff.ms=60000\n", Held.NO),
        ("3min", b"controlled.shutdown.max.retries=many\n", Held.UNKNOWN),
    ],
)
def test_a_unit_gives_a_controlled_shutdown_all_its_tries(told: str, more: bytes, held: Held) -> None:
    world = healthy()
    unit_stop(told)(world)
    own = world.files["broker1", PROPERTIES]
    assert isinstance(own, Seen)
    world.files["broker1", PROPERTIES] = Seen(own.value + more)
    asked = context()
    kafka = asked.inventory.kafka.model_copy(update={"service": Service(unit="kafka.service")})
    asked = replace(asked, inventory=asked.inventory.model_copy(update={"kafka": kafka}))
    found = _found(world, "kafka.stop-timeout", "preflight", "broker1", asked)
    assert found.held is held
    if held is Held.NO:
        assert found.seen == f"kafka.service: TimeoutStopSec={told}"


@pytest.mark.parametrize(("servers", "held"), [(11, Held.YES), (12, Held.NO)])
def test_more_ports_than_one_rule_refuses_are_told_before_arm(servers: int, held: Held) -> None:
    """Servers of one machine, each with a quorum port of its own, beside four others."""
    world = healthy()
    name = "/etc/zookeeper/conf/zoo.cfg"
    lines = [f"server.{n}=10.71.0.11:{3000 + n}:3888\n" for n in range(1, servers + 1)]
    world.files["source1", name] = Seen(f"clientPort=2181\ndataDir=/d\n{''.join(lines)}".encode())
    assert _found(world, "dest.cut-ports", "preflight").held is held
    plain = inventory()
    everything = plain.model_copy(update={"policy": plain.policy.model_copy(update={"cut": "all"})})
    assert _found(world, "dest.cut-ports", "preflight", "", Context("r1", everything)).held is Held.YES


BACKUP = "0 0 10.71.0.22:873 10.71.0.13:50100\n"


def test_a_backups_connection_ends_only_where_the_policy_refuses_all_of_tcp() -> None:
    world = healthy()
    world.socket_lists["dest2"] = Seen(BACKUP)
    assert _found(world, "dest.cut-ends", "cutover", "dest2").held is Held.YES
    plain = inventory()
    everything = plain.model_copy(update={"policy": plain.policy.model_copy(update={"cut": "all"})})
    found = _found(world, "dest.cut-ends", "cutover", "dest2", Context("r1", everything))
    assert (found.held, found.seen) == (Held.NO, "port 873 with source3 port 50100")
    assert "policy.cut: zookeeper" in " ".join(found.moves)
    world.socket_lists["dest2"] = Seen("0 0 10.71.0.22:22 10.71.0.13:50200\n")
    login = _found(world, "dest.cut-ends", "cutover", "dest2", Context("r1", everything))
    assert login.held is Held.YES, "the cut spares sshd"


BESIDE_SOURCE = "0 0 10.71.0.22:2181 10.71.0.12:50300\n"
"""broker2 on source2's machine, as dest2 sees it."""


def _beside(also: str, cut: Literal["zookeeper", "all"] = "zookeeper") -> Context:
    """The inventory in which broker2 has this address too."""
    plain = inventory()
    first, second, third = plain.kafka.brokers
    brokers = (first, second.model_copy(update={"also": (also,)}), third)
    kafka_section = plain.kafka.model_copy(update={"brokers": brokers})
    policy = plain.policy.model_copy(update={"cut": cut})
    return Context("r1", plain.model_copy(update={"kafka": kafka_section, "policy": policy}))


@pytest.mark.parametrize(("server", "address"), [("source2", "10.71.0.12"), ("dest2", "10.71.0.22")])
def test_a_broker_on_a_zookeeper_servers_machine_is_fine_unless_the_cut_blocks_it(
    server: str, address: str
) -> None:
    world = healthy()
    shows("broker2", address)(world)
    shows("dest2", "10.71.0.32")(world)
    asked, all_cut = _beside(address), _beside(address, "all")
    for host in ("broker2", "dest2") if server == "dest2" else ("broker2",):
        assert _found(world, "host.one-role", "preflight", host, asked).held is Held.YES
    found = _found(world, "host.one-role", "preflight", "broker2", all_cut)
    assert (found.held, found.seen) == (Held.NO, f"it has the address of {server} ({address}) too")
    assert (
        found.moves[0] == "set policy.cut: zookeeper in migration.yml: all blocks the broker from ZooKeeper"
    )
    untold = _found(world, "host.one-role", "preflight", "broker2")
    assert untold.moves[0] == "name the address in migration.yml for both, in address or also"


@pytest.mark.parametrize(("users", "held"), [((998,), Held.YES), ((998, 0), Held.NO), ((), Held.UNKNOWN)])
def test_a_broker_on_a_dest_host_must_not_be_roots(users: tuple[int, ...], held: Held) -> None:
    """The fence lets root through."""
    world = healthy()
    around = world.programs["broker2", "surroundings"]
    assert isinstance(around, Seen)
    said = around.value.replace("user=998\n", "".join(f"user={user}\n" for user in users))
    world.programs["broker2", "surroundings"] = Seen(said)
    found = _found(world, "host.one-role", "preflight", "broker2", _beside("10.71.0.22"))
    assert found.held is held
    beside_source = _found(world, "host.one-role", "preflight", "broker2", _beside("10.71.0.12"))
    assert beside_source.held is Held.YES


def test_a_client_of_dest_on_a_source_servers_machine_is_not_what_the_cut_ends() -> None:
    world = healthy()
    world.socket_lists["dest2"] = Seen(BESIDE_SOURCE)
    assert _found(world, "dest.cut-ends", "cutover", "dest2").held is Held.YES
    everything = _beside("10.71.0.12", "all")
    assert _found(world, "dest.cut-ends", "cutover", "dest2", everything).held is Held.NO


def test_where_a_broker_is_on_a_dest_host_the_cut_spares_sources_client_port() -> None:
    """It is a client of source until the roll, and the rehearsal comes before."""
    world = healthy()
    assert "2181" in _found(world, "dest.cut-ports", "preflight").seen
    seen = _found(world, "dest.cut-ports", "preflight", "", _beside("10.71.0.22")).seen
    assert "2181" not in seen
    assert "2888, 3888" in seen


def test_a_loopback_name_of_source_is_refused_on_a_source_servers_machine() -> None:
    """Its sockets would show neither that the broker is on source nor that it has left."""
    world, asked = healthy(), context()
    brokers = asked.inventory.kafka.brokers
    beside = (brokers[0], brokers[1].model_copy(update={"address": "10.71.0.12"}), brokers[2])
    kafka_section = asked.inventory.kafka.model_copy(update={"brokers": beside})
    asked = replace(asked, inventory=asked.inventory.model_copy(update={"kafka": kafka_section}))
    text = server_properties(2).replace("10.71.0.12:2181", "localhost:2181")
    file("broker2", PROPERTIES, text.encode())(world)
    world.resolved["broker2", "localhost"] = Seen(("127.0.0.1",))
    found = _found(world, "kafka.config", "preflight", "broker2", asked)
    assert found.held is Held.NO
    assert "zookeeper.connect names localhost, not a source host" in found.seen
    assert "write the machine's address" in " ".join(found.moves)


@pytest.mark.parametrize(
    ("lines", "seen"),
    [
        ("listeners=INTERNAL://:9092\nlistener.security.protocol.map=INTERNAL:PLAINTEXT\n", ""),
        ("listeners=SSL://:9092\n", ""),
        ("listeners=NO_SASL://:9092\nlistener.security.protocol.map=NO_SASL:PLAINTEXT\n", ""),
        ("listeners=sasl_ssl://:9092\nsasl.enabled.mechanisms=PLAIN, SCRAM-SHA-256\n", ""),
        (
            "listeners=in://:9092, ext://:9093\nlistener.security.protocol.map=in:plaintext,ext:sasl_ssl\n",
            "no sasl.enabled.mechanisms, so brokers take GSSAPI: Kerberos has never been tried",
        ),
        (
            "listeners=sasl_ssl://:9092\nsasl.enabled.mechanisms=PLAIN,gssapi\n",
            "sasl.enabled.mechanisms=PLAIN,gssapi: Kerberos has never been tried",
        ),
        (
            "listeners=x://:1\nlistener.security.protocol.map=X:SASL_SSL\n"
            "listener.name.x.sasl.enabled.mechanisms=OAUTHBEARER\n",
            "listener.name.x.sasl.enabled.mechanisms=OAUTHBEARER: never tried",
        ),
        (
            "security.inter.broker.protocol=sasl_plaintext\n",
            "no sasl.enabled.mechanisms, so brokers take GSSAPI: Kerberos has never been tried",
        ),
        (
            "zookeeper.clientCnxnSocket=org.example.Own\n",
            "zookeeper.clientCnxnSocket=org.example.Own: never tried",
        ),
    ],
)
def test_a_listener_uses_sasl_by_its_protocol_not_by_its_name(lines: str, seen: str) -> None:
    """Kafka reads protocols in any case: lower case passed, and a name that held SSL was refused."""
    world = healthy()
    plain = re.sub("listeners=.*\n", "", server_properties(1))
    world.files["broker1", PROPERTIES] = Seen((plain + lines).encode())
    found = _found(world, "kafka.security", "preflight", "broker1")
    assert (found.held, found.seen) == ((Held.NO, seen) if seen else (Held.YES, "nothing of that kind"))


def test_brokers_that_do_not_answer_are_told_the_port_of_their_own_file() -> None:
    world = healthy()
    world.view = Unknown("refused", "10.71.0.31:9092: connection refused")
    text = "listeners=EXT://:9093,INT://:9192\nlistener.security.protocol.map=EXT:SSL,INT:PLAINTEXT\n"
    world.files["broker1", PROPERTIES] = Seen(text.encode())
    found = _found(world, "kafka.brokers", "preflight")
    assert found.held is Held.UNKNOWN
    assert found.moves[0] == "broker1 listens on port 9192 (INT): correct its port"


def test_the_id_of_a_broker_may_stand_as_node_id() -> None:
    world = healthy()
    world.files["broker1", PROPERTIES] = Seen(server_properties(1).replace("broker.id", "node.id").encode())
    world.files["broker1", META] = Seen(b"version=0\n")
    assert _found(world, "kafka.config", "preflight", "broker1").held is Held.YES
