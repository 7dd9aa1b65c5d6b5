"""Journal entries: what the engine writes before and after each effect, one JSON object per line.

``runbook/engine/history.py`` describes each kind and its body; ``runbook/engine/chain.py`` describes the
line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal[
    "begin", "stage", "step", "intent", "outcome", "record",
    "consent", "hold", "retired", "turn", "finding", "found", "hook", "note", "end",
]  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One line of the journal.

    seq: its number, counted from 1. at: seconds since the epoch. previous: the checksum of the line before.
    """

    seq: int
    at: float
    kind: Kind
    body: Mapping[str, Any] = field(default_factory=dict)
    previous: str = ""
