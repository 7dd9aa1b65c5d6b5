"""The hours in which the run may begin moves, over midnight and over changes of the clocks."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from zkmigrate.inventory.hours import Hours, after_open, closed
from zkmigrate.inventory.inventory import Window

BERLIN = "Europe/Berlin"
"""Its clocks go forward at 2026-03-29T01:00Z, from 2 to 3, and back at 2026-10-25T01:00Z, from 3 to 2."""


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def opens(hours: Hours | None, text: str, window: Window | None = None) -> str:
    """When a move may begin, in UTC; ``now``, or ``never``."""
    shut = closed(hours, window, at(text))
    if shut is None:
        return "now"
    return "never" if shut.opens is None else datetime.utcfromtimestamp(shut.opens).isoformat()


@pytest.mark.parametrize(
    ("begin", "end", "zone", "now", "when"),
    [
        ("08:00", "18:00", "UTC", "2026-11-26T08:00Z", "now"),
        ("08:00", "18:00", "UTC", "2026-11-26T07:59:59Z", "2026-11-26T08:00:00"),
        ("08:00", "18:00", "UTC", "2026-11-26T17:59:59Z", "now"),
        ("08:00", "18:00", "UTC", "2026-11-26T18:00Z", "2026-11-27T08:00:00"),
        ("22:00", "06:00", "UTC", "2026-11-26T21:59Z", "2026-11-26T22:00:00"),
        ("22:00", "06:00", "UTC", "2026-11-26T23:59:59Z", "now"),
        ("22:00", "06:00", "UTC", "2026-11-27T00:00Z", "now"),
        ("22:00", "06:00", "UTC", "2026-11-27T06:00Z", "2026-11-27T22:00:00"),
        ("22:00", "06:00", BERLIN, "2026-11-26T21:30Z", "now"),
        ("22:00", "06:00", BERLIN, "2026-07-26T20:30Z", "now"),
        ("22:00", "06:00", "America/New_York", "2026-11-26T22:00Z", "2026-11-27T03:00:00"),
        # The clocks go forward: the night is an hour shorter, and 02:30 comes at 03:30.
        ("22:00", "06:00", BERLIN, "2026-03-29T03:59:59Z", "now"),
        ("22:00", "06:00", BERLIN, "2026-03-29T04:00Z", "2026-03-29T20:00:00"),
        ("02:30", "05:00", BERLIN, "2026-03-29T01:00Z", "2026-03-29T01:30:00"),
        ("01:00", "02:30", BERLIN, "2026-03-29T01:15Z", "now"),
        # The clocks go back: the night is an hour longer, and only the first 02:30 counts.
        ("22:00", "06:00", BERLIN, "2026-10-25T04:59:59Z", "now"),
        ("22:00", "06:00", BERLIN, "2026-10-25T05:00Z", "2026-10-25T21:00:00"),
        ("02:30", "05:00", BERLIN, "2026-10-25T00:30Z", "now"),
        ("02:30", "05:00", BERLIN, "2026-10-25T01:00Z", "now"),
        ("01:00", "02:30", BERLIN, "2026-10-25T00:29:59Z", "now"),
        ("01:00", "02:30", BERLIN, "2026-10-25T01:15Z", "2026-10-26T00:00:00"),
    ],
)
def test_a_move_may_begin_within_the_hours(begin: str, end: str, zone: str, now: str, when: str) -> None:
    assert opens(Hours(begin=begin, end=end, zone=zone), now) == when


CLOCKS = st.builds(lambda h, m: f"{h:02}:{m:02}", st.integers(0, 23), st.integers(0, 59))


@given(CLOCKS, CLOCKS, st.sampled_from([BERLIN, "UTC", "America/New_York"]), st.integers(0, 365 * 24 * 60))
def test_when_it_opens_is_the_first_minute_that_is_open(begin: str, end: str, zone: str, minute: int) -> None:
    if begin == end:
        return
    hours, now = Hours(begin=begin, end=end, zone=zone), at("2026-01-01T00:00Z") + minute * 60
    shut = closed(hours, None, now)
    if shut is None:
        return
    assert shut.opens is not None
    assert now < shut.opens <= now + 25 * 3600
    assert closed(hours, None, shut.opens) is None
    for before in range(int(now), int(shut.opens), 600):
        assert closed(hours, None, before) is not None


def test_the_maintenance_window_counts_too() -> None:
    window = Window(begin="2026-11-26T23:00Z", end="2026-11-27T02:00Z")
    assert opens(None, "2026-11-26T22:00Z", window) == "2026-11-26T23:00:00"
    assert opens(None, "2026-11-26T23:00Z", window) == "now"
    assert opens(None, "2026-11-27T02:00Z", window) == "never"
    nights = Hours(begin="01:00", end="05:00")
    assert opens(nights, "2026-11-26T22:00Z", window) == "2026-11-27T01:00:00"
    assert opens(nights, "2026-11-27T01:30Z", window) == "now"
    assert opens(Hours(begin="02:00", end="05:00"), "2026-11-26T22:00Z", window) == "never"
    shut = closed(nights, window, at("2026-11-26T22:00Z"))
    assert shut is not None
    why = "outside policy.window (from 2026-11-26T23:00Z to 2026-11-27T02:00Z)"
    assert shut.words == f"{why}: the next move begins 2026-11-27T01:00Z"
    shut = closed(nights, None, at("2026-11-26T22:00Z"))
    assert shut is not None
    assert shut.words == "outside the hours 01:00 to 05:00 UTC: the next move begins 2026-11-27T01:00Z"


@pytest.mark.parametrize(
    ("window", "until", "open_s", "ends"),
    [
        (None, None, 0, "2026-11-26T22:00Z"),
        (None, None, 3600, "2026-11-26T23:00Z"),
        (None, None, 3 * 3600, "2026-11-27T01:00Z"),
        (None, None, 3 * 3600 + 1, "2026-11-27T22:00:01Z"),
        (None, None, 7 * 3600, "2026-11-28T23:00Z"),
        (None, None, 500 * 3 * 3600, None),
        (None, "2026-11-27T00:30Z", 2.5 * 3600, "2026-11-27T00:30Z"),
        (None, "2026-11-27T00:30Z", 2.5 * 3600 + 1, None),
        (None, "2026-11-26T21:00Z", 1, None),
        (("2026-11-27T00:00Z", "2026-11-28T00:00Z"), None, 3 * 3600, "2026-11-28T00:00Z"),
        (("2026-11-27T00:00Z", "2026-11-28T00:00Z"), None, 3 * 3600 + 1, None),
    ],
)
def test_an_estimate_counts_open_time_alone(
    window: tuple[str, str] | None, until: str | None, open_s: float, ends: str | None
) -> None:
    """At 22:00 the hours from 22:00 to 01:00 begin."""
    nights = Hours(begin="22:00", end="01:00")
    given = Window(begin=window[0], end=window[1]) if window else None
    stops = at(until) if until else float("inf")
    told = after_open(nights, given, at("2026-11-26T22:00Z"), open_s, stops)
    assert told == (at(ends) if ends else None)


def test_an_estimate_without_hours_is_the_time_itself() -> None:
    assert after_open(None, None, 1000.0, 50.0) == 1050.0


@pytest.mark.parametrize(
    ("begin", "end", "zone", "why"),
    [
        ("22:00", "22:00", "UTC", "begin and end are both 22:00"),
        ("22:00", "06:00", "Mars/Olympus", "unknown zone 'Mars/Olympus'"),
        ("22:00", "06:00", "../etc/passwd", "unknown zone"),
        ("22:00", "06:00", "", "unknown zone"),
        ("24:00", "06:00", "UTC", "begin"),
        ("22", "06:00", "UTC", "begin"),
    ],
)
def test_impossible_hours_are_refused(begin: str, end: str, zone: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Hours(begin=begin, end=end, zone=zone)
