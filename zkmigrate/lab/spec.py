"""Define the spec of a lab: versions, sizes, options, and the hosts and addresses that follow from them.

The module defines only values. Every lab has its own network namespaces, so all labs use the same subnet.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from zkmigrate.lab import security
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.provision import SUITES
from zkmigrate.lab.shape import Broker, Ensemble, KafkaCluster, Shape, znode_path

SUBNET = ipaddress.IPv4Network("10.71.0.0/24")
OPERATOR_ADDRESS = "10.71.0.2"
CLIENT_PORT, QUORUM_PORT, ELECTION_PORT = 2181, 2888, 3888
SECURE_PORT = 2281
"""ZooKeeper's port for clients with TLS."""
KAFKA_PORT, CONTROLLER_PORT = 9092, 9093
DEST_MYID_OFFSET = 10
CONTROLLER_ID_OFFSET = 100
"""Controllers on their own hosts have the node ids 101, 102 ...; brokers have 1, 2 ..."""
# The data that fits, with path and header, below the default jute.maxbuffer of 1 MiB.
MOST_NODE_BYTES = 1_000_000

MOVE_ONLY = (
    "source_version",
    "dest_version",
    "kafka_version",
    "dest_count",
    "chroot",
    "shared",
    "source_count",
    "source_observers",
)
"""The fields of `LabSpec` that describe the lab of a move; a spec with a shape must not change them."""

JAVA_11_KAFKA = frozenset({"2.3.1"})
"""Kafka versions whose ZooKeeper client does not run on Java 14 or later."""


class Role(StrEnum):
    """The purpose of a lab host.

    A source host has a ZooKeeper server that runs from the start; a dest host has one that is only installed.
    With KRaft a broker may also be a controller; a `controller` host is only a controller. Gateways and
    mirrors are between two clusters. In the lab of a move, its ensembles and its cluster have these names
    too.
    """

    SOURCE = "source"
    DEST = "dest"
    BROKER = "broker"
    CONTROLLER = "controller"
    GATEWAY = "gateway"
    MIRROR = "mirror"
    CLIENT = "client"


SHARED = {"source-brokers": Role.SOURCE, "dest-brokers": Role.DEST}
"""The kinds of shared machines: broker N runs on the machine of the host with this role and number N."""
SHARED_HELP = "Run broker N on the machine of source N or dest N. Default: each host is a machine of its own."


_LATER = frozenset({"shared", "source_count", "source_observers", "debian"})
"""The keys that older versions do not know. Without them, these versions can remove the lab."""


@dataclass(frozen=True)
class HostPlan:
    """One planned host.

    number: counted from 1 within part and role. part: the host's ensemble or cluster; None for a gateway, a
    mirror or a client host. beside: the name of the host on whose machine this one runs; None for a machine
    of its own.
    """

    name: str
    role: Role
    number: int
    address: str
    part: Ensemble | KafkaCluster | None = None
    beside: str | None = None

    @property
    def machine(self) -> str:
        """The name of the machine: its network namespace, disk, systemd and sshd."""
        return self.beside or self.name

    @property
    def observer(self) -> bool:
        """Whether the host is a server of source without a vote."""
        return isinstance(self.part, Ensemble) and self.number > self.part.count

    @property
    def myid(self) -> int | None:
        """The server id of a ZooKeeper host, which a dest host gets later; None for other hosts."""
        if self.role is Role.SOURCE:
            return self.number
        if self.role is Role.DEST:
            return DEST_MYID_OFFSET + self.number
        return None

    @property
    def broker(self) -> Broker | None:
        """The broker's entry in the shape; None for other hosts."""
        if self.role is not Role.BROKER or not isinstance(self.part, KafkaCluster):
            return None
        return self.part.brokers[self.number - 1]

    @property
    def rack(self) -> str | None:
        """The rack of a broker; None if it has none and for other hosts."""
        return None if self.broker is None else self.broker.rack

    @property
    def node_id(self) -> int:
        """Kafka's id of a broker, or of a controller on its own host."""
        return self.number + (CONTROLLER_ID_OFFSET if self.role is Role.CONTROLLER else 0)

    @property
    def votes(self) -> bool:
        """Whether the host is a voter of a KRaft quorum."""
        return self.role is Role.CONTROLLER or (self.broker is not None and self.broker.controller)


@dataclass(frozen=True)
class LabSpec:
    """The settings of a lab to build. Times are in milliseconds; the field names give the units of sizes.

    Versions: those that `provision` can fetch. source_options, broker_options: further `key=value` lines of
    source's zoo.cfg and of each server.properties. sync_enabled: ZooKeeper's `syncEnabled` on source.
    bandwidth_kbit: limits of hosts' links in both directions (token bucket), by host name. data_disk_mb: the
    size of a disk (a loop-mounted file system) for each ZooKeeper host's data, which `fault disk-full`
    needs; 0 for none. tree_size: the number of filler znodes of `tree_node_bytes` each, outside the chroot.
    service: `systemd`; or `commands`, so that scripts start ZooKeeper on dest and Kafka, and the inventory
    names the scripts' commands. source_count, source_observers: source's servers with and without a vote.
    security: the kinds (`security.Kind`) that all ZooKeeper ensembles have. shared: the kind (`SHARED`) of
    machines that brokers share with ZooKeeper servers; None if each host has its own. debian: the release of
    Debian on all hosts.

    Without a `shape` this is the lab of a move: ensembles source and dest, and one cluster of three brokers,
    each in its own rack. If a `shape` is given, the fields in `MOVE_ONLY` must keep their defaults.
    """

    source_version: str = "3.5.8"
    dest_version: str = "3.5.8"
    kafka_version: str = "2.8.2"
    dest_count: int = 3
    source_count: int = 3
    source_observers: int = 0
    chroot: str = "/kafka"
    session_timeout_ms: int = 18_000
    tick_time_ms: int = 2_000
    tree_size: int = 0
    tree_node_bytes: int = 100
    reconfig_enabled: bool = False
    four_letter_words: str = "*"
    sync_enabled: bool = True
    jute_maxbuffer: int | None = None
    source_options: Mapping[str, str] = field(default_factory=dict)
    broker_options: Mapping[str, str] = field(default_factory=dict)
    bandwidth_kbit: Mapping[str, int] = field(default_factory=dict)
    data_disk_mb: int = 0
    service: str = "systemd"
    security: tuple[str, ...] = ()
    shared: str | None = None
    debian: int = 12
    shape: Shape | None = None

    def __post_init__(self) -> None:
        default = {item.name: item.default for item in fields(self)}
        changed = [name for name in MOVE_ONLY if getattr(self, name) != default[name]]
        if self.shape is not None and changed:
            raise LabError(
                f"a shape defines {', '.join(changed)} itself. Next: remove the shape, or these settings"
            )
        if self.service not in ("systemd", "commands"):
            raise LabError(f"service {self.service!r} is not possible; possible: systemd or commands")
        if self.shared is not None and self.shared not in SHARED:
            raise LabError(f"shared {self.shared!r} is not possible; possible: {' or '.join(SHARED)}")
        if self.debian not in SUITES:
            raise LabError(f"debian {self.debian} is not possible; possible: {' or '.join(map(str, SUITES))}")
        if self.dest_count not in (3, 5, 7):
            raise LabError(f"dest_count {self.dest_count} is not possible; possible: 3, 5 or 7")
        if self.source_count not in (1, 3, 5, 7) or self.source_observers not in (0, 1, 2):
            raise LabError(
                f"source_count {self.source_count} with source_observers {self.source_observers} is not "
                "possible; possible: 1, 3, 5 or 7 with 0 to 2"
            )
        try:
            znode_path(self.chroot)
        except ValueError as error:
            raise LabError(str(error)) from None
        if not {"*", "srvr"} & {word.strip() for word in self.four_letter_words.split(",")}:
            raise LabError(
                f"four_letter_words {self.four_letter_words!r} leaves out srvr, by which the lab sees that a "
                "quorum serves; add srvr, or use *"
            )
        low, high = 2 * self.tick_time_ms, 20 * self.tick_time_ms
        if not low <= self.session_timeout_ms <= high:
            raise LabError(
                f"session_timeout_ms {self.session_timeout_ms} would be negotiated to another value: with "
                f"tick_time_ms {self.tick_time_ms} ZooKeeper grants {low} to {high}"
            )
        if self.tree_size < 0 or self.data_disk_mb < 0:
            raise LabError("tree_size and data_disk_mb cannot be negative")
        if not 0 < self.tree_node_bytes <= MOST_NODE_BYTES:
            raise LabError(
                f"tree_node_bytes {self.tree_node_bytes} is not possible; possible: 1 to {MOST_NODE_BYTES}, "
                "as ZooKeeper takes less than a megabyte at a time"
            )
        if 0 < self.data_disk_mb < 128:
            raise LabError(
                f"data_disk_mb {self.data_disk_mb} is too small: ZooKeeper allocates its logs 64 MB at a "
                "time; 128 or more, or 0 for none"
            )
        parts = shape_of(self)
        kept = [cluster.version for cluster in parts.clusters if cluster.ensemble is not None]
        others = len(kept) < len(parts.clusters) or bool(parts.gateways or parts.mirrors)
        security.check(self.security, [ensemble.version for ensemble in parts.ensembles], kept, others)
        hosts = hosts_of(self)
        if ipaddress.IPv4Address(hosts[-1].address) >= SUBNET.broadcast_address:
            raise LabError(f"{len(hosts)} hosts do not fit into {SUBNET}")
        known = {host.machine for host in hosts}
        if unknown := sorted(set(self.bandwidth_kbit) - known):
            raise LabError(
                f"bandwidth_kbit names unknown hosts: {', '.join(unknown)}. Hosts: {', '.join(sorted(known))}"
            )

    @property
    def client_port(self) -> int:
        """The port for clients of every ZooKeeper server."""
        return SECURE_PORT if security.Kind.TLS in self.security else CLIENT_PORT

    def to_json(self) -> dict[str, Any]:
        """Return the spec as JSON values. Keys that older versions do not know are present only if set."""
        seen = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "shape"}
        for later in (
            item for item in fields(self) if item.name in _LATER and seen[item.name] == item.default
        ):
            del seen[later.name]
        if self.shape is not None:
            seen["shape"] = self.shape.model_dump(mode="json")
        return {key: dict(value) if isinstance(value, Mapping) else value for key, value in seen.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LabSpec:
        """Return the spec from the JSON values that `to_json` returned. Raises LabError for unknown keys."""
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(value) - known):
            raise LabError(f"a lab spec has no key {', '.join(unknown)}; keys: {', '.join(sorted(known))}")
        shape = {"shape": Shape.from_json(value["shape"])} if "shape" in value else {}
        return cls(**{**value, "security": tuple(value.get("security", ())), **shape})


def shape_of(spec: LabSpec) -> Shape:
    """Return the shape that the spec gives, or otherwise the shape of a move."""
    if spec.shape is not None:
        return spec.shape
    source = {"name": "source", "version": spec.source_version, "count": spec.source_count}
    source["observers"] = spec.source_observers
    dest = {"name": "dest", "version": spec.dest_version, "count": spec.dest_count, "empty": True}
    cluster = {
        "name": "broker",
        "version": spec.kafka_version,
        "brokers": [{"rack": f"r{n}"} for n in (1, 2, 3)],
        "ensemble": "source",
        "chroot": spec.chroot,
    }
    return Shape.from_json({"ensembles": [source, dest], "clusters": [cluster]})


def hosts_of(spec: LabSpec) -> tuple[HostPlan, ...]:
    """Return every host of the lab with its address.

    The order is: the ensembles, each cluster's brokers and controllers, gateways, mirrors, client hosts. The
    addresses of each group begin at the next multiple of ten. Hosts on one machine have its address.
    """
    shape = shape_of(spec)
    groups: list[tuple[str, Role, int, Ensemble | KafkaCluster | None]] = [
        (e.name, Role.DEST if e.empty else Role.SOURCE, e.count + e.observers, e) for e in shape.ensembles
    ]
    for cluster in shape.clusters:
        groups.append((cluster.name, Role.BROKER, len(cluster.brokers), cluster))
        groups.append((f"{cluster.name}-ctl", Role.CONTROLLER, cluster.controllers, cluster))
    groups.append(("gateway", Role.GATEWAY, shape.gateways, None))
    groups.append(("mirror", Role.MIRROR, shape.mirrors, None))
    groups.append(("client", Role.CLIENT, shape.clients, None))
    hosts: list[HostPlan] = []
    first = 10
    for name, role, count, part in groups:
        hosts += [
            HostPlan(f"{name}{n}", role, n, str(SUBNET.network_address + first + n), part)
            for n in range(1, count + 1)
        ]
        first += -(-(count + 1) // 10) * 10 if count else 0
    if spec.shared is None:
        return tuple(hosts)
    below = {host.number: host for host in hosts if host.role is SHARED[spec.shared]}
    return tuple(_on_machine_of(below[host.number], host) if host.broker else host for host in hosts)


def _on_machine_of(other: HostPlan, host: HostPlan) -> HostPlan:
    return replace(host, address=other.address, beside=other.name)


def machines_of(spec: LabSpec) -> dict[str, tuple[HostPlan, ...]]:
    """Return the hosts on each machine, by the name of the machine. The host with this name is the first."""
    hosts = hosts_of(spec)
    names = dict.fromkeys(host.machine for host in hosts)
    return {name: tuple(host for host in hosts if host.machine == name) for name in names}


def members(hosts: Iterable[HostPlan], part: str) -> tuple[HostPlan, ...]:
    """Return the hosts that belong to the ensemble or cluster of this name."""
    return tuple(host for host in hosts if host.part is not None and host.part.name == part)


LONG_SESSIONS = LabSpec(session_timeout_ms=60_000, tick_time_ms=3_000)
"""The spec of a lab for cut-overs and ways back with clients on dest.

On two busy cores the way from FENCE to CHECK and back took more than 40 s, the longest session for a tick of
2 s.
"""
