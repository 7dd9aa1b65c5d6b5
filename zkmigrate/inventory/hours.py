"""Define the hours in which a run may do what members or clients notice, and compute how long they last.

All functions are pure. Times are seconds since the epoch.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, NamedTuple, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, StringConstraints, model_validator

from zkmigrate.inventory.inventory import Window

_SPANS = 400
"""The number of spans of open time that an estimate looks ahead: more than a year of daily hours."""

Clock = Annotated[str, StringConstraints(pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$")]


class Hours(BaseModel):
    """Daily hours from begin to end, possibly over midnight, as HH:MM in the time zone ``zone``.

    A time that a clock change skips counts as an hour later. A time that occurs twice counts the first time.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    begin: Clock
    end: Clock
    zone: str = "UTC"

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.begin == self.end:
            raise ValueError(f"begin and end are both {self.begin} (needed: two times, or no hours)")
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"unknown zone {self.zone!r} (needed: a name such as Europe/Berlin)") from None
        return self

    @property
    def words(self) -> str:
        return f"{self.begin} to {self.end} {self.zone}"

    def spans(self, at: float) -> tuple[tuple[float, float], ...]:
        """Return the open spans of the days around a time, each with begin and end, in order."""
        today = datetime.fromtimestamp(at, ZoneInfo(self.zone)).date()
        days = [today + timedelta(days=n) for n in range(-1, 3)]
        over = self.end < self.begin
        return tuple(
            (self._at(day, self.begin), self._at(day + timedelta(days=1) if over else day, self.end))
            for day in days
        )

    def _at(self, day: date, clock: str) -> float:
        return datetime.combine(day, time.fromisoformat(clock), ZoneInfo(self.zone)).timestamp()


class Closed(NamedTuple):
    """The reason why no move may begin now.

    opens: when one may begin, in seconds since the epoch; None for never.
    """

    opens: float | None
    why: str

    @property
    def words(self) -> str:
        """The reason in words, with the time at which the next move may begin."""
        if self.opens is None:
            return self.why
        return f"{self.why}: the next move begins {datetime.fromtimestamp(self.opens, UTC):%Y-%m-%dT%H:%MZ}"


def closed(hours: Hours | None, window: Window | None, at: float) -> Closed | None:
    """Return why no move may begin at a time, or None if one may.

    A move may begin within both the daily hours and the maintenance window, if they are given.
    """
    opens, ends, why = at, float("inf"), ""
    if window is not None:
        begin, ends = (datetime.fromisoformat(text).timestamp() for text in (window.begin, window.end))
        opens = max(at, begin)
        why = f"outside policy.window ({window.words})" if not begin <= at < ends else ""
    if hours is not None:
        spans = hours.spans(opens)
        inside = any(begin <= opens < end for begin, end in spans)
        opens = opens if inside else min(begin for begin, _ in spans if begin > opens)
        within = any(begin <= at < end for begin, end in hours.spans(at))
        why = why or ("" if within else f"outside the hours {hours.words}")
    return Closed(opens if opens < ends else None, why) if why else None


def now_in(window: Window, at: float) -> str:
    """Return a text with the current time and, in the maintenance window, how long the window still lasts."""
    left_s = datetime.fromisoformat(window.end).timestamp() - at
    begun = datetime.fromisoformat(window.begin).timestamp() <= at
    return f"now is {datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}" + (
        f", {left_s:.0f} s remaining" if begun and left_s > 0 else ""
    )


def after_open(
    hours: Hours | None, window: Window | None, at: float, open_s: float, stops: float = math.inf
) -> float | None:
    """Return when a run that works only in open hours has worked for ``open_s`` seconds.

    None if fewer open seconds are left. at: when the run begins. stops: the time after which no move begins,
    whatever the hours are.
    """
    now, left = at, open_s
    for _ in range(_SPANS):
        shut = closed(hours, window, now)
        if shut is not None and shut.opens is None:
            return None
        begins = now if shut is None or shut.opens is None else shut.opens
        shuts = min(stops, _shuts(hours, window, begins))
        if begins + left <= shuts:
            return begins + left
        if shuts >= stops:
            return None
        now, left = shuts, left - (shuts - begins)
    return None


def _shuts(hours: Hours | None, window: Window | None, at: float) -> float:
    """Return when the open span that contains a time ends."""
    ends = [end for begin, end in hours.spans(at) if begin <= at < end] if hours is not None else []
    ends += [datetime.fromisoformat(window.end).timestamp()] if window is not None else []
    return min(ends, default=math.inf)
