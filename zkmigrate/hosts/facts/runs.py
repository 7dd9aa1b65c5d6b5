"""Other runs whose state is still on a host."""

from __future__ import annotations

from collections.abc import Mapping

from zkmigrate.hosts.zkm_host import STATE_DIR
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.look import Look


def other_runs(look: Look, host: str, run: str) -> Reading[Mapping[str, str]]:
    """Run → phase, for every other run with a recorded phase."""
    listing = look.listing(host, STATE_DIR)
    if isinstance(listing, Absent):
        return Seen({})
    if isinstance(listing, Unknown):
        return listing
    phases: dict[str, str] = {}
    for entry in listing.value:
        if entry.kind != "d" or entry.name == run:
            continue
        phase = look.file(host, f"{STATE_DIR}/{entry.name}/phase")
        if isinstance(phase, Unknown):
            return phase
        if isinstance(phase, Seen):
            words = phase.value.decode("utf-8", "replace").split()
            phases[entry.name] = words[0] if words else "unreadable"
    return Seen(phases)
