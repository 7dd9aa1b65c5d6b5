"""A healthy world as a fake Look: wire text by host, in dictionaries that a test changes to break a thing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from tests.memory_files import BytesReader
from tests.unit.zkdata_fixtures import create_payload, log_from
from tests.world.cluster import Cluster
from tests.world.cluster_look import TopicQuestions
from zkmigrate.errors import HostError
from zkmigrate.inventory.inventory import (
    Broker,
    Dest,
    Inventory,
    Kafka,
    Service,
    Source,
    SourceHost,
    Ssh,
    ZooKeeperHost,
)
from zkmigrate.kafka.questions import KafkaView, PartitionState
from zkmigrate.move import preflight
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.look import DirEntry, Look, Pulse, RandomReader, Volume
from zkmigrate.runbook.model.step import Context
from zkmigrate.zookeeper.questions import Rights, Znode

T = TypeVar("T")

WORDS = Path(__file__).parent.parent / "recorded" / "zk" / "3.5.8" / "words"
"""What real 3.5.8 servers answered; the ephemerals are /kafka/controller and /kafka/brokers/ids/1."""

CLUSTER_ID = "Q9fEx3xTRZmWq0oUGfGc9A"
RUN = "r1"
OWNER = 0x1000021C3000000
OWNERS = {1: OWNER, 2: 0x2000021C3000000, 3: 0x3000021C3000000}
"""Which session registered which broker."""
"""The session that owns both, a client of dest1 once joined."""
TIMEOUT = Unknown("timeout", "no answer in 3 s")
WHITELIST = " is not executed because it is not in the whitelist.\n"


def recorded(name: str) -> str:
    """One recorded answer, ``ROLE.WORD``."""
    return (WORDS / name).read_text()


def service(name: str) -> Service:
    """A service with commands of its own, so that the checks of commands have something to judge."""
    actions = ("start", "stop", "status")
    return Service(unit=name, **{action: f"/opt/{name}/service {action}" for action in actions})


def inventory() -> Inventory:
    """Three of each, as in the lab."""
    return Inventory(
        version=1,
        name="test",
        operator=("10.71.0.2",),
        ssh=Ssh(user="ops", key="/id", known_hosts="/known_hosts"),
        source=Source(
            hosts=tuple(SourceHost(name=f"source{n}", address=f"10.71.0.1{n}", myid=n) for n in (1, 2, 3))
        ),
        dest=Dest(
            hosts=tuple(
                ZooKeeperHost(name=f"dest{n}", address=f"10.71.0.2{n}", myid=10 + n) for n in (1, 2, 3)
            ),
            settings={
                "tickTime": "2000",
                "initLimit": "10",
                "syncLimit": "5",
                "4lw.commands.whitelist": "srvr, mntr, cons, dump",
            },
            service=service("zookeeper"),
        ),
        kafka=Kafka(
            cluster_id=CLUSTER_ID,
            chroot="/kafka",
            brokers=tuple(Broker(name=f"broker{n}", address=f"10.71.0.3{n}", id=n) for n in (1, 2, 3)),
            service=service("kafka"),
        ),
    )


SOURCE_CFG = """\
tickTime=2000
initLimit=10
syncLimit=5
dataDir=/var/lib/zookeeper
clientPort=2181
autopurge.purgeInterval=0
4lw.commands.whitelist=*
server.1=10.71.0.11:2888:3888
server.2=10.71.0.12:2888:3888
server.3=10.71.0.13:2888:3888
"""


def conf(number: int, text: str = "") -> str:
    """What source's server of this number says to ``conf``: a recorded answer with SOURCE_CFG's values."""
    text = text or recorded("follower.conf")
    values = {"clientPort": 2181, "tickTime": 2000, "minSessionTimeout": 4000, "maxSessionTimeout": 40000}
    values |= {"initLimit": 10, "syncLimit": 5, "serverId": number}
    for key, value in values.items():
        text = re.sub(rf"(?m)^{key}=.*$", f"{key}={value}", text)
    text = re.sub(r"(?m)^(dataDir|dataLogDir)=.*$", r"\1=/var/lib/zookeeper/version-2", text)
    return re.sub(r"(?m)^server\.(\d)=.*$", r"server.\1=10.71.0.1\1:2888:3888:participant", text)


STATUS = """\
version=1
boot_id=5a4e6b0c-0000-4000-8000-000000000001
uptime_s=100.000
time=1000.000
run=r1
phase=idle
phase_since=0
fencing=0
lapsed=no
tag=
in4=absent
out4=absent
in6=absent
out6=absent
fence_entries=0
fence_timeout_s=-
cut_entries=0
cut_timeout_s=-
client_sockets=-
source_sockets=-
unit_state=inactive
unit_pid=0
unit_since=-
lease=none
finisher=none 
image=none
tools_missing=
"""  # noqa: W291

RUNS = (
    STATUS.replace("unit_state=inactive", "unit_state=active")
    .replace("unit_pid=0", "unit_pid=311")
    .replace("unit_since=-", "unit_since=1000000")
)
"""A broker's: its process started at 901 on its clock."""

FACTS = """\
tool.sh=present
tool.ipset=ipset v7.17, protocol version: 7
tool.iptables=iptables v1.8.9 (nf_tables)
tool.ip6tables=ip6tables v1.8.9 (nf_tables)
tool.ss=ss utility, iproute2-6.1.0
tool.flock=flock from util-linux 2.38.1
tool.timeout=timeout (GNU coreutils) 9.1
tool.nc=present
tool.bash=present
tool.systemctl=systemd 252 (252.39-1~deb12u2)
tool.systemd-run=present
tool.java=openjdk version "17.0.15" 2025-04-15
ss_kill=yes
rules=yes
uid=0
time=1000.25
address=lo 127.0.0.1/8
address=host0 10.71.0.21/24
disk_free_kib=1048576 /var/lib/zookeeper
unit.LoadState=loaded
unit.ActiveState=inactive
"""


def facts_of(role: int, number: int) -> str:
    """The same of dest host (role 2) or broker (3) number, with its own address."""
    return FACTS.replace("10.71.0.21/24", f"10.71.0.{role}{number}/24")


PROCESSES = """\
/sbin/init
/usr/bin/java -XX:+UseSerialGC -Xmx256m -Dzookeeper.log.dir=/var/log -cp /etc/zookeeper/conf:/opt/zk/* \
org.apache.zookeeper.server.quorum.QuorumPeerMain /etc/zookeeper/conf/zoo.cfg
ps -e -ww -o args=
"""


def runs_with(*flags: str) -> str:
    """The same, the server with these flags too."""
    return PROCESSES.replace("-Xmx256m", " ".join(("-Xmx256m", *flags)))


SURROUNDINGS = """\
netns=net:[4026532281]
listener=311 net:[4026532281] java
user=998
main=311 net:[4026532281] java
slow_fsyncs=0 214
"""


def server_properties(broker: int, hosts: str = "10.71.0.11:2181,10.71.0.12:2181,10.71.0.13:2181") -> str:
    """A broker's file as it is before the roll."""
    return (
        f"broker.id={broker}\n"
        f"listeners=PLAINTEXT://10.71.0.3{broker}:9092\n"
        f"zookeeper.connect={hosts}/kafka\n"
        "log.dirs=/var/lib/kafka\n"
        "zookeeper.session.timeout.ms=20000\n"
    )


def cons(*clients: str) -> str:
    """``cons`` with the asking connection and one session for each client address."""
    lines = [" /10.71.0.2:40000[0](queued=0,recved=1,sent=0)"]
    lines += [
        f" /{address}:4000{n}[1](queued=0,recved=2,sent=2,sid=0x100000000000{n},lop=PING,est=1,to=20000,"
        f"lcxid=0x1,lzxid=0x1,lresp=1,llat=1,minlat=0,avglat=1,maxlat=1)"
        for n, address in enumerate(clients, 1)
    ]
    return "\n".join(lines) + "\n\n"


def file_entry(name: str, size: int = 1, mode: str = "") -> DirEntry:
    """A plain file of a listing."""
    return DirEntry(name, "f", size, 0, mode)


def view() -> KafkaView:
    """Three brokers, one topic with three partitions, all in sync."""
    ids = (1, 2, 3)
    return KafkaView(
        CLUSTER_ID,
        2,
        {n: (f"10.71.0.3{n}", 9092, f"r{n}") for n in ids},
        tuple(PartitionState("orders", n, ids[n], ids, ids) for n in range(3)),
        {"orders": 2},
        releases={f"10.71.0.3{n}:9092": "2.8" for n in ids},
    )


def partition(**changes: object) -> KafkaView:
    """The healthy view with the first partition changed."""
    healthy = view()
    first = replace(healthy.partitions[0], **changes)  # type: ignore[arg-type]
    return replace(healthy, partitions=(first, *healthy.partitions[1:]))


@dataclass
class PreflightWorld(TopicQuestions):
    """Answers by host and question. A file or directory that is not listed is Absent; with ``silent`` nothing
    answers at all."""

    words: dict[tuple[str, str], Reading[str]] = field(default_factory=dict)
    programs: dict[tuple[str, str], Reading[str]] = field(default_factory=dict)
    files: dict[tuple[str, str], Reading[bytes]] = field(default_factory=dict)
    listings: dict[tuple[str, str], Reading[tuple[DirEntry, ...]]] = field(default_factory=dict)
    contents: dict[tuple[str, str], bytes] = field(default_factory=dict)
    socket_lists: dict[str, Reading[str]] = field(default_factory=dict)
    reached: dict[str, dict[str, str]] = field(default_factory=dict)
    dates: dict[str, Reading[str]] = field(default_factory=dict)
    process_lists: dict[str, Reading[str]] = field(default_factory=dict)
    resolved: dict[tuple[str, str], Reading[tuple[str, ...]]] = field(default_factory=dict)
    znodes: dict[tuple[str, str], Reading[Znode]] = field(default_factory=dict)
    view: Reading[KafkaView] = field(default_factory=lambda: Seen(view()))
    asked: list[tuple[str, ...]] = field(default_factory=list)
    own_addresses: Reading[tuple[str, ...]] = field(default_factory=lambda: Seen(("10.71.0.2",)))
    silent: bool = False

    def now(self) -> float:
        return 0.0

    def wall(self) -> float:
        return 1000.0

    @property
    def cluster(self) -> Cluster:
        return Cluster()

    def _told(self, *what: str) -> None:
        self.asked.append(what)

    def word(self, host: str, word: str) -> Reading[str]:
        self._told("word", host, word)
        return self.words.get((host, word), Unknown("refused", f"{host}: connection refused"))

    def zkm(self, host: str, *words: str) -> Reading[str]:
        self._told("zkm", host, *words)
        if words[0] == "reach" and host in self.reached:
            found = self.reached[host]
            doors = ((e.replace(":", " "), found.get(e, "refused")) for e in words[1].split(","))
            return Seen("".join(f"probe {where} {how}\n" for where, how in doors))
        return self.programs.get((host, words[0]), Unknown("failed", f"no answer to {words}"))

    def file(self, host: str, path: str) -> Reading[bytes]:
        self._told("file", host, path)
        return TIMEOUT if self.silent else self.files.get((host, path), Absent(path))

    def listing(self, host: str, path: str) -> Reading[tuple[DirEntry, ...]]:
        self._told("listing", host, path)
        return TIMEOUT if self.silent else self.listings.get((host, path), Absent(path))

    def reader(self, host: str, path: str) -> RandomReader:
        if (host, path) not in self.contents:
            raise HostError(f"{host}: {path} cannot be read")
        return BytesReader(self.contents[host, path])

    def sockets(self, host: str) -> Reading[str]:
        self._told("sockets", host)
        return self.socket_lists.get(host, TIMEOUT)

    def processes(self, host: str) -> Reading[str]:
        self._told("processes", host)
        return self.process_lists.get(host, TIMEOUT)

    def date(self, host: str) -> Reading[str]:
        self._told("date", host)
        return self.dates.get(host, TIMEOUT)

    def load_counters(self, host: str) -> Reading[str]:
        self._told("load_counters", host)
        return TIMEOUT

    def metrics(self, url: str) -> Reading[str]:
        self._told("metrics", url)
        return TIMEOUT

    def volumes(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, Volume]]:
        self._told("volumes", host)
        return TIMEOUT

    def addresses(self, host: str, name: str) -> Reading[tuple[str, ...]]:
        self._told("addresses", host, name)
        return self.resolved.get((host, name), Absent(name))

    def here(self) -> Reading[tuple[str, ...]]:
        return self.own_addresses

    def znode(self, host: str, path: str) -> Reading[Znode]:
        self._told("znode", host, path)
        return TIMEOUT if self.silent else self.znodes.get((host, path), Absent(path))

    def acls(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, Rights]]:
        raise AssertionError("no check asks for an ACL")

    def modified(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, int]]:
        self._told("modified", host)
        if self.silent:
            return TIMEOUT
        found: dict[str, int] = {}
        for path in paths:
            reading = self.znodes.get((host, path), Absent(path))
            if isinstance(reading, Unknown):
                return reading
            if isinstance(reading, Seen):
                found[path] = reading.value.modified_ms
        return Seen(found)

    def pulses(self, within_s: float) -> Mapping[str, Pulse]:
        return {}

    def produced(self) -> Mapping[str, Sequence[Pulse]]:
        return {}

    def kafka(self, witnesses: int | None = None) -> Reading[KafkaView]:
        self._told("kafka")
        return self.view

    def each(self, hosts: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        return {host: ask(host) for host in hosts}


CMDLINE = (
    "java",
    "-Xmx1g",
    "-cp",
    "/etc/kafka:/opt/kafka/libs/*",
    "kafka.Kafka",
    "/etc/kafka/server.properties",
)
JARS = (
    "kafka_2.13-2.8.2.jar",
    "kafka_2.13-2.8.2-sources.jar",
    "zookeeper-3.5.9.jar",
    "zookeeper-jute-3.5.9.jar",
)


def words_of(*words: str) -> Seen[bytes]:
    """A cmdline or an environ of /proc."""
    return Seen("".join(f"{word}\0" for word in words).encode())


def broker_host(world: PreflightWorld, broker: str, id: int) -> None:
    """A broker's files and its process 311, which its own start script has started at 900."""
    world.files[broker, "/etc/kafka/server.properties"] = Seen(server_properties(id).encode())
    entry = DirEntry("server.properties", "f", 100, 800 * 10**9, "0640", "kafka", "kafka")
    world.listings[broker, "/etc/kafka"] = Seen((entry,))
    world.files[broker, "/proc/311/cmdline"] = words_of(*CMDLINE)
    world.files[broker, "/proc/311/environ"] = words_of("LANG=C", "SECRET=hush")
    world.listings[broker, "/opt/kafka/libs"] = Seen(tuple(file_entry(jar) for jar in JARS))
    world.files[broker, "/opt/kafka/service"] = Seen(
        b"#!/bin/sh\n# zookeeper.connect stands in the file\nexec java\n"
    )
    meta = f"version=0\nbroker.id={id}\ncluster.id={CLUSTER_ID}\n"
    world.files[broker, "/var/lib/kafka/meta.properties"] = Seen(meta.encode())


def source_log(world: PreflightWorld, host: str, *more: bytes) -> None:
    """What a broker wrote on source, and more."""
    registered = create_payload((1 << 32) + 1, "/kafka/brokers/ids/1", ephemeral=True, session=OWNER)
    log = log_from([registered, *more])
    world.contents[host, "/var/lib/zookeeper/version-2/log.100000001"] = log.ljust(1 << 20, b"\0")


def kafka_znodes(world: PreflightWorld, host: str) -> None:
    """What Kafka has under its chroot, and one tenant beside it; the partitions have been quiet for long."""

    def node(data: bytes = b"", children: tuple[str, ...] = ()) -> Seen[Znode]:
        return Seen(Znode(data, 1, 1, 1, 0, 0, children, 1000))

    for path, reading in {
        "/": node(children=("kafka", "solr", "zookeeper")),
        "/kafka": node(children=("admin", "brokers", "cluster", "consumers", "controller")),
        "/kafka/controller": node(b'{"version":1,"brokerid":2}'),
        "/kafka/controller_epoch": node(b"4"),
        "/kafka/admin/delete_topics": node(),
        "/kafka/consumers": node(),
        **{f"/kafka/brokers/topics/orders/partitions/{n}/state": node() for n in range(3)},
    }.items():
        world.znodes[host, path] = reading


def healthy() -> PreflightWorld:
    """Everything as it should be at the first gate, and joined as it should be at the later ones."""
    world = PreflightWorld()
    for n, role in ((1, "follower"), (2, "leader"), (3, "follower")):
        host = f"source{n}"
        for word in ("srvr", "mntr", "dump"):
            world.words[host, word] = Seen(recorded(f"{role}.{word}"))
        world.words[host, "cons"] = Seen(cons())
        world.words[host, "conf"] = Seen(conf(n))
        world.files[host, "/etc/zookeeper/conf/zoo.cfg"] = Seen(SOURCE_CFG.encode())
        world.files[host, "/etc/zookeeper/conf/java.env"] = Seen(b'JVMFLAGS="-Xmx256m"\n')
        world.files[host, "/var/lib/zookeeper/myid"] = Seen(f"{n}\n".encode())
        world.listings[host, "/var/lib/zookeeper/version-2"] = Seen(
            (file_entry("snapshot.100000000", 1000), file_entry("log.100000001", 1 << 20))
        )
        source_log(world, host)
    for n in (1, 2, 3):
        dest = f"dest{n}"
        world.programs[dest, "status"] = Seen(STATUS)
        world.socket_lists[dest] = Seen(
            f"0 0 10.71.0.2{n}:40000 10.71.0.12:2888\n0 0 10.71.0.2{n}:40001 10.71.0.11:3888\n"
            f"0 0 10.71.0.2{n}:22 10.71.0.13:50022\n0 0 10.71.0.2{n}:2181 10.71.0.3{n}:50000\n"
        )
        world.programs[dest, "facts"] = Seen(facts_of(2, n))
        world.listings[dest, "/etc/zookeeper/conf"] = Seen((file_entry("java.env"),))
        observer = b"dataDir=/var/lib/zookeeper\nclientPort=2181\npeerType=observer\n"
        world.files[dest, "/etc/zookeeper/conf/zoo.cfg"] = Seen(observer)
        world.listings[dest, "/var/lib/zookeeper"] = Seen(())
        world.listings[dest, "/opt/zookeeper"] = Seen((file_entry("service", mode="0755"),))
        world.files[dest, "/opt/zookeeper/service"] = Seen(b"#!/bin/sh\nzkm-host guard || exit 1\n")
        for number in (1, 2, 3):
            source = f"10.71.0.1{number}"
            reached = world.reached.setdefault(dest, {})
            reached[f"{source}:2888"] = "open" if number == 2 else "refused"
            reached[f"{source}:3888"] = "open"
            reached |= {f"10.71.0.2{number}:{port}": "refused" for port in (2888, 3888)}
            world.reached.setdefault(f"broker{n}", {})[f"10.71.0.2{number}:2181"] = "open"
        for word in ("srvr", "mntr"):
            world.words[dest, word] = Seen(recorded(f"observer.{word}"))
        registered = "".join(f"{OWNERS[id]:#x}:\n\t/kafka/brokers/ids/{id}\n" for id in (2, 3))
        dump = recorded("observer.dump").replace("Connections dump:", f"{registered}Connections dump:")
        world.words[dest, "dump"] = Seen(dump)
        served = cons(f"10.71.0.3{n}")
        world.words[dest, "cons"] = Seen(served.replace("sid=0x1000000000001,", f"sid={OWNERS[n]:#x},"))
        kafka_znodes(world, dest)
        id_json = b'{"version":"1","id":"%s"}' % CLUSTER_ID.encode()
        world.znodes[dest, "/kafka/cluster/id"] = Seen(Znode(id_json, 1, 1, 1, 0, 0, ()))
        broker = f"broker{n}"
        world.programs[broker, "status"] = Seen(RUNS)
        world.listings[broker, "/opt/kafka"] = Seen((file_entry("service", mode="0755"),))
        world.programs[broker, "facts"] = Seen(facts_of(3, n))
        broker_host(world, broker, n)
        world.socket_lists[broker] = Seen(f"0      0      10.71.0.3{n}:50000 10.71.0.2{n}:2181 \n")
    for host in (*world.reached, "source1", "source2", "source3"):
        world.dates[host] = Seen("1000.250000000\n")
        world.process_lists[host] = Seen(PROCESSES)
    for host in world.reached:
        world.programs[host, "surroundings"] = Seen(SURROUNDINGS)
        told = world.programs[host, "facts"]
        if host.startswith("broker") and isinstance(told, Seen):
            active = told.value.replace("ActiveState=inactive", "ActiveState=active")
            active += "unit.TimeoutStopUSec=3min\n"
            world.programs[host, "facts"] = Seen(active)
    return world


def context() -> Context:
    """A context of run r1, which has been rehearsed."""
    seconds = {step: {"forward": 1.0, "back": 0.5} for step in ("fence", "cut", "stop", "serve", "check")}
    return Context(RUN, inventory(), records={"rehearse": {"seconds": seconds}})


CHECKS = preflight.checks(KAFKA)


def run_preflight(c: Context, look: Look, gate: str) -> tuple[Finding, ...]:
    """The findings of a gate of Kafka's move."""
    return preflight.run_preflight(c, KAFKA, look, gate)
