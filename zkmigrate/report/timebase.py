"""Date all records of a run by the operator's monotonic clock.

The wall clock may be corrected at any moment. The monotonic clock has no date and begins at zero with the
machine. So the first line of a process that has both clocks dates it, and from there on its monotonic clock
counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any

from zkmigrate.runbook.model.entry import Entry
from zkmigrate.runbook.model.series import number

_STEP_S = 1.0


class Timebase:
    """The times of a journal's lines. jumps: (line, seconds) of each jump of the wall clock."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._anchors: list[float] = []
        self._times: dict[int, float] = {}
        self._walls: list[float] = []
        self._skews: list[float] = []
        self.jumps: list[tuple[int, float]] = []
        offset, highest, skew, fresh = 0.0, 0.0, 0.0, True
        for entry in entries:
            mono = number(entry.body, "mono")
            if mono is not None:
                if fresh or mono < highest - _STEP_S:
                    offset, highest, fresh, skew = entry.at - mono, mono, False, 0.0
                    self._anchors.append(offset)
                highest = max(highest, mono)
                now = entry.at - (mono + offset)
                if abs(now - skew) > _STEP_S:
                    self.jumps.append((entry.seq, now - skew))
                skew = now
            self._times[entry.seq] = entry.at - skew
            self._walls.append(entry.at)
            self._skews.append(skew)
            fresh = fresh or entry.kind == "end"

    def of(self, entry: Entry) -> float:
        """Return when a line of the journal was written, in seconds since the epoch."""
        return self._times[entry.seq]

    def of_wall(self, at: float) -> float:
        """Return a moment of the wall clock, corrected for the clock's jumps."""
        place = bisect_right(self._walls, at) - 1
        return at - self._skews[place] if place >= 0 else at

    def of_rows(self, rows: Iterable[Mapping[str, Any]]) -> list[tuple[float, Mapping[str, Any]]]:
        """Return samples with their times, in order. A row without both clocks is left out.

        Each process of the tool begins with a row of kind ``process``. Its samples are dated by the nearest
        dated process of the journal, or by the row's own clocks if none is near.
        """
        out: list[tuple[float, Mapping[str, Any]]] = []
        offset: float | None = None
        for row in rows:
            at, mono = number(row, "at"), number(row, "mono")
            if at is None or mono is None:
                continue
            if offset is None or row.get("kind") == "process":
                own = at - mono
                offset = min(self._anchors, key=lambda a: abs(a - own), default=own)
                offset = own if abs(offset - own) > _STEP_S else offset
            out.append((mono + offset, row))
        return sorted(out, key=lambda pair: pair[0])

    def of_mono(self, mono: float) -> float:
        """Return a moment of the machine's monotonic clock, dated by the journal's last process."""
        return mono + (self._anchors[-1] if self._anchors else 0.0)
