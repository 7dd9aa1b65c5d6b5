"""What a run leaves beside its journal: ``plan.json`` (what was planned), ``events.jsonl`` (what was shown).

For the report and for people; the run itself never reads them back.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from zkmigrate.engine import events
from zkmigrate.engine.planfile import PlanFile
from zkmigrate.ui.jsonl import JsonLines

PLAN = "plan.json"
EVENTS = "events.jsonl"


def keep_plan(run_dir: Path, plan: PlanFile) -> None:
    """Write the plan that a run begins with, as ``plan --out`` does."""
    fd = os.open(run_dir / PLAN, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(plan.text())


@contextmanager
def recorded(run_dir: Path, shown: events.Emit) -> Iterator[events.Emit]:
    """Every event to ``shown`` and, as one line each, to the run's events; processes append after another.

    The record is not what the run rests on: when it cannot be written that is said once, and the run goes on.
    """
    fd = os.open(run_dir / EVENTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    file = os.fdopen(fd, "w", encoding="utf-8")
    lines = JsonLines(file, time.time)
    failed = threading.Event()

    def emit(event: events.Event) -> None:
        if not failed.is_set():
            try:
                lines(event)
            except OSError as error:
                failed.set()
                shown(events.Noted(f"no more events are recorded in {run_dir / EVENTS}: {error}"))
        shown(event)

    try:
        yield emit
    finally:
        with suppress(OSError):  # what a full disk did not take was said above
            file.close()
