"""Other runs whose state is still on a host, and whether zkm-host stays there for them."""

from __future__ import annotations

from collections.abc import Mapping

from zkmigrate.hosts.zkm_host import INSTALLED_PATH, STATE_DIR
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.finding import few
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


class StaysForOthers(Absent):
    """Nothing of this run is left on the host; ``what`` names the runs for which zkm-host stays."""


def own_program(look: Look, host: str, run: str) -> Reading[bytes]:
    """The installed zkm-host, as long as this run has to remove it. Absent, too, where nothing of this run is
    on the host any more and the program stays for other runs: its ``uninstall`` leaves it there."""
    program = look.file(host, INSTALLED_PATH)
    if not isinstance(program, Seen):
        return program
    listing = look.listing(host, STATE_DIR)
    if isinstance(listing, Unknown):
        return listing
    states = {e.name for e in listing.value if e.kind == "d"} if isinstance(listing, Seen) else set()
    if run in states:
        return program
    others: list[str] = []
    for other in sorted(states):
        operations = look.listing(host, f"{STATE_DIR}/{other}/ops")
        if isinstance(operations, Unknown):
            return operations
        if isinstance(operations, Seen):
            others.append(other)
    return StaysForOthers(f"zkm-host stays for {few(others)}") if others else program


def stays_for(program: Reading[bytes]) -> str:
    """Why zkm-host stays though nothing of this run is left; empty where it is gone or not looked at."""
    return program.what if isinstance(program, StaysForOthers) else ""
