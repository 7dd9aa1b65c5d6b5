"""The two configs of a dest host: observer of source, and participant of its own ensemble."""

from __future__ import annotations

from zkmigrate.inventory import Inventory, Ports, ZooKeeperHost


def _server_line(host: ZooKeeperHost, ports: Ports, observer: bool) -> str:
    address = f"[{host.address}]" if ":" in host.address else host.address
    role = ":observer" if observer else ""
    return f"server.{host.myid}={address}:{ports.quorum}:{ports.election}{role}"


def _settings(inventory: Inventory) -> list[str]:
    dest = inventory.dest
    lines = [f"{key}={value}" for key, value in sorted(dest.settings.items())]
    lines += [f"dataDir={dest.data_dir}", f"clientPort={dest.ports.client}"]
    if dest.log_dir is not None:
        lines.append(f"dataLogDir={dest.log_dir}")
    return lines


def observer_config(inventory: Inventory, source_lines: tuple[str, ...]) -> bytes:
    """zoo.cfg of a dest host while it observes source.

    source_lines: the ``server.N=…`` lines of source's own config, byte for byte, so that both sides agree.
    """
    lines = _settings(inventory)
    lines.append("peerType=observer")
    lines += source_lines
    lines += [_server_line(h, inventory.dest.ports, True) for h in inventory.dest.hosts]
    return ("\n".join(lines) + "\n").encode()


def reformed_config(inventory: Inventory) -> bytes:
    """zoo.cfg of a dest host once dest is an ensemble of its own: dest's participants only."""
    lines = _settings(inventory)
    lines += [_server_line(h, inventory.dest.ports, False) for h in inventory.dest.hosts]
    return ("\n".join(lines) + "\n").encode()
