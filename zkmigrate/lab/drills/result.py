"""The part of ``result.json`` that all drills share."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FILE = "result.json"


@dataclass(frozen=True)
class Case:
    """One thing that was done and judged. name: the same for each repetition.

    what, expected, outcome: what was done, what had to come of it and what came, in words. held: the outcome
    is as expected.
    """

    name: str
    what: str
    expected: str
    outcome: str
    seconds: float
    held: bool

    @classmethod
    def of(cls, body: dict[str, Any]) -> Case:
        """The common part of a case that may have more figures. KeyError when it lacks a common one."""
        return cls(**{name: body[name] for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Silenced(Case):
    """A case with a host that falls silent. served_s: seconds from FENCE until brokers had a server again, at
    most limit_s. lone_lost: lost sessions of clients that know only that host; sessions_lost: of all
    others."""

    served_s: float
    limit_s: float
    sessions_lost: int
    lone_lost: int


def body_of(drill: str, cases: Iterable[Case | dict[str, Any]], seconds: float) -> dict[str, Any]:
    """The result of a drill; it held when it has cases and each held. cases: Case, or a mapping with its keys
    and more figures."""
    rows = [asdict(case) if isinstance(case, Case) else dict(case) for case in cases]
    held = bool(rows) and all(row["held"] for row in rows)
    return {"drill": drill, "held": held, "seconds": round(seconds, 1), "cases": rows}


def write(directory: Path, body: dict[str, Any], name: str = FILE) -> None:
    """Write the file whole, or not at all."""
    part = directory / f"{name}.part"
    part.write_text(json.dumps(body, indent=1) + "\n")
    part.rename(directory / name)


def read(directory: Path) -> dict[str, Any] | None:
    """The result in this directory; None without a file."""
    path = directory / FILE
    if not path.exists():
        return None
    body: dict[str, Any] = json.loads(path.read_text())
    return body
