"""A member of a dependent as its host shows it: its file, its service, the ZooKeeper it is connected to."""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.hosts.facts.status import HostStatus
from zkmigrate.model.fact import Absent, Reading, Seen
from zkmigrate.model.look import DirEntry

# zkm-host tells uptime and clock in milliseconds, one after the other.
CLOCK_STEP_S = 0.01

NOT_ASKED = Absent("not asked")


@dataclass(frozen=True)
class MemberFacts:
    """One member: its file and who may write it, its service, and the ZooKeeper addresses it is connected
    to."""

    file: Reading[bytes]
    entry: DirEntry | None
    status: Reading[HostStatus] = NOT_ASKED
    zookeepers: Reading[frozenset[str]] = NOT_ASKED

    @property
    def runs(self) -> bool:
        """Whether its service is known to be active."""
        return isinstance(self.status, Seen) and self.status.value.unit_state == "active"


def started_after(facts: MemberFacts, path: str) -> bool:
    """Whether the process is younger than its file at this path: a restart would change nothing.

    The file is dated by its last change, not by its content: one that was put back has the content's old
    time, and the process that is still to be restarted would seem younger. Where zkm-host made that change,
    both times are on the boot's clock, which nobody sets. Else both are on the host's own clock: one that
    differs from the operator's does not matter, one that is set in between does.
    """
    changed = facts.entry.changed_ns if facts.entry is not None else None
    if changed is None:
        return False
    status = facts.status.value if isinstance(facts.status, Seen) else None
    if status is None or status.unit_started is None:
        return False
    written = status.written
    if written is not None and (written.path, written.changed_ns) == (path, changed):
        return written.boot_id != status.boot_id or status.unit_since >= written.uptime_s
    return status.unit_started + CLOCK_STEP_S >= changed / 1e9
