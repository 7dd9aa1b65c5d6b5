"""The inventory ``migration.yml``: who takes part in a migration, as typed values.

``load`` turns the file into an :class:`Inventory` or raises :class:`~zkmigrate.errors.InventoryError` with
one line per mistake, each with file:line and the reason, before any host is touched.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args, overload

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from zkmigrate.errors import InventoryError
from zkmigrate.inventory import checks as inventory_checks
from zkmigrate.inventory import explain as inventory_types
from zkmigrate.inventory import marked_yaml
from zkmigrate.inventory.accept import Accept
from zkmigrate.inventory.checks import LEASE_MS
from zkmigrate.inventory.hooks import Hook, Hooks, Moment

# No pattern below lets a blank, a quote or another character through that means something to a shell;
# a command is words of such characters, separated by single blanks.
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
Address = Annotated[
    str, StringConstraints(pattern=r"^[0-9A-Za-z]([0-9A-Za-z.:-]*[0-9A-Za-z])?$", max_length=253)
]
RemotePath = Annotated[str, StringConstraints(pattern=r"^/[A-Za-z0-9._/@%+-]*$", max_length=4096)]
Unit = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$", max_length=128)]
Account = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]*$", max_length=32)]
LocalPath = Annotated[str, StringConstraints(pattern=r"^(~/)?[A-Za-z0-9._/@%+-]+$", max_length=4096)]
Command = Annotated[
    str, StringConstraints(pattern=r"^/[A-Za-z0-9._/@%+:=,-]+( [A-Za-z0-9._/@%+:=,-]+)*$", max_length=1024)
]
Topic = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$", max_length=249)]
SettingKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=128)]
SettingValue = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9._:/,=@+% -]*|\*)$", max_length=1024)]
Instant = Annotated[
    str,
    StringConstraints(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})$"
    ),
]
Port = Annotated[int, Field(ge=1, le=65535)]
Jumps = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z_\[][0-9A-Za-z._@:,\[\]-]*$", max_length=1024)]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _in_the_moves_file(schema: dict[str, Any], model: type[_Partial]) -> None:
    """The JSON schema describes the move's file: nothing is left out there."""
    for key in model.may_lack:
        del schema["properties"][key]["default"]
    needed = {*schema["required"], *model.may_lack}
    schema["required"] = [key for key in schema["properties"] if key in needed]


class _Partial(_Frozen):
    """A mapping of which some keys may be left out. Such a key is not there: asking for it raises
    InventoryError, so that whoever needs it has it as its type says."""

    model_config = ConfigDict(json_schema_extra=_in_the_moves_file)

    may_lack: ClassVar[tuple[str, ...]] = ()
    where: ClassVar[str] = ""

    @model_validator(mode="after")
    def _left_out(self) -> Self:
        for key in self.may_lack:
            if key in self.__dict__ and self.__dict__[key] is None:  # a part that was checked before lacks it
                del self.__dict__[key]
        return self

    if not TYPE_CHECKING:  # a type checker is to know the fields alone

        def __getattr__(self, key: str) -> Any:
            if key in type(self).may_lack:
                raise InventoryError(
                    f"the inventory does not say {self.where}{key}, and what is asked for needs it (needed: "
                    "this key; docs/reference/migration-yml.md)"
                )
            return super().__getattr__(key)


_LEFT_OUT: Any = None
"""The default of a key that may be left out."""


class Ssh(_Frozen):
    """How hosts are reached: one account, one key, host keys pinned in ``known_hosts``.

    bastion: hosts to go through, ``[user@]host[:port]`` with commas between, the nearest first.
    config: an ssh_config that may say otherwise for a host. The paths are absolute once loaded; in the file
    they are relative to it, ``~/`` is the home folder.
    """

    user: Account
    port: Port = 22
    key: LocalPath
    known_hosts: LocalPath
    bastion: Jumps | None = None
    config: LocalPath | None = None


class Service(_Frozen):
    """A service: a systemd unit, or the inventory's own commands, run as root.

    ``start``, ``stop`` and ``status`` all or none; ``kill`` may join them, else ``stop`` has to do. ``start``
    returns once the service runs, ``status`` exits 0 as long as its process is there.
    """

    unit: Unit
    start: Command | None = None
    stop: Command | None = None
    status: Command | None = None
    kill: Command | None = None

    @property
    def has_commands(self) -> bool:
        """Whether commands are used and systemd is not."""
        return self.start is not None

    def commands(self, *ports: int) -> tuple[str, ...]:
        """What a change or a look has to carry: ``start=…``, ``stop=…``, ``status=…``, ``kill=…`` as far as
        they are given, and the TCP ports on which the service listens; nothing where systemd is used.

        ports: the first is the one by whose listener the service's process is known.
        """
        if not self.has_commands:
            return ()
        given = {"start": self.start, "stop": self.stop, "status": self.status, "kill": self.kill}
        words = tuple(f"{key}={command}" for key, command in given.items() if command is not None)
        return (*words, f"ports={','.join(str(port) for port in ports)}")


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
    """The ensemble that Kafka leaves. Read-only to us: files are read by the ssh account as it is.

    admin_port: where its servers' AdminServer answers the words that 4lw.commands.whitelist does not name.
    """

    hosts: Annotated[tuple[ZooKeeperHost, ...], Field(min_length=1)]
    ports: Ports = Ports()
    admin_port: Port = 8080
    config: RemotePath = "/etc/zookeeper/conf/zoo.cfg"
    data_dir: RemotePath = "/var/lib/zookeeper"
    log_dir: RemotePath | None = None
    java_env: RemotePath = "/etc/zookeeper/conf/java.env"

    @property
    def txn_dir(self) -> str:
        """Directory of the transaction logs: ``dataLogDir``, else ``dataDir``."""
        return self.log_dir or self.data_dir


class Dest(_Frozen):
    """The new, empty ensemble. ``settings`` are further zoo.cfg lines (tickTime, initLimit, …) as text.

    java_env: file with the JVM's flags; read only, to see that jute.maxbuffer fits what source holds.
    """

    hosts: Annotated[tuple[ZooKeeperHost, ...], Field(min_length=3)]
    ports: Ports = Ports()
    config: RemotePath = "/etc/zookeeper/conf/zoo.cfg"
    data_dir: RemotePath = "/var/lib/zookeeper"
    log_dir: RemotePath | None = None
    user: Account = "zookeeper"
    group: Account = "zookeeper"
    java_env: RemotePath = "/etc/zookeeper/conf/java.env"
    service: Service = Service(unit="zookeeper.service")
    settings: dict[SettingKey, SettingValue] = Field(default_factory=dict)

    @property
    def txn_dir(self) -> str:
        """Directory of the transaction logs: ``dataLogDir``, else ``dataDir``."""
        return self.log_dir or self.data_dir

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands of its service, with its ports; empty where systemd is used."""
        return self.service.commands(self.ports.client, self.ports.quorum, self.ports.election)

    @property
    def majority(self) -> int:
        """q: how many of the dest hosts make a quorum."""
        return len(self.hosts) // 2 + 1


class Broker(_Frozen):
    """One Kafka broker; ``id`` is its broker.id, ``also`` its further addresses."""

    name: Name
    address: Address
    id: Annotated[int, Field(ge=0, le=2**31 - 1)]
    port: Port = 9092
    also: tuple[Address, ...] = ()

    @property
    def endpoint(self) -> str:
        """``ADDRESS:PORT`` at which it is asked, an IPv6 address in brackets."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


class Kafka(_Partial):
    """The Kafka cluster that moves. ``chroot`` is its subtree of source, such as ``/kafka``.

    canary_topic: a topic that the operator made for it, to which small records are sent during the move; None
    for nothing of that kind.
    """

    may_lack = ("chroot",)  # only where there is neither source nor dest (checks.py)
    where = "kafka."

    cluster_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{22}$")]
    chroot: Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9._-]+)+$")] = _LEFT_OUT
    brokers: Annotated[tuple[Broker, ...], Field(min_length=1)]
    canary_topic: Topic | None = None
    config: RemotePath = "/etc/kafka/server.properties"
    service: Service = Service(unit="kafka.service")
    user: Account = "kafka"
    group: Account = "kafka"

    def commands(self, broker: str) -> tuple[str, ...]:
        """The commands of this broker's service, with its port; KeyError for a broker that is not there."""
        port = {b.name: b.port for b in self.brokers}[broker]
        return self.service.commands(port)


class Lease(_Frozen):
    """The kernel's own end of the block: times in milliseconds.

    longest_ms: how long the fence may be made where hosts answer too slowly for the other two.
    """

    fence_ttl_ms: Annotated[int, Field(ge=2000, le=60000)] = LEASE_MS["fence_ttl_ms"]
    cut_ttl_ms: Annotated[int, Field(ge=1000, le=30000)] = LEASE_MS["cut_ttl_ms"]
    renew_every_ms: Annotated[int, Field(ge=100, le=5000)] = LEASE_MS["renew_every_ms"]
    longest_ms: Annotated[int, Field(ge=2000, le=60000)] = 10000


class Window(_Frozen):
    """The maintenance window, outside of which neither broker nor client is to notice anything."""

    begin: Instant
    end: Instant


class Policy(_Frozen):
    """What the operator allows. Times in seconds.

    cut: what CUT refuses between dest and source until finalize: the ports of ZooKeeper alone, or all of TCP
    but ssh. join_outstanding: with more requests than this waiting at any source server, no further dest host
    joins. window_margin: how many times as long as in the rehearsal FENCE to SEAL may take, and SERVE.
    roll_soak_s: how long the brokers that have moved stay well before the next wave. roll_recovery_s: how
    long at most a broker is waited for that gets on with its start, or with its stop. roll_leaders: behind
    the last broker, there and back, Kafka is asked to elect every partition's preferred leader.
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
"""The sections that a move needs, in the order of its file."""


@dataclass(frozen=True)
class Door:
    """Where a ZooKeeper server answers clients. admin_port: of its AdminServer, where that is asked."""

    address: str
    port: int
    admin_port: int | None = None


class Inventory(_Partial):
    """Everything a run knows about the world without looking."""

    # Of the sections it has those that its file has; Playbook.sections says which a runbook needs. A playbook
    # with sections of its own brings a subclass; one with hosts of its own says them in hosts and address.
    may_lack = SECTIONS
    as_typed: ClassVar[tuple[marked_yaml.Path, ...]] = (("dest", "settings"),)
    not_binding: ClassVar[Mapping[str, Any]] = {}
    # What the keys of a section of its own may hold, for whoever typed something else.
    needed: ClassVar[Mapping[str, str]] = {}
    # No two hosts of these lists share a name, an address, or within a list a number.
    host_lists: ClassVar[tuple[inventory_checks.HostList, ...]] = (
        inventory_checks.HostList(("source", "hosts"), "source", "myid"),
        inventory_checks.HostList(("dest", "hosts"), "dest", "myid"),
        inventory_checks.HostList(("kafka", "brokers"), "broker", "id"),
    )

    version: Literal[1]
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=20)]
    operator: Annotated[tuple[Address, ...], Field(min_length=1)] = _LEFT_OUT
    ssh: Ssh = _LEFT_OUT
    source: Source = _LEFT_OUT
    dest: Dest = _LEFT_OUT
    kafka: Kafka = _LEFT_OUT
    policy: Policy = Policy()
    hooks: Hooks = Hooks()
    accept: tuple[Accept, ...] = ()

    def has(self, *sections: str) -> bool:
        """Whether the file has these sections."""
        return all(self.__dict__.get(section) is not None for section in sections)

    def role(self, name: str) -> str:
        """Which part a host plays, as one word; KeyError when the inventory does not know it."""
        for part, names in self.hosts.items():
            if name in names:
                return part.removesuffix("s")
        raise KeyError(name)

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
    def hosts(self) -> dict[str, tuple[str, ...]]:
        """The names of the hosts by the part that they play, as far as the file has it; in the order in which
        they are shown."""
        parts = {"source": self.source_names, "dest": self.dest_names, "brokers": self.broker_names}
        return {part: names for part, names in parts.items() if names}

    @property
    def read_only(self) -> tuple[str, ...]:
        """Hosts that an ordinary account reads as it is: no sudo, no zkm-host, no session of ours."""
        return self.source_names

    @property
    def doors(self) -> dict[str, Door]:
        """By name, where each ZooKeeper host answers clients."""
        doors: dict[str, Door] = {}
        if self.has("source"):
            port, admin = self.source.ports.client, self.source.admin_port
            doors |= {host.name: Door(host.address, port, admin) for host in self.source.hosts}
        if self.has("dest"):
            doors |= {host.name: Door(host.address, self.dest.ports.client) for host in self.dest.hosts}
        return doors

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """The brokers; none without the section kafka."""
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

    def address(self, name: str) -> str:
        """Address of any host by its name; KeyError when the inventory does not know it."""
        hosts: tuple[ZooKeeperHost | Broker, ...] = (
            *(self.source.hosts if self.has("source") else ()),
            *(self.dest.hosts if self.has("dest") else ()),
            *self.brokers,
        )
        for host in hosts:
            if host.name == name:
                return host.address
        raise KeyError(name)


Shape = TypeVar("Shape", bound=Inventory)


def without_brokers(inventory: Inventory, names: Collection[str]) -> Inventory:
    """The same without these brokers."""
    left = tuple(b for b in inventory.kafka.brokers if b.name not in names)
    return inventory.model_copy(update={"kafka": inventory.kafka.model_copy(update={"brokers": left})})


def _named(hosts: tuple[ZooKeeperHost, ...], name: str) -> ZooKeeperHost:
    for host in hosts:
        if host.name == name:
            return host
    raise KeyError(name)


@overload
def load(path: Path) -> Inventory: ...


@overload
def load(path: Path, shape: type[Shape], sections: Collection[str]) -> Shape: ...


def load(path: Path, shape: type[Inventory] = Inventory, sections: Collection[str] = SECTIONS) -> Inventory:
    """Read and check ``migration.yml``. sections: those that it must have; more may be there.

    Raises InventoryError with one line per mistake, all of them at once, in the order of the file:
    ``file:line: key: reason (seen …, needed …)``.
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
        raise InventoryError(_lines(path, mistakes))
    values = _as_typed(document, shape.as_typed)
    inventory: Inventory | None = None
    try:
        inventory = shape.model_validate(values)
    except ValidationError as error:
        mistakes += inventory_types.explain(error, document, shape)
    # The cross checks work on what is there, so that one wrong key does not hide a duplicate elsewhere.
    mistakes += inventory_checks.cross_check(document, shape.host_lists)
    mistakes += inventory_checks.missing(document, sections)
    if mistakes or inventory is None:
        raise InventoryError(_lines(path, mistakes))
    local: dict[str, Any] = {"hooks": _local_hooks(path, inventory.hooks)}
    if inventory.has("ssh"):
        ssh = inventory.ssh
        given = {"key": ssh.key, "known_hosts": ssh.known_hosts, "config": ssh.config}
        paths = {key: _local(path, value) for key, value in given.items() if value is not None}
        local["ssh"] = ssh.model_copy(update=paths)
    return inventory.model_copy(update=local)


def schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the file; the checks across keys are only in ``load``."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Inventory.model_json_schema(),
        "title": "migration.yml",
    }


def digest(inventory: Inventory) -> str:
    """SHA-256 of what the inventory says, independent of spelling, order of keys and omitted defaults.

    Left out are the operator's own files (``ssh.key``, ``ssh.known_hosts``, ``ssh.config``): a run may be
    resumed elsewhere. So are the hooks and the canary's topic: one that fails can be mended or taken out in
    the middle of a run. So is ``accept``: what somebody answers for is found out in the middle of a run, and
    each gate journals it. So are ``policy.window``, ``policy.roll_soak_s``, ``policy.roll_recovery_s`` and
    ``policy.roll_leaders``: a roll may need a second night, and a recovery more time than anybody thought. So
    is ``source.admin_port``, which only says where to ask, and what the playbook's own shape leaves open
    (``not_binding``).
    """
    local: dict[str, Any] = {
        "ssh": {"key", "known_hosts", "config"},
        "hooks": True,
        "accept": True,
        "policy": {"window", "roll_soak_s", "roll_recovery_s", "roll_leaders"},
        "kafka": {"canary_topic"},
        "source": {"admin_port"},
        **inventory.not_binding,
    }
    said = inventory.model_dump(mode="json", exclude=local)
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _text(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(marked_yaml.MAX_BYTES + 1)
    except OSError as error:
        raise InventoryError(
            f"{path}: cannot be read: {error.strerror} (needed: a readable file; -i FILE names another)"
        ) from error
    except ValueError as error:
        raise InventoryError(f"{str(path)!r}: not a file name: {error}") from error
    if len(content) > marked_yaml.MAX_BYTES:
        raise InventoryError(
            f"{path}: too big (seen more than {marked_yaml.MAX_BYTES} bytes, needed at most that; "
            "is it the right file?)"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InventoryError(
            f"{path}:{line}: not UTF-8 (seen byte 0x{content[error.start]:02x}, needed: UTF-8 text)"
        ) from error


def _as_typed(document: marked_yaml.Document, texts: Collection[marked_yaml.Path]) -> Any:
    """The values with lists as tuples (what the strict types take). texts: the paths to what is text, however
    it looks: ``86400000`` is the value of a setting."""

    def convert(value: Any, path: marked_yaml.Path) -> Any:
        if isinstance(value, dict):
            return {key: convert(below, (*path, key)) for key, below in value.items()}
        if isinstance(value, list):
            return tuple(convert(below, (*path, at)) for at, below in enumerate(value))
        if path[:2] in texts and value is not None:
            return document.texts.get(path, value)
        return value

    return convert(document.value, ())


def _lines(path: Path, mistakes: list[marked_yaml.Mistake]) -> str:
    ordered = sorted(set(mistakes), key=lambda m: (m.mark, marked_yaml.dotted(m.path), m.reason))
    return "\n".join(
        f"{path}:{m.mark.line}: " + (f"{marked_yaml.dotted(m.path)}: " if m.path else "") + m.reason
        for m in ordered
    )


def _local(inventory_file: Path, value: str) -> str:
    try:
        expanded = Path(value).expanduser()
    except RuntimeError as error:
        raise InventoryError(f"{inventory_file}: {value!r}: {error}; give an absolute path") from error
    return str(inventory_file.resolve().parent / expanded)


def _local_hooks(path: Path, hooks: Hooks) -> Hooks:
    def local(hook: Hook) -> Hook:
        return hook.model_copy(update={"run": _local(path, hook.run)})

    moments: tuple[Moment, ...] = get_args(Moment)
    return Hooks(**{moment: tuple(local(hook) for hook in hooks.of(moment)) for moment in moments})
