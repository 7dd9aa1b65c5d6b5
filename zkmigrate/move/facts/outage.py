"""Read the config files, services and registrations of brokers that all stop and start again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from zkmigrate.errors import UsageError
from zkmigrate.hosts.facts.host_names import Names, Resolve, all_unresolved, asked_names
from zkmigrate.hosts.facts.status import HostStatus, runs, unit_status
from zkmigrate.inventory.inventory import Inventory, ZooKeeperHost
from zkmigrate.kafka.facts.cluster import controller
from zkmigrate.kafka.facts.recovery import Recovery, recovery
from zkmigrate.kafka.rules.connect import current_connect, names_any
from zkmigrate.move.facts.connections import addresses
from zkmigrate.runbook.model.change import ServiceAction, SetService
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import DirEntry, Look
from zkmigrate.zookeeper.questions import ReadZnode


@dataclass(frozen=True)
class BrokerState:
    """A broker's config file and service.

    properties: the content of the config file. entry: the file's directory entry. recovery: how much of its
    logs the broker has loaded; None if it does not run. resolved: host name in the file → its addresses on
    the broker's host, for each name that must be resolved to compare it with the inventory.
    """

    properties: Reading[bytes]
    entry: DirEntry | None
    status: Reading[HostStatus]
    recovery: Reading[Recovery] | None = None
    resolved: Names = field(default_factory=dict)

    @property
    def runs(self) -> bool | None:
        """Whether the broker's process may run; None if that is not known."""
        return runs(self.status)

    @property
    def stops(self) -> bool:
        """Whether systemd is stopping the broker."""
        return isinstance(self.status, Seen) and self.status.value.unit_state == "deactivating"

    def names(self, hosts: Iterable[ZooKeeperHost], others: Iterable[ZooKeeperHost]) -> bool | None:
        """Return whether the broker's file names one of these hosts.

        others: the hosts of the other ensemble. Returns None if the file cannot be read, or a name in it does
        not resolve.
        """
        return self.names_with(hosts, others, lambda name: self.resolved.get(name, Absent(name)))

    def names_with(
        self, hosts: Iterable[ZooKeeperHost], others: Iterable[ZooKeeperHost], resolve: Resolve
    ) -> bool | None:
        """Return the same as ``names``, but resolve the names in the file again with ``resolve``."""
        connect = self.connect
        return None if connect is None else names_any(connect, hosts, others, resolve)

    @property
    def connect(self) -> str | None:
        """The value of zookeeper.connect in the broker's file; None if the file cannot be read."""
        if not isinstance(self.properties, Seen):
            return None
        try:
            return current_connect(self.properties.value)
        except UsageError:
            return None

    def why_unknown(self, host: str) -> str:
        """Return why it is not known whether the broker's file names dest or source.

        host: the name of the broker's host.
        """
        if not isinstance(self.properties, Seen):
            return str(self.properties)
        if self.connect is None:
            return "its zookeeper.connect cannot be parsed safely"
        return all_unresolved(self.resolved, host)


def brokers(inventory: Inventory, look: Look) -> dict[str, BrokerState]:
    """Read the state of every broker of the inventory. Returns broker host → state."""
    kafka = inventory.kafka
    directory, name = kafka.config.rsplit("/", 1)

    def one(host: str) -> BrokerState:
        listing = look.listing(host, directory)
        entries = [e for e in listing.value if e.name == name] if isinstance(listing, Seen) else []
        status = unit_status(look, host, kafka.service.unit, kafka.commands(host))
        state = BrokerState(look.file(host, kafka.config), entries[0] if entries else None, status)
        own, ask = addresses(inventory.broker(host)), partial(_both, inventory, state)
        state = replace(state, resolved=asked_names(look, host, own, ask))
        if not state.runs:
            return state
        return replace(state, recovery=recovery(look, host, kafka.service.unit, kafka.commands(host)))

    return look.each(inventory.broker_names, one)


def _both(inventory: Inventory, state: BrokerState, resolve: Resolve) -> None:
    """Resolve the names in a broker's file that are needed to compare it with dest and with source."""
    dest, source = inventory.dest.hosts, inventory.source.hosts
    state.names_with(dest, source, resolve)
    state.names_with(source, dest, resolve)


def dest_service(inventory: Inventory, host: str, action: ServiceAction) -> SetService:
    """Return the change that starts, stops, restarts or kills ZooKeeper on a dest host."""
    return SetService(host, inventory.dest.service.unit, action, inventory.dest.commands)


def dest_services(inventory: Inventory, look: Look) -> dict[str, Reading[HostStatus]]:
    """Read the state of the ZooKeeper service on every dest host. Returns host → status."""
    dest = inventory.dest
    return look.each(
        inventory.dest_names, lambda host: unit_status(look, host, dest.service.unit, dest.commands)
    )


@dataclass(frozen=True)
class Registered:
    """The registrations of Kafka's brokers on an ensemble.

    ids: the ids of the registered brokers. controller: the id of the broker that is controller, or None.
    epoch: the epoch of the newest controller. changed: the zxid at which a broker last registered or
    disappeared.
    """

    ids: frozenset[int]
    controller: int | None
    epoch: int
    changed: int

    @property
    def any_registered(self) -> bool:
        """Whether a broker or a controller is registered."""
        return bool(self.ids) or self.controller is not None

    @property
    def words(self) -> str:
        """The ids of the registered brokers and of the controller, as text for people."""
        return f"registered: {sorted(self.ids) or 'none'}, controller: {self.controller}"


def registered(look: Look, hosts: Iterable[str], prefix: str) -> Reading[Registered]:
    """Read the registrations from the first of these hosts that answers."""
    reading: Reading[Registered] = Unknown("failed", "no host was queried")
    for host in hosts:
        reading = _registered(look, host, prefix)
        if isinstance(reading, Seen):
            break
    return reading


def _registered(look: Look, host: str, prefix: str) -> Reading[Registered]:
    ids, epoch = (
        look.ask(ReadZnode(host, f"{prefix}/brokers/ids")),
        look.ask(ReadZnode(host, f"{prefix}/controller_epoch")),
    )
    if not isinstance(ids, Seen):
        return ids
    if not isinstance(epoch, Seen):
        return epoch
    leader = controller(look, host, prefix)
    if isinstance(leader, Unknown):
        return leader
    names = ids.value.children
    if not epoch.value.data.isdigit() or not all(name.isdecimal() for name in names):
        return Unknown("garbled", f"{prefix or '/'} does not hold Kafka's znodes")
    return Seen(
        Registered(
            frozenset(int(name) for name in names),
            leader.value.broker if isinstance(leader, Seen) else None,
            int(epoch.value.data),
            ids.value.pzxid,
        )
    )


def load_progress(states: Mapping[str, BrokerState]) -> tuple[tuple[int, int], ...]:
    """Return how many logs and how many segments each broker has loaded.

    A wait for brokers compares successive results to see whether the brokers still make progress.
    """
    readings = (state.recovery for state in states.values())
    return tuple((r.value.logs, r.value.segments) if isinstance(r, Seen) else (0, 0) for r in readings)
