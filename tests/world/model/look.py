"""Looks at the model world, answered with the text that real hosts send."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tests.memory_files import BytesReader
from tests.world.cluster import Cluster
from tests.world.cluster_look import TopicQuestions
from tests.world.cluster_state import spread
from tests.world.model import ensemble as words
from tests.world.model import program
from tests.world.model.disk import Disk
from tests.world.model.ensemble import Ensemble
from tests.world.model.members import RELEASE, Process
from tests.world.model.world import LOGS, SESSION_TIMEOUT_MS, World
from zkmigrate.errors import HostError
from zkmigrate.hosts import zkm_host
from zkmigrate.kafka.questions import KafkaView
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import DirEntry, Pulse, RandomReader, Volume
from zkmigrate.zookeeper.questions import Rights, Znode

T = TypeVar("T")

VERSION = "3.5.8"
STAGED = "/staged/reform.cfg"
JAVA = "java -Xmx256m -cp /opt/zookeeper/lib/* org.apache.zookeeper.server.quorum.QuorumPeerMain zoo.cfg"


@dataclass(frozen=True)
class WorldLook(TopicQuestions):
    """Implements :class:`zkmigrate.runbook.model.look.Look`. ``unreachable`` names hosts that do not
    answer."""

    world: World
    unreachable: frozenset[str] = frozenset()

    def now(self) -> float:
        return self.world.now

    def wall(self) -> float:
        return self.world.wall

    @property
    def cluster(self) -> Cluster:
        topics: dict[str, dict[str, str]] = {p.topic: {} for p in self.world.partitions()}
        for (topic, key), value in self.world.settings.items():
            topics.setdefault(topic, {})[key] = value
        ids = tuple(broker.id for broker in self.world.inventory.kafka.brokers) or (1, 2, 3)
        return Cluster(self.world.inventory.kafka.cluster_id, topics, spread(tuple(topics), ids), ids)

    def each(self, hosts: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        return {host: ask(host) for host in hosts}

    def pulses(self, within_s: float) -> Mapping[str, Pulse]:
        up = self.world.brokers.items()
        return {
            n: Pulse(0.0, took_s=0.002) if p.registered else Pulse(None, "connection refused") for n, p in up
        }

    def produced(self) -> Mapping[str, Sequence[Pulse]]:
        return {}

    # --- four-letter words --------------------------------------------------------------------------

    def word(self, host: str, word: str) -> Reading[str]:
        world = self.world
        if host in self.unreachable:
            return Unknown("unreachable", f"{host} does not answer")
        if host in world.inventory.source_names:
            if host in world.source_down:
                return Unknown("refused", f"{host}: connection refused")
            if not world.source_leader:
                return Seen(words.UNSERVING)
            mode = "leader" if host == world.source_leader else "follower"
            return Seen(self._answer(host, word, mode, world.source))
        if not world.hosts[host].running:
            return Unknown("refused", f"{host}: connection refused")
        state = world.serving_log(host)
        if state is None:
            return Seen(words.UNSERVING)
        return Seen(self._answer(host, word, world.mode(host), state))

    def _answer(self, host: str, word: str, mode: str, state: Ensemble) -> str:
        world = self.world
        if word == "srvr":
            return words.srvr(VERSION, mode, state.zxid, len(state.tree().znodes))
        if word == "mntr":
            source = state is world.source
            names = world.inventory.source_names if source else world.inventory.dest_names
            voting = [n for n in names if n not in world.source_down and (source or world.mode(n))]
            observing = [n for n in world.inventory.dest_names if source and world.mode(n) == "observer"]
            return words.mntr(VERSION, mode, len(voting) - 1 + len(observing), len(voting) - 1)
        if word == "cons":
            return words.cons(
                [
                    (p.member.address, 40000 + p.number, p.session, SESSION_TIMEOUT_MS)
                    for p in self._connected(host)
                ]
            )
        if word == "dump":
            return words.dump(state.tree())
        if word == "conf" and host in world.inventory.source_names:
            served = world.inventory.source
            return (
                f"clientPort={served.ports.client}\ndataDir={served.data_dir}/version-2\n"
                f"dataLogDir={served.txn_dir}/version-2\ntickTime=2000\n"
                f"serverId={world.inventory.source_host(host).myid}\nversion={world.source_version:x}\n"
            )
        return f"{word} is not executed because it is not in the whitelist.\n"

    def _door(self, endpoint: str) -> str:
        """Whether somebody listens there: an IPv4 address and a port."""
        world = self.world
        names = (*world.inventory.source_names, *world.inventory.dest_names)
        name = next(n for n in names if world.inventory.address(n) == endpoint.partition(":")[0])
        down = name in world.source_down or (name in world.hosts and not world.hosts[name].running)
        return "refused" if down else "open"

    def _connected(self, host: str) -> list[Process]:
        return [p for p in self.world.brokers.values() if p.connected == host]

    # --- hosts --------------------------------------------------------------------------------------

    def zkm(self, host: str, *args: str) -> Reading[str]:
        if host in self.unreachable:
            return Unknown("unreachable", f"{host} does not answer")
        world, h = self.world, self.world.hosts[host]
        if args[0] == "phase":
            return Seen(program.phase(h, world.now))
        if args[0] == "status":
            cut_off = world.mode(host) != "observer" if host in world.inventory.dest_names else True
            clients = len(self._connected(host))
            return Seen(program.status(h, world.now, world.wall, args[1:], clients, 0 if cut_off else 1))
        if args[0] == "recovery":
            of = LOGS if h.running else 0
            return Seen(f"logs={world.loaded(host) if h.running else 0} of={of} segments=0\n")
        if args[0] == "drain":
            state = world.serving_log(host)
            if state is None:
                return Seen("unserving\n")
            return Seen(f"outstanding=0 zxid=0x{state.zxid:x} mode={world.mode(host)}\n")
        if args[0] == "probe":
            how = "refused" if h.cut.holds(world.now) else "open"
            return Seen(
                "".join(
                    f"probe {address} {port} {how}\n"
                    for address in h.spec["source"].split(",")
                    for port in h.spec["cut_ports"].split(",")
                )
            )
        if args[0] == "stamp":
            return Seen(f"boot_id={h.boot}\nstamp={program.stamp(h)}\n")
        if args[0] == "ops":
            return Seen(program.ops(h))
        if args[0] == "op":
            return Seen(program.op(h, args[1]))
        if args[0] == "reach":
            return Seen("".join(f"probe {e.replace(':', ' ')} {self._door(e)}\n" for e in args[1].split(",")))
        if args[0] == "surroundings":
            return Seen(program.surroundings(h))
        if args[0] == "facts":
            return Seen(program.facts(h, world.wall, tuple(word for word in args if word != "--rules")[2:]))
        raise HostError(f"the model has no zkm-host verb {args[0]}")

    def file(self, host: str, path: str) -> Reading[bytes]:
        if host in self.unreachable:
            return Unknown("unreachable", f"{host} does not answer")
        content = self._contents(host).get(path)
        return Absent(path) if content is None else Seen(content)

    def _contents(self, host: str) -> dict[str, bytes]:
        """Every file of a host by path, data directories as their real bytes."""
        world = self.world
        if host in world.inventory.source_names:
            disk = Disk(tuple(world.source.log), world.source.epoch, world.source.epoch)
            return {**world.source_files[host], **_version_2(world.inventory.source.data_dir, disk)}
        h = world.hosts[host]
        files = {path: f.content for path, f in h.files.items()}
        if h.installed:
            files[zkm_host.INSTALLED_PATH] = h.installed
        if host in world.brokers:
            files |= world.kind.shows(world.inventory, world.brokers[host], runs=h.running)
        if h.armed:
            spec = "".join(f"{key}={value}\n" for key, value in h.spec.items())
            staged = [path for path in h.files if path.endswith(STAGED)]
            state = staged[0].removesuffix(STAGED) if staged else zkm_host.run_dir("run")
            files[f"{state}/spec"] = f"ssh_ports=22\n{spec}own={h.address}\n".encode()
        return files if h.disk is None else {**files, **_version_2(world.inventory.dest.data_dir, h.disk)}

    def listing(self, host: str, path: str) -> Reading[tuple[DirEntry, ...]]:
        if host in self.unreachable:
            return Unknown("unreachable", f"{host} does not answer")
        contents = self._contents(host)
        below = {p[len(path) + 1 :]: c for p, c in contents.items() if p.startswith(path + "/")}
        entries: dict[str, DirEntry] = {}
        for name, content in below.items():
            head, slash, _ = name.partition("/")
            if slash:
                entries[head] = DirEntry(head, "d", 0, 0)
            else:
                entries[head] = self._entry(host, f"{path}/{head}", content)
        aside = self.world.hosts[host].aside if host in self.world.hosts else {}
        for operation, moved in aside.items():
            if moved.rsplit("/", 1)[0] == path:
                name = f"{moved.rsplit('/', 1)[1]}.zkm-{operation}"
                entries[name] = DirEntry(name, "d", 0, 0)
        return Seen(tuple(entries.values()))

    def _entry(self, host: str, path: str, content: bytes) -> DirEntry:
        file = self.world.hosts[host].files.get(path) if host in self.world.hosts else None
        if file is None:
            return DirEntry(path.rsplit("/", 1)[1], "f", len(content), 0, "0644", "zookeeper", "zookeeper")
        user, group = file.owner.split(":")
        changed = round(file.changed * 1e9)
        return DirEntry(path.rsplit("/", 1)[1], "f", len(content), changed, file.mode, user, group)

    def reader(self, host: str, path: str) -> RandomReader:
        content = None if host in self.unreachable else self._contents(host).get(path)
        if content is None:
            raise HostError(f"{host}: {path} is not there")
        return BytesReader(content)

    def sockets(self, host: str) -> Reading[str]:
        if host in self.unreachable:
            return Unknown("unreachable", f"{host} does not answer")
        process = self.world.brokers.get(host)
        if process is None or not process.connected:
            return Seen("")
        address = self.world.inventory.address(process.connected)
        return Seen(f"0 0 {process.member.address}:40000 {address}:2181\n")

    def processes(self, host: str) -> Reading[str]:
        if host in self.unreachable:
            return Unknown("unreachable", f"{host} does not answer")
        h = self.world.hosts.get(host)
        runs = host not in self.world.source_down if h is None else h.running
        return Seen("/sbin/init\n" + (f"{JAVA}\n" if runs and host not in self.world.brokers else ""))

    def date(self, host: str) -> Reading[str]:
        if host in self.unreachable:
            return Unknown("unreachable", f"{host} does not answer")
        skew = self.world.hosts[host].skew_s if host in self.world.hosts else 0.0
        return Seen(f"{self.world.wall + skew:.9f}\n")

    def volumes(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, Volume]]:
        return Unknown("failed", f"the world has no volumes of {host}")

    def metrics(self, url: str) -> Reading[str]:
        return Unknown("failed", f"the world serves no metrics at {url}")

    def load_counters(self, host: str) -> Reading[str]:
        if host in self.unreachable:
            return Unknown("unreachable", f"{host} does not answer")
        return Seen(
            f"==> /proc/uptime <==\n{self.world.now:.2f} 0.00\n"
            "==> /proc/diskstats <==\n 8 0 sda 0 0 0 0 0 0 0 0 0 0 0\n"
            "==> /proc/self/mountinfo <==\n1 0 8:0 / / rw - ext4 /dev/sda rw\n"
            "==> /proc/net/dev <==\n eth0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
            "==> /proc/net/route <==\nIface\neth0 00000000 0 1 0 0 0 00000000 0 0 0\n"
        )

    def addresses(self, host: str, name: str) -> Reading[tuple[str, ...]]:
        return Absent(name)

    def here(self) -> Reading[tuple[str, ...]]:
        return Seen(self.world.inventory.operator)

    # --- clients ------------------------------------------------------------------------------------

    def znode(self, host: str, path: str) -> Reading[Znode]:
        world = self.world
        if host in world.inventory.source_names:
            state = world.source if world.source_leader and host not in world.source_down else None
        else:
            state = world.serving_log(host)
        if state is None:
            return Unknown("refused", f"{host} does not serve")
        znodes = state.tree().znodes
        above = path.rstrip("/") + "/"
        children = tuple(
            p[len(above) :]
            for p in znodes
            if p.startswith(above) and p != above and "/" not in p[len(above) :]
        )
        if path == "/":
            return Seen(Znode(b"", 0, 0, state.zxid, 0, 0, children))
        if path not in znodes:
            return Absent(path)
        z = znodes[path]
        return Seen(Znode(z.data, z.czxid, z.mzxid, z.pzxid, z.owner, z.version, children))

    def modified(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, int]]:
        found: dict[str, int] = {}
        for path in paths:
            node = self.znode(host, path)
            if isinstance(node, Unknown):
                return node
            if isinstance(node, Seen):
                found[path] = node.value.modified_ms
        return Seen(found)

    def acls(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, Rights]]:
        return Seen(dict.fromkeys(paths, ((31, "world", "anyone"),)))

    def kafka(self, witnesses: int | None = None) -> Reading[KafkaView]:
        world = self.world
        alive = [p for p in world.brokers.values() if world.hosts[p.member.name].running]
        if not alive:
            return Unknown("refused", "no broker answers")
        registered = {
            p.number: (p.member.address, p.member.port, f"r{p.number}") for p in alive if p.registered
        }
        controller = self._controller(alive)
        return Seen(
            KafkaView(
                world.inventory.kafka.cluster_id,
                controller if controller in registered else min(registered, default=-1),
                registered,
                world.partitions(),
                {"load": 2},
                releases={
                    world.inventory.broker(p.member.name).endpoint: RELEASE.rpartition(".")[0] for p in alive
                },
            )
        )

    def _controller(self, alive: list[Process]) -> int:
        """The controller as the ensemble shows it that brokers are connected to; -1 for none."""
        via = next((p.connected for p in alive if p.connected), "")
        source = via in self.world.inventory.source_names
        state = self.world.source if source else self.world.serving_log(via) if via else None
        node = (
            None
            if state is None
            else state.tree().znodes.get(f"{self.world.inventory.kafka.prefix}/controller")
        )
        return -1 if node is None else int(json.loads(node.data)["brokerid"])


def _version_2(data_dir: str, disk: Disk) -> dict[str, bytes]:
    return {f"{data_dir}/version-2/{name}": content for name, content in disk.files().items()}
