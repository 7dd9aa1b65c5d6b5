"""Keep the options of run, resume and rollback in the run's directory, for the command that continues it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zkmigrate.errors import UsageError
from zkmigrate.runbook.engine import pause, run_file
from zkmigrate.runbook.engine.history import Arrived, History
from zkmigrate.runbook.model.playbook import Playbook

NAME = "options"
"""The file in a run's directory with the options of its newest call, as one JSON object."""


@dataclass(frozen=True)
class RunOptions:
    """The options of one call of run, resume or rollback; empty, zero and None mean not given."""

    yes: bool = False
    run_id: str = ""
    until: str = ""
    skip: tuple[str, ...] = ()
    to: str = ""
    plan: Path | None = None
    steal: bool = False
    journal_lost: str = ""
    metrics: Path | None = None

    def onward(self) -> str:
        """Return the given options that fit only the way forward, quoted for a shell."""
        words = ["--until", self.until] if self.until else []
        return shlex.join([*words, *(word for stage in self.skip for word in ("--skip", stage))])


def keep(run_dir: Path, options: RunOptions, playbook: Playbook, now: float, *, back: bool) -> RunOptions:
    """Write the options of a call that begins to walk, and return them as they are kept.

    A time in ``--until`` is kept with its date, so that it means the same moment on every day.

    back: whether the call goes back. Such a call has no options of the way forward, so the options that the
    call before kept remain. now: seconds since the epoch. Raises UsageError for a time that is past.
    """
    if back:
        kept = replace(kept_in(run_dir), yes=options.yes, metrics=options.metrics)
    else:
        kept = replace(options, until=pause.parse(playbook, options.until, now, end=True).text)
    run_file.write(
        run_dir / NAME,
        {
            "yes": kept.yes,
            "until": kept.until,
            "skip": kept.skip,
            "metrics": str(kept.metrics or ""),
        },
    )
    return kept


def kept_in(run_dir: Path) -> RunOptions:
    """Read the options of the newest call that walked a run; none if the file is missing or damaged."""
    try:
        return _read(run_file.json_object(run_file.content(run_dir / NAME)))
    except (OSError, ValueError, KeyError):
        return RunOptions()


def _read(said: Mapping[str, Any]) -> RunOptions:
    """Convert the content of the file to options. Raises ValueError or KeyError."""
    stages = said["skip"]
    if not isinstance(stages, list) or type(said["yes"]) is not bool:
        raise ValueError("not options")
    metrics = run_file.line(said["metrics"])
    return RunOptions(
        yes=said["yes"],
        until=run_file.line(said["until"]),
        skip=tuple(run_file.line(stage) for stage in stages),
        metrics=Path(metrics) if metrics else None,
    )


def still_needed(options: RunOptions, history: History, playbook: Playbook, now: float) -> str:
    """Return the options that the command that continues a run repeats, quoted for a shell.

    If ``--until`` was reached, that command goes further than the operator agreed to; so ``--yes`` is left
    out. now: seconds since the epoch.
    """
    at = history.next(playbook)
    arrived = isinstance(at, Arrived)
    back = not arrived and history.heading != "forward"
    reached = _is_reached(options.until, history, playbook, now)
    words = ["--yes"] if options.yes and (back or not (arrived or reached)) else []
    if not back:
        kept = replace(
            options,
            until="" if reached else options.until,
            skip=tuple(stage for stage in options.skip if stage not in history.stages_done),
        )
        words += shlex.split(kept.onward())
    words += ["--metrics", str(options.metrics)] if options.metrics else []
    return shlex.join(words)


def _is_reached(name: str, history: History, playbook: Playbook, now: float) -> bool:
    """Return whether a walk to ``--until`` has nothing left to do: its place is done, or its time is past."""
    try:
        pause.parse(playbook, name, now, end=True)
    except UsageError:
        return True
    return name in history.done | history.stages_done
