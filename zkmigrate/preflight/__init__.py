"""Preflight: what could go wrong and can be seen beforehand, one function per check.

The table of all checks is docs/reference/preflight.md. Pure but for ``evidence.gather``, which looks once for
all checks of a gate. Unknown never passes.
"""

from __future__ import annotations

from zkmigrate.model.finding import Finding
from zkmigrate.model.look import Look
from zkmigrate.model.step import Context
from zkmigrate.preflight import (
    broker,
    chroot,
    dest,
    host,
    kafka,
    network,
    operator,
    releases,
    run,
    settings,
    source,
)
from zkmigrate.preflight.check import Check, Gate, Scope
from zkmigrate.preflight.evidence import Evidence, gather
from zkmigrate.rules.accepted import accepted

__all__ = ["CHECKS", "Check", "Evidence", "Gate", "Scope", "judge", "run_preflight"]

CHECKS: tuple[Check, ...] = (
    *operator.CHECKS,
    *source.CHECKS,
    *dest.CHECKS,
    *settings.CHECKS,
    *network.CHECKS,
    *host.CHECKS,
    *run.CHECKS,
    *kafka.CHECKS,
    *broker.CHECKS,
    *releases.CHECKS,
    *chroot.CHECKS,
)
"""Every check, in the order in which they are shown."""


def run_preflight(c: Context, look: Look, gate: str) -> tuple[Finding, ...]:
    """Look once, then judge: the findings of a gate, ``preflight``, ``roll`` or ``cutover``.

    A finding blocks when its check counts at this gate and its claim is false or unknown; a check that comes
    later is listed without weight. What somebody answers for warns (``accept``). Raises ValueError for
    another gate.
    """
    return judge(c, gather(c, look, Gate(gate)), Gate(gate))


def judge(c: Context, e: Evidence, gate: Gate) -> tuple[Finding, ...]:
    """The findings of a gate over evidence that was looked at for it."""
    found = (finding for check in CHECKS for finding in check.findings(c, e, gate))
    return accepted(c.inventory.accept, found, e.at)
