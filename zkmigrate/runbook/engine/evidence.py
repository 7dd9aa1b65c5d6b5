"""Collect the findings of each step of a run from its journal."""

from __future__ import annotations

from collections.abc import Iterable

from zkmigrate.runbook.engine.codec import decode_finding
from zkmigrate.runbook.model.entry import Entry
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.step import Way

Evidence = dict[str, tuple[Finding, ...]]
"""Step → the findings of its last verdict that had any; the newest step comes last.

A step is ``stage.step``, on a way back ``stage.step (back)``.
"""

_BACK = " (back)"


def of(entries: Iterable[Entry]) -> Evidence:
    """Return the findings in these journal lines. Raises JournalError for an unreadable finding."""
    found: Evidence = {}
    for entry in entries:
        if entry.kind == "step" and entry.body.get("findings"):
            back = _BACK if entry.body["way"] == Way.BACK.value else ""
            step = f"{entry.body['stage']}.{entry.body['step']}{back}"
            found.pop(step, None)
            found[step] = tuple(decode_finding(f) for f in entry.body["findings"])
    return found


def chosen(evidence: Evidence, name: str) -> Evidence:
    """Return the findings of a stage or step in both directions.

    name: ``all`` selects all steps, an empty name the newest step.
    """
    if not name:
        return dict(list(evidence.items())[-1:])
    return {s: f for s, f in evidence.items() if name in ("all", s.removesuffix(_BACK), s.partition(".")[0])}
