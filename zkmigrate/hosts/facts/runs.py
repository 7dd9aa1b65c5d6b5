"""Facts about other runs with state on a host, and whether zkm-host must stay installed for them."""

from __future__ import annotations

from collections.abc import Mapping

from zkmigrate.hosts.zkm_host import INSTALLED_PATH, STATE_DIR, policy_path
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import few
from zkmigrate.runbook.model.look import Look


def other_runs(look: Look, host: str, run: str) -> Reading[Mapping[str, str]]:
    """Return run id → phase, for every other run that has recorded a phase on the host."""
    states = _states(look, host)
    if not isinstance(states, Seen):
        return states
    phases: dict[str, str] = {}
    for other in states.value:
        if other == run:
            continue
        phase = look.file(host, f"{STATE_DIR}/{other}/phase")
        if isinstance(phase, Unknown):
            return phase
        if isinstance(phase, Seen):
            words = phase.value.decode("utf-8", "replace").split()
            phases[other] = words[0] if words else "unreadable"
    return Seen(phases)


class StaysForOthers(Absent):
    """A reading: nothing of this run is left on the host, but other runs still need zkm-host.

    ``what`` names these runs.
    """


def own_program(look: Look, host: str, run: str) -> Reading[bytes]:
    """Return the content of the installed zkm-host, as long as this run has to remove it.

    Returns Absent if the program is not installed. Returns StaysForOthers if nothing of this run is left on
    the host and other runs need the program: its ``uninstall`` then leaves it installed.
    """
    program = look.file(host, INSTALLED_PATH)
    if not isinstance(program, Seen):
        return program
    states = _states(look, host)
    if not isinstance(states, Seen):
        return states
    if run in states.value:
        return program
    others: list[str] = []
    for other in states.value:
        there = look.listing(host, f"{STATE_DIR}/{other}/ops"), look.file(host, policy_path(other))
        for reading in there:
            if isinstance(reading, Unknown):
                return reading
        if any(isinstance(reading, Seen) for reading in there):
            others.append(other)
    return StaysForOthers(f"zkm-host stays installed for {few(others)}") if others else program


def _states(look: Look, host: str) -> Seen[tuple[str, ...]] | Unknown:
    """Return the ids of the runs that have a state directory on the host, sorted."""
    listing = look.listing(host, STATE_DIR)
    if isinstance(listing, Unknown):
        return listing
    entries = listing.value if isinstance(listing, Seen) else ()
    return Seen(tuple(sorted(entry.name for entry in entries if entry.kind == "d")))


def policies(look: Look, host: str) -> Reading[tuple[bytes, ...]]:
    """Return the content of every run's policy on the host. zkm-host allows what one of them allows."""
    states = _states(look, host)
    if not isinstance(states, Seen):
        return states
    found: list[bytes] = []
    for run in states.value:
        policy = look.file(host, policy_path(run))
        if isinstance(policy, Unknown):
            return policy
        if isinstance(policy, Seen):
            found.append(policy.value)
    return Seen(tuple(found))


def stays_for(program: Reading[bytes]) -> str:
    """Return why zkm-host stays installed although nothing of this run is left on the host.

    The text is empty if this run needs zkm-host, if it is not installed, or if it was not read.
    """
    return program.what if isinstance(program, StaysForOthers) else ""
