"""Probes for a move's window: they check that the block is complete, the members answer and source serves.

A single bad answer is not reported as trouble: the same look must fail twice in a row, a broker must be
silent twice in a row, or source must lack a quorum twice in a row. A gap in the block is reported at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from zkmigrate.hosts.facts.status import HostStatus, host_status
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.move.dependent import AnyDependent
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Finding, claim
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.sampling import Note
from zkmigrate.runbook.model.window import Phase, Probe, Trouble
from zkmigrate.zookeeper.facts.ensemble import EnsembleView, source_view

LEASE_LAPSED = Trouble.LEASE_LAPSED.value
LOOK_UNKNOWN = Trouble.LOOK_UNKNOWN.value
BLOCK_LEAKS = Trouble.BLOCK_LEAKS.value
BROKER_LOST = Trouble.BROKER_LOST.value
SOURCE_SICK = Trouble.SOURCE_SICK.value
_FENCED = Phase.FENCED.until(Phase.OPEN)
_CUT = Phase.CUT.until(Phase.OPEN)
_IN_A_ROW = 2
_WITHIN_S = 3.0


def window_probes(dependent: AnyDependent, inventory: Inventory, look: Look, note: Note) -> tuple[Probe, ...]:
    """Return all probes of the window. note: receives the phases of the hosts, to store them as samples."""
    hosts = inventory.dest_names

    def statuses() -> Mapping[str, Reading[HostStatus]]:
        statuses = look.each(hosts, lambda host: host_status(look, host))
        seen = {h: [r.value.phase, r.value.served_s] for h, r in statuses.items() if isinstance(r, Seen)}
        note("phases", {"hosts": seen})
        return statuses

    return (
        block(hosts, statuses),
        *dependent.probes(inventory, look),
        source(lambda: source_view(inventory, look)),
    )


def block(hosts: tuple[str, ...], ask: Callable[[], Mapping[str, Reading[HostStatus]]]) -> Probe:
    """Return the probe that checks the block on every dest host.

    It checks that zkmigrate's rules are first and complete, that the sets of the fence and of the cut are
    filled as the phase requires, and that the lease has never lapsed. ask: returns host → status.
    """
    missed: Counter[str] = Counter()

    def findings() -> Iterator[Finding]:
        for host, reading in ask().items():
            missed[host] = 0 if isinstance(reading, Seen) else missed[host] + 1
            if missed[host] in (0, _IN_A_ROW):
                held = True if missed[host] == 0 else None
                seen = reading.value.phase if isinstance(reading, Seen) else str(reading)
                sentence, target = "the host reports its state", f"{host} status"
                yield claim(LOOK_UNKNOWN, sentence, held, seen=seen, target=target)
            if isinstance(reading, Seen):
                yield from _block(host, reading.value)

    return Probe(f"block on {len(hosts)} hosts", 1.0, findings, within_s=_WITHIN_S)


def _block(host: str, status: HostStatus) -> Iterator[Finding]:
    fenced = status.phase not in _FENCED or status.fence_entries > 0
    cut = status.phase not in _CUT or status.cut_entries > 0
    whole = fenced and cut and (status.phase not in _FENCED or status.rules_on_top)
    yield claim(
        BLOCK_LEAKS,
        "the block is complete",
        whole,
        seen=f"phase {status.phase}, rules {status.in4}/{status.out4}/{status.in6}/{status.out6}, "
        f"{status.fence_entries} fence and {status.cut_entries} cut entries",
        needed="zkm-host's rules first in every chain, and filled sets",
        target=host,
    )
    if status.lapsed:
        yield claim(
            LEASE_LAPSED,
            "the lease has not ended",
            False,
            seen="the host recorded that its lease ended",
            target=host,
        )


def brokers(ask: Callable[[], Mapping[str, str]]) -> Probe:
    """Return the probe that checks whether every broker answers a request.

    ask: returns broker → a text about the failure, or an empty string if the broker answered.
    """
    missed: Counter[str] = Counter()

    def findings() -> Iterable[Finding]:
        for broker, wrong in ask().items():
            missed[broker] = missed[broker] + 1 if wrong else 0
            held = missed[broker] < _IN_A_ROW
            yield claim(
                BROKER_LOST, "the broker answers requests", held, seen=wrong or "answers", target=broker
            )

    return Probe("brokers", 1.0, findings)


def source(ask: Callable[[], EnsembleView]) -> Probe:
    """Return the probe that checks whether source could take dest back as observers.

    It could if a majority of source serves under one leader. The probe does not run after SEAL. ask: reads
    the state of source.
    """
    missed = 0

    def findings() -> Iterator[Finding]:
        nonlocal missed
        view = ask()
        held = view.has_quorum()
        missed = 0 if held else missed + 1
        if missed and missed < _IN_A_ROW:
            return
        seen = ", ".join(f"{host} {mode}" for host, mode in view.modes().items())
        answered = None if held is None else True
        yield claim(
            LOOK_UNKNOWN, "source reports whether it serves", answered, seen=seen, target="source status"
        )
        if held is not None:
            yield claim(
                SOURCE_SICK,
                "source serves",
                held,
                seen=seen,
                needed="a majority that serves under one leader",
                moves=("let the run go back, then repair source",),
                target="source",
            )

    return Probe("source", 1.0, findings, leased=True, within_s=_WITHIN_S)
