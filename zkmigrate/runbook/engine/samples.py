"""Record samples: what the run observed in passing, for the report. The run never reads them.

``runs/<run>/samples.jsonl`` has one JSON object a line, each with ``at`` (seconds since the epoch), ``mono``
(monotonic seconds of the process that sampled) and ``kind``. It is outside the journal's hash chain and never
synced: losing it does no harm; a full disk ends the sampling, not the run.

- ``process`` {}: a process has begun to sample
- any other kind is one of the playbook's (``runbook/model/sampling.py``), which defines its content
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from zkmigrate.runbook.engine import events

NAME = "samples.jsonl"
LIMIT = 64 << 20
"""The largest size in bytes: a run of several days must not fill the operator's disk."""


class Samples:
    """Appends to a run's samples; several threads may do so.

    now, wall: the engine's clocks. say: called once with the reason when recording ends. show: called with
    each sample, recorded or not. stage: id of the current stage, empty before the first.
    """

    def __init__(
        self,
        run_dir: Path,
        now: Callable[[], float],
        wall: Callable[[], float],
        say: Callable[[str], None],
        limit: int = LIMIT,
        show: Callable[[float, str, Mapping[str, Any]], None] = lambda _mono, _kind, _body: None,
    ) -> None:
        self._path = run_dir / NAME
        self.now, self._wall = now, wall
        self.stage = ""
        self._say, self._show, self._limit = say, show, limit
        self._guard = threading.Lock()
        self._fd = -1
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            self._fd = os.open(self._path, flags, 0o600)
            os.write(self._fd, b"\n")  # ends a torn line of an earlier process
            self._size = os.fstat(self._fd).st_size
        except OSError as error:
            self._give_up(f"{error.strerror}")
        self.note("process", {})

    def noting_stage(self, emit: events.Emit) -> events.Emit:
        """Return a callback like ``emit`` that also notes the current stage."""

        def heeded(event: events.Event) -> None:
            if isinstance(event, events.StageBegun):
                self.stage = event.stage
            emit(event)

        return heeded

    def note(self, kind: str, body: Mapping[str, Any]) -> None:
        """Record a sample with the current time."""
        self.note_at(self.now(), kind, body)

    def note_at(self, mono: float, kind: str, body: Mapping[str, Any]) -> None:
        """Record a sample that was taken at ``mono`` seconds of this process's monotonic clock."""
        self._show(mono, kind, body)
        with self._guard:
            if self._fd < 0:
                return
            at = self._wall() - (self.now() - mono)
            head = {"at": round(at, 3), "mono": round(mono, 4), "kind": kind}
            line = (json.dumps({**head, **body}, separators=(",", ":")) + "\n").encode("ascii")
            if self._size + len(line) > self._limit:
                self._give_up(f"the file has {self._size} bytes, and the limit is {self._limit}")
                return
            try:
                written = os.write(self._fd, line)
            except OSError as error:
                self._give_up(f"{error.strerror}")
                return
            if written < len(line):
                self._give_up("a line could not be written whole")
                return
            self._size += written

    def close(self) -> None:
        """Stop recording."""
        with self._guard:
            self._close()

    def _give_up(self, why: str) -> None:
        self._close()
        self._say(f"no more samples for the report are recorded in {self._path}: {why}; the run goes on")

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
