"""What a drill showed, in the lab and in the model world alike: the verdicts of its steps, in order."""

from __future__ import annotations

import json
from pathlib import Path

Verdicts = list[tuple[str, str, str]]


def verdicts(run_directory: Path, since: int = 0) -> Verdicts:
    """Every verdict after line ``since`` of a journal: (stage.step, way, done or blocked)."""
    found: Verdicts = []
    for line in (run_directory / "journal.jsonl").read_text().splitlines()[since:]:
        entry = json.loads(line)
        body = entry["body"]
        if entry["kind"] == "step" and body["event"] in ("done", "blocked"):
            found.append((f"{body['stage']}.{body['step']}", body["way"], body["event"]))
    return found


def length(run_directory: Path) -> int:
    """Lines of a journal so far, for ``since``."""
    path = run_directory / "journal.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0
