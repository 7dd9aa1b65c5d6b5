"""Journal entries: what the engine writes down before and after each effect.

One JSON object per line. ``kind`` says which: ``begin`` (run, playbook, plan digest), ``stage``, ``step``
(with its verdict), ``intent`` and ``outcome`` of one change, ``record`` (facts for later steps), ``consent``
(a question was answered: by whom, over which findings in doubt),
``hold`` (somebody at another terminal made the run wait), ``retired`` (a broker was left out of the run),
``cleaned`` (after the end: a subtree of another tenant is removed from dest, or put back),
``turn`` (the direction changed, and why),
``found`` (the journal was lost: what the hosts say instead), ``hook`` (one of the operator's programs ended),
``note``; ``content`` (a large part of later bodies, which name it: once, whatever names it).
``previous`` chains every line to the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal[
    "begin", "stage", "step", "intent", "outcome", "record",
    "consent", "hold", "retired", "cleaned", "turn", "finding", "found", "hook", "note", "content", "end",
]  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One line: sequence number from 1, seconds since the epoch, kind, body, SHA-256 of the line before."""

    seq: int
    at: float
    kind: Kind
    body: Mapping[str, Any] = field(default_factory=dict)
    previous: str = ""
