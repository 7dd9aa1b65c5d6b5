"""Write events as JSON lines: one object for each event, with the seconds since the epoch as ``at``."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import TextIO

from zkmigrate.clean import clean
from zkmigrate.json_stamp import stamped
from zkmigrate.runbook.engine import events


class JsonLines:
    """A receiver of events that writes each as one line of JSON, in order."""

    def __init__(self, out: TextIO, wall: Callable[[], float]) -> None:
        self._out = out
        self._wall = wall
        self._lock = threading.Lock()

    def __call__(self, event: events.Event) -> None:
        at = self._wall()
        body = stamped({"at": round(at, 3), **events.to_json(event)}, at)
        with self._lock:
            self._out.write(clean(json.dumps(body, ensure_ascii=False)) + "\n")
            self._out.flush()
