"""Brokers that all go down and come back: their files and services, and what an ensemble shows of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from zkmigrate.errors import UsageError
from zkmigrate.hosts.facts.status import HostStatus, unit_status
from zkmigrate.inventory.inventory import Inventory, ZooKeeperHost
from zkmigrate.kafka.facts.cluster import controller
from zkmigrate.kafka.facts.recovery import Recovery, recovery
from zkmigrate.kafka.rules.connect import current_connect, hosts_in
from zkmigrate.model.fact import Reading, Seen, Unknown
from zkmigrate.model.look import DirEntry, Look

STOPPED = ("inactive", "failed")


@dataclass(frozen=True)
class BrokerState:
    """A broker's file, with who may write it, and its service. recovery: how far it has loaded its logs, None
    where it does not run."""

    properties: Reading[bytes]
    entry: DirEntry | None
    status: Reading[HostStatus]
    recovery: Reading[Recovery] | None = None

    @property
    def runs(self) -> bool | None:
        """Whether its process may be there; None where nobody can tell."""
        return runs(self.status)

    @property
    def stops(self) -> bool:
        """Whether systemd is stopping it."""
        return isinstance(self.status, Seen) and self.status.value.unit_state == "deactivating"

    def names(self, hosts: Iterable[ZooKeeperHost]) -> bool | None:
        """Whether its file names one of these; None where it cannot be read."""
        if not isinstance(self.properties, Seen):
            return None
        try:
            named = hosts_in(current_connect(self.properties.value))
        except UsageError:
            return None
        return any(host.address in named for host in hosts)


def runs(status: Reading[HostStatus]) -> bool | None:
    """Whether the process of a service may be there: it is not known to be stopped. None: nobody can tell."""
    if not isinstance(status, Seen) or status.value.unit_state == "unknown":
        return None
    return status.value.unit_state not in STOPPED


def brokers(inventory: Inventory, look: Look) -> dict[str, BrokerState]:
    """Every broker of the inventory, by its host."""
    kafka = inventory.kafka
    directory, name = kafka.config.rsplit("/", 1)

    def one(host: str) -> BrokerState:
        listing = look.listing(host, directory)
        entries = [e for e in listing.value if e.name == name] if isinstance(listing, Seen) else []
        status = unit_status(look, host, kafka.service.unit, kafka.commands(host))
        state = BrokerState(look.file(host, kafka.config), entries[0] if entries else None, status)
        if not state.runs:
            return state
        return replace(state, recovery=recovery(look, host, kafka.service.unit, kafka.commands(host)))

    return look.each(inventory.broker_names, one)


def dest_services(inventory: Inventory, look: Look) -> dict[str, Reading[HostStatus]]:
    """ZooKeeper on every dest host."""
    dest = inventory.dest
    return look.each(
        inventory.dest_names, lambda host: unit_status(look, host, dest.service.unit, dest.commands)
    )


@dataclass(frozen=True)
class Registered:
    """What an ensemble shows of Kafka. ids: of the brokers that are registered. controller: the one that is,
    if any. epoch: of the newest controller. changed: the zxid at which a broker came or went last."""

    ids: frozenset[int]
    controller: int | None
    epoch: int
    changed: int

    @property
    def anybody(self) -> bool:
        """Whether a broker is registered, or a controller."""
        return bool(self.ids) or self.controller is not None

    @property
    def words(self) -> str:
        """Who is registered."""
        return f"registered: {sorted(self.ids) or 'none'}, controller: {self.controller}"


def registered(look: Look, hosts: Iterable[str], chroot: str) -> Reading[Registered]:
    """By the first of these hosts that tells."""
    told: Reading[Registered] = Unknown("failed", "nobody was asked")
    for host in hosts:
        told = _registered(look, host, chroot)
        if isinstance(told, Seen):
            return told
    return told


def _registered(look: Look, host: str, chroot: str) -> Reading[Registered]:
    ids, epoch = look.znode(host, f"{chroot}/brokers/ids"), look.znode(host, f"{chroot}/controller_epoch")
    if not isinstance(ids, Seen):
        return ids
    if not isinstance(epoch, Seen):
        return epoch
    leads = controller(look, host, chroot)
    if isinstance(leads, Unknown):
        return leads
    names = ids.value.children
    if not epoch.value.data.isdigit() or not all(name.isdecimal() for name in names):
        return Unknown("garbled", f"{chroot} does not hold what Kafka writes there")
    return Seen(
        Registered(
            frozenset(int(name) for name in names),
            leads.value.broker if isinstance(leads, Seen) else None,
            int(epoch.value.data),
            ids.value.pzxid,
        )
    )


def loaded(states: Mapping[str, BrokerState]) -> tuple[tuple[int, int], ...]:
    """Logs and segments that each broker has loaded: what moves while they start."""
    told = (state.recovery for state in states.values())
    return tuple((r.value.logs, r.value.segments) if isinstance(r, Seen) else (0, 0) for r in told)
