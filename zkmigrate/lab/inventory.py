"""The ``migration.yml`` of a lab: what an operator of this lab would have written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from zkmigrate.lab import service
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.spec import OPERATOR_ADDRESS, Role


def write_inventory(
    lab: Lab,
    path: Path,
    policy: dict[str, Any] | None = None,
    canary_topic: str | None = None,
    accept: tuple[str, ...] = (),
) -> Path:
    """Write the inventory of a lab to ``path`` and return it.

    policy: what to set under ``policy``. canary_topic: one that was made for the produce canary. accept:
    findings about the whole cluster that the lab answers for.
    Raises LabError when Kafka's cluster id cannot be read from source.
    """
    spec = lab.spec
    body: dict[str, Any] = {
        "version": 1,
        "name": f"lab-{lab.id}",
        "operator": [OPERATOR_ADDRESS],
        "ssh": {"user": lab.user, "key": str(lab.private_key), "known_hosts": str(lab.known_hosts)},
        "source": {"hosts": _zookeepers(lab, Role.SOURCE)},
        "dest": {
            "hosts": _zookeepers(lab, Role.DEST),
            "settings": {
                "tickTime": str(spec.tick_time_ms),
                "initLimit": "10",
                "syncLimit": "5",
                "maxClientCnxns": "0",
                "4lw.commands.whitelist": spec.four_letter_words,
                "admin.enableServer": "false",
            },
        },
        "kafka": {
            "cluster_id": _cluster_id(lab),
            "chroot": spec.chroot,
            "brokers": [
                {"name": h.name, "address": h.address, "id": lab.plans[h.name].number}
                for h in lab.role(Role.BROKER)
            ],
        },
    }
    for part, role in (("dest", Role.DEST), ("kafka", Role.BROKER)):
        if service.has_script(spec, role):
            body[part]["service"] = {"unit": service.name_of(role), **service.commands(role)}
    if canary_topic is not None:
        body["kafka"]["canary_topic"] = canary_topic
    if spec.reconfig_enabled:
        body["dest"]["settings"]["reconfigEnabled"] = "true"
    # Clients of the load that write to dest's hosts all through a move: what an operator would refuse.
    until = {"who": "lab", "until": "2099-01-01T00:00Z"}
    body["accept"] = [
        {"finding": "dest.foreign-client", "target": host.address, "why": "raw writers of the load", **until}
        for host in lab.role(Role.CLIENT)
    ]
    body["accept"] += [{"finding": finding, "why": "a drill", **until} for finding in accept]
    if policy:
        body["policy"] = policy
    with path.open("w") as stream:
        YAML().dump(body, stream)
    return path


def _zookeepers(lab: Lab, role: Role) -> list[dict[str, Any]]:
    return [{"name": h.name, "address": h.address, "myid": h.myid} for h in lab.role(role)]


def _cluster_id(lab: Lab) -> str:
    with lab.zookeeper() as client:
        data, _ = client.get(f"{lab.spec.chroot}/cluster/id")
    found = json.loads(data).get("id")
    if not isinstance(found, str):
        raise LabError(f"{lab.spec.chroot}/cluster/id holds {data[:80]!r}, not a cluster id")
    return found
