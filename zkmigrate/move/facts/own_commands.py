"""Read whether the inventory's own service commands work on the hosts. Nothing is read under systemd."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkmigrate.hosts.facts.status import HostStatus, unit_status
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.move.dependent import AnyDependent
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.look import Look


@dataclass(frozen=True)
class OwnCommands:
    """The state of the inventory's own service commands.

    statuses: host → what its status command reports. programs: (host, path) → whether the program at this
    path is executable. start_scripts: dest host → the content of the file that its start command runs.
    """

    statuses: Mapping[str, Reading[HostStatus]] = field(default_factory=dict)
    programs: Mapping[tuple[str, str], Reading[bool]] = field(default_factory=dict)
    start_scripts: Mapping[str, Reading[bytes]] = field(default_factory=dict)


def own_commands(inventory: Inventory, dependent: AnyDependent, look: Look) -> OwnCommands:
    """Read the state on every host whose service is controlled by commands of the inventory."""
    dest, service = inventory.dest, dependent.service(inventory)
    services = dict.fromkeys(inventory.dest_names, (dest.service, dest.commands))
    services |= {m.name: (service, service.commands(m.port)) for m in dependent.members(inventory)}
    own = {host: found for host, found in services.items() if found[0].has_commands}

    def programs(host: str) -> dict[str, Reading[bool]]:
        service = own[host][0]
        given = (service.start, service.stop, service.status, service.kill)
        paths = dict.fromkeys(command.split()[0] for command in given if command is not None)
        return {path: _may_run(look, host, path) for path in paths}

    found = look.each(own, programs)
    return OwnCommands(
        look.each(own, lambda host: unit_status(look, host, own[host][0].unit, own[host][1])),
        {(host, path): reading for host, paths in found.items() for path, reading in paths.items()},
        look.each(
            tuple(host for host in own if host in inventory.dest_names),
            lambda host: look.file(host, next(iter(found[host]))),
        ),
    )


def _may_run(look: Look, host: str, path: str) -> Reading[bool]:
    """Return whether this file exists and is executable; a symbolic link counts as executable."""
    directory, _, name = path.rpartition("/")
    reading = look.listing(host, directory or "/")
    if not isinstance(reading, Seen):
        return reading
    entry = next((e for e in reading.value if e.name == name), None)
    if entry is None:
        return Absent(path)
    return Seen(entry.kind == "o" or (entry.kind == "f" and any(int(d) & 1 for d in entry.mode[-3:])))
