"""``--until``: how far a walk goes. Pure: the present time is an argument."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta, tzinfo
from typing import NamedTuple

from zkmigrate.errors import UsageError
from zkmigrate.runbook.engine import step_names
from zkmigrate.runbook.model.playbook import Playbook

_CLOCK = re.compile("([01][0-9]|2[0-3]):[0-5][0-9]")
_DATED = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T.+")


class Until(NamedTuple):
    """A stage or ``stage.step``, or a time in seconds since the epoch; without either, the end."""

    name: str = ""
    at: float | None = None


def parse(playbook: Playbook, text: str, now: float, zone: tzinfo | None = None) -> Until:
    """Parse ``--until``: a name of the playbook, HH:MM within the next day, or an ISO time.

    zone: the zone of times without one; None: this machine's. Raises UsageError for anything else, and for a
    past time.
    """
    if _CLOCK.fullmatch(text):
        return Until(at=_next(time.fromisoformat(text), now, zone))
    if _DATED.fullmatch(text):
        try:
            when = datetime.fromisoformat(text)
        except ValueError as error:
            raise UsageError(
                f"--until {text}: {error}; needed: a time such as 2026-11-26T06:00+01:00"
            ) from None
        at = (when if when.tzinfo else _local(when, zone)).timestamp()
        if at <= now:
            raise UsageError(f"--until {text} is past. Next: a time to come")
        return Until(at=at)
    step_names.known(playbook, text)
    return Until(text)


def words(at: float, zone: tzinfo | None = None) -> str:
    """Return a time as text for messages."""
    return f"{datetime.fromtimestamp(at, zone).astimezone(zone):%Y-%m-%dT%H:%M%z}"


def _next(clock: time, now: float, zone: tzinfo | None) -> float:
    today = datetime.fromtimestamp(now, zone).date()
    times = (_local(datetime.combine(today + timedelta(days=n), clock), zone).timestamp() for n in range(3))
    return next(at for at in times if at > now)


def _local(when: datetime, zone: tzinfo | None) -> datetime:
    return when.astimezone() if zone is None else when.replace(tzinfo=zone)
