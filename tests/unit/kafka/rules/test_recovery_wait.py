"""How long a broker that comes back is waited for, and what it and its unit say of that."""

from __future__ import annotations

import math

import pytest

from zkmigrate.kafka.facts.recovery import Recovery, parse_recovery, parse_span
from zkmigrate.kafka.rules.recovery_wait import patience

STILL_S, MOST_S = 600.0, 7200.0


def over_at(*looks: tuple[float, Recovery, int], most_s: float = MOST_S) -> float:
    """When the wait is over, after looks: (seconds since the first, what was told, partitions behind)."""
    kept: dict[str, object] = {}
    deadline_s = 0.0
    for now, seen, behind in looks:
        deadline_s, kept = patience(seen, behind, kept, 1000.0 + now, STILL_S, most_s)
    return deadline_s


def logs(count: int, segments: int = 0) -> Recovery:
    return Recovery(count, 800, segments)


@pytest.mark.parametrize(
    ("later", "behind", "over"),
    [
        (logs(312), 5, STILL_S),
        (logs(313), 5, 500.0 + STILL_S),
        (logs(312, segments=1), 5, 500.0 + STILL_S),
        (logs(2), 5, 500.0 + STILL_S),
        (logs(312), 4, 500.0 + STILL_S),
        (logs(312), 6, STILL_S),
    ],
    ids=["nothing", "a log", "a segment", "it began anew", "a partition in sync", "a partition fell behind"],
)
def test_what_gets_on_is_waited_for_longer(later: Recovery, behind: int, over: float) -> None:
    assert over_at((0.0, logs(312), 5), (500.0, later, behind)) == over


def test_a_partition_that_falls_behind_and_comes_back_is_no_progress() -> None:
    none = Recovery(0, 0, 0)
    assert over_at((0.0, none, 5), (100.0, none, 4), (200.0, none, 9), (300.0, none, 4)) == 100.0 + STILL_S


def test_it_goes_on_only_up_to_the_limit_which_never_shortens_the_first_wait() -> None:
    looks = [(n * 500.0, logs(n), 5) for n in range(20)]
    assert over_at(*looks) == MOST_S
    assert over_at((0.0, logs(1), 5), most_s=0.0) == STILL_S


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1min 30s", 90.0), ("3min", 180.0), ("infinity", math.inf), ("1h 5min 500ms", 3900.5), ("0", None),
        ("1w 2d", 777600.0), ("", None), ("1 min", None), ("ninety", None), ("1e9s", None), ("-5s", None),
    ],
)  # fmt: skip
def test_a_span_of_systemd_in_seconds(text: str, seconds: float | None) -> None:
    if seconds is None:
        with pytest.raises(ValueError, match="time span"):
            parse_span(text)
    else:
        assert parse_span(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "logs=1 of=2",
        "logs=x of=2 segments=0",
        "logs=1 of=-2 segments=0",
        "logs=1234567890 of=2 segments=0",
    ],
)
def test_counts_that_are_none_are_refused(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        parse_recovery(text)


def test_the_words_for_the_screen() -> None:
    assert parse_recovery("logs=312 of=800 segments=7").words == "recovered 312 of 800 logs"
    assert parse_recovery("logs=0 of=0 segments=7").words == ""
