"""Configure the load for a lab and run it in the network of the lab's client host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from zkmigrate.lab.credentials import CLIENT, RAW, TENANT
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.config import LoadConfig
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.spec import KAFKA_PORT, LabSpec, Role, hosts_of, members, shape_of


def config_for(spec: LabSpec, **changes: Any) -> LoadConfig:
    """Return the load configuration for a lab, with the lab's addresses, chroot and session timeout.

    changes: fields whose values replace those of the lab.
    """

    def addresses(role: Role, port: int) -> dict[str, str]:
        return {host.name: f"{host.address}:{port}" for host in hosts_of(spec) if host.role is role}

    chroot = spec.chroot.rstrip("/")
    config = LoadConfig(
        bootstrap=",".join(addresses(Role.BROKER, KAFKA_PORT).values()),
        raw_hosts=addresses(Role.DEST, spec.client_port),
        raw_root=f"{chroot}/zkmigrate-raw",
        tenant_servers=tuple(addresses(Role.SOURCE, spec.client_port).values()),
        session_timeout_ms=spec.session_timeout_ms,
    )
    return replace(config, **changes)


def of_cluster(spec: LabSpec, cluster: str) -> dict[str, Any]:
    """Return the changes to `config_for` for one of several Kafka clusters: its brokers and its ensemble.

    The replication factor is at most the number of brokers. ``min_insync`` is one less, but at least 1.
    """
    own = next(one for one in shape_of(spec).clusters if one.name == cluster)
    servers = [host.address for host in members(hosts_of(spec), own.ensemble)] if own.ensemble else []
    brokers = [host for host in members(hosts_of(spec), cluster) if host.role is Role.BROKER]
    replicas = min(LoadConfig.replication_factor, len(brokers))
    return {
        "bootstrap": ",".join(f"{broker.address}:{KAFKA_PORT}" for broker in brokers),
        "replication_factor": replicas,
        "min_insync": max(1, replicas - 1),
        "cluster_zookeeper": ",".join(f"{server}:{spec.client_port}" for server in servers)
        + (own.chroot.rstrip("/") if servers else ""),
    }


def runner_for(lab: Lab, directory: Path, **changes: Any) -> LoadRunner:
    """Return a runner whose clients run on the lab's client host and record into ``directory``."""
    logins: dict[str, Any] = {
        "kafka_login": lab.kafka_login(CLIENT),
        "login": lab.login(),
        "raw_login": lab.login(RAW),
        "tenant_login": lab.login(TENANT),
    }
    return LoadRunner(directory, config_for(lab.spec, **logins, **changes), lab.client_command)
