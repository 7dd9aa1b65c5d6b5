"""The model world of a move: source, dest hosts, the members of a dependent, and time.

``World.apply`` takes a Change, ``World.advance`` lets time pass, ``WorldLook`` (tests/world/model/look.py)
answers. The world refuses to be misused: an un-restored dest host that follows source again, or an
acknowledged transaction that a reformed ensemble lacks, raises :class:`Disaster`, whatever the steps under
test believe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.world.model import disk, program, reconfig, replaying
from tests.world.model.disk import Disk, Transaction
from tests.world.model.ensemble import Ensemble, elected
from tests.world.model.host import File, Host
from tests.world.model.members import KafkaKind, Kind, Process
from zkmigrate.errors import HostError
from zkmigrate.inventory.inventory import Inventory, Service
from zkmigrate.kafka.changes import AlterTopicConfig, ElectLeaders
from zkmigrate.kafka.questions import PartitionState
from zkmigrate.move.steps.cut import RESTART_AFTER_S
from zkmigrate.runbook.model.change import Change, ClusterChange
from zkmigrate.zookeeper.changes import BeginReplay, EndReplay, ReplayTransactions

SLICE_S = 0.1
LOGS = 800
"""How many logs a broker holds."""

BROKER_START_S = 1.5
IN_SYNC_AFTER_S = 2.5
PARTITIONS = 3
SESSION_TIMEOUT_MS = 18000
CLUSTER_EPOCH = 1
WRITER = 0x100000000000001


class Disaster(AssertionError):
    """Something that must never happen has happened in the model."""


@dataclass
class World:
    """Build with :func:`new_world`. ``faults`` are called before each apply with (change, operation).

    kind: what the members are, as ``brokers`` of any dependent. source_down: source hosts whose server does
    not run; while too few do source_leader is empty. following: dest hosts that observe source, with the
    start of their process. frozen: dest hosts on which nothing runs on, while the kernel keeps their
    connections and ends their leases. leaders: by number of partition the id of the broker that leads it; the
    preferred replica where there is none. settings: by topic and key what a topic sets itself.
    replay_lost_behind: so many transactions of a replay source takes before its connection breaks; 0: all of
    them.
    """

    inventory: Inventory
    hosts: dict[str, Host]
    kind: Kind
    brokers: dict[str, Process]
    source: Ensemble
    dest: Ensemble | None = None
    dest_leader: str = ""
    now: float = 1000.0
    source_files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    source_leader: str = ""
    source_down: set[str] = field(default_factory=set)
    following: dict[str, float] = field(default_factory=dict)
    frozen: set[str] = field(default_factory=set)
    recovers_s: dict[str, float] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)
    settings: dict[tuple[str, str], str] = field(default_factory=dict)
    replay_lost_behind: int = 0
    sessions_made: int = 0
    acknowledged: list[Transaction] = field(default_factory=list)
    faults: list[Callable[[Change, str], None]] = field(default_factory=list)
    applied: list[tuple[Change, str]] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def wall(self) -> float:
        return 1_800_000_000.0 + self.now

    def apply(self, change: Change, operation: str, fencing: int) -> tuple[int, str]:
        """Carry one change out on its host or cluster; exit code and output."""
        with self.lock:
            for fault in self.faults:
                fault(change, operation)
            if isinstance(change, ClusterChange):
                answer = self._alter(change)
            else:
                answer = program.run(self.hosts[change.host], change, operation, fencing, self.now, self.wall)
            if answer[0] == 0:
                self.applied.append((change, operation))
            self._settle()
            return answer

    def _alter(self, change: ClusterChange) -> tuple[int, str]:
        if isinstance(change, ElectLeaders):
            self.leaders.clear()
            return 0, "elected"
        if isinstance(change, BeginReplay | ReplayTransactions | EndReplay):
            if not self.source_leader:
                raise HostError("source does not serve")
            disks = {h.name: h.disk.files() for h in self._dest_hosts() if h.disk is not None}
            chroot, lost_behind = self.inventory.kafka.subtree, self.replay_lost_behind
            return replaying.alter(self.source, disks, chroot, change, lost_behind)
        if not isinstance(change, AlterTopicConfig):
            return 1, f"no playbook of this world sends: {change.describe()}"
        self.settings.pop((change.topic, change.key), None)
        if change.value is not None:
            self.settings[change.topic, change.key] = change.value
        return 0, "altered"

    def advance(self, seconds: float) -> None:
        """Let time pass, in slices, with everything that happens by itself."""
        with self.lock:
            end = self.now + seconds
            while self.now < end:
                self.now = min(end, self.now + SLICE_S)
                self._settle()

    def renew(self, host: str, fence_ms: int, cut_ms: int) -> tuple[int, str]:
        """``zkm-host renew``: entries that lapsed are not put back."""
        with self.lock:
            h = self.hosts[host]
            if h.phase in ("sealed", "go", "started", "checked", "open"):
                return 0, "permanent"
            wanted = [h.fence] + ([h.cut] if h.phase != "fenced" else [])
            if (
                h.phase not in ("fenced", "cut", "stopped")
                or h.lapsed
                or not all(s.holds(self.now) for s in wanted)
            ):
                return 3, "lapsed"
            for kernel_set, ttl in zip(wanted, (fence_ms, cut_ms), strict=False):
                kernel_set.fill(self.now + ttl / 1000)
            return 0, "renewed"

    # --- who serves -------------------------------------------------------------------------------

    def mode(self, name: str) -> str:
        """``observer``, ``leader``, ``follower``; empty when a dest host does not serve."""
        host = self.hosts[name]
        if not host.ready(self.now) or name in self.frozen:
            return ""
        if self._observes(host):
            if host.cut.holds(self.now) or not self.source_leader:
                return ""
            return "observer" if self._knows_members(host) else ""
        if self.dest is None or not self.dest_leader:
            return ""
        return "leader" if name == self.dest_leader else "follower"

    def serving_log(self, name: str) -> Ensemble | None:
        """The ensemble whose state this dest host shows to clients."""
        mode = self.mode(name)
        if mode == "observer":
            return self.source
        return self.dest if mode else None

    def _observes(self, host: Host) -> bool:
        config = host.files.get(self.inventory.dest.config)
        return config is None or b"peerType=observer" in config.content

    def _knows_members(self, host: Host) -> bool:
        """An observer of members that source had before goes on until something cuts it off."""
        config = host.files.get(self.inventory.dest.config)
        own = reconfig.config(config.content).version if config is not None else 0
        return own == self.source_version or self.following.get(host.name) == host.started

    @property
    def source_version(self) -> int:
        """The version of source's members, in its leader's config; 0 where they are static."""
        files = self.source_files[self.source_leader or self.inventory.source_names[0]]
        return reconfig.config(files[self.inventory.source.config]).version

    def reconfigure_source(self, version: int) -> None:
        """Source's servers count their members anew: reconfigEnabled, and a change of them."""
        for files in self.source_files.values():
            reconfig.count_anew(files, self.inventory.source.config, version)
        self._settle()

    def _dest_hosts(self) -> list[Host]:
        return [self.hosts[host.name] for host in self.inventory.dest.hosts]

    # --- what happens by itself --------------------------------------------------------------------

    def _settle(self) -> None:
        self._elect_source()
        for host in self._dest_hosts():
            if host.name not in self.frozen:
                self._guard_lease(host)
                self._finish(host)
        self._elect()
        for host in self._dest_hosts():
            self._replicate(host)
            self._live_with_reconfig(host)
        for process in self.brokers.values():
            self._keep_connected(process)
        self._lead()
        self._expire()
        self._sync_disks()

    def _live_with_reconfig(self, host: Host) -> None:
        """Who follows, and what servers with reconfigEnabled do to their files."""
        mode = self.mode(host.name)
        config = host.files.get(self.inventory.dest.config)
        if (
            host.running
            and config is not None
            and self._observes(host)
            and reconfig.reconfigures(config.content)
        ):
            raise Disaster(f"{host.name} observes with reconfigEnabled: it becomes a follower of source")
        if mode == "observer":
            self.following[host.name] = host.started
        else:
            self.following.pop(host.name, None)
        if mode in ("leader", "follower") and self.dest is not None:
            reconfig.rewrite(host, self.inventory.dest.config, self.dest.epoch << 32)

    def _guard_lease(self, host: Host) -> None:
        if host.phase == "fenced" and not host.fence.holds(self.now):
            host.lapsed = True
            host.set_phase("armed", self.now)
        if host.phase not in ("cut", "stopped") or host.cut.holds(self.now):
            return
        host.lapsed = True
        late = self.now - host.cut_since > RESTART_AFTER_S
        if not host.running or (late and host.started < host.cut_since):
            host.start(self.now)
        if self.mode(host.name) == "observer":
            host.fence.empty()
            host.set_phase("armed", self.now)

    def _finish(self, host: Host) -> None:
        if host.phase == "go" and host.go is not None and not host.running and self._has_its_place(host):
            host.image, host.image_state = host.disk, "complete"
            reconfig.write_whole(host, "reform.cfg")
            host.start(self.now)
        if host.phase == "go" and host.running and self.mode(host.name) in ("leader", "follower"):
            host.set_phase("started", self.now)
            host.served_since = self.now
        served = host.served_since
        if host.phase in ("started", "checked") and host.go is not None and served is not None:
            alone = self.now - served > host.go[3]
            if alone:
                self._act_alone(host)

    def _act_alone(self, host: Host) -> None:
        """The finisher's own limit: open the door, or in a rehearsal go back."""
        if host.spec.get("rehearsal") != "yes":
            if self.mode(host.name) in ("leader", "follower"):  # else it looks again until it is one
                host.finisher = "done"
                host.fence.empty()
                host.set_phase("open", self.now)
            return
        host.finisher = "done"
        host.stop()
        host.disk, host.image_state = host.image, "begun"
        reconfig.write_whole(host, "observer.cfg")
        host.cut.empty()
        host.fence.empty()
        host.start(self.now)
        host.set_phase("armed", self.now)
        host.lapsed = True

    def _has_its_place(self, host: Host) -> bool:
        assert host.go is not None
        place, first, majority, _ = host.go
        names = [h for h in self._dest_hosts() if f"{h.address}:{self.inventory.dest.ports.client}" in first]
        if place == "first":
            return True
        if place == "quorum":
            return all(h.ready(self.now) for h in names)
        return self.dest_leader in [h.name for h in names] and len(self._participants()) >= majority

    def _participants(self) -> list[Host]:
        return [
            h
            for h in self._dest_hosts()
            if h.ready(self.now)
            and h.name not in self.frozen
            and not self._observes(h)
            and h.phase in ("go", "started", "checked", "open", "idle")
        ]

    def _elect_source(self) -> None:
        leader = elected(self.inventory.source_names, self.source_down, self.source_leader)
        if leader and leader != self.source_leader:
            self.source.epoch += 1
            self.source.seen = dict.fromkeys(self.source.tree().sessions, self.now)
        self.source_leader = leader

    def _elect(self) -> None:
        members = self._participants()
        majority = self.inventory.dest.majority
        if self.dest is not None:
            if self.dest_leader not in [h.name for h in members] or len(members) < majority:
                self.dest_leader = ""
                if not any(h.running and not self._observes(h) for h in self._dest_hosts()):
                    self.dest = None
            if self.dest_leader:
                return
        if len(members) < majority:
            return
        best = max(
            members, key=lambda h: (h.disk.current if h.disk else 0, h.disk.newest if h.disk else 0, h.name)
        )
        assert best.disk is not None
        epoch = max(h.disk.accepted for h in members if h.disk is not None) + 1
        self.dest = Ensemble(epoch, list(best.disk.log))
        self.dest.seen = dict.fromkeys(self.dest.tree().sessions, self.now)
        self.dest_leader = best.name
        self._nothing_lost()

    def _nothing_lost(self) -> None:
        """Every acknowledged transaction under the chroot that dest had before the cut is in the new log."""
        assert self.dest is not None
        kept = {txn.zxid for txn in self.dest.log}
        lost = [hex(txn.zxid) for txn in self.acknowledged if txn.zxid not in kept]
        if lost:
            raise Disaster(f"{self.dest_leader} leads without acknowledged transactions {lost}")

    def _replicate(self, host: Host) -> None:
        mode = self.mode(host.name)
        if not mode:
            return
        disk = host.disk if host.disk is not None else Disk()
        if mode == "observer":
            ours = tuple(self.source.log[: len(disk.log)])
            if disk.accepted > self.source.epoch or disk.log != ours:
                raise Disaster(f"{host.name} follows source with another history on its disk")
            host.disk = Disk(tuple(self.source.log), self.source.epoch, self.source.epoch)
        else:
            assert self.dest is not None
            host.disk = Disk(tuple(self.dest.log), self.dest.epoch, self.dest.epoch)

    def _sync_disks(self) -> None:
        for host in self._dest_hosts():
            self._replicate(host)

    # --- brokers -----------------------------------------------------------------------------------

    def door(self, address: str) -> tuple[str, Ensemble] | None:
        """Who answers a broker at this address: name and ensemble, None when nobody does."""
        for server in self.inventory.source.hosts:
            if server.address == address:
                serves = self.source_leader and server.name not in self.source_down
                return (server.name, self.source) if serves else None
        for host in self._dest_hosts():
            if host.address == address and not host.fence.holds(self.now):
                ensemble = self.serving_log(host.name)
                return (host.name, ensemble) if ensemble is not None else None
        return None

    def _keep_connected(self, process: Process) -> None:
        host = self.hosts[process.member.name]
        if not host.running or (process.process, process.reloads) != (host.starts, host.reloads):
            self._disconnect_for_good(process)
            process.process, process.reloads = host.starts, host.reloads
            config = self.kind.dependent.config(self.inventory)
            process.connect = self.kind.connect(host.files[config].content)
        loads_s = self.recovers_s.get(process.member.name, 0.0)
        if not host.running or self.now < host.started + BROKER_START_S + loads_s:
            return
        addresses = [part.rsplit(":", 1)[0] for part in process.connect.split(",")]
        turn = process.number % len(addresses)
        for address in addresses[turn:] + addresses[:turn]:
            answer = self.door(address)
            if answer is not None and not self._kept_from(host, answer[0]):
                process.connected = answer[0]
                self._use(process, answer[1])
                return
        process.connected = ""
        if not self.kind.keeps_sessions:
            process.session, process.registered = 0, False

    def _kept_from(self, host: Host, server: str) -> bool:
        """Whether the rules on a broker's own machine refuse it this server, because it is a dest host's."""
        dest = host.beside
        if dest is None:
            return False
        if server in self.inventory.dest_names:
            return dest.fence.holds(self.now)
        port = str(self.inventory.source.ports.client)
        return dest.cut.holds(self.now) and port in dest.spec["cut_ports"].split(",")

    def _disconnect_for_good(self, process: Process) -> None:
        """The process ended gracefully: its session is closed where it was connected."""
        if process.connected and process.session:
            ensemble = (
                self.source
                if process.connected in self.inventory.source_names
                else self.serving_log(process.connected)
            )
            if ensemble is not None and process.session in ensemble.tree().sessions:
                ensemble.commit("close-session", process.session)
        process.session, process.connected, process.registered = 0, "", False

    def _use(self, process: Process, ensemble: Ensemble) -> None:
        anew = process.session not in ensemble.tree().sessions
        if anew:
            if ensemble is self.source:
                self._nothing_left_on_dest()
            self.sessions_made += 1
            sid = self._myid(process.connected)
            process.session = (sid << 56) | self.sessions_made
            ensemble.commit("open-session", process.session, timeout_ms=SESSION_TIMEOUT_MS)
        ensemble.seen[process.session] = self.now
        process.registered = True
        self.kind.lives(self.inventory, process, ensemble, anew=anew)

    def _nothing_left_on_dest(self) -> None:
        """Behind the open door the first broker that comes to source finds there what dest did, and dest is
        down. One that comes while others work elsewhere is a stray, which is the watch's to find."""
        if any(p.registered for p in self.brokers.values()):
            return
        own = [h.disk for h in self._dest_hosts() if h.disk is not None]
        own = [disk for disk in own if list(disk.log) != self.source.log[: len(disk.log)]]
        if not own:
            return
        if any(h.running for h in self._dest_hosts()):
            raise Disaster("a broker comes to source while dest runs")
        log = max(own, key=lambda disk: disk.newest).log
        if unlike := replaying.unlike(self.source, log, self.inventory.kafka.subtree):
            raise Disaster(f"a broker comes to source, which lacks what dest did: {unlike}")

    def _myid(self, name: str) -> int:
        hosts = (*self.inventory.source.hosts, *self.inventory.dest.hosts)
        return next(h.myid for h in hosts if h.name == name)

    def _expire(self) -> None:
        self.source.seen[WRITER] = self.now
        if self.source_leader:
            self.source.expire(self.now)
        if self.dest is not None and self.dest_leader:
            self.dest.expire(self.now)

    def write(self, path: str, data: bytes = b"x") -> Transaction:
        """A client of source that is alive writes one znode and gets its acknowledgement."""
        kind: disk.Kind = "set" if path in self.source.tree().znodes else "create"
        txn = self.source.commit(kind, WRITER, path, data)
        if self.kind.dependent.chroot(self.inventory).holds(path):
            self.acknowledged.append(txn)
        self._settle()
        return txn

    def loaded(self, name: str) -> int:
        """How many of its logs a running broker has loaded."""
        took, loads_s = self.now - self.hosts[name].started, self.recovers_s.get(name, 0.0)
        return LOGS if took >= loads_s else int(LOGS * took / loads_s)

    def partitions(self) -> tuple[PartitionState, ...]:
        """Those of Kafka's one topic, as every broker tells of them."""
        return tuple(
            PartitionState("load", n, self.leaders.get(n, r[0]), r, self._isr())
            for n, r in enumerate(self._replicas())
        )

    def _replicas(self) -> list[tuple[int, ...]]:
        ids = tuple(sorted(p.number for p in self.brokers.values()))
        return [(*ids[n % len(ids) :], *ids[: n % len(ids)]) for n in range(PARTITIONS)]

    def _isr(self) -> tuple[int, ...]:
        return tuple(sorted(p.number for p in self.brokers.values() if self.in_sync(p)))

    def _lead(self) -> None:
        """A leader that is not in sync any more gives way to the first replica that is."""
        isr = self._isr()
        for number, replicas in enumerate(self._replicas()):
            if self.leaders.get(number, replicas[0]) not in isr:
                self.leaders[number] = next((id for id in replicas if id in isr), -1)

    def in_sync(self, process: Process) -> bool:
        """Whether this broker is in every ISR it belongs to."""
        host = self.hosts[process.member.name]
        return host.running and process.registered and self.now >= host.started + IN_SYNC_AFTER_S


def new_world(inventory: Inventory, properties: bytes, source_config: bytes) -> World:
    """A quiet world of Kafka. properties: what all brokers have in ``server.properties`` beside their
    ``broker.id``."""
    return world_of(inventory, KafkaKind(properties), source_config)


def world_of(inventory: Inventory, kind: Kind, source_config: bytes) -> World:
    """A quiet world: source serves, dest hosts are empty, every member of the dependent runs on source."""
    hosts = {h.name: Host(h.name, h.address, boot=f"boot-{h.name}") for h in inventory.dest.hosts}
    for host in hosts.values():
        _own_service(host, inventory.dest.service)
    dependent, processes = kind.dependent, {}
    for member in dependent.members(inventory):
        host = Host(member.name, member.address, boot=f"boot-{member.name}")
        _own_service(host, dependent.service(inventory))
        host.beside = next((h for h in hosts.values() if h.address == member.address), None)
        if host.beside is not None:
            host.files, host.ops, host.before = host.beside.files, host.beside.ops, host.beside.before
        host.files |= kind.files(inventory, member)
        host.start(900.0)
        hosts[member.name] = host
        connect = kind.connect(host.files[dependent.config(inventory)].content)
        number = kind.number(inventory, member)
        processes[member.name] = Process(member, number, process=host.starts, connect=connect)
    source = Ensemble(CLUSTER_EPOCH)
    world = World(
        inventory,
        hosts,
        kind,
        processes,
        source,
        source_files={
            h.name: {
                inventory.source.config: source_config,
                f"{inventory.source.data_dir}/myid": b"%d\n" % h.myid,
            }
            for h in inventory.source.hosts
        },
        source_leader=inventory.source_names[-1],
    )
    source.commit("open-session", WRITER, timeout_ms=30000)
    for path, data in kind.seeds(inventory).items():
        source.commit("create", WRITER, path, data)
    world.advance(1.0)
    return world


def _own_service(host: Host, service: Service) -> None:
    """Where the inventory gives commands, the host has their script and no systemd."""
    host.systemd = not service.has_commands
    if service.start is not None:
        host.files[service.start.split()[0]] = File(
            b"#!/bin/sh\nzkm-host guard || exit 1\n", "0755", "root:root"
        )
