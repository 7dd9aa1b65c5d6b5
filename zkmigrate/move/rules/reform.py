"""The two configs of a dest host: as observer of source, and as participant of its own ensemble."""

from __future__ import annotations

from collections.abc import Mapping

from zkmigrate.inventory.inventory import Inventory, Ports, ZooKeeperHost
from zkmigrate.zookeeper.facts.config import VERSION
from zkmigrate.zookeeper.facts.members import Members

RECONFIG = "reconfigEnabled"


def _server_line(host: ZooKeeperHost, ports: Ports, observer: bool) -> str:
    address = f"[{host.address}]" if ":" in host.address else host.address
    role = ":observer" if observer else ""
    return f"server.{host.myid}={address}:{ports.quorum}:{ports.election}{role}"


def _settings(inventory: Inventory, settings: Mapping[str, str]) -> list[str]:
    dest = inventory.dest
    lines = [f"{key}={value}" for key, value in sorted(settings.items())]
    lines += [f"dataDir={dest.data_dir}"]
    lines += [f"{key}={port}" for key, port in dest.ports.settings.items()]
    if dest.log_dir is not None:
        lines.append(f"dataLogDir={dest.log_dir}")
    return lines


def observer_config(inventory: Inventory, members: Members) -> bytes:
    """Return zoo.cfg of a dest host while it observes source.

    members: source's own server lines, byte for byte, with the current version of source's members. A server
    ignores members of the version that it already has. It would adopt members of a later version, which do
    not include it; without reconfigEnabled it would instead restart its election at every answer. An observer
    never gets reconfigEnabled, whatever dest has later.
    """
    settings = dict(inventory.dest.settings)
    if RECONFIG in settings:
        settings[RECONFIG] = "false"
    lines = _settings(inventory, settings)
    lines.append("peerType=observer")
    if members.version:
        lines.append(f"{VERSION}={members.version:x}")
    lines += members.lines
    lines += [_server_line(h, inventory.dest.ports, True) for h in inventory.dest.hosts]
    return ("\n".join(lines) + "\n").encode()


def reformed_config(inventory: Inventory) -> bytes:
    """Return zoo.cfg of a dest host as a participant of an independent dest, with only dest's servers."""
    lines = _settings(inventory, inventory.dest.settings)
    lines += [_server_line(h, inventory.dest.ports, False) for h in inventory.dest.hosts]
    return ("\n".join(lines) + "\n").encode()
