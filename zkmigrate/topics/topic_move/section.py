"""Define the inventory's sections for a switch of topics: the topics to move, and the clusters.

The sections are ``clusters``, ``gateways``, ``mirrors``, ``sets`` and ``topic_move``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from zkmigrate.errors import InventoryError
from zkmigrate.inventory.checks import HostList
from zkmigrate.inventory.inventory import GatewayProgram, Inventory, local_path
from zkmigrate.inventory.login import KafkaClient, with_local_paths
from zkmigrate.inventory.types import Address, Command, LocalPath, Name, RemotePath, Topic, Unit
from zkmigrate.runbook.model import policy
from zkmigrate.topics.gateway.order import GATEWAY
from zkmigrate.topics.mirror.questions import ClusterAt

GATEWAYS, MIRRORS = "gateways", "mirrors"
SHORTER = 3
"""client_timeout_ms must be at least this many times hold_ms."""
_Endpoint = Annotated[
    str, StringConstraints(pattern=r"^[0-9A-Za-z][0-9A-Za-z.-]*:[1-9][0-9]{0,4}$", max_length=260)
]
_Group = Annotated[str, StringConstraints(min_length=1, max_length=255)]
_Ms = Annotated[int, Field(ge=100, le=600_000)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Cluster(_Strict):
    """A Kafka cluster in the inventory.

    name: the name of the cluster, as in the gateways' files. config: a file of client properties for TLS and
    SASL, on the operator's machine. client: the same settings in the inventory itself. mirror: the name of
    the unit on the mirror hosts that copies to this cluster from the other cluster.
    """

    name: Name
    brokers: Annotated[tuple[_Endpoint, ...], Field(min_length=1)]
    config: LocalPath | None = None
    client: KafkaClient | None = None
    mirror: Unit

    @model_validator(mode="after")
    def _logs_in_one_way(self) -> Self:
        if self.config is not None and self.client is not None:
            raise ValueError("config and client exclude each other")
        return self


class Machine(_Strict):
    name: Name
    address: Address


class Gateways(_Strict):
    """The hosts of the gateways.

    program: the command that runs zkmigrate on these hosts, with arguments before the verb if needed. config:
    the path of the gateway's configuration file on these hosts.
    """

    hosts: Annotated[tuple[Machine, ...], Field(min_length=1)]
    program: Command = "/usr/local/bin/zkmigrate"
    config: RemotePath = "/etc/zkmigrate/gateway.yml"


class Mirrors(_Strict):
    """The hosts on which the copiers run. The same hosts keep the lock and the copies of the journal."""

    hosts: Annotated[tuple[Machine, ...], Field(min_length=1)]


class TopicSet(_Strict):
    """Topics, applications and groups that switch together.

    apps: the names of applications in the gateways' files. groups: the consumer groups of these topics.
    """

    name: Name
    topics: Annotated[tuple[Topic, ...], Field(min_length=1)]
    apps: Annotated[tuple[Name, ...], Field(min_length=1)]
    groups: tuple[_Group, ...] = ()


class TopicMove(_Strict):
    """The set of topics and applications to switch, and the limits of the switch.

    source, target: names of clusters.
    settle_ms: how long consumers get no records before the hold, so that they commit the records that they
    received.
    hold_ms: the longest time that requests wait from the hold to the seal.
    client_timeout_ms: the shortest time after which a client of the set gives up a request.
    lag_ms: how far the mirror may be behind when the hold begins.
    proved: how many records at the end of each partition the step arm compares. The step prove compares all
    records that were written since then.
    """

    set: Name
    source: Name
    target: Name
    settle_ms: _Ms = 6_000
    hold_ms: _Ms = 10_000
    client_timeout_ms: _Ms = 30_000
    lag_ms: _Ms = 500
    proved: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000


class TopicMoveInventory(Inventory):
    """The inventory of the playbook kafka_topic_move."""

    host_lists = (
        *Inventory.host_lists,
        HostList((GATEWAYS, "hosts"), "gateway"),
        HostList((MIRRORS, "hosts"), "mirror"),
    )
    not_binding: ClassVar[Mapping[str, Any]] = {
        "topic_move": {"settle_ms", "hold_ms", "client_timeout_ms", "lag_ms", "proved"}
    }
    needed: ClassVar[Mapping[str, str]] = {
        "clusters.brokers": "host:port of brokers",
        "clusters.mirror": "a unit of systemd, such as zkmigrate-mirror-new.service",
        "sets.topics": "names of topics",
        "sets.groups": "names of consumer groups",
    }

    clusters: Annotated[tuple[Cluster, ...], Field(min_length=2)]
    gateways: Gateways
    mirrors: Mirrors
    sets: Annotated[tuple[TopicSet, ...], Field(min_length=1)]
    topic_move: TopicMove

    def with_files(self, path: Path) -> Self:
        """Check the names in the inventory, and return the inventory with absolute paths.

        path: the path of the inventory. Raises InventoryError.
        """
        wrong = list(self._wrong())
        if wrong:
            raise InventoryError("\n".join(f"{path}: {one}" for one in wrong))
        local = partial(local_path, path)
        clusters = tuple(
            one.model_copy(
                update={
                    "config": one.config and local(one.config),
                    "client": with_local_paths(one.client, local),
                }
            )
            for one in self.clusters
        )
        return super().with_files(path).model_copy(update={"clusters": clusters})

    def _wrong(self) -> list[str]:
        move, found = self.topic_move, []
        names = [one.name for one in self.clusters]
        for key, name in (("source", move.source), ("target", move.target)):
            if name not in names:
                found.append(
                    f"topic_move.{key}: there is no cluster {name!r} (needed: one of {', '.join(names)})"
                )
        if move.source == move.target:
            found.append(f"topic_move.target: {move.target!r} is also the source (needed: another cluster)")
        for what, many in (("clusters", names), ("sets", [one.name for one in self.sets])):
            if twice := sorted({name for name in many if many.count(name) > 1}):
                found.append(f"{what}: the name {', '.join(twice)} is used twice (needed: each name once)")
        if move.set not in (one.name for one in self.sets):
            found.append(
                f"topic_move.set: there is no set {move.set!r} "
                f"(needed: one of {', '.join(one.name for one in self.sets)})"
            )
        if move.hold_ms * SHORTER > move.client_timeout_ms:
            found.append(
                f"topic_move.hold_ms: {move.hold_ms} is more than a third of client_timeout_ms "
                f"(needed: at most {move.client_timeout_ms // SHORTER})"
            )
        return found

    @property
    def hosts(self) -> dict[str, tuple[str, ...]]:
        own = {
            GATEWAYS: tuple(host.name for host in self.gateways.hosts),
            MIRRORS: tuple(host.name for host in self.mirrors.hosts),
        }
        return {**super().hosts, **own}

    def address(self, name: str) -> str:
        for host in (*self.gateways.hosts, *self.mirrors.hosts):
            if host.name == name:
                return host.address
        return super().address(name)

    @property
    def programs(self) -> Mapping[str, GatewayProgram]:
        return {GATEWAY: GatewayProgram(tuple(self.gateways.program.split()), self.gateways.config)}

    @property
    def ends(self) -> tuple[ClusterAt, ClusterAt]:
        """The addresses of source and target."""
        source, target = (cluster(self, name) for name in (self.topic_move.source, self.topic_move.target))
        return (
            ClusterAt(source.brokers, source.config, source.client),
            ClusterAt(target.brokers, target.config, target.client),
        )


def move_of(inventory: Inventory) -> TopicMoveInventory:
    """Return the inventory as a TopicMoveInventory. Raises TypeError if it is not one."""
    if not isinstance(inventory, TopicMoveInventory):
        raise TypeError("the inventory of this playbook needs a section topic_move")
    return inventory


def switched(inventory: Inventory) -> TopicSet:
    """Return the set that the inventory's section topic_move names."""
    own = move_of(inventory)
    return next(one for one in own.sets if one.name == own.topic_move.set)


def cluster(inventory: Inventory, name: str) -> Cluster:
    return next(one for one in move_of(inventory).clusters if one.name == name)


def mirror_hosts(inventory: Inventory) -> tuple[str, ...]:
    return tuple(host.name for host in move_of(inventory).mirrors.hosts)


def mirror_policy(inventory: Inventory, host: str) -> tuple[str, ...]:
    """Return what zkm-host may change on a mirror host: the copiers' two services."""
    if host not in mirror_hosts(inventory):
        return ()
    move = move_of(inventory).topic_move
    units = (cluster(inventory, name).mirror for name in (move.target, move.source))
    return (
        policy.LOCK,
        *(line for unit in units for line in policy.service(unit, ("start", "stop", "enable", "disable"))),
    )


def gateway_hosts(inventory: Inventory) -> tuple[str, ...]:
    return tuple(host.name for host in move_of(inventory).gateways.hosts)
