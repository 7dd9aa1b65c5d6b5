"""Source's members as its own servers have them: what an observer must be given to follow them."""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.facts.config import DYNAMIC, parse
from zkmigrate.inventory import Inventory
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.look import Look
from zkmigrate.zkdata.zoocfg import ZooCfgError

REJOIN = "roll back to the join, which gives dest source's members anew: zkmigrate rollback --to join"


@dataclass(frozen=True)
class Members:
    """lines: the ``server.N=…`` lines, byte for byte. version: theirs, 0 in a config that has none: a source
    that may reconfigure itself counts it, in the name of its dynamic file."""

    lines: tuple[str, ...]
    version: int = 0


def source_members(inventory: Inventory, look: Look) -> Reading[Members]:
    """Those of source's first host that answers; Unknown where the hosts that answer have other versions, as
    in the middle of a reconfiguration."""
    readings = look.each(inventory.source_names, lambda host: members(look, host, inventory.source.config))
    seen = {host: reading.value for host, reading in readings.items() if isinstance(reading, Seen)}
    if not seen:
        return next(reversed(readings.values()), Absent("source config"))
    if len({found.version for found in seen.values()}) > 1:
        told = ", ".join(f"{host} {found.version:#x}" for host, found in seen.items())
        return Unknown("failed", f"source's servers have members of other versions: {told}")
    return Seen(next(iter(seen.values())))


def members(look: Look, host: str, path: str) -> Reading[Members]:
    """The members in a host's zoo.cfg, or in the dynamic file that this names."""
    static = look.file(host, path)
    if not isinstance(static, Seen):
        return static
    # Java reads properties as ISO-8859-1.
    text = static.value.decode("iso-8859-1")
    try:
        config = parse(text, path)
    except ZooCfgError as error:
        return Unknown("garbled", str(error))
    if DYNAMIC in config.values:
        dynamic = look.file(host, config.values[DYNAMIC])
        if not isinstance(dynamic, Seen):
            return Unknown("failed", f"{DYNAMIC} {config.values[DYNAMIC]}: {dynamic}")
        text = dynamic.value.decode("iso-8859-1")
    lines = (line.strip() for line in text.splitlines())
    return Seen(Members(tuple(line for line in lines if line.startswith("server.")), config.version))
