"""The inventory ``migration.yml``: who takes part in a migration, as typed values.

``load`` turns the file into an :class:`Inventory` or raises :class:`~zkmigrate.errors.InventoryError` with one
line per mistake, each with file:line and the reason, before any host is touched.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Address = Annotated[
    str, StringConstraints(pattern=r"^[0-9A-Za-z]([0-9A-Za-z.:-]*[0-9A-Za-z])?$", max_length=253)
]
RemotePath = Annotated[str, StringConstraints(pattern=r"^/[A-Za-z0-9._/@%+-]*$", max_length=4096)]
Unit = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$", max_length=128)]
Account = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
Port = Annotated[int, Field(ge=1, le=65535)]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Ssh(_Frozen):
    """How hosts are reached: one account, one key, host keys pinned in ``known_hosts``."""

    user: Account
    port: Port = 22
    key: str
    known_hosts: str
    bastion: Address | None = None


class Service(_Frozen):
    """A service: a systemd unit, or the inventory's own commands (``start`` and ``stop`` both or none)."""

    unit: Unit
    start: str | None = None
    stop: str | None = None
    kill: str | None = None


class ZooKeeperHost(_Frozen):
    """One ZooKeeper host. ``address`` is what server lines and clients use; ``also`` further addresses."""

    name: Name
    address: Address
    myid: Annotated[int, Field(ge=1, le=254)]
    also: tuple[Address, ...] = ()


class Ports(_Frozen):
    """Client, quorum and election port of an ensemble."""

    client: Port = 2181
    quorum: Port = 2888
    election: Port = 3888


class Source(_Frozen):
    """The ensemble that Kafka leaves. Read-only to us: files are read by the ssh account as it is."""

    hosts: Annotated[tuple[ZooKeeperHost, ...], Field(min_length=1)]
    ports: Ports = Ports()
    config: RemotePath = "/etc/zookeeper/conf/zoo.cfg"
    data_dir: RemotePath = "/var/lib/zookeeper"
    log_dir: RemotePath | None = None

    @property
    def txn_dir(self) -> str:
        """Directory of the transaction logs: ``dataLogDir``, else ``dataDir``."""
        return self.log_dir or self.data_dir


class Dest(_Frozen):
    """The new, empty ensemble. ``settings`` are further zoo.cfg lines (tickTime, initLimit, …) as text."""

    hosts: Annotated[tuple[ZooKeeperHost, ...], Field(min_length=3)]
    ports: Ports = Ports()
    config: RemotePath = "/etc/zookeeper/conf/zoo.cfg"
    data_dir: RemotePath = "/var/lib/zookeeper"
    log_dir: RemotePath | None = None
    user: Account = "zookeeper"
    group: Account = "zookeeper"
    service: Service = Service(unit="zookeeper.service")
    settings: dict[str, str] = Field(default_factory=dict)

    @property
    def txn_dir(self) -> str:
        """Directory of the transaction logs: ``dataLogDir``, else ``dataDir``."""
        return self.log_dir or self.data_dir

    @property
    def majority(self) -> int:
        """q: how many of the dest hosts make a quorum."""
        return len(self.hosts) // 2 + 1


class Broker(_Frozen):
    """One Kafka broker; ``id`` is its broker.id."""

    name: Name
    address: Address
    id: Annotated[int, Field(ge=0)]
    port: Port = 9092


class Kafka(_Frozen):
    """The Kafka cluster that moves. ``chroot`` is its subtree of source, such as ``/kafka``."""

    cluster_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{22}$")]
    chroot: Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9._-]+)+$")]
    brokers: Annotated[tuple[Broker, ...], Field(min_length=1)]
    config: RemotePath = "/etc/kafka/server.properties"
    service: Service = Service(unit="kafka.service")
    user: Account = "kafka"
    group: Account = "kafka"


class Lease(_Frozen):
    """The kernel's own end of the block: times in milliseconds."""

    fence_ttl_ms: Annotated[int, Field(ge=2000, le=60000)] = 5000
    cut_ttl_ms: Annotated[int, Field(ge=1000, le=30000)] = 2000
    renew_every_ms: Annotated[int, Field(ge=100, le=5000)] = 500


class Policy(_Frozen):
    """What the operator allows. Times in seconds."""

    lease: Lease = Lease()
    open_limit_s: Annotated[float, Field(gt=0, le=3600)] = 5.0
    way_back_s: Annotated[float, Field(gt=0, le=600)] = 2.5
    broker_lost_in_window: Literal["back", "forward", "ask"] = "ask"
    roll_wave: Annotated[int, Field(ge=1)] = 1
    step_deadline_s: Annotated[float, Field(gt=0)] = 300.0


class Inventory(_Frozen):
    """Everything a run knows about the world without looking."""

    version: Literal[1]
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,19}$")]
    operator: Annotated[tuple[Address, ...], Field(min_length=1)]
    ssh: Ssh
    source: Source
    dest: Dest
    kafka: Kafka
    policy: Policy = Policy()

    def source_host(self, name: str) -> ZooKeeperHost:
        """The source host of that name; KeyError when there is none."""
        return _named(self.source.hosts, name)

    def dest_host(self, name: str) -> ZooKeeperHost:
        """The dest host of that name; KeyError when there is none."""
        return _named(self.dest.hosts, name)

    def broker(self, name: str) -> Broker:
        """The broker of that name; KeyError when there is none."""
        for broker in self.kafka.brokers:
            if broker.name == name:
                return broker
        raise KeyError(name)

    @property
    def source_names(self) -> tuple[str, ...]:
        return tuple(h.name for h in self.source.hosts)

    @property
    def dest_names(self) -> tuple[str, ...]:
        return tuple(h.name for h in self.dest.hosts)

    @property
    def broker_names(self) -> tuple[str, ...]:
        return tuple(b.name for b in self.kafka.brokers)

    def role(self, name: str) -> Literal["source", "dest", "broker"]:
        """Which part a host plays; KeyError when the inventory does not know it."""
        for role, names in (
            ("source", self.source_names),
            ("dest", self.dest_names),
            ("broker", self.broker_names),
        ):
            if name in names:
                return role  # type: ignore[return-value]
        raise KeyError(name)

    def address(self, name: str) -> str:
        """Address of any host by its name."""
        for host in (*self.source.hosts, *self.dest.hosts, *self.kafka.brokers):
            if host.name == name:
                return host.address
        raise KeyError(name)


def _named(hosts: tuple[ZooKeeperHost, ...], name: str) -> ZooKeeperHost:
    for host in hosts:
        if host.name == name:
            return host
    raise KeyError(name)
