"""What a lab is asked to be: versions, sizes, options, and the hosts and addresses that follow from them.

Everything here is a value: nothing touches the machine. Every lab has network namespaces of its own, so
all labs use the same subnet and two of them never meet.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from zkmigrate.lab.failure import LabError

SUBNET = ipaddress.IPv4Network("10.71.0.0/24")
OPERATOR_ADDRESS = "10.71.0.2"
CLIENT_PORT, QUORUM_PORT, ELECTION_PORT = 2181, 2888, 3888
KAFKA_PORT = 9092
SOURCE_COUNT = 3
BROKER_COUNT = 3
DEST_MYID_OFFSET = 10
# What fits below the default jute.maxbuffer of 1 MiB with its path and header.
MOST_NODE_BYTES = 1_000_000

JAVA_11_KAFKA = frozenset({"2.3.1"})
"""Kafka versions whose ZooKeeper client does not run on Java 14 or later."""


class Role(StrEnum):
    """What a lab host is there for."""

    SOURCE = "source"
    DEST = "dest"
    BROKER = "broker"
    CLIENT = "client"


@dataclass(frozen=True)
class HostPlan:
    """One host as the spec asks for it; `number` counts from 1 within the role."""

    name: str
    role: Role
    number: int
    address: str

    @property
    def myid(self) -> int | None:
        """The server id a ZooKeeper host has (source) or is going to get (dest); None elsewhere."""
        if self.role is Role.SOURCE:
            return self.number
        if self.role is Role.DEST:
            return DEST_MYID_OFFSET + self.number
        return None

    @property
    def rack(self) -> str | None:
        """The rack of a broker; None elsewhere."""
        return f"r{self.number}" if self.role is Role.BROKER else None


@dataclass(frozen=True)
class LabSpec:
    """A lab to build. Times are milliseconds, sizes are as named.

    The versions are those that `provision` knows; it refuses another one by name when the lab is built.
    `source_options` are further `key=value` lines of the source's zoo.cfg, for the cases a preflight has
    to refuse, `broker_options` those of each broker's server.properties. `sync_enabled` is ZooKeeper's
    `syncEnabled` on source. `bandwidth_kbit` limits a host's link in both directions (token bucket), keyed
    by host name. `data_disk_mb` gives each ZooKeeper host a disk of its own for its data directory (a loop-
    mounted file system), which `fault disk-full` needs; 0 leaves the data on the host's root file system.
    `tree_size` filler znodes of `tree_node_bytes` each stand outside the chroot. `service` is `systemd`, or
    `commands`: then ZooKeeper on dest and Kafka on brokers are started by a script, and the inventory gives
    its commands.
    """

    source_version: str = "3.5.8"
    dest_version: str = "3.5.8"
    kafka_version: str = "2.8.2"
    dest_count: int = 3
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

    def __post_init__(self) -> None:
        if self.service not in ("systemd", "commands"):
            raise LabError(f"service {self.service!r} is not possible; possible: systemd or commands")
        if self.dest_count not in (3, 5):
            raise LabError(f"dest_count {self.dest_count} is not possible; possible: 3 or 5")
        if not _is_chroot(self.chroot):
            raise LabError(
                f"chroot {self.chroot!r} must be an absolute znode path such as /kafka, or / for none"
            )
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
        known = {host.name for host in hosts_of(self)}
        if unknown := sorted(set(self.bandwidth_kbit) - known):
            raise LabError(
                f"bandwidth_kbit names no such host: {', '.join(unknown)}; hosts: {', '.join(sorted(known))}"
            )

    def to_json(self) -> dict[str, Any]:
        """The spec as JSON values."""
        seen = {item.name: getattr(self, item.name) for item in fields(self)}
        return {key: dict(value) if isinstance(value, Mapping) else value for key, value in seen.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LabSpec:
        """The spec that `to_json` wrote; an unknown key is refused by name."""
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(value) - known):
            raise LabError(f"a lab spec has no key {', '.join(unknown)}; keys: {', '.join(sorted(known))}")
        return cls(**value)


def _is_chroot(path: str) -> bool:
    if path == "/":
        return True
    parts = path.split("/")
    return parts[0] == "" and all(part not in ("", ".", "..") for part in parts[1:]) and len(parts) > 1


def hosts_of(spec: LabSpec) -> tuple[HostPlan, ...]:
    """Every host of the lab: source, dest, brokers, then the client host."""

    def group(role: Role, count: int, first: int) -> list[HostPlan]:
        return [
            HostPlan(f"{role}{n}", role, n, str(SUBNET.network_address + first + n))
            for n in range(1, count + 1)
        ]

    return tuple(
        group(Role.SOURCE, SOURCE_COUNT, 10)
        + group(Role.DEST, spec.dest_count, 20)
        + group(Role.BROKER, BROKER_COUNT, 30)
        + group(Role.CLIENT, 1, 40)
    )


PATIENT = LabSpec(session_timeout_ms=60_000, tick_time_ms=3_000)
"""For what cuts over and back with clients on dest: on two cores that other work slows down, the way from
FENCE to CHECK and back was seen to take more than 40 s, the longest session of a tick of 2 s."""
