"""Apply the exceptions of migration.yml (``accept``): findings that a person has accepted by name.

No other code gives ``accept`` an effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from zkmigrate.inventory.accept import ACCEPTABLE, WRITES, Accept
from zkmigrate.runbook.model.finding import Finding, Held, Severity

PARTS_OF_ROLL = ("kafka.replication", "kafka.min-isr")
"""Checks whose target is a topic that the roll may make unavailable, once they are accepted."""
TARGET_DOWN = "reassign.target-down"


def accepted(exceptions: Sequence[Accept], findings: Iterable[Finding], at: float) -> tuple[Finding, ...]:
    """Return the findings of a gate, with each accepted failure turned from blocking into a warning.

    exceptions: the entries of ``accept``. at: now, in seconds since the epoch. From its ``until`` on an
    exception has no effect: the finding blocks again and says so. Neither an unknown finding nor one
    outside ``ACCEPTABLE`` is ever accepted.
    """
    return tuple(_judged(exceptions, f, at) for f in findings)


def spared_topics(exceptions: Sequence[Accept], at: float) -> frozenset[str]:
    """Return the topics that a person accepts to be unavailable while one broker restarts."""
    return frozenset(x.target for x in exceptions if x.finding in PARTS_OF_ROLL and at < x.end)


def given_up(exceptions: Sequence[Accept], at: float) -> frozenset[int]:
    """Return the ids of the brokers that may stay down: a person accepts to go on without them."""
    named = (x.target for x in exceptions if x.finding == TARGET_DOWN and at < x.end)
    ids = (target.removeprefix("broker-") for target in named)
    return frozenset(int(id) for id in ids if id.isdecimal())


def known_writes(exceptions: Sequence[Accept], at: float) -> Accept | None:
    """Return the exception that accepts the newest writes on source, or None."""
    return max(
        (x for x in exceptions if x.finding == WRITES and at < x.end), key=lambda x: x.zxid, default=None
    )


def _judged(exceptions: Sequence[Accept], found: Finding, at: float) -> Finding:
    if not found.blocks or found.held is not Held.NO or found.id not in ACCEPTABLE:
        return found
    matching = [x for x in exceptions if (x.finding, x.target) == (found.id, found.target)]
    if not matching:
        return found
    last = max(matching, key=lambda x: x.end)
    if at >= last.end:
        return replace(found, seen=f"{found.seen}; it was {last.words}, which is over")
    return replace(found, severity=Severity.WARN, accepted=last.words)
