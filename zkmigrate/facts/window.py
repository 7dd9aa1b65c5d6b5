"""Facts that the phases of the window share: what every dest host says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from zkmigrate.facts.host import HostStatus, host_status
from zkmigrate.model.fact import Reading, Seen
from zkmigrate.model.finding import Finding, claim
from zkmigrate.model.look import Look
from zkmigrate.model.step import Context

LOOK_MOVES = ("resume: zkmigrate looks again", "look on the host by hand: zkm-host status")


@dataclass(frozen=True)
class Statuses:
    """``zkm-host status`` of every dest host: ``at`` those that answered, ``unknown`` a finding for each
    other."""

    at: Mapping[str, HostStatus]
    unknown: tuple[Finding, ...]

    def where(self, test: Callable[[HostStatus], bool]) -> tuple[str, ...]:
        """Names of the hosts for which ``test`` holds, in inventory order."""
        return tuple(host for host, status in self.at.items() if test(status))

    def phase(self, host: str) -> str:
        """The host's phase, empty when it did not answer."""
        return self.at[host].phase if host in self.at else ""

    def in_phase(self, *phases: str) -> tuple[str, ...]:
        """Names of the hosts in one of these phases."""
        return self.where(lambda status: status.phase in phases)

    def outside(self, step: str, *phases: str) -> tuple[Finding, ...]:
        """A finding for every host in a phase that ``step`` does not know how to go on from."""
        return tuple(
            claim(
                f"{step}.phase",
                "the host is in a phase this step starts from or ends in",
                False,
                target=host,
                seen=status.phase,
                needed=" or ".join(phases),
                moves=("roll back: zkmigrate rollback", *LOOK_MOVES),
            )
            for host, status in self.at.items()
            if status.phase not in phases
        )

    def every(
        self, id: str, sentence: str, test: Callable[[HostStatus], bool], seen: Callable[[HostStatus], str]
    ) -> tuple[Finding, ...]:
        """The same claim about every host that answered."""
        return tuple(
            claim(id, sentence, test(status), target=host, seen=seen(status))
            for host, status in self.at.items()
        )


def statuses(c: Context, look: Look) -> Statuses:
    """Ask every dest host at once."""
    readings = look.each(c.inventory.dest_names, lambda host: host_status(look, host))
    return Statuses(
        {host: r.value for host, r in readings.items() if isinstance(r, Seen)},
        tuple(unknown(f"host.{host}", host, r) for host, r in readings.items() if not isinstance(r, Seen)),
    )


def unknown(id: str, target: str, reading: Reading[object]) -> Finding:
    """The finding for a look that did not see what it needed."""
    return claim(
        id, "the host answers", None, target=target, seen=str(reading), needed="an answer", moves=LOOK_MOVES
    )
