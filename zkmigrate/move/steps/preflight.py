"""What: check everything that could go wrong and can be seen beforehand; change nothing.

Why now: every later step rests on it, and on day one it is useful by itself.

Clients may notice: nothing; it only reads.

Way back: nothing was changed.

Proof: every blocking check holds; unknown never passes.
"""

from __future__ import annotations

from zkmigrate.move.dependent import AnyDependent, OfDependent
from zkmigrate.move.preflight import run_preflight
from zkmigrate.runbook.model.by_hand import Block, ByHand, Sheet
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Done, Reads, Verdict


def _by_hand(s: Sheet) -> tuple[Block, ...]:
    hosts = (*s.inventory.dest_names, *s.inventory.broker_names)
    text = (*(f"at {host} true &" for host in hosts), f"say '' {' '.join(hosts)} && source_leader")
    expect = "`OK` with every host, then the name and address of source's one leader"
    return (
        Block(hosts, text, expect, "no host may be silent and source must have a leader: mend that first"),
    )


class PreflightStep(OfDependent, Reads[tuple[Finding, ...]]):
    """gate: which checks are due, ``preflight``, ``roll`` or ``cutover``."""

    id = "preflight"
    title = "Preflight"
    by_hand = ByHand(
        needs="this machine is one of the `operator` addresses of the inventory, with the same key and "
        "known_hosts.",
        weaker="`zkmigrate preflight` makes many more checks; here are only those of the next boxes. Check "
        "yourself: session timeouts (40 s for a move by hand), running reassignments, disk space, clocks, "
        "versions, `jute.maxbuffer`, and whatever restarts services or rewrites files.",
        forward=_by_hand,
    )

    def __init__(self, dependent: AnyDependent, gate: str = "preflight") -> None:
        super().__init__(dependent)
        self.gate = gate

    def observe(self, c: Context, look: Look) -> tuple[Finding, ...]:
        return run_preflight(c, self.dependent, look, self.gate)

    def check(self, c: Context, f: tuple[Finding, ...]) -> Verdict:
        return Done.unless_blocked(f)
