"""The matrix of whole moves: its cells, the results of the drill, and the page that shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zkmigrate.move.preflight.drilled import DRILLED

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE = ROOT / "tests" / "drills" / "matrix.json", ROOT / "docs" / "reference" / "matrix.md"
FULL = "full"


@dataclass(frozen=True)
class Cell:
    """One whole move. security: the value of the demo's option. shape: more options of the demo."""

    source: str
    dest: str
    kafka: str
    chroot: str = "/kafka"
    security: str = ""
    shape: tuple[str, ...] = ()

    def __str__(self) -> str:
        more = [f"chroot {self.chroot}" if self.chroot != "/kafka" else "", self.security, *self.shape]
        text = f"{self.source} to {self.dest} with Kafka {self.kafka}"
        return ", ".join([text, *(part for part in more if part)])

    @property
    def options(self) -> list[str]:
        """The demo's options."""
        found = ["--source-version", self.source, "--dest-version", self.dest, "--kafka-version", self.kafka]
        found += ["--chroot", self.chroot]
        return [*found, *(["--security", self.security] if self.security else []), *self.shape]


_OLD, _NEW = ("3.5.8", "3.9.5", "2.8.2"), ("3.8.4", "3.9.5", "3.9.1")
KINDS = ("quorum-sasl", "quorum-tls", "sasl,acl", "tls", FULL)
CELLS = (
    *(Cell(one.source, one.dest, one.kafka) for one in DRILLED),
    *(Cell(*versions, security=kinds) for versions in (_OLD, _NEW) for kinds in KINDS),
    Cell(*_NEW, security="sasl,enforce"),
    Cell(*_NEW, security="kafka-tls,kafka-sasl,kafka-acl"),
    Cell("3.5.8", "3.5.8", "2.8.2", security=FULL),
    Cell("3.5.8", "3.5.8", "2.8.2", chroot="/"),
    Cell("3.8.4", "3.8.4", "3.9.1", chroot="/"),
    Cell(*_OLD, chroot="/"),
    Cell(*_NEW, chroot="/", security=FULL),
    Cell("3.5.8", "3.5.8", "2.8.2", shape=("--dest-count", "5")),
    Cell("3.5.8", "3.5.8", "2.8.2", shape=("--dest-count", "7")),
    Cell("3.8.4", "3.8.4", "3.9.1", shape=("--source-count", "5", "--source-observers", "1")),
    Cell("3.5.8", "3.5.8", "2.8.2", shape=("--service", "commands")),
    Cell(*_OLD, shape=("--debian", "13")),
    Cell(*_NEW, security=FULL, shape=("--debian", "13")),
    Cell("3.5.8", "3.5.8", "2.8.2", shape=("--source-reconfig",)),
    Cell("3.9.5", "3.9.5", "3.9.1", shape=("--source-reconfig",)),
    Cell("3.5.8", "3.5.8", "2.8.2", shape=("--shared", "source-brokers")),
    Cell("3.5.8", "3.5.8", "2.8.2", shape=("--shared", "dest-brokers")),
)
REFUSED = {
    "Kafka that migrates to KRaft": "kafka.kraft",
    "local sessions on source": "source.local-sessions",
    "hierarchical quorums, or weights": "source.quorum",
}
"""Clusters that the preflight refuses, with the finding."""

FIGURES = ("lost", "duplicated", "sessions_before", "sessions_preserved", "window_s", "floor_s")


def read() -> dict[str, dict[str, Any]]:
    """Return the figures of the cells that were moved, by the cell's name."""
    found: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def keep(cell: Cell, result: Mapping[str, Any], day: str) -> None:
    """Store a cell that held, and write the page anew. result: the demo's result."""
    known = read() | {str(cell): {"day": day} | {name: result[name] for name in FIGURES}}
    RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(page(known))


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page. results: see :func:`read`."""
    moved = sum(str(cell) in results for cell in CELLS)
    secured = sum(str(cell) in results and bool(cell.security) for cell in CELLS)
    rows = "".join(_row(cell, results.get(str(cell))) for cell in CELLS)
    refused = "".join(f"| {what} | `{finding}` |\n" for what, finding in REFUSED.items())
    return f"""# Matrix of moves

`make drills DRILLS=matrix` plays each row of this page: the [demo](../how-to/lab.md) moves a loaded
Kafka between two ensembles, and its judge compares what clients wrote with what is there afterwards.
The drill writes the page from the rows that held. {moved} of {len(CELLS)} rows were moved, of them
{secured} with security.

- *moved*: every claim held. No acknowledged record was lost or read twice. Sessions are those that were kept
  of those before the window. The window is the time from FENCE to the first write that dest served.
  The floor is the time in which dest's servers alone start on the same data; a busy machine raises both.
- *not tried*: nobody has played this row in its present form.
- `full` is every kind of security of [the lab](../how-to/lab.md) but `enforce`.

| ZooKeeper | Kafka | chroot | security | shape | outcome | sessions | window (floor), s |
|---|---|---|---|---|---|---|---|
{rows}
The preflight refuses these clusters by name:

| cluster | finding |
|---|---|
{refused}"""


def _row(cell: Cell, result: Mapping[str, Any] | None) -> str:
    shape = " ".join(cell.shape) or "3 dest hosts"
    shown = (f"{cell.source} to {cell.dest}", cell.kafka, f"`{cell.chroot}`", cell.security or "none", shape)
    outcome: tuple[object, ...] = ("*not tried*", "", "")
    if result is not None:
        kept = f"{result['sessions_preserved']} of {result['sessions_before']}"
        outcome = (f"*moved* {result['day']}", kept, f"{result['window_s']:.1f} ({result['floor_s']:.1f})")
    return "".join(f"| {value} " if value != "" else "| " for value in (*shown, *outcome)) + "|\n"
