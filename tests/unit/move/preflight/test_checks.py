"""Every check of the preflight: once where it holds, once where it fails, once where nothing can be known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from tests.unit.preflight_world import (
    CHECKS,
    FACTS,
    SOURCE_CFG,
    STATUS,
    TIMEOUT,
    WHITELIST,
    PreflightWorld,
    cons,
    context,
    file_entry,
    healthy,
    inventory,
    partition,
    recorded,
    run_preflight,
    server_properties,
    view,
)
from zkmigrate.inventory.inventory import Service
from zkmigrate.locations import Locations
from zkmigrate.move.preflight import Gate
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Held, Severity, blocking
from zkmigrate.runbook.model.look import DirEntry
from zkmigrate.runbook.model.step import Context
from zkmigrate.runbook.ui import finding_lines, preflight_view
from zkmigrate.zookeeper.questions import Znode

T = TypeVar("T")
Break = Callable[[PreflightWorld], None]

ZOO_CFG, JAVA_ENV = "/etc/zookeeper/conf/zoo.cfg", "/etc/zookeeper/conf/java.env"
PROPERTIES, DATA = "/etc/kafka/server.properties", "/var/lib/zookeeper"


def _found(world: PreflightWorld, id: str, gate: str = "preflight", target: str = "") -> Finding:
    found = [
        f for f in run_preflight(context(), world, gate) if f.id == id and (not target or f.target == target)
    ]
    wrong = [f for f in found if f.held is not Held.YES]
    assert found, id
    return (wrong or found)[0]


def word(host: str, word: str, text: str) -> Break:
    return lambda w: w.words.update({(host, word): Seen(text)})


def no_word(word: str, *hosts: str) -> Break:
    return lambda w: w.words.update({(host, word): TIMEOUT for host in hosts})


def config(old: str, new: str, host: str = "source2") -> Break:
    assert old in SOURCE_CFG
    return lambda w: w.files.update({(host, ZOO_CFG): Seen(SOURCE_CFG.replace(old, new).encode())})


def dynamic(*hosts: str) -> Break:
    """Source servers with their members in a dynamic file of version 0x100000000."""
    path = f"{ZOO_CFG}.dynamic.100000000"
    lines = SOURCE_CFG.splitlines(keepends=True)
    static = "".join(line for line in lines if not line.startswith("server."))
    members = "".join(line for line in lines if line.startswith("server."))

    def made(w: PreflightWorld) -> None:
        for host in hosts:
            w.files[host, ZOO_CFG] = Seen(
                f"{static}reconfigEnabled=true\ndynamicConfigFile={path}\n".encode()
            )
            w.files[host, path] = Seen(members.encode())

    return made


def file(host: str, path: str, content: bytes) -> Break:
    return lambda w: w.files.update({(host, path): Seen(content)})


def no_flags(host: str) -> Break:
    """Neither in its java_env nor of its process."""
    return both(no_file(host, JAVA_ENV), lambda w: w.process_lists.update({host: TIMEOUT}))


def env(host: str, content: bytes) -> Break:
    """In its java_env; its process is not seen."""
    return both(no_flags(host), file(host, JAVA_ENV, content))


def no_file(host: str, path: str) -> Break:
    return lambda w: w.files.update({(host, path): Unknown("denied", f"{path}: permission denied")})


def entries(host: str, path: str, *names: str) -> Break:
    return lambda w: w.listings.update({(host, path): Seen(tuple(file_entry(name) for name in names))})


def listed(host: str, path: str, entry: DirEntry) -> Break:
    return lambda w: w.listings.update({(host, path): Seen((entry,))})


def no_entries(host: str, path: str) -> Break:
    return lambda w: w.listings.update({(host, path): Unknown("denied", "sudo: a password is required")})


def port(host: str, address: str, number: int, seen: str) -> Break:
    return lambda w: w.reached[host].update({f"{address}:{number}": seen})


def no_port(host: str) -> Break:
    """The host cannot be asked what it reaches."""
    return lambda w: w.reached.__delitem__(host)


def program(host: str, verb: str, old: str, new: str) -> Break:
    text = {"status": STATUS, "facts": FACTS}[verb]
    assert old in text
    return lambda w: w.programs.update({(host, verb): Seen(text.replace(old, new))})


def broker_says(host: str, state: str) -> Break:
    said = STATUS.replace("unit_state=inactive", f"unit_state={state}").replace("unit_pid=0", "unit_pid=311")
    return lambda w: w.programs.update({(host, "status"): Seen(said)})


def no_program(host: str, verb: str, why: Unknown = TIMEOUT) -> Break:
    return lambda w: w.programs.update({(host, verb): why})


def kafka(changed: object) -> Break:
    return lambda w: setattr(w, "view", Seen(changed))


def no_kafka(w: PreflightWorld) -> None:
    w.view = TIMEOUT


def both(*breaks: Break) -> Break:
    def apply(w: PreflightWorld) -> None:
        for one in breaks:
            one(w)

    return apply


def big_tree(w: PreflightWorld) -> None:
    """More data than a znode may have, so that the disk would have to be read; and it cannot."""
    text = recorded("leader.mntr").replace(
        "zk_approximate_data_size\t261", "zk_approximate_data_size\t5000000"
    )
    assert "5000000" in text
    w.words["source2", "mntr"] = Seen(text)
    w.listings["source2", f"{DATA}/version-2"] = Unknown("denied", "permission denied")


def six_seconds(w: PreflightWorld) -> None:
    """Sessions of 6 s, as old Kafka versions have them."""
    for host in ("source1", "source3", "dest1", "dest2", "dest3"):
        reading = w.words[host, "dump"]
        assert isinstance(reading, Seen)
        w.words[host, "dump"] = Seen(reading.value.replace("\t20000ms", "\t6000ms"))
    served = w.words["dest1", "cons"]
    assert isinstance(served, Seen)
    w.words["dest1", "cons"] = Seen(served.value.replace("to=20000", "to=6000"))


DUMPS = ("source1", "source2", "source3", "dest1", "dest2", "dest3")
CONS_AND_SOCKETS = both(
    *(word(f"source{n}", "cons", "cons" + WHITELIST) for n in (1, 2, 3)),
    lambda w: w.socket_lists.update({f"source{n}": Unknown("denied", "ss: not allowed") for n in (1, 2, 3)}),
    lambda w: w.socket_lists.update(
        {f"broker{n}": Unknown("missing-tool", "ss: not found") for n in (1, 2, 3)}
    ),
)

# check, gate, target, what breaks it, what of it must be told; what makes it unknown.
# fmt: off
CASES: list[tuple[str, str, str, Break, str, Break]] = [
    (
        "source.quorum", "preflight", "",
        word("source3", "srvr", recorded("unserving.srvr")), "source3 not serving",
        no_word("srvr", "source3"),
    ),
    (
        "source.quorum", "cutover", "",
        word("source2", "mntr", recorded("leader.mntr").replace("zk_synced_followers\t2",
        "zk_synced_followers\t1")),
        "1 in sync", word("source2", "mntr", "mntr" + WHITELIST),
    ),
    (
        "source.server-down", "roll", "source3",
        both(
            word("source3", "srvr", recorded("unserving.srvr")),
            word("source2", "mntr", recorded("leader.mntr").replace("zk_synced_followers\t2",
            "zk_synced_followers\t1")),
        ),
        "not serving; without it the quorum holds", no_word("srvr", "source3"),
    ),
    (
        "source.ports", "preflight", "source1",
        port("dest2", "10.71.0.11", 3888, "refused"), "3888 from dest2: refused", no_port("dest2"),
    ),
    (
        "source.ports", "preflight", "source1",
        port("dest3", "10.71.0.11", 2888, "timeout"), "2888 from dest3: timeout", no_port("dest3"),
    ),
    (
        "source.ports", "preflight", "source2",
        port("dest1", "10.71.0.12", 2888, "refused"), "2888 from dest1: refused", no_port("dest1"),
    ),
    (
        "source.config", "preflight", "source2",
        config("server.3=10.71.0.13", "server.3=10.71.0.99"), "server.3 is 10.71.0.99", no_file("source2",
        ZOO_CFG),
    ),
    (
        "source.config", "preflight", "source2",
        config("server.3=", "server.4="), "server.4=10.71.0.13 is not in the inventory", no_file("source2",
        ZOO_CFG),
    ),
    (
        "source.config", "preflight", "source2",
        config("10.71.0.11:2888:3888", "10.71.0.11:2889:3888"), "uses ports 2889:3888",
        config("10.71.0.11:2888:3888\n", "10.71.0.11:2888:3888\nnonsense\n"),
    ),
    (
        "source.config", "preflight", "source2",
        config("dataDir=/var/lib/zookeeper", "dataDir=/data"), "dataDir=/data",
        config("tickTime=2000", "tickTime=2000\ndynamicConfigFile=/etc/gone.dynamic"),
    ),
    (
        "source.myid", "preflight", "source1", file("source1", f"{DATA}/myid", b"2\n"), "2",
        no_file("source1", f"{DATA}/myid"),
    ),
    (
        "source.security", "preflight", "source2",
        config("tickTime=2000", "tickTime=2000\nauthProvider.1=org.Own"), "authProvider.1=org.Own",
        no_file("source2", ZOO_CFG),
    ),
    (
        "source.security", "preflight", "source2",
        env("source2", b'JVMFLAGS="-Djava.security.krb5.conf=/etc/krb5.conf"'),
        "java.security.krb5.conf: Kerberos has never been tried", no_flags("source2"),
    ),
    (
        "source.security", "preflight", "source2",
        config("tickTime=2000", "tickTime=2000\nssl.quorum.crl=true"), "ssl.quorum.crl: lists of revoked",
        no_flags("source2"),
    ),
    (
        "source.sync-enabled", "preflight", "source2",
        config("tickTime=2000", "tickTime=2000\nsyncEnabled=false"), "syncEnabled=false",
        no_file("source2", ZOO_CFG),
    ),
    (
        # one server has been reconfigured, the others not yet
        "source.reconfig", "preflight", "source1", dynamic("source2"), "version 0x0",
        no_file("source1", ZOO_CFG),
    ),
    (
        "dest.members", "roll", "dest2",
        dynamic("source1", "source2", "source3"), "version 0x0", no_file("dest2", ZOO_CFG),
    ),
    (
        "source.version", "preflight", "source1",
        word("source1", "srvr", recorded("follower.srvr").replace("3.5.8", "3.7.1")), "3.7.1",
        no_word("srvr", "source1"),
    ),
    (
        # its files are read in tests, but no move from it has been drilled
        "source.version", "preflight", "source3",
        word("source3", "srvr", recorded("follower.srvr").replace("3.5.8", "3.9.3")), "3.9.3",
        no_word("srvr", "source3"),
    ),
    (
        "source.zxid-counter", "preflight", "",
        word("source2", "srvr", recorded("leader.srvr").replace("0x100000008", "0x1fffffff0")), "0x1fffffff0",
        no_word("srvr", "source1", "source2", "source3"),
    ),
    (
        "source.purge", "preflight", "source2",
        config("autopurge.purgeInterval=0", "autopurge.purgeInterval=1"), "autopurge.purgeInterval=1",
        no_file("source2", ZOO_CFG),
    ),
    (
        "dest.empty", "preflight", "dest2",
        entries("dest2", f"{DATA}/version-2", "snapshot.500000000", "acceptedEpoch"), "acceptedEpoch",
        no_entries("dest2", f"{DATA}/version-2"),
    ),
    (
        "dest.empty", "preflight", "dest1",
        entries("dest1", f"{DATA}/version-2", "currentEpoch"), "currentEpoch", no_entries("dest1",
        f"{DATA}/version-2"),
    ),
    (
        "dest.leftovers", "preflight", "dest3",
        entries("dest3", "/etc/zookeeper/conf", "java.env", "zoo.cfg.dynamic.next"), "zoo.cfg.dynamic.next",
        no_entries("dest3", "/etc/zookeeper/conf"),
    ),
    (
        "dest.myid", "preflight", "dest1",
        config("server.3=10.71.0.13", "server.11=10.71.0.13"), "source uses [1, 2, 3, 11]",
        no_file("source2", ZOO_CFG),
    ),
    (
        "dest.myid", "preflight", "dest1",
        file("dest1", f"{DATA}/myid", b"12\n"), "myid file: 12", no_file("dest1", f"{DATA}/myid"),
    ),
    (
        "dest.jute-maxbuffer", "preflight", "dest1",
        env("source3", b'JVMFLAGS="-Djute.maxbuffer=4194304"'),
        "1048575 bytes; source allows 4194304",
        file("dest1", JAVA_ENV, b'JVMFLAGS="-Djute.maxbuffer=lots"'),
    ),
    (
        "dest.jute-maxbuffer", "preflight", "dest1",
        file("dest1", JAVA_ENV, b'JVMFLAGS="-Djute.maxbuffer=0x8000"'), "32768 bytes", big_tree,
    ),
    (
        "dest.sync-enabled", "preflight", "dest1",
        file("dest1", JAVA_ENV, b'JVMFLAGS="-Dzookeeper.observer.syncEnabled=false"'), "JVM flag false",
        no_file("dest1", JAVA_ENV),
    ),
    (
        "dest.security", "preflight", "dest1",
        file("dest1", JAVA_ENV, b'JVMFLAGS="-Dzookeeper.ssl.ocsp=true"'),
        "ssl.ocsp: lists of revoked certificates",
        no_file("dest1", JAVA_ENV),
    ),
    (
        "dest.session-bounds", "preflight", "",
        config("tickTime=2000", "tickTime=2000\nmaxSessionTimeout=90000"), "4000 to 90000",
        config("tickTime=2000", "tickTime=two"),
    ),
    (
        "dest.disk", "preflight", "dest1",
        program("dest1", "facts", "disk_free_kib=1048576", "disk_free_kib=1024"), "1 MiB free",
        no_program("dest1", "facts"),
    ),
    (
        "dest.disk", "preflight", "dest1",
        program("dest1", "facts", "disk_free_kib=1048576", "disk_free_kib=-"), "absent",
        no_entries("source2", f"{DATA}/version-2"),
    ),
    (
        "dest.observing", "roll", "dest1",
        word("dest1", "srvr", recorded("unserving.srvr")), "not serving", no_word("srvr", "dest1"),
    ),
    (
        "dest.cluster-id", "roll", "dest1",
        lambda w: w.znodes.update({("dest1", "/kafka/cluster/id"): Absent("/kafka/cluster/id")}),
        "no /kafka/cluster/id",
        lambda w: w.znodes.update({("dest1", "/kafka/cluster/id"): TIMEOUT}),
    ),
    (
        "dest.version", "roll", "dest1",
        word("dest1", "srvr", recorded("observer.srvr").replace("3.5.8", "3.8.4")), "3.5.8 to 3.8.4",
        no_word("srvr", "dest1"),
    ),
    (
        "dest.version", "cutover", "dest2",
        word("source1", "srvr", recorded("follower.srvr").replace("3.5.8", "3.8.4")), "3.5.8, 3.8.4 to 3.5.8",
        no_word("srvr", "source1", "source2", "source3"),
    ),
    (
        "dest.cluster-id", "cutover", "dest1",
        lambda w: w.znodes.update(
            {("dest1", "/kafka/cluster/id"): Seen(Znode(b'{"version":"1","id":"other"}', 1, 1, 1, 0, 0, ()))}
        ),
        "other",
        lambda w: w.znodes.update({("dest1", "/kafka/cluster/id"): Seen(Znode(b"{", 1, 1, 1, 0, 0, ()))}),
    ),
    (
        "host.access", "preflight", "broker2", program("broker2", "facts", "uid=0", "uid=1000"),
        "not as root",
        no_program("broker2", "status", Unknown("denied", "the host key of broker2 is not the pinned one")),
    ),
    (
        "host.tools", "preflight", "dest1",
        program("dest1", "facts", "tool.ipset=ipset v7.17, protocol version: 7", "tool.ipset=missing"),
        "ipset missing",
        no_program("dest1", "facts"),
    ),
    (
        "host.tools", "preflight", "broker1",
        program("broker1", "facts", "tool.nc=present\ntool.bash=present",
        "tool.nc=missing\ntool.bash=missing"),
        "nc (netcat-openbsd) or bash missing", no_program("broker1", "facts"),
    ),
    *(
        (
            "host.own-links", gate, host,
            program(host, "facts", "uid=0\n", "uid=0\nrefused=zkm-host: /srv/kafka/conf: conf is a link\n"),
            "/srv/kafka/conf: conf is a link", no_program(host, "facts"),
        )
        for gate, host in (("preflight", "dest1"), ("roll", "broker2"), ("cutover", "dest3"))
    ),
    (
        "host.socket-kill", "preflight", "dest1", program("dest1", "facts", "ss_kill=yes", "ss_kill=no"),
        "ended no connection",
        program("dest1", "facts", "ss_kill=yes", "ss_kill=unknown"),
    ),
    (
        "host.rules", "cutover", "dest1", program("dest1", "status", "in4=absent", "in4=present"),
        "INPUT present",
        program("dest1", "status", "in4=absent", "in4=unknown"),
    ),
    (
        "host.rules", "preflight", "dest2",
        program("dest2", "facts", "rules=yes", "rules=no iptables-restore: line 9 failed"),
        "rules tried: iptables-restore: line 9 failed",
        program("dest2", "status", "in4=absent", "in4=unknown"),
    ),
    (
        "host.commands", "preflight", "broker2",
        broker_says("broker2", "inactive"),
        "inactive, process 311 listens",
        broker_says("broker2", "unknown"),
    ),
    (
        "host.commands", "preflight", "dest1",
        program("dest1", "status", "unit_state=inactive", "unit_state=active"),
        "active, no process listens", no_program("dest1", "status"),
    ),
    (
        "host.commands", "preflight", "broker3", entries("broker3", "/opt/kafka"),
        "absent: /opt/kafka/service", no_entries("broker3", "/opt/kafka"),
    ),
    (
        "host.commands", "preflight", "dest3",
        listed("dest3", "/opt/zookeeper", file_entry("service", mode="0644")),
        "/opt/zookeeper/service may not be run", no_entries("dest3", "/opt/zookeeper"),
    ),
    (
        "host.start-guard", "preflight", "dest2",
        file("dest2", "/opt/zookeeper/service", b"#!/bin/sh\nexec java\n"), "does not run the guard",
        no_file("dest2", "/opt/zookeeper/service"),
    ),
    (
        "host.clock", "preflight", "dest1", program("dest1", "facts", "time=1000.25", "time=1002.5"),
        "+2.5 s",
        no_program("dest1", "facts"),
    ),
    (
        "run.alone", "preflight", "dest1",
        both(
            lambda w: w.listings.update({
                ("dest1", "/var/lib/zkmigrate"): Seen((replace(file_entry("other"), kind="d"),))
            }),
            file("dest1", "/var/lib/zkmigrate/other/phase", b"armed 1000 3\n"),
        ),
        "run other in phase armed", no_entries("dest1", "/var/lib/zkmigrate"),
    ),
    (
        "kafka.brokers", "preflight", "", kafka(replace(view(), brokers={1: ("10.71.0.31", 9092, "r1")})),
        "brokers 1",
        no_kafka,
    ),
    (
        "kafka.brokers", "cutover", "", kafka(replace(view(), brokers={**view().brokers, 4: ("10.71.0.34",
        9092, "")})),
        "brokers 1, 2, 3, 4", no_kafka,
    ),
    ("kafka.controller", "roll", "", kafka(replace(view(), controller=-1)), "no controller", no_kafka),
    ("kafka.cluster-id", "preflight", "", kafka(replace(view(), cluster_id="x" * 22)), "x" * 22, no_kafka),
    (
        "kafka.offline", "roll", "", kafka(partition(leader=-1)),
        "1 of 3 partitions offline: orders-0", no_kafka,
    ),
    (
        "kafka.under-replicated", "cutover", "", kafka(partition(isr=(1, 2))),
        "1 of 3 partitions not fully in sync: orders-0", no_kafka,
    ),
    (
        "kafka.replication", "preflight", "", kafka(partition(replicas=(1,), isr=(1,))), "has one replica",
        no_kafka,
    ),
    (
        "kafka.min-isr", "preflight", "", kafka(replace(view(), min_isr={"orders": 3})), "is not below the",
        kafka(replace(view(), min_isr={})),
    ),
    ("kafka.reassignment", "roll", "", kafka(replace(view(), reassigning=(("orders", 2),))), "orders-2",
    no_kafka),
    (
        "kafka.config", "preflight", "broker1",
        file("broker1", PROPERTIES, server_properties(2).encode()), "broker.id=2", no_file("broker1",
        PROPERTIES),
    ),
    (
        "kafka.config", "preflight", "broker1",
        file("broker1", PROPERTIES, server_properties(1).replace("/kafka", "/other").encode()),
        "chroot /other",
        no_file("broker1", PROPERTIES),
    ),
    (
        "kafka.config", "preflight", "broker1",
        file("broker1", PROPERTIES, server_properties(1, "10.9.9.9:2181").encode()), "names 10.9.9.9",
        file("broker1", PROPERTIES, b"a=\\u1"),
    ),
    (
        "kafka.security", "preflight", "broker1",
        file("broker1", PROPERTIES, b"listeners=SASL_SSL://10.71.0.31:9092\n"), "no sasl.enabled.mechanisms",
        no_file("broker1", PROPERTIES),
    ),
    (
        "kafka.security", "preflight", "broker1",
        file("broker1", PROPERTIES, b"zookeeper.ssl.crl.enable=true\n"), "zookeeper.ssl.crl.enable",
        no_file("broker1", PROPERTIES),
    ),
    (
        "kafka.left-source", "cutover", "broker2",
        word("source1", "cons", cons("10.71.0.32")), "client of source1", CONS_AND_SOCKETS,
    ),
    (
        "kafka.left-source", "cutover", "broker2",
        lambda w: w.socket_lists.update({"broker2": Seen("0 0 10.71.0.32:50000 [::ffff:10.71.0.13]:2181\n")}),
        "own socket to 10.71.0.13:2181", CONS_AND_SOCKETS,
    ),
    (
        "kafka.sessions-on-dest", "cutover", "", word("dest1", "cons", cons("10.71.0.31")),
        "session 0x1000021c3000000: client of no ensemble", no_word("cons", "source3"),
    ),
    (
        "kafka.sessions-on-dest", "cutover", "",
        lambda w: w.words.update({("source2", "cons"): w.words["dest1", "cons"]}),
        "session 0x1000021c3000000: client of source2", no_word("dump", *DUMPS),
    ),
    (
        "kafka.session-timeout", "cutover", "", six_seconds, "T = 6 s leaves -1.5 s", no_word("dump", *DUMPS),
    ),
    (
        "kafka.addresses", "preflight", "broker1",
        kafka(replace(view(), brokers={**view().brokers, 1: ("10.71.0.32", 9092, "r1")})),
        "10.71.0.32:9092", no_kafka,
    ),
]
# fmt: on


@pytest.mark.parametrize(("id", "gate", "target", "broken", "told", "hidden"), CASES)
def test_check(id: str, gate: str, target: str, broken: Break, told: str, hidden: Break) -> None:
    assert _found(healthy(), id, gate, target).held is Held.YES
    world = healthy()
    broken(world)
    failed = _found(world, id, gate, target)
    assert failed.held is Held.NO
    assert told in failed.seen
    assert failed.moves
    world = healthy()
    hidden(world)
    unknown = _found(world, id, gate, target)
    assert unknown.held is Held.UNKNOWN, unknown
    assert failed.blocks == unknown.blocks == (failed.severity is Severity.BLOCK)


def test_ids_are_unique_and_explained() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    assert all(check.about and check.claim for check in CHECKS)


@pytest.mark.parametrize("gate", list(Gate))
def test_a_healthy_world_passes(gate: Gate) -> None:
    findings = run_preflight(context(), healthy(), gate)
    assert blocking(findings) == ()
    assert {f.id for f in findings if f.held is not Held.YES and f.severity is not Severity.INFO} == set()


def test_where_systemd_is_used_no_command_is_asked() -> None:
    plain = inventory()
    systemd = Service(unit="any.service")
    plain = plain.model_copy(
        update={
            "dest": plain.dest.model_copy(update={"service": systemd}),
            "kafka": plain.kafka.model_copy(update={"service": systemd}),
        }
    )
    world = healthy()
    findings = run_preflight(Context("r1", plain), world, "preflight")
    assert {f.id for f in findings}.isdisjoint({"host.commands", "host.start-guard"})
    assert not any(look[0] == "zkm" and len(look) > 4 and look[2] == "status" for look in world.asked)
    assert ("zkm", "dest1", "facts", "--rules", "any.service", DATA, "/etc/zookeeper/conf") in world.asked


def test_with_commands_systemd_is_asked_for_no_unit_and_a_broker_needs_ss() -> None:
    world = healthy()
    program("broker1", "facts", "tool.ss=ss utility, iproute2-6.1.0", "tool.ss=missing")(world)
    assert _found(world, "host.tools", target="broker1").held is Held.NO
    assert ("zkm", "broker1", "facts", "-", "/etc/kafka") in world.asked


def test_an_unknown_gate_is_refused() -> None:
    with pytest.raises(ValueError, match="later"):
        run_preflight(context(), healthy(), "later")


def test_what_comes_later_does_not_block_now() -> None:
    world = healthy()
    world.words["source1", "cons"] = Seen(cons("10.71.0.32"))
    now = [f for f in run_preflight(context(), world, "preflight") if f.id == "kafka.left-source"]
    assert [(f.severity, f.blocks) for f in now] == [(Severity.INFO, False)]
    assert "later: checked at the gate cutover" in now[0].seen


def test_short_sessions_are_a_warning_early_and_a_stop_at_the_cutover() -> None:
    world = healthy()
    six_seconds(world)
    early, due = (_found(world, "kafka.session-timeout", gate) for gate in ("preflight", "cutover"))
    assert (early.held, early.severity, early.blocks) == (Held.NO, Severity.WARN, False)
    assert due.blocks


def test_checks_of_the_first_gate_are_over_later() -> None:
    world = healthy()
    for n in (1, 2, 3):
        entries(f"dest{n}", f"{DATA}/version-2", "snapshot.100000000", "acceptedEpoch")(world)
    for gate in ("roll", "cutover"):
        findings = run_preflight(context(), world, gate)
        assert "dest.empty" not in {f.id for f in findings}
        assert blocking(findings) == ()


def test_sockets_stand_in_where_cons_is_not_allowed() -> None:
    world = healthy()
    for n in (1, 2, 3):
        world.words[f"source{n}", "cons"] = Seen("cons" + WHITELIST)
    assert _found(world, "kafka.left-source", "cutover").held is Held.YES
    world.socket_lists["source3"] = Seen("0 0 10.71.0.13:2181 10.71.0.33:50000\n")
    assert _found(world, "kafka.left-source", "cutover", "broker3").seen == "client of source3"


def test_brokers_stand_in_where_source_tells_nothing() -> None:
    world = healthy()
    CONS_AND_SOCKETS(world)
    for n in (1, 2, 3):
        world.socket_lists[f"broker{n}"] = Seen("")
    assert _found(world, "kafka.left-source", "cutover").held is Held.YES


def test_the_operators_own_connection_is_no_client() -> None:
    world = healthy()
    world.words["source1", "cons"] = Seen(cons("10.71.0.2", "10.71.0.99"))
    assert blocking(run_preflight(context(), world, "cutover")) == ()


@pytest.mark.parametrize("gate", list(Gate))
def test_every_look_is_made_once(gate: Gate) -> None:
    world = healthy()
    run_preflight(context(), world, gate)
    twice = sorted({str(look) for look in world.asked if world.asked.count(look) > 1})
    assert twice == []


def test_a_client_session_is_had_only_once_dest_has_joined() -> None:
    for gate, sessions in (("preflight", 0), ("roll", 3), ("cutover", 3)):
        world = healthy()
        run_preflight(context(), world, gate)
        assert len({look[1] for look in world.asked if look[0] in ("znode", "modified")}) == sessions


def test_nothing_answers() -> None:
    """When no host and no broker answers, every check is unknown: nothing passes,
    and nothing is said to fail."""
    world = PreflightWorld(view=TIMEOUT, silent=True)
    for gate in Gate:
        findings = run_preflight(context(), world, gate)
        # these rest on the inventory alone, and on the refusals that answer the operator here
        known = {
            "operator.address",
            "dest.admin-server",
            "dest.words",
            "host.names",
            "dest.from-operator",
            "run.hour",
        }
        known.add("kafka.retired")
        assert [f for f in findings if f.held is not Held.UNKNOWN and f.id not in known] == []
        assert len({f.id for f in findings if f.blocks}) > 5


NO_ROUTE = "cannot connect to it: No route to host"


class Unreached(PreflightWorld):
    """Every look at these hosts, or at all, ends without an answer."""

    def __init__(self, *hosts: str, by_ssh: Unknown | None = None) -> None:
        super().__init__(**vars(healthy()))
        self.hosts = hosts
        self.by_ssh = by_ssh or Unknown("unreachable", NO_ROUTE)
        if not hosts:
            self.view = Unknown("timeout", "no broker answered")

    def word(self, host: str, word: str) -> Reading[str]:
        if not self.hosts or host in self.hosts:
            return Unknown("timeout", f"{word} to {host}: timed out")
        return super().word(host, word)

    def zkm(self, host: str, *words: str) -> Reading[str]:
        return self._or_none(host, super().zkm(host, *words))

    def file(self, host: str, path: str) -> Reading[bytes]:
        return self._or_none(host, super().file(host, path))

    def listing(self, host: str, path: str) -> Reading[tuple[DirEntry, ...]]:
        return self._or_none(host, super().listing(host, path))

    def processes(self, host: str) -> Reading[str]:
        return self._or_none(host, super().processes(host))

    def date(self, host: str) -> Reading[str]:
        return self._or_none(host, super().date(host))

    def _or_none(self, host: str, reading: Reading[T]) -> Reading[T]:
        silent = not self.hosts or host in self.hosts
        return Unknown(self.by_ssh.cause, f"{host}: {self.by_ssh.why}") if silent else reading


def test_a_host_that_is_not_reached_is_one_line_and_the_first() -> None:
    findings = run_preflight(context(), Unreached("dest2"), "preflight")
    unknown = [f for f in findings if f.target == "dest2" and f.held is Held.UNKNOWN and f.cause]
    assert len(unknown) > 10
    lines = finding_lines.findings(findings)
    assert lines[0] == f"[??] dest2: unreachable: {NO_ROUTE}; {len(unknown)} checks unknown"
    assert [line.split()[1] for line in lines[1:] if line.startswith("[??]")] == ["source.ports"]
    moves = finding_lines.moves(findings)
    assert [m for m in moves if m.startswith("find out why the host does not answer")]
    assert not [m for m in moves if "ssh.known_hosts" in m], "a key does not open a route"


def test_with_no_host_reached_every_host_is_one_line() -> None:
    findings = run_preflight(context(), Unreached(), "preflight")
    lines = finding_lines.findings(findings)
    hosts = [*inventory().source_names, *inventory().dest_names, *inventory().broker_names]
    assert [line.split()[1] for line in lines[:9]] == [f"{host}:" for host in hosts]
    assert len(lines) < 25 < 150 < len(findings)
    assert "(denied)" not in "".join(lines), "nobody denied anything"
    assert not [line for line in lines if "unreachable bytes" in line or NO_ROUTE + " bytes" in line]


# What ssh says on the wrong machine: no way there; something in between accepts; others have these addresses.
ELSEWHERE = {
    "no-route": Unknown("unreachable", NO_ROUTE),
    "no-sshd": Unknown("refused", "the connection was dropped 4 times before login"),
    "other-machines": Unknown("denied", "host key changed: another machine may answer"),
}


def of_the_screen(findings: tuple[Finding, ...]) -> list[str]:
    return [line for line, _ in preflight_view.lines(findings, Locations("migration.yml"), None)]


@pytest.mark.parametrize("by_ssh", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("gate", list(Gate))
def test_on_the_wrong_machine_that_is_said_first_and_the_rest_follows(by_ssh: Unknown, gate: Gate) -> None:
    world = Unreached(by_ssh=by_ssh)
    world.own_addresses = Seen(("172.17.0.2",))
    findings = run_preflight(context(), world, gate)
    screen = of_the_screen(findings)
    assert screen[1].split(":")[0].strip() == "operator.address"
    assert "it has none of these addresses; it sends from 172.17.0.2; and no host lets it in" in screen[1]
    done = [line for line in screen if line.split() and line.split()[0] == "do"]
    assert "run zkmigrate on the machine that has 10.71.0.2; is this the right one?" in done[0]
    assert len(done) == 2, "one remedy for the machine, one for the hosts"
    assert len(screen) < 40
    assert not [line for line in screen if "let the ssh account read it" in line]
    assert finding_lines.findings(findings)[0].startswith("[NO] operator.address: ")
    assert finding_lines.moves(findings)[0].startswith("run zkmigrate on the machine that has 10.71.0.2")
    assert len(finding_lines.findings(findings)) < 25


@pytest.mark.parametrize("by_ssh", ELSEWHERE.values(), ids=ELSEWHERE)
def test_on_the_right_machine_the_hosts_come_first_with_one_remedy(by_ssh: Unknown) -> None:
    screen = of_the_screen(run_preflight(context(), Unreached(by_ssh=by_ssh), "preflight"))
    assert screen[1].strip() == "no host lets this machine in"
    assert [line.split()[0] for line in screen[2:11]] == [
        *inventory().source_names, *inventory().dest_names, *inventory().broker_names
    ]  # fmt: skip
    assert len([line for line in screen if line.split() and line.split()[0] == "do"]) == 1


def test_another_address_only_warns_where_hosts_answer() -> None:
    """Behind NAT the hosts see another address than this machine has."""
    world = healthy()
    world.own_addresses = Seen(("172.17.0.2",))
    found_ = run_preflight(context(), world, "preflight")
    assert blocking(found_) == ()
    [told] = [f for f in found_ if f.id == "operator.address"]
    assert (told.held, told.severity) == (Held.NO, Severity.WARN)
    assert told.seen == "it has none of these addresses; it sends from 172.17.0.2"


def test_one_of_several_addresses_is_enough() -> None:
    world = healthy()
    c = context()
    c = replace(c, inventory=c.inventory.model_copy(update={"operator": ("10.71.0.2", "10.71.0.3")}))
    world.own_addresses = Seen(("10.71.0.3",))
    [told] = [f for f in run_preflight(c, world, "preflight") if f.id == "operator.address"]
    assert (told.held, told.seen) == (Held.YES, "it has 10.71.0.3")


def test_what_follows_from_a_silent_dest_host_is_not_above_it_and_has_no_remedy() -> None:
    world = Unreached("dest3")
    for asker, ports in (("dest1", (2888, 3888)), ("dest2", (2888, 3888)), ("broker1", (2181,))):
        world.reached[asker] |= {f"10.71.0.23:{port}": "timeout" for port in ports}
    findings = run_preflight(context(), world, "preflight")
    told = {(f.id, f.target): f for f in findings}
    for asker, id in (("dest1", "dest.ports"), ("dest2", "dest.ports"), ("broker1", "dest.client-port")):
        assert told[id, asker].held is Held.UNKNOWN
        assert "dest3 does not answer" in told[id, asker].seen
    screen = of_the_screen(findings)
    assert screen[1].strip() == "dest3: no answer (unreachable)"
    assert not [line for line in screen if "open the quorum" in line or "open dest's client port" in line]
    assert len(blocking(findings)) > 10, "unknown never passes"


def test_a_port_of_a_host_that_answers_is_a_firewalls_all_the_same() -> None:
    world = Unreached("dest3")
    world.reached["dest1"] |= {"10.71.0.23:2888": "timeout", "10.71.0.22:2888": "timeout"}
    [told] = [
        f for f in run_preflight(context(), world, "preflight") if (f.id, f.target) == ("dest.ports", "dest1")
    ]
    assert (told.held, told.seen) == (Held.NO, "dest2's quorum port 2888 timeout")
    assert told.moves[0] == "open the quorum and election ports between the dest hosts, both ways"


def bare(world: PreflightWorld, host: str) -> None:
    """A host that nobody has made for dest."""
    facts = FACTS.replace("disk_free_kib=1048576 /var/lib/zookeeper\n", "")
    world.programs[host, "facts"] = Seen(facts.replace("unit.LoadState=loaded", "unit.LoadState=not-found"))
    for path in (ZOO_CFG, "/opt/zookeeper/service"):
        world.files.pop((host, path), None)


@pytest.mark.parametrize("by_unit", [True, False], ids=["unit", "commands"])
@pytest.mark.parametrize("client", [True, False], ids=["client", "stranger"])
def test_a_dest_host_with_nothing_of_zookeeper_may_be_the_wrong_one(by_unit: bool, client: bool) -> None:
    world, c = healthy(), context()
    bare(world, "dest3")
    if by_unit:
        dest = c.inventory.dest.model_copy(update={"service": Service(unit="zookeeper.service")})
        c = replace(c, inventory=c.inventory.model_copy(update={"dest": dest}))
    if client:
        world.words["source1", "cons"] = Seen(cons("10.71.0.23"))
    [first, *_] = blocking(run_preflight(c, world, "preflight"))
    assert (first.id, first.target) == ("dest.disk", "dest3")
    assert "is it the right host?" in first.seen
    assert ("10.71.0.23 is a client of source" in first.seen) is client
    assert first.moves[0] == "see whether this is the right host; if not, correct dest.hosts in migration.yml"


@pytest.mark.parametrize("there", ["config", "service"])
def test_a_dest_host_that_was_begun_only_lacks_its_directory(there: str) -> None:
    world = healthy()
    script = world.files["dest3", "/opt/zookeeper/service"]
    bare(world, "dest3")
    if there == "config":
        world.files["dest3", ZOO_CFG] = Seen(b"clientPort=2181\n")
    else:
        world.files["dest3", "/opt/zookeeper/service"] = script
    [told] = [f for f in blocking(run_preflight(context(), world, "preflight")) if f.id == "dest.disk"]
    assert "right host" not in told.seen
    assert told.moves[0] == "make the directory, owned by dest.user"


def test_moves_name_what_they_belong_to() -> None:
    world = healthy()
    world.files["source2", ZOO_CFG] = Unknown("denied", f"{ZOO_CFG}: permission denied")
    told = finding_lines.moves(run_preflight(context(), world, "preflight"))
    assert "let the ssh account read it (source.config)" in told
    assert told[-1] == "fix the cause, then check again"


def test_a_cluster_without_topics_is_healthy() -> None:
    world = healthy()
    world.view = Seen(replace(view(), partitions=(), min_isr={}))
    assert blocking(run_preflight(context(), world, "preflight")) == ()


def test_a_slow_look_is_no_wrong_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host answers at some moment between question and answer; only what lies outside is a difference."""
    world, clock = healthy(), iter(float(989 + n) for n in range(1000))
    monkeypatch.setattr(world, "wall", lambda: next(clock))
    found = {f.target: f.seen for f in run_preflight(context(), world, "preflight") if f.id == "host.clock"}
    # The fifth host is asked from 998 to 999 and says 1000.25, the sixth from 1000 to 1001.
    assert (found["broker2"], found["broker3"]) == ("its clock is +1.2 s off", "its clock is +0.0 s off")
