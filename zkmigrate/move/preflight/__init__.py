"""Preflight: check in advance for everything that could go wrong, with one function for each check.

``zkmigrate help findings`` lists all checks. Every function is pure except ``evidence.gather``, which reads
the evidence for all checks of a gate once. A claim whose truth is unknown never passes.
"""

from __future__ import annotations

from zkmigrate.move.dependent import AnyDependent
from zkmigrate.move.preflight import (
    certificates,
    dest,
    doors,
    host,
    jaas,
    login_settings,
    members,
    network,
    operator,
    run,
    settings,
    source,
    tls_settings,
)
from zkmigrate.move.preflight.check import Check, Gate, Scope
from zkmigrate.move.preflight.evidence import Evidence, gather
from zkmigrate.runbook.accepted import accepted
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context

__all__ = ["Check", "Evidence", "Gate", "Scope", "checks", "judge", "run_preflight"]

_OF_THE_MOVE: tuple[Check, ...] = (
    *operator.CHECKS,
    *source.CHECKS,
    *dest.CHECKS,
    *settings.CHECKS,
    *jaas.CHECKS,
    *login_settings.CHECKS,
    *tls_settings.CHECKS,
    *certificates.CHECKS,
    *doors.CHECKS,
    *network.CHECKS,
    *host.CHECKS,
    *run.CHECKS,
)


def checks(dependent: AnyDependent) -> tuple[Check, ...]:
    """Return every check of the move of this dependent, in the order in which they are shown."""
    own = dependent.checks
    every = (*_OF_THE_MOVE, *own, *(check for check in members.CHECKS if check not in own))
    return tuple(check.of(dependent.words) for check in every)


def run_preflight(c: Context, dependent: AnyDependent, look: Look, gate: str) -> tuple[Finding, ...]:
    """Gather evidence once, and return the findings of a gate: ``preflight``, ``roll`` or ``cutover``.

    A finding blocks if its check counts at this gate and its claim is false or unknown. A check that counts
    only at a later gate is listed, but cannot block. A finding that a named person accepts (``accept``) only
    warns. Raises ValueError for any other gate.
    """
    return judge(c, gather(c, dependent, look, Gate(gate)), Gate(gate))


def judge(c: Context, e: Evidence, gate: Gate) -> tuple[Finding, ...]:
    """Return the findings of a gate from evidence that was already gathered for this gate."""
    found = (finding for check in checks(e.dependent) for finding in check.findings(c, e, gate))
    return accepted(c.inventory.accept, found, e.at)
