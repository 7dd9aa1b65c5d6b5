"""The phase and status that each dest host reports, for the steps of the window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Generic, TypeVar

from zkmigrate.hosts.facts.status import HostPhase, HostStatus, host_phase, host_status, stamp
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, claim, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Way
from zkmigrate.runbook.model.window import Phase

H = TypeVar("H", bound=HostPhase)
H_co = TypeVar("H_co", bound=HostPhase, covariant=True)

SERVING = (*Phase.STARTED.until(Phase.OPEN), Phase.OPEN)
"""The phases of a host that has served as a participant of the reformed ensemble."""

LOOK_MOVES = ("run zkmigrate resume, which checks again", "run zkm-host status on the host by hand")


@dataclass(frozen=True)
class Statuses(Generic[H_co]):
    """The answers of every dest host to ``zkm-host phase`` or ``zkm-host status``.

    at: host → its answer. unknown: a finding for each host that did not answer.
    """

    at: Mapping[str, H_co]
    unknown: tuple[Finding, ...]

    def where(self, test: Callable[[H_co], bool]) -> tuple[str, ...]:
        """Return the names of the hosts whose answer passes ``test``, in inventory order."""
        return tuple(host for host, status in self.at.items() if test(status))

    def phase(self, host: str) -> str:
        """Return the host's phase, or an empty string if it did not answer."""
        return self.at[host].phase if host in self.at else ""

    def in_phase(self, *phases: str) -> tuple[str, ...]:
        """Return the names of the hosts that are in one of these phases."""
        return tuple(host for host, status in self.at.items() if status.phase in phases)

    def outside(self, step: str, *phases: str) -> tuple[Finding, ...]:
        """Return a finding for every host that is in none of these phases.

        step: the name of the step that can continue only from these phases.
        """
        return tuple(
            claim(
                f"{step}.phase",
                "the host is in a phase that this step expects",
                False,
                target=host,
                seen=status.phase,
                needed=" or ".join(phases),
                moves=("roll back: zkmigrate rollback", *LOOK_MOVES),
            )
            for host, status in self.at.items()
            if status.phase not in phases
        )

    def claims(
        self, id: str, sentence: str, test: Callable[[H_co], bool], seen: Callable[[H_co], str]
    ) -> tuple[Finding, ...]:
        """Return one finding for each host that answered, about the claim ``sentence``.

        test: whether the claim holds for an answer. seen: returns what was seen on the host as text.
        """
        return tuple(
            claim(id, sentence, test(status), target=host, seen=seen(status))
            for host, status in self.at.items()
        )


@dataclass(frozen=True)
class DestStates:
    """The phase of every dest host, and its full status.

    statuses: empty if they were not read because a step has to act first.
    """

    phases: Statuses[HostPhase]
    statuses: Statuses[HostStatus]


def every_host_in(c: Context, phase: str) -> DestStates:
    """Return states in which every dest host is in ``phase``, for the forecast of a step of the window."""
    hosts = {
        host: HostPhase(run=c.run, phase=phase, lapsed=False, finisher="", finisher_note="")
        for host in c.inventory.dest_names
    }
    return DestStates(Statuses(hosts, ()), Statuses({}, ()))


def phases(c: Context, look: Look) -> Statuses[HostPhase]:
    """Read the phase of every dest host at the same time."""
    return _each(c, look, host_phase)


def statuses(c: Context, look: Look) -> Statuses[HostStatus]:
    """Read the full status of every dest host at the same time: rules, sets, sockets and service."""
    return _each(c, look, host_status)


def dest_states(c: Context, look: Look, *acts_from: str) -> DestStates:
    """Read the phases of all dest hosts, and also their statuses unless the step has to act.

    acts_from: the phases from which the step acts. If the run goes forward and a host is in one of these
    phases, only the phases are read, because in the window every look costs time.
    """
    if c.way is Way.FORWARD:
        hosts = phases(c, look)
        if hosts.in_phase(*acts_from):
            return DestStates(hosts, Statuses({}, ()))
    whole = statuses(c, look)
    return DestStates(whole, whole)


def _each(c: Context, look: Look, ask: Callable[[Look, str], Reading[H]]) -> Statuses[H]:
    readings = look.each(c.inventory.dest_names, lambda host: ask(look, host))
    return Statuses(
        {host: r.value for host, r in readings.items() if isinstance(r, Seen)},
        tuple(unknown(f"host.{host}", host, r) for host, r in readings.items() if not isinstance(r, Seen)),
    )


def round_trips(c: Context, look: Look, tries: int) -> dict[str, Reading[float]]:
    """Measure ``tries`` round trips to each dest host, all hosts at once, and return the longest in seconds.

    The measured request ``stamp`` costs about as much as a renewal of the lease: it uses an open channel and
    starts about as many programs on the host.
    """

    def longest(host: str) -> Reading[float]:
        took = 0.0
        for _ in range(tries):
            began = look.now()
            answer = stamp(look, host)
            if not isinstance(answer, Seen):
                return answer
            took = max(took, look.now() - began)
        return Seen(took)

    return look.each(c.inventory.dest_names, longest)


def unanswered(
    id: str, readings: Mapping[str, Reading[object]], kinds: UnionType | type = Absent | Unknown
) -> tuple[Finding, ...]:
    """Return a finding for each target whose reading is of one of these kinds.

    Each finding is made by :func:`unknown`.
    """
    return tuple(unknown(id, target, r) for target, r in readings.items() if isinstance(r, kinds))


def unknown(id: str, target: str, reading: Reading[object]) -> Finding:
    """Return the finding which states that a reading did not bring the needed answer."""
    return claim(
        id, "the host answers", None, target=target, seen=str(reading), needed="an answer", moves=LOOK_MOVES
    )


MEANINGS = meanings(
    """
    STEP.phase: A dest host is in a phase that this step cannot start from. Cause: Somebody or another run
    changed the host. To do: Check zkmigrate status, then roll back: zkmigrate rollback.

    host.HOST: A dest host did not answer. Cause: ssh, the host or zkm-host on it does not answer. To do:
    Find out why the host does not answer, then run zkmigrate resume.
    """
)
