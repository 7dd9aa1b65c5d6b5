"""Read the newest events and samples of a running process from the end of their files.

``status`` at a second terminal uses it. A line that cannot be read is skipped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zkmigrate.runbook.engine import samples
from zkmigrate.runbook.ui.run_files import EVENTS

_TAIL = 1 << 18
"""The number of bytes read from the end of each file; enough for some minutes of a busy run."""


@dataclass
class RecentEvents:
    """The current state of a run, as far as the events read so far say; times are seconds since the epoch.

    waits: {what, progress, left_s, at, since} of the current wait.
    wave: {done, of, left_s, many, at} of the newest wave; with bytes_left for a step that reports it.
    holds: the event Holding while the run holds.
    asks: where a question is open; empty for none.
    sent: operation → {host, text, at} of each change without an outcome.
    left_s: the seconds left to turn back, as of ``left_at``; None without a limit.
    """

    step: str = ""
    way: str = ""
    since: float = 0.0
    waits: dict[str, Any] | None = None
    wave: dict[str, Any] | None = None
    holds: dict[str, Any] | None = None
    asks: str = ""
    sent: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_s: float | None = None
    left_at: float = 0.0

    def add(self, event: Mapping[str, Any]) -> None:
        """Take in one event, given as JSON.

        Raises KeyError, TypeError or ValueError if it is not an event.
        """
        at = float(event["at"])
        kind = event["event"]
        if kind in ("RunBegun", "RunEnded", "StepEnded", "StepBlocked", "Turned"):
            vars(self).update(vars(RecentEvents()))
        elif kind == "StepBegun":
            step = f"{event['stage']}.{event['step']}"
            vars(self).update(vars(RecentEvents(step, str(event["way"]), at, wave=_progress(event, at))))
        elif kind == "Waits":
            same = self.waits is not None and self.waits["what"] == event["what"]
            since = self.waits["since"] if same and self.waits else at
            keys = ("what", "progress", "left_s")
            self.waits = {**{key: event[key] for key in keys}, "at": at, "since": since}
        elif kind == "HookBegun" and event["waited"]:
            what, left_s = f"the hook {event['moment']} has ended", float(event["timeout_s"])
            self.waits = {"what": what, "progress": event["run"], "left_s": left_s, "at": at, "since": at}
        elif kind == "WaveBegun":
            self.waits, self.wave = None, _progress(event, at) or self.wave
        elif kind == "Progressed":
            self.wave = {**(_progress(event, at) or {}), "bytes_left": int(event["bytes_left"])}
        elif kind == "HookEnded":
            self.waits = None
        elif kind == "ChangeSent":
            change = event["change"]
            where = change.get("host") or change["cluster"]
            self.sent[event["operation"]] = {"host": where, "text": change["text"], "at": at}
        elif kind == "ChangeEnded":
            self.sent.pop(event["operation"], None)
        elif kind == "Countdown":
            self.left_s, self.left_at = float(event["left_s"]), at
        elif kind == "Holding":
            self.holds, self.waits = {**event}, None
            if event["left_s"] is not None:
                self.left_s, self.left_at = float(event["left_s"]), at
        elif kind == "HoldEnded":
            self.holds = None
        elif kind in ("Consented", "StageBegun", "StageSkipped"):
            self.asks = ""
        elif kind == "Asking":
            self.asks = str(event["where"])


def read(run_dir: Path) -> RecentEvents:
    """Read the newest events of a run."""
    recent = RecentEvents()
    for line in _lines(run_dir / EVENTS):
        try:
            recent.add(line)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    return recent


def newest_samples(run_dir: Path) -> dict[str, dict[str, Any]]:
    """Return the newest sample of each kind."""
    return {str(line.get("kind")): line for line in _lines(run_dir / samples.NAME)}


def _progress(event: Mapping[str, Any], at: float) -> dict[str, Any] | None:
    """Return the progress that an event reports, if any."""
    progress = {key: event.get(key) for key in ("done", "of", "left_s", "many")}
    return {**progress, "at": at} if progress["of"] else None


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in the last ``_TAIL`` bytes of a file that another process appends to."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    try:
        size = os.fstat(fd).st_size
        content = os.pread(fd, _TAIL, max(0, size - _TAIL))
    except OSError:
        return
    finally:
        os.close(fd)
    for line in content.split(b"\n"):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found
