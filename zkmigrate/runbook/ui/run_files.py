"""Write the files beside a run's journal: ``plan.json`` (its plan) and ``events.jsonl`` (its events).

The report, ``status`` and people read them; the run itself never does.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from zkmigrate.runbook.engine import events
from zkmigrate.runbook.engine.planfile import PlanFile
from zkmigrate.runbook.ui.jsonl import JsonLines

PLAN = "plan.json"
EVENTS = "events.jsonl"


def write_plan(run_dir: Path, plan: PlanFile) -> None:
    """Write the plan of a run into its directory, in the format of ``plan --out``."""
    fd = os.open(run_dir / PLAN, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(plan.text())


@contextmanager
def recorded(run_dir: Path, emit: events.Emit) -> Iterator[events.Emit]:
    """Append each event to the run's events, one line each, and pass it to ``emit``.

    If the file cannot be written, an event reports that once, and the run goes on.
    """
    fd = os.open(run_dir / EVENTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    file = os.fdopen(fd, "w", encoding="utf-8")
    lines = JsonLines(file, time.time)
    failed = threading.Event()

    def record(event: events.Event) -> None:
        if not failed.is_set():
            try:
                lines(event)
            except OSError as error:
                failed.set()
                emit(events.Noted(f"no more events are recorded in {run_dir / EVENTS}: {error}"))
        emit(event)

    try:
        yield record
    finally:
        with suppress(OSError):  # a full disk was reported above
            file.close()
