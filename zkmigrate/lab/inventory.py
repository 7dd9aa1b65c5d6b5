"""Write the inventories of a lab, as an operator of the lab would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from zkmigrate.lab import between, render, secured, service
from zkmigrate.lab.credentials import OPERATOR
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.kafka_login import PLAINTEXT
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.shape import KafkaCluster
from zkmigrate.lab.spec import CLIENT_PORT, OPERATOR_ADDRESS, Role, shape_of

TOPIC_SET = "shop"
"""The name of the set of topics that switch together."""


def write_inventory(
    lab: Lab,
    path: Path,
    policy: dict[str, Any] | None = None,
    canary_topic: str | None = None,
    accept: tuple[str, ...] = (),
    moved: tuple[str, str] | None = None,
) -> Path:
    """Write the inventory of a move's lab to ``path``, and return the path.

    policy: the section ``policy``. canary_topic: the topic of the produce canary. accept: ids of findings to
    accept for the whole cluster. moved: in a lab built with ``--shape``, the cluster that moves and its dest
    ensemble. Raises LabError if no broker has a cluster id yet, and for such a lab without `moved`.
    """
    spec = lab.spec
    if spec.shape is not None and moved is None:
        raise LabError(
            f"lab {lab.id} is not the lab of a move. Next: write the inventory of one of its clusters"
        )
    name, to = moved or (None, Role.DEST)
    cluster = lab.cluster(name)
    version = next(one.version for one in shape_of(spec).ensembles if one.name == to)
    body: dict[str, Any] = {
        "version": 1,
        "name": f"lab-{lab.id}" + (f"-{name}" if name else ""),
        "operator": [OPERATOR_ADDRESS],
        "ssh": _ssh(lab),
        "source": {"hosts": _zookeepers(lab, cluster.ensemble or Role.SOURCE), **_ports(lab)},
        "dest": {
            "hosts": _zookeepers(lab, to),
            **_ports(lab),
            "settings": {
                "tickTime": str(spec.tick_time_ms),
                "initLimit": "10",
                "syncLimit": "5",
                "maxClientCnxns": "0",
                "4lw.commands.whitelist": spec.four_letter_words,
                # zkm-host asks the AdminServer where clients need TLS.
                "admin.enableServer": str(spec.client_port != CLIENT_PORT).lower(),
            },
        },
        "kafka": _kafka(lab, cluster),
    }
    body["dest"] |= _service(lab, Role.DEST)
    settings = secured.zookeeper_settings(spec, version)
    settings.pop("secureClientPort", None)
    body["dest"]["settings"] |= settings
    if client := _zookeeper_client(lab):
        body["zookeeper"] = {"client": client}
    if canary_topic is not None:
        body["kafka"]["canary_topic"] = canary_topic
    if spec.reconfig_enabled:
        body["dest"]["settings"]["reconfigEnabled"] = "true"
    # The load's clients write to dest's hosts during the whole move, which an operator would not allow.
    until = {"who": "lab", "until": "2099-01-01T00:00Z"}
    body["accept"] = [
        {"finding": "dest.foreign-client", "target": host.address, "why": "raw writers of the load", **until}
        for host in lab.role(Role.CLIENT)
    ]
    if cluster.chroot == "/":
        body["kafka"]["znodes"] = ["zkmigrate-raw"]
        body["accept"] += [
            {"finding": "kafka.foreign-znodes", "target": path, "why": "its client stays on source", **until}
            for path in ("/filler", "/other")
        ]
    body["accept"] += [{"finding": finding, "why": "a drill", **until} for finding in accept]
    if policy:
        body["policy"] = policy
    return _write(path, body)


def write_cluster_inventory(
    lab: Lab, path: Path, cluster: str | None = None, further: Mapping[str, Any] | None = None
) -> Path:
    """Write an inventory with only one Kafka cluster to ``path``, and return the path.

    cluster: the cluster's name; it may be left out if there is only one. further: the playbook's own
    sections. Raises LabError if no broker has a cluster id yet.
    """
    found = lab.cluster(cluster)
    name = f"lab-{lab.id}-{found.name}"
    body = {"version": 1, "name": name, "ssh": _ssh(lab), "kafka": _kafka(lab, found)}
    return _write(path, body | dict(further or {}))


def write_topic_inventory(
    lab: Lab,
    path: Path,
    target: str,
    topics: Sequence[str],
    groups: Sequence[str],
    further: Mapping[str, Any] | None = None,
) -> Path:
    """Write the inventory of a switch of these topics to cluster `target`, and return its path.

    The lab must have gateways. groups: the consumer groups of the topics. further: more keys of the section
    ``topic_move``.
    """
    spec = lab.spec
    clusters = [
        {
            "name": one.name,
            "brokers": list(between.brokers(spec, one.name).values()),
            "mirror": between.mirror_unit(one.name),
        }
        for one in shape_of(spec).clusters
    ]
    gateways = {"program": between.GATEWAY_PROGRAM, "config": between.GATEWAY_FILE}
    own = {"name": TOPIC_SET, "topics": [*topics], "apps": [between.APP], "groups": [*groups]}
    move = {"set": TOPIC_SET, "source": between.other(spec, target), "target": target}
    body = {
        "version": 1,
        "name": f"lab-{lab.id}",
        "ssh": _ssh(lab),
        "clusters": clusters,
        "gateways": {"hosts": _machines(lab, Role.GATEWAY), **gateways},
        "mirrors": {"hosts": _machines(lab, Role.MIRROR)},
        "sets": [own],
        "topic_move": move | dict(further or {}),
    }
    return _write(path, body)


def _machines(lab: Lab, role: Role) -> list[dict[str, str]]:
    return [{"name": host.name, "address": host.address} for host in lab.role(role)]


def _write(path: Path, body: Mapping[str, Any]) -> Path:
    with path.open("w") as stream:
        YAML().dump(dict(body), stream)
    return path


def _ssh(lab: Lab) -> dict[str, str]:
    return {"user": lab.user, "key": str(lab.private_key), "known_hosts": str(lab.known_hosts)}


def _service(lab: Lab, role: Role) -> dict[str, Any]:
    """Return the key `service` for an inventory section if a script starts the servers; otherwise no key."""
    if not service.has_script(lab.spec, role):
        return {}
    return {"service": {"unit": service.name_of(role), **service.commands(role)}}


def _zookeepers(lab: Lab, ensemble: str) -> list[dict[str, Any]]:
    return [
        {"name": h.name, "address": h.address, "myid": h.myid, **({"observer": True} if h.observer else {})}
        for h in lab.members(ensemble)
    ]


def _ports(lab: Lab) -> dict[str, Any]:
    """Return the section's `ports` if clients do not use the default port."""
    port = lab.spec.client_port
    return {} if port == CLIENT_PORT else {"ports": {"secure": port}}


def _zookeeper_client(lab: Lab) -> dict[str, Any]:
    """Return how the operator logs in to ZooKeeper; passwords are in files of the lab's directory."""
    login = lab.login(OPERATOR)
    found: dict[str, Any] = {}
    if login.ca:
        found["tls"] = {"ca": login.ca, "certificate": login.certificate, "key": login.key}
    if login.sasl_user:
        found["sasl"] = {"user": login.sasl_user, "password": {"file": login.sasl_password}}
    if login.digest_user:
        found["digest"] = {"user": login.digest_user, "password": {"file": login.digest_password}}
    return found


def _kafka_client(lab: Lab) -> dict[str, Any]:
    """Return how the operator logs in to Kafka; empty without TLS and SASL."""
    login = lab.kafka_login()
    if login == PLAINTEXT:
        return {}
    found: dict[str, Any] = {key: value for key, value in asdict(login).items() if value}
    if login.password:
        found["password"] = {"file": login.password}
    return {"client": found}


def _kafka(lab: Lab, cluster: KafkaCluster) -> dict[str, Any]:
    brokers = [plan for plan in lab.members(cluster.name) if plan.role is Role.BROKER]
    chroot = {} if cluster.ensemble is None else {"chroot": cluster.chroot}
    return {
        "cluster_id": _cluster_id(lab, cluster.name),
        **chroot,
        "brokers": [{"name": b.name, "address": b.address, "id": b.node_id} for b in brokers],
        **_service(lab, Role.BROKER),
        **_kafka_client(lab),
    }


def _cluster_id(lab: Lab, cluster: str) -> str:
    """Return the cluster id that brokers store beside their data. Raises LabError if there is none yet."""
    for plan in lab.members(cluster):
        folder = lab.host(plan.name).root / render.log_dirs(lab.spec, plan)[0].lstrip("/")
        file = folder / "meta.properties"
        for line in file.read_text().splitlines() if file.exists() else ():
            if line.startswith("cluster.id="):
                return line.removeprefix("cluster.id=")
    raise LabError(f"no broker of {cluster} has a cluster id yet. Next: start its brokers")
