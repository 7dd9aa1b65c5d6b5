"""A dependent that no other file knows: its config, its promise, its members of the model world.

A keeper is told of ZooKeeper by a JSON file, and reads it again when it is asked to reload. It keeps no
session: when its connection breaks it opens a new one, and what it registered comes back under that. It holds
one lease in turn, which another keeper takes over. How it stands it writes into a file of its host.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from tests.world.build import SOURCE_CONFIG
from tests.world.model.ensemble import Ensemble
from tests.world.model.host import File
from tests.world.model.members import Kind, Process
from tests.world.model.world import World, world_of
from tests.world.operator import inventory
from zkmigrate.errors import UsageError
from zkmigrate.hosts.facts.host_names import Resolve
from zkmigrate.inventory.checks import HostList
from zkmigrate.inventory.inventory import Inventory, Service
from zkmigrate.move.dependent import AnyDependent, Ending, Member, MemberFacts, Position, Progress, Words
from zkmigrate.move.preflight.check import ALWAYS, Check, Judged, Scope, check
from zkmigrate.move.preflight.evidence import Evidence
from zkmigrate.runbook.model.change import Changes, SetService
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.finding import Finding, Severity, claim
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.sampling import Sampling
from zkmigrate.runbook.model.step import Context
from zkmigrate.runbook.model.window import Probe
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.questions import ReadZnode

CONFIG = "/etc/keeper/keeper.json"
STATE = "/run/keeper/state.json"
OLDEST = 3
"""The first release that the move has been tried with."""


class Keeper(BaseModel):
    """One keeper."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    address: str
    also: tuple[str, ...] = ()
    port: int = 7070


class Keepers(BaseModel):
    """The section of the inventory."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    realm: str
    root: str
    hosts: tuple[Keeper, ...]
    config: str = CONFIG
    service: Service = Service(unit="keeper.service")


class KeeperInventory(Inventory):
    """An inventory with keepers, and without Kafka."""

    keeper: Keepers
    host_lists = (*Inventory.host_lists, HostList(("keeper", "hosts"), "keeper"))

    @property
    def hosts(self) -> dict[str, tuple[str, ...]]:
        return {**super().hosts, "keepers": tuple(host.name for host in self.keeper.hosts)}

    def address(self, name: str) -> str:
        return {host.name: host.address for host in self.keeper.hosts}.get(name) or super().address(name)


def section(inventory: Inventory) -> Keepers:
    """The keepers of an inventory of theirs."""
    assert isinstance(inventory, KeeperInventory)
    return inventory.keeper


def keeper_inventory() -> KeeperInventory:
    """As the world of Kafka's move has it, with keepers in the brokers' place."""
    whole = inventory()
    parts = {key: getattr(whole, key) for key in ("version", "name", "operator", "ssh", "source", "dest")}
    hosts = tuple(Keeper(name=f"keeper{n}", address=f"10.0.0.3{n}") for n in (1, 2, 3))
    return KeeperInventory(**parts, keeper=Keepers(realm="north", root="/keepers", hosts=hosts))


_SERVERS = re.compile(rb'("coordination"\s*:\s*\[)([^\]]*)(\])')


def servers_of(content: bytes) -> tuple[str, ...]:
    """``ADDRESS:PORT`` of each server in a keeper's file."""
    try:
        return tuple(json.loads(content)["coordination"])
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"keeper.json names no coordination servers: {error!r}") from error


@dataclass(frozen=True)
class Told:
    """What a keeper says of itself: the servers it has read of, whether it is registered."""

    servers: tuple[str, ...]
    registered: bool


State = Mapping[str, Reading[Told]]


@check("{kind}.release", "the {one} is of a release that may be moved", Scope.BROKERS, ALWAYS)
def release(_c: Context, e: Evidence) -> Any:
    """Releases before the third forget their lease. To do: upgrade the keeper."""
    for name, reading in e.of_dependent.items():
        held = reading.value >= OLDEST if isinstance(reading, Seen) else None
        yield Judged(held, str(reading), f"{OLDEST} or later", name)


class KeeperDependent:
    """Implements :class:`zkmigrate.move.dependent.Dependent`."""

    shape: type[Inventory] = KeeperInventory
    words = Words(
        kind="keeper",
        one="keeper",
        many="keepers",
        system="the keepers",
        key="coordination",
        identity="realm",
        session_key="nothing",
        again="reload",
    )
    checks: tuple[Check, ...] = (release,)
    sampling: tuple[Sampling, ...] = ()
    clusters: Mapping[str, str] = {}

    def members(self, inventory: Inventory) -> tuple[Keeper, ...]:
        return section(inventory).hosts

    def without(self, inventory: Inventory, names: Collection[str]) -> Inventory:
        own = section(inventory)
        left = tuple(host for host in own.hosts if host.name not in names)
        return inventory.model_copy(update={"keeper": own.model_copy(update={"hosts": left})})

    def chroot(self, inventory: Inventory) -> Chroot:
        return Chroot(section(inventory).root)

    def config(self, inventory: Inventory) -> str:
        return section(inventory).config

    def identity(self, inventory: Inventory) -> str:
        return section(inventory).realm

    def identity_seen(self, inventory: Inventory, look: Look, via: str) -> Reading[str]:
        node = look.ask(ReadZnode(via, f"{self.chroot(inventory).prefix}/realm"))
        return Seen(node.value.data.decode()) if isinstance(node, Seen) else node

    def service(self, inventory: Inventory) -> Service:
        return section(inventory).service

    def names_dest(self, inventory: Inventory, content: bytes, _resolve: Resolve) -> bool:
        return bool(set(servers_of(content)) & set(self._dest(inventory)))

    def with_dest(self, inventory: Inventory, content: bytes) -> bytes:
        servers = ", ".join(f'"{server}"' for server in self._dest(inventory)).encode()
        edited, times = _SERVERS.subn(lambda found: found[1] + servers + found[3], content)
        if times != 1:
            raise UsageError(f"keeper.json has {times} lists of coordination servers; needed: exactly one")
        return edited

    def restart_or_reload(self, inventory: Inventory, member: str) -> Changes:
        return (SetService(member, section(inventory).service.unit, "reload"),)

    def has_read(self, inventory: Inventory, own: State, member: str, facts: MemberFacts) -> bool:
        told, file = own[member], facts.file
        if not isinstance(told, Seen) or not isinstance(file, Seen):
            return False
        return told.value.servers == servers_of(file.value)

    def probes(self, inventory: Inventory, look: Look) -> tuple[Probe, ...]:
        return ()

    def cluster(self, c: Context, look: Look) -> State:
        return look.each((host.name for host in self.members(c.inventory)), lambda name: _told(look, name))

    def for_roll(self, c: Context, look: Look, own: State, members: Mapping[str, MemberFacts]) -> State:
        return own

    def why_silent(self, own: State) -> str:
        return "" if any(isinstance(told, Seen) for told in own.values()) else "no keeper tells"

    def settled(self, inventory: Inventory, own: State, member: str) -> bool:
        told = own[member]
        return isinstance(told, Seen) and told.value.registered

    def is_spare(self, inventory: Inventory, own: State, member: str) -> bool:
        return False

    def next_wave(
        self, inventory: Inventory, own: State, positions: tuple[Position, ...]
    ) -> tuple[tuple[str, ...], str]:
        waiting = [p for p in positions if not p.moved]
        half_done = [p for p in waiting if p.touched]
        if half_done or not waiting:
            return tuple(p.name for p in half_done[:1]), ""
        reason = self.why_unsettled(own)
        return ((), reason) if reason else ((waiting[0].name,), "")

    def progress(
        self, c: Context, own: State, member: str, marks: Mapping[str, Any], now: float, least_s: float
    ) -> Progress:
        return Progress(f"registered: {'yes' if self.settled(c.inventory, own, member) else 'no'}", least_s)

    def why_unsettled(self, own: State) -> str:
        out = [name for name, told in own.items() if not (isinstance(told, Seen) and told.value.registered)]
        return f"not registered: {', '.join(out)}" if out else ""

    def ending(self, inventory: Inventory) -> Ending | None:
        return None

    def ending_due(self, own: State) -> bool:
        return False

    def who_is_behind(self, inventory: Inventory, own: State) -> str:
        return self.why_unsettled(own)

    def proofs(self, own: State) -> tuple[Finding, ...]:
        return (
            claim("verify.registered", "every keeper is registered", True, seen=f"{len(own)} keepers",
                  severity=Severity.BLOCK),
        )  # fmt: skip

    def keeps(self, _path: str) -> bool:
        return False

    def claims(self, inventory: Inventory, member: str, owns: tuple[str, ...]) -> bool:
        return f"{self.chroot(inventory).prefix}/live/{member}" in owns

    def idle_sessions(self, inventory: Inventory, look: Look, member: str) -> Reading[int]:
        return Seen(0)

    def evidence(self, c: Context, look: Look, common: Evidence, gate: str) -> dict[str, Reading[int]]:
        def one(name: str) -> Reading[int]:
            reading = common.files[name]
            return Seen(int(json.loads(reading.value)["release"])) if isinstance(reading, Seen) else reading

        return {name: one(name) for name in common.files}

    def _dest(self, inventory: Inventory) -> tuple[str, ...]:
        return tuple(f"{host.address}:{inventory.dest.ports.client}" for host in inventory.dest.hosts)


def _told(look: Look, name: str) -> Reading[Told]:
    reading = look.file(name, STATE)
    if not isinstance(reading, Seen):
        return reading
    told = json.loads(reading.value)
    return Seen(Told(tuple(told["servers"]), told["registered"])) if told else Absent("state")


KEEPER = KeeperDependent()


class KeeperKind:
    """Keepers in the model world (:class:`tests.world.model.members.Kind`)."""

    dependent: AnyDependent = KEEPER
    keeps_sessions = False

    def number(self, inventory: Inventory, member: Member) -> int:
        return [host.name for host in section(inventory).hosts].index(member.name) + 1

    def files(self, inventory: Inventory, member: Member) -> Mapping[str, File]:
        servers = [f"{host.address}:{inventory.source.ports.client}" for host in inventory.source.hosts]
        content = {"release": OLDEST, "coordination": servers, "name": member.name}
        unit = File(b"[Service]\nExecStart=/usr/bin/keeper\n", "0644", "root:root")
        config = File(json.dumps(content, indent=2).encode(), "0640", "keeper:keeper")
        return {CONFIG: config, "/etc/systemd/system/keeper.service": unit}

    def connect(self, content: bytes) -> str:
        return ",".join(servers_of(content))

    def seeds(self, inventory: Inventory) -> Mapping[str, bytes]:
        root = section(inventory).root
        return {
            root: b"",
            f"{root}/realm": section(inventory).realm.encode(),
            f"{root}/live": b"",
            "/other": b"",
        }

    def lives(self, inventory: Inventory, process: Process, ensemble: Ensemble, *, anew: bool) -> None:
        root, name = section(inventory).root, process.member.name
        if anew:
            if f"{root}/live/{name}" in ensemble.tree().znodes:
                ensemble.commit("delete", process.session, f"{root}/live/{name}")
            ensemble.commit("create", process.session, f"{root}/live/{name}", b"{}", ephemeral=1)
        if f"{root}/lease" not in ensemble.tree().znodes:
            ensemble.commit("create", process.session, f"{root}/lease", name.encode(), ephemeral=1)

    def shows(self, _inventory: Inventory, process: Process, *, runs: bool) -> Mapping[str, bytes]:
        if not runs:
            return {}
        told = {"servers": process.connect.split(","), "registered": process.registered}
        return {STATE: json.dumps(told).encode()}


def keeper_world() -> World:
    """A world in which nothing has been done yet."""
    kind: Kind = KeeperKind()
    return world_of(keeper_inventory(), kind, SOURCE_CONFIG)
