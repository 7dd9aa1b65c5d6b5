"""Decide where and when a run pauses: ``--until`` ends the run, ``zkmigrate hold`` makes the run wait.

All functions are pure: the present time is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo
from enum import Enum
from typing import NamedTuple

from zkmigrate.errors import UsageError
from zkmigrate.runbook.engine import step_names
from zkmigrate.runbook.engine.history import Next
from zkmigrate.runbook.engine.hold_file import Hold
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.step import Way

_CLOCK = re.compile("([01][0-9]|2[0-3]):[0-5][0-9]")
_DATED = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T.+")


class Pause(NamedTuple):
    """A request to pause; without name and number it applies to the next possible place.

    - name: a stage or ``stage.step``.
    - number: pause once this many targets of the paced step are changed.
    - at: no earlier than this time, in seconds since the epoch.
    - end: whether the run ends, after the named place. Otherwise it waits: before the place, or after a step
      of a window.
    """

    name: str = ""
    number: int = 0
    at: float | None = None
    end: bool = False

    @property
    def text(self) -> str:
        """The request as :func:`parse` takes it, with the date of a time."""
        return words(self.at) if self.at is not None else self.name or str(self.number or "")


class Moment(Enum):
    """The moment of a step at which the walk can pause."""

    BEFORE = "before"
    BETWEEN = "between two waves"
    AFTER = "after"


@dataclass(frozen=True)
class Spot:
    """A place at which the walk can pause.

    - entered: whether the walk has entered the stage. done: the finished stages and steps.
    - changed: the number of changed targets of the paced step; 0 at another step.
    """

    at: Next
    moment: Moment
    entered: bool = False
    done: Collection[str] = ()
    changed: int = 0


class Verdict(Enum):
    """What the run does at a place."""

    GO = "go"
    WAIT = "wait"
    END = "end"


def decide(pause: Pause, spot: Spot, now: float) -> Verdict:
    """Return whether the run goes on, waits or ends at a place because of one pause.

    Once a window or a rehearsal has begun, the run does not end in it. In a window it waits only after a
    step. On the way back it waits only for a pause that names no place.
    """
    if pause.at is not None and now < pause.at:
        return Verdict.GO
    if pause.end:
        return Verdict.END if _ends(pause, spot) else Verdict.GO
    return Verdict.WAIT if _waits(pause, spot) else Verdict.GO


def _ends(pause: Pause, spot: Spot) -> bool:
    stage = spot.at.stage
    if spot.at.way is Way.BACK:
        return False
    if pause.name:
        return pause.name in spot.done
    return not ((stage.window or stage.rehearsal) and spot.entered)


def _waits(pause: Pause, spot: Spot) -> bool:
    stage, forward = spot.at.stage, spot.at.way is Way.FORWARD
    anywhere = not pause.name and not pause.number
    fresh = forward and not spot.entered
    if spot.moment is Moment.AFTER:
        inside = stage.window and not stage.rehearsal and forward
        return bool(inside) and (anywhere or pause.name == spot.at.id)
    if stage.window and not (fresh and spot.moment is Moment.BEFORE):
        return False
    if spot.moment is Moment.BETWEEN:
        return anywhere or (forward and 0 < pause.number <= spot.changed)
    named = {spot.at.id} if not stage.window else set()
    named |= {stage.id} if fresh else set()
    return anywhere or (forward and pause.name in named)


def parse(
    playbook: Playbook, text: str, now: float, *, end: bool = False, zone: tzinfo | None = None
) -> Pause:
    """Parse the value of ``--until`` or of ``hold --at``.

    It is a stage or step of the playbook, HH:MM within the next day, or an ISO time; for a hold also a number
    of targets. end: whether it is ``--until``. zone: the time zone of a time that names none; None: this
    machine's. Raises UsageError for anything else, and for a past time.
    """
    if _CLOCK.fullmatch(text):
        return Pause(at=_next(time.fromisoformat(text), now, zone), end=end)
    if _DATED.fullmatch(text):
        try:
            when = datetime.fromisoformat(text)
            at = (when if when.tzinfo else _local(when, zone)).timestamp()
            words(at, zone)
        except (ValueError, OverflowError) as error:
            raise UsageError(f"{text}: {error}; needed: a time such as 2026-11-26T06:00+01:00") from None
        if at <= now:
            raise UsageError(f"{text} is past. Next: name a time in the future")
        return Pause(at=at, end=end)
    if end:
        step_names.known(playbook, text)
        return Pause(text, end=True)
    if text.isascii() and text.isdecimal():
        if playbook.paced is None or not int(text):
            raise UsageError(
                f"cannot hold at {text}: {playbook.id} has no step that counts targets. Next: name a stage "
                "or step"
            )
        return Pause(number=int(text))
    return Pause(step_names.place(playbook, text))


def requested(playbook: Playbook, hold: Hold) -> tuple[Pause, str]:
    """Return the pause that a hold requests, and a problem.

    The problem says why the place that the hold names is invalid; it is empty for a valid place. The pause of
    an invalid place applies to the next possible place. A place given as HH:MM means the first such time
    after the hold was written.
    """
    try:
        return parse(playbook, hold.at, hold.since), ""
    except UsageError as error:
        return Pause(), str(error)


def where_wanted(playbook: Playbook, hold: Hold) -> str:
    """Return where a hold takes effect, in words."""
    return where(playbook, requested(playbook, hold)[0])


def where(playbook: Playbook, pause: Pause) -> str:
    """Return where a pause that waits takes effect, in words."""
    if pause.at is not None:
        return f"at the next place from {words(pause.at)} on"
    if pause.number and playbook.paced is not None:
        many = playbook.paced.many
        return f"after {pause.number} {many.removesuffix('s') if pause.number == 1 else many}"
    if not pause.name:
        return "at the next place"
    return f"{'after' if step_names.is_phase(playbook, pause.name) else 'before'} {pause.name}"


def words(at: float, zone: tzinfo | None = None) -> str:
    """Return a time as text for messages and files."""
    when = datetime.fromtimestamp(at, zone).astimezone(zone)
    return f"{when:%Y-%m-%dT%H:%M}{f':{when:%S}' if when.second else ''}{when:%z}"


def _next(clock: time, now: float, zone: tzinfo | None) -> float:
    """Return the next moment at which a clock in this zone shows a time.

    Where clocks are set back, an hour occurs twice, and both occurrences count. A time that does not occur,
    because clocks are set forward, is read by the clock from before.
    """
    today = datetime.fromtimestamp(now, zone).date()
    days = [datetime.combine(today + timedelta(days=n), clock) for n in range(3)]
    times = [(_local(day, zone).timestamp(), _local(day.replace(fold=1), zone).timestamp()) for day in days]
    return min(at for first, second in times for at in (first, max(first, second)) if at > now)


def _local(when: datetime, zone: tzinfo | None) -> datetime:
    return when.astimezone() if zone is None else when.replace(tzinfo=zone)
