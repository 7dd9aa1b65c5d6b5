"""Define the inventory ``migration.yml``: hosts, services and policy of a migration, as typed values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args, overload

from pydantic import Field, StringConstraints, ValidationError, model_validator

from zkmigrate import input_file
from zkmigrate.errors import InventoryError
from zkmigrate.inventory import checks as inventory_checks
from zkmigrate.inventory import explain as inventory_types
from zkmigrate.inventory import login, marked_yaml
from zkmigrate.inventory.accept import Accept, Instant
from zkmigrate.inventory.checks import LEASE_MS
from zkmigrate.inventory.hooks import Hook, Hooks, Moment
from zkmigrate.inventory.types import (
    LEFT_OUT,
    Account,
    Address,
    Command,
    Frozen,
    Jumps,
    LocalPath,
    Name,
    Partial,
    Port,
    RemotePath,
    SettingKey,
    SettingValue,
    Topic,
    Unit,
)
from zkmigrate.zookeeper.data.chroot import KAFKA_NAMES, Chroot
from zkmigrate.zookeeper.data.zoocfg import ADMIN_PORT, CLIENT_PORT


class Ssh(Frozen):
    """How to reach hosts: one account, one key, host keys pinned in ``known_hosts``.

    bastion: jump hosts, ``[user@]host[:port]`` with commas between, the nearest first. config: an ssh_config
    that overrides this for some hosts. ``load`` makes the paths absolute; in the file they are relative to
    it, and ``~/`` is the home directory.
    """

    user: Account
    port: Port = 22
    key: LocalPath
    known_hosts: LocalPath
    bastion: Jumps | None = None
    config: LocalPath | None = None


class Service(Frozen):
    """A service: a systemd unit, or commands of the inventory, run as root.

    Give all of ``start``, ``stop`` and ``status``, or none of them. ``kill`` is optional; without it ``stop``
    is used. ``start`` returns once the service runs; ``status`` exits 0 as long as its process exists.
    """

    unit: Unit
    start: Command | None = None
    stop: Command | None = None
    status: Command | None = None
    kill: Command | None = None

    @property
    def has_commands(self) -> bool:
        """Whether commands control the service instead of systemd."""
        return self.start is not None

    def commands(self, *ports: int) -> tuple[str, ...]:
        """Return the service's arguments for zkm-host; empty for systemd.

        They are the given ``start=…``, ``stop=…``, ``status=…`` and ``kill=…``, and the service's TCP ports.
        ports: the listener on the first one identifies the service's process.
        """
        if not self.has_commands:
            return ()
        given = {"start": self.start, "stop": self.stop, "status": self.status, "kill": self.kill}
        words = tuple(f"{key}={command}" for key, command in given.items() if command is not None)
        return (*words, f"ports={','.join(str(port) for port in ports)}")


class ZooKeeperHost(Frozen):
    """One ZooKeeper host. address: for server lines and clients. also: its other addresses."""

    name: Name
    address: Address
    myid: Annotated[int, Field(ge=1, le=254)]
    also: tuple[Address, ...] = ()


class SourceHost(ZooKeeperHost):
    """One source host. observer: whether source's own configs give it no vote."""

    observer: bool = False


class Ports(Frozen):
    """The ports of an ensemble.

    client: for clients without TLS (``clientPort``), or with both under ``client.portUnification``. secure:
    for clients with TLS (``secureClientPort``). An ensemble has one of them or both; 2181 is the default only
    if neither is given.
    """

    client: Port | None = None
    secure: Port | None = None
    quorum: Port = 2888
    election: Port = 3888

    @model_validator(mode="before")
    @classmethod
    def _default(cls, given: Any) -> Any:
        bare = isinstance(given, dict) and given.get("client") is None and given.get("secure") is None
        return {**given, "client": CLIENT_PORT} if bare else given

    @property
    def door(self) -> int:
        """The port that zkmigrate's clients use: with TLS if there is one."""
        return self.secure or self.client or CLIENT_PORT

    @property
    def clients(self) -> tuple[int, ...]:
        """Every port for clients."""
        return tuple(self.settings.values())

    @property
    def settings(self) -> dict[str, int]:
        """The lines of zoo.cfg that name the ports for clients."""
        given = {"clientPort": self.client, "secureClientPort": self.secure}
        return {key: port for key, port in given.items() if port is not None}


class _Ensemble(Frozen):
    ports: Ports = Ports()
    config: RemotePath = "/etc/zookeeper/conf/zoo.cfg"
    data_dir: RemotePath = "/var/lib/zookeeper"
    log_dir: RemotePath | None = None
    java_env: RemotePath = "/etc/zookeeper/conf/java.env"

    @property
    def txn_dir(self) -> str:
        """The directory of the transaction logs: ``dataLogDir``, else ``dataDir``."""
        return self.log_dir or self.data_dir


class Source(_Ensemble):
    """The ensemble that Kafka leaves. zkmigrate only reads it, with the ssh account's own rights.

    admin_port: the AdminServer there answers the words that 4lw.commands.whitelist does not allow.
    """

    hosts: Annotated[tuple[SourceHost, ...], Field(min_length=1)]
    admin_port: Port = ADMIN_PORT


class Dest(_Ensemble):
    """The new, empty ensemble.

    settings: more zoo.cfg lines (tickTime, initLimit, …), as text. java_env: file of JVM flags; zkmigrate
    only reads it, to check that jute.maxbuffer fits source's data.
    """

    hosts: Annotated[tuple[ZooKeeperHost, ...], Field(min_length=3)]
    user: Account = "zookeeper"
    group: Account = "zookeeper"
    service: Service = Service(unit="zookeeper.service")
    settings: dict[SettingKey, SettingValue] = Field(default_factory=dict)

    @property
    def commands(self) -> tuple[str, ...]:
        """The service's arguments for zkm-host, with its ports; empty for systemd."""
        return self.service.commands(*self.ports.clients, self.ports.quorum, self.ports.election)

    @property
    def admin_port(self) -> int:
        """The port of the AdminServer, which zkm-host asks if clients need TLS."""
        text = self.settings.get("admin.serverPort", "").strip()
        return int(text) if text.isdecimal() else ADMIN_PORT

    @property
    def majority(self) -> int:
        """The number of dest hosts that form a quorum."""
        return len(self.hosts) // 2 + 1


class Broker(Frozen):
    """One Kafka broker. id: its broker.id. also: its other addresses."""

    name: Name
    address: Address
    id: Annotated[int, Field(ge=0, le=2**31 - 1)]
    port: Port = 9092
    also: tuple[Address, ...] = ()

    @property
    def endpoint(self) -> str:
        """The broker as ``ADDRESS:PORT``, with an IPv6 address in brackets."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


class Kafka(Partial):
    """The Kafka cluster that moves.

    chroot: its subtree of source, such as ``/kafka``, or ``/``. znodes: the names of znodes directly below
    the chroot ``/`` that belong to Kafka beside those in ``KAFKA_NAMES``. canary_topic: a topic that
    the operator created; zkmigrate sends small records to it during the move. If it is None, it sends none.
    """

    may_lack = ("chroot",)  # only in a file with neither source nor dest (checks.py)
    where = "kafka."

    cluster_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{22}$")]
    chroot: Annotated[str, StringConstraints(pattern=r"^(/|(/[A-Za-z0-9._-]+)+)$")] = LEFT_OUT
    znodes: tuple[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$")], ...] = ()
    brokers: Annotated[tuple[Broker, ...], Field(min_length=1)]
    canary_topic: Topic | None = None
    config: RemotePath = "/etc/kafka/server.properties"
    service: Service = Service(unit="kafka.service")
    user: Account = "kafka"
    group: Account = "kafka"
    client: login.KafkaClient | None = None

    @property
    def subtree(self) -> Chroot:
        """The chroot, with the names of Kafka's znodes if it is ``/``."""
        names = sorted({*KAFKA_NAMES, *self.znodes}) if self.chroot == "/" else ()
        return Chroot(self.chroot, tuple(names))

    @property
    def prefix(self) -> str:
        """The path to put before Kafka's znodes: the chroot, or empty for ``/``."""
        return Chroot(self.chroot).prefix

    def commands(self, broker: str) -> tuple[str, ...]:
        """Return the arguments for zkm-host of this broker's service, with its port; empty for systemd.

        Raises KeyError for an unknown broker.
        """
        port = {b.name: b.port for b in self.brokers}[broker]
        return self.service.commands(port)


class Lease(Frozen):
    """How long a host's kernel keeps blocking traffic without a renewal. Times are in milliseconds.

    longest_ms: upper limit to which zkmigrate may lengthen the fence when hosts answer slowly.
    """

    fence_ttl_ms: Annotated[int, Field(ge=2000, le=60000)] = LEASE_MS["fence_ttl_ms"]
    cut_ttl_ms: Annotated[int, Field(ge=1000, le=30000)] = LEASE_MS["cut_ttl_ms"]
    renew_every_ms: Annotated[int, Field(ge=100, le=5000)] = LEASE_MS["renew_every_ms"]
    longest_ms: Annotated[int, Field(ge=2000, le=60000)] = 10000


class Window(Frozen):
    """The maintenance window; outside it neither brokers nor clients may notice anything."""

    begin: Instant
    end: Instant

    @property
    def words(self) -> str:
        return f"from {self.begin} to {self.end}"


class Policy(Frozen):
    """The limits and choices that the operator sets for a run. Times are in seconds.

    cut: what CUT blocks between dest and source until finalize: ZooKeeper's ports, or all TCP except ssh.
    join_outstanding: no dest host joins while a source server has more outstanding requests than this.
    window_margin: FENCE to SEAL, and SERVE, may take this many times as long as in the rehearsal.
    roll_soak_s: how long moved brokers must stay healthy before the next wave. roll_recovery_s: how long to
    wait for a broker that makes progress with its start or stop. roll_leaders: elect every partition's
    preferred leader after the last broker, on both ways.
    """

    lease: Lease = Lease()
    open_limit_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    way_back_s: Annotated[float, Field(gt=0, le=600)] = 2.5
    window_margin: Annotated[float, Field(ge=1, le=100)] = 1.5
    cut: Literal["zookeeper", "all"] = "zookeeper"
    broker_lost_in_window: Literal["back", "forward", "ask"] = "ask"
    roll_wave: Annotated[int, Field(ge=1)] = 1
    roll_soak_s: Annotated[float, Field(ge=0, le=86400)] = 0.0
    roll_recovery_s: Annotated[float, Field(ge=0, le=86400)] = 7200.0
    roll_leaders: bool = False
    join_outstanding: Annotated[int, Field(ge=0)] = 200
    step_deadline_s: Annotated[float, Field(gt=0)] = 300.0
    window: Window | None = None


SECTIONS = ("operator", "ssh", "source", "dest", "kafka")
"""The sections that a move needs, in file order."""


@dataclass(frozen=True)
class Door:
    """The address and port at which a ZooKeeper server answers clients.

    admin_port: the port of its AdminServer, or None if it must not be used.
    """

    address: str
    port: int
    admin_port: int | None = None


@dataclass(frozen=True)
class GatewayProgram:
    """The zkmigrate program on gateways' hosts. words: its start command. config: the path of its file."""

    words: tuple[str, ...]
    config: str

    def verb(self, name: str) -> tuple[str, ...]:
        """Return the command of one of the gateway's verbs."""
        return (*self.words, "gateway", name, "--config", self.config)


class Inventory(Partial):
    """The facts that a run has without querying a host."""

    # It has the sections of its file; Playbook.sections says which ones a playbook needs. A playbook with its
    # own sections brings a subclass; one with its own hosts overrides hosts and address.
    may_lack = SECTIONS
    as_typed: ClassVar[tuple[marked_yaml.Path, ...]] = (("dest", "settings"),)
    not_binding: ClassVar[Mapping[str, Any]] = {}
    # What the keys of a subclass's section may hold, for messages.
    needed: ClassVar[Mapping[str, str]] = {}
    # Hosts of these lists share no name and no address, and within one list no number.
    host_lists: ClassVar[tuple[inventory_checks.HostList, ...]] = (
        inventory_checks.HostList(("source", "hosts"), "source", "myid"),
        inventory_checks.HostList(("dest", "hosts"), "dest", "myid"),
        inventory_checks.HostList(("kafka", "brokers"), "broker", "id"),
    )

    version: Literal[1]
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=20)]
    operator: Annotated[tuple[Address, ...], Field(min_length=1)] = LEFT_OUT
    ssh: Ssh = LEFT_OUT
    source: Source = LEFT_OUT
    dest: Dest = LEFT_OUT
    kafka: Kafka = LEFT_OUT
    zookeeper: login.ZooKeeper = login.ZooKeeper()
    policy: Policy = Policy()
    hooks: Hooks = Hooks()
    accept: tuple[Accept, ...] = ()

    def has(self, *sections: str) -> bool:
        """Return whether the file has all of these sections."""
        return all(self.__dict__.get(section) is not None for section in sections)

    def with_files(self, path: Path) -> Self:  # noqa: ARG002 (for subclasses)
        """Return the inventory completed with the files that its sections name.

        path: the inventory's file, to which the names are relative. Raises InventoryError.
        """
        return self

    def role(self, name: str) -> str:
        """Return the role of a host, as one word. Raises KeyError for an unknown host."""
        for part, names in self.hosts.items():
            if name in names:
                return part.removesuffix("s")
        raise KeyError(name)

    def source_host(self, name: str) -> SourceHost:
        """Return the source host of this name. Raises KeyError for an unknown host."""
        return _named(self.source.hosts, name)

    def dest_host(self, name: str) -> ZooKeeperHost:
        """Return the dest host of this name. Raises KeyError for an unknown host."""
        return _named(self.dest.hosts, name)

    def broker(self, name: str) -> Broker:
        """Return the broker of this name. Raises KeyError for an unknown broker."""
        return _named(self.kafka.brokers, name)

    @property
    def broker_ids(self) -> frozenset[int]:
        """The ids of the brokers in the file; subclasses may add those in a plan that it names."""
        return frozenset(broker.id for broker in self.kafka.brokers)

    @property
    def canary_topic(self) -> str | None:
        """The topic of the produce canary, or None if the canary sends nothing."""
        return self.kafka.canary_topic if self.has("kafka") else None

    @property
    def hosts(self) -> dict[str, tuple[str, ...]]:
        """The host names by role, in the order of display; roles that the file lacks are left out."""
        parts = {"source": self.source_names, "dest": self.dest_names, "brokers": self.broker_names}
        return {part: names for part, names in parts.items() if names}

    @property
    def read_only(self) -> tuple[str, ...]:
        """The hosts that zkmigrate only reads, without sudo, zkm-host or a client session."""
        return self.source_names

    @property
    def doors(self) -> dict[str, Door]:
        """The address and port at which each ZooKeeper host answers clients, by host name."""
        doors: dict[str, Door] = {}
        if self.has("source"):
            port, admin = self.source.ports.door, self.source.admin_port
            doors |= {host.name: Door(host.address, port, admin) for host in self.source.hosts}
        if self.has("dest"):
            doors |= {host.name: Door(host.address, self.dest.ports.door) for host in self.dest.hosts}
        return doors

    @property
    def programs(self) -> Mapping[str, GatewayProgram]:
        """The programs beside zkm-host that accept changes, by the channel that a change names."""
        return {}

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """The brokers; empty if the file has no section ``kafka``."""
        return self.kafka.brokers if self.has("kafka") else ()

    @property
    def source_names(self) -> tuple[str, ...]:
        return tuple(h.name for h in self.source.hosts) if self.has("source") else ()

    @property
    def dest_names(self) -> tuple[str, ...]:
        return tuple(h.name for h in self.dest.hosts) if self.has("dest") else ()

    @property
    def broker_names(self) -> tuple[str, ...]:
        return tuple(b.name for b in self.brokers)

    @property
    def _members(self) -> tuple[ZooKeeperHost | Broker, ...]:
        """The hosts of all roles of the move that the file has, in the order of display."""
        return (
            *(self.source.hosts if self.has("source") else ()),
            *(self.dest.hosts if self.has("dest") else ()),
            *self.brokers,
        )

    def machine(self, name: str) -> tuple[str, ...]:
        """Return the names of all hosts that are on the machine of this host, in the order of display.

        Hosts with an address in common are on one machine.
        """
        at = {
            h.name: {inventory_checks.spelled(text) for text in (h.address, *h.also)} for h in self._members
        }
        own = at.get(name, set())
        return tuple(other for other in at if at[other] & own) or (name,)

    def one_a_machine(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the first of these hosts on each machine."""
        first: list[str] = []
        known: set[str] = set()
        for name in names:
            if name not in known:
                first.append(name)
                known.update(self.machine(name))
        return tuple(first)

    def address(self, name: str) -> str:
        """Return the address of any host. Raises KeyError for an unknown host."""
        return _named(self._members, name).address


Host = TypeVar("Host", bound=ZooKeeperHost | Broker)


def without_brokers(inventory: Inventory, names: Collection[str]) -> Inventory:
    """Return a copy of the inventory without these brokers."""
    left = tuple(b for b in inventory.kafka.brokers if b.name not in names)
    return inventory.model_copy(update={"kafka": inventory.kafka.model_copy(update={"brokers": left})})


def _named(hosts: tuple[Host, ...], name: str) -> Host:
    for host in hosts:
        if host.name == name:
            return host
    raise KeyError(name)


Shape = TypeVar("Shape", bound=Inventory)


@overload
def load(path: Path) -> Inventory: ...


@overload
def load(path: Path, shape: type[Shape], sections: Collection[str]) -> Shape: ...


def load(path: Path, shape: type[Inventory] = Inventory, sections: Collection[str] = SECTIONS) -> Inventory:
    """Read and check ``migration.yml``.

    shape: the class of the inventory to return. sections: those that the file must have; it may have more.
    Raises InventoryError with all mistakes in file order, one per line: ``file:line: key: reason (seen …,
    needed …)``.
    """
    document = marked_yaml.parse(_text(path))
    mistakes = list(document.mistakes)
    if document.value is None and not mistakes:
        raise InventoryError(
            f"{path}:1: the file is empty (needed: a mapping; docs/reference/migration-yml.md)"
        )
    if not isinstance(document.value, dict):
        if not mistakes:
            mark, kind = document.mark(()), type(document.value).__name__
            mistakes.append(
                marked_yaml.Mistake(mark, (), f"not a mapping (seen a {kind}, needed keys and values)")
            )
        raise InventoryError(_lines(path, document, mistakes))
    values = _as_typed(document, shape.as_typed)
    inventory: Inventory | None = None
    try:
        inventory = shape.model_validate(values)
    except ValidationError as error:
        mistakes += inventory_types.explain(error, document, shape)
    # The cross checks read raw values, so that one wrong key does not hide a duplicate elsewhere.
    mistakes += inventory_checks.cross_check(document, shape.host_lists)
    mistakes += inventory_checks.missing(document, sections)
    if mistakes or inventory is None:
        raise InventoryError(_lines(path, document, mistakes))
    local: dict[str, Any] = {"hooks": _local_hooks(path, inventory.hooks)}
    login.hide_variables(inventory)
    absolute = partial(local_path, path)
    local["zookeeper"] = login.with_local_paths(inventory.zookeeper, absolute)
    if inventory.has("kafka"):
        client = login.with_local_paths(inventory.kafka.client, absolute)
        local["kafka"] = inventory.kafka.model_copy(update={"client": client})
    if inventory.has("ssh"):
        ssh = inventory.ssh
        given = {"key": ssh.key, "known_hosts": ssh.known_hosts, "config": ssh.config}
        paths = {key: local_path(path, value) for key, value in given.items() if value is not None}
        local["ssh"] = ssh.model_copy(update=paths)
    return inventory.model_copy(update=local).with_files(path)


def digest(inventory: Inventory) -> str:
    """Return the SHA-256 of the inventory's values, regardless of spelling, key order and omitted defaults.

    It leaves out what may change during a run: the operator's files (a run may be resumed elsewhere), hooks
    and canary topic (the operator must be able to repair them), and ``accept`` (each gate writes it to the
    journal). It also leaves out the times and leaders of the roll, because the roll may need a second night,
    and ``source.admin_port``, because it is only an address to query. A playbook's own class of inventory
    names more in ``not_binding``. How clients log in is left out too, because secrets and files may be
    renewed.
    """
    local: dict[str, Any] = {
        "ssh": {"key", "known_hosts", "config"},
        "hooks": True,
        "accept": True,
        "policy": {"window", "roll_soak_s", "roll_recovery_s", "roll_leaders"},
        "kafka": {"canary_topic", "client"},
        "zookeeper": True,
        "source": {"admin_port"},
        **inventory.not_binding,
    }
    values = inventory.model_dump(mode="json", exclude=local)
    if not values.get("kafka", {}).get("znodes", True):  # not there before this key existed
        del values["kafka"]["znodes"]
    for ports in (values.get(part, {}).get("ports", {}) for part in ("source", "dest")):
        if ports.get("secure", 0) is None:  # likewise
            del ports["secure"]
    for host in values.get("source", {}).get("hosts", ()):
        if not host["observer"]:  # likewise
            del host["observer"]
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _text(path: Path) -> str:
    try:
        with input_file.opened(path) as file:
            content = file.read(marked_yaml.MAX_BYTES + 1)
    except OSError as error:
        raise InventoryError(
            f"{path}: cannot read: {error.strerror} (needed: a readable file; pass another with -i FILE)"
        ) from error
    except ValueError as error:
        raise InventoryError(f"{str(path)!r}: not a file name: {error}") from error
    if len(content) > marked_yaml.MAX_BYTES:
        raise InventoryError(
            f"{path}: too big (seen more than {marked_yaml.MAX_BYTES} bytes, needed at most that; check "
            "whether this is the right file)"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InventoryError(
            f"{path}:{line}: not UTF-8 (seen byte 0x{content[error.start]:02x}, needed: UTF-8 text)"
        ) from error


def _as_typed(document: marked_yaml.Document, texts: Collection[marked_yaml.Path]) -> Any:
    """Return the values with lists as tuples, which the strict types need.

    texts: paths with values that are always text, such as the setting ``86400000``.
    """

    def convert(value: Any, path: marked_yaml.Path) -> Any:
        if isinstance(value, dict):
            return {key: convert(below, (*path, key)) for key, below in value.items()}
        if isinstance(value, list):
            return tuple(convert(below, (*path, at)) for at, below in enumerate(value))
        if path[:2] in texts and value is not None:
            return document.texts.get(path, value)
        return value

    return convert(document.value, ())


def _lines(path: Path, document: marked_yaml.Document, mistakes: list[marked_yaml.Mistake]) -> str:
    shown = {login.without_secret(mistake, document) for mistake in mistakes}
    ordered = sorted(shown, key=lambda m: (m.mark, marked_yaml.dotted(m.path), m.reason))
    return "\n".join(
        f"{path}:{m.mark.line}: " + (f"{marked_yaml.dotted(m.path)}: " if m.path else "") + m.reason
        for m in ordered
    )


def local_path(inventory_file: Path, value: str) -> str:
    try:
        expanded = Path(value).expanduser()
    except RuntimeError as error:
        raise InventoryError(f"{inventory_file}: {value!r}: {error} (needed: an absolute path)") from error
    return str(inventory_file.resolve().parent / expanded)


def _local_hooks(path: Path, hooks: Hooks) -> Hooks:
    def local(hook: Hook) -> Hook:
        return hook.model_copy(update={"run": local_path(path, hook.run)})

    moments: tuple[Moment, ...] = get_args(Moment)
    return Hooks(**{moment: tuple(local(hook) for hook in hooks.of(moment)) for moment in moments})
