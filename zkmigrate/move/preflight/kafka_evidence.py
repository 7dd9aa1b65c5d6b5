"""The evidence of Kafka's own checks: the cluster, the brokers' hosts, and the activity under the chroot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from zkmigrate.hosts.facts.host_names import Resolved, resolve_all
from zkmigrate.hosts.facts.properties import properties_of
from zkmigrate.hosts.facts.status import unit_status
from zkmigrate.kafka.facts.broker import BrokerHost, broker_host
from zkmigrate.kafka.facts.chroot import ChrootState, chroot_seen, strangers_on_disk
from zkmigrate.kafka.facts.cluster import kafka_view
from zkmigrate.kafka.questions import KafkaView
from zkmigrate.kafka.rules.connect import hosts_in
from zkmigrate.move.facts.chroot_writers import RecentWrites, recent_writes
from zkmigrate.move.facts.secured import CLIENT, Secured, effective, is_on, of_client
from zkmigrate.move.preflight.evidence import NOT_ASKED, Evidence, leader_of
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context


@dataclass(frozen=True)
class KafkaEvidence:
    """The evidence of Kafka's own checks.

    view: the cluster as its brokers report it. brokers: the state of each broker's host, until the broker is
    rolled. chroot: the content of the chroot as one dest host shows it, None before the join. foreign: before
    the join and with the chroot ``/``, the strangers directly below it, from source's disk. written: the
    sessions that wrote under the chroot recently. resolved: on each broker's host the names in its
    zookeeper.connect, and on the operator's machine the names of registered brokers, with their addresses.
    secured: what secures each broker's connections to ZooKeeper, until the broker is rolled.
    """

    view: Reading[KafkaView]
    brokers: Mapping[str, BrokerHost] = field(default_factory=dict)
    chroot: ChrootState | None = None
    foreign: Reading[tuple[str, ...]] = NOT_ASKED
    written: Reading[RecentWrites] = NOT_ASKED
    resolved: Resolved = field(default_factory=dict)
    secured: Mapping[str, Secured] = field(default_factory=dict)


def of_kafka(e: Evidence) -> KafkaEvidence:
    """Return Kafka's part of the evidence. Only Kafka's own checks may call this."""
    return cast(KafkaEvidence, e.of_dependent)


def properties_at(e: Evidence, broker: str, path: str) -> Reading[Mapping[str, str]]:
    """Return the properties in the file at this path on a broker's host."""
    return properties_of(e.files[broker], path)


def to_start(e: Evidence, broker: str) -> tuple[str, ...]:
    """Return what the operator can do about a broker that does not run.

    The result is empty if the broker runs, or if it is not known whether it runs.
    """
    host = of_kafka(e).brokers.get(broker)
    return ("start the broker",) if host is not None and isinstance(host.process, Absent) else ()


def gather(c: Context, look: Look, common: Evidence, gate: str) -> KafkaEvidence:
    """Gather the evidence for Kafka's checks of this gate."""
    view, joined, servers = kafka_view(c, look), c.inventory.dest_names, common.dest.servers
    chroot = None
    if common.joined:
        via = next((host for host in joined if isinstance(servers[host], Seen)), joined[0])
        chroot = chroot_seen(look, via, c.inventory.kafka.subtree, view if gate == "roll" else None)
    brokers = _at_brokers(c, look, common) if gate != "cutover" else {}
    return KafkaEvidence(
        view,
        brokers,
        chroot,
        _on_disk(c, common) if gate == "preflight" and not c.inventory.kafka.prefix else NOT_ASKED,
        _written(c, common) if gate != "roll" else NOT_ASKED,
        resolve_all(look, _names(c, common, view)) if gate == "preflight" else {},
        look.each(brokers, lambda host: _secured(c, look, common, host, brokers[host])),
    )


def _secured(c: Context, look: Look, common: Evidence, host: str, broker: BrokerHost) -> Secured:
    """Read what secures a broker's connections to ZooKeeper: its file's ``zookeeper.ssl.*`` and its flags."""
    properties = properties_at(common, host, c.inventory.kafka.config)
    if not isinstance(properties, Seen):
        return Secured(properties)
    own = {key: value for key, value in properties.value.items() if key.startswith("zookeeper.ssl.")}
    flags = broker.process.value.flags if isinstance(broker.process, Seen) else {}
    values = effective(own, flags)
    tls = is_on(values, "ssl.client.enable")
    found = of_client(look, host, values, tls)
    if not tls and is_on(values, "client.secure"):
        hidden = Unknown("failed", "the JVM's flags, not server.properties, switch TLS to ZooKeeper on")
        found = replace(found, keys={CLIENT: hidden}, trust={CLIENT: hidden})
    return found if isinstance(broker.process, Seen) else replace(found, jaas=broker.process)


def _names(c: Context, common: Evidence, view: Reading[KafkaView]) -> Mapping[str, Iterable[str]]:
    names: dict[str, Iterable[str]] = {}
    for broker in c.inventory.broker_names:
        properties = properties_at(common, broker, c.inventory.kafka.config)
        connect = properties.value.get("zookeeper.connect", "") if isinstance(properties, Seen) else ""
        names[broker] = hosts_in(connect)
    if isinstance(view, Seen):
        names[""] = [host for host, _, _ in view.value.brokers.values()]
    return names


def _at_brokers(c: Context, look: Look, common: Evidence) -> Mapping[str, BrokerHost]:
    kafka = c.inventory.kafka

    def one(host: str) -> BrokerHost:
        # The inventory's own commands may have reported the service's state already.
        status = common.own.statuses.get(host)
        if status is None:
            status = unit_status(look, host, kafka.service.unit, kafka.commands(host))
        properties = properties_of(common.files[host], kafka.config)
        return broker_host(look, host, kafka, status, common.facts[host], properties)

    return look.each(c.inventory.broker_names, one)


def _on_disk(c: Context, common: Evidence) -> Reading[tuple[str, ...]]:
    if not isinstance(common.disk, Seen):
        return common.disk
    return strangers_on_disk(leader_of(c, common), *common.disk.value, c.inventory.kafka.subtree, c.tell)


def _written(c: Context, common: Evidence) -> Reading[RecentWrites]:
    if not isinstance(common.disk, Seen):
        return common.disk
    _, logs = common.disk.value
    chroot = c.inventory.kafka.subtree
    return recent_writes(leader_of(c, common), logs, chroot, common.dumps, common.cons, c.tell)
