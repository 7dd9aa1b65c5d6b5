"""How far the mirror is behind, from the ends of both logs."""

from __future__ import annotations

import pytest

from zkmigrate.runbook.model.fact import Seen, Unknown
from zkmigrate.topics.mirror.questions import BothEnds
from zkmigrate.topics.topic_move.rules import Mark, lag

P, Q = ("orders", 0), ("orders", 1)


@pytest.mark.parametrize(
    ("before", "target", "behind_s", "words"),
    [
        (None, 95, None, "5 records behind"),
        ((8.0, 90), 95, 1.0, "5 records behind, 5 records/s, a lag of 1.0 s"),
        ((8.0, 90), 100, 0.0, "0 records behind, 5 records/s, a lag of 0.0 s"),
        ((8.0, 100), 95, None, "5 records behind, 0 records/s"),
        ((8.0, 100), 100, 0.0, "0 records behind, 0 records/s, a lag of 0.0 s"),
    ],
)
def test_h14_the_lag_counts_in_seconds_of_what_source_gets(
    before: Mark | None, target: int, behind_s: float | None, words: str
) -> None:
    ends = {P: BothEnds(60, 60, target - 40), Q: BothEnds(40, 40, 40)}
    found = lag(Seen(ends), 10.0, before)
    assert (found.mark, found.s, found.words) == ((10.0, 100), behind_s, words)
    assert found.within(1.0) == (behind_s is not None)
    assert found.within(0.9) == (behind_s == 0.0)


def test_h14_an_end_that_is_not_told_gives_no_rate() -> None:
    """Beside it the next look would see a burst, and a lag of no time."""
    for one in (BothEnds(None, None, 3), BothEnds(5, 5, None)):
        found = lag(Seen({P: BothEnds(9, 9, 9), Q: one}), 10.0, (8.0, 10))
        assert (found.mark, found.s, found.words) == (None, None, "not known: orders-1")
    found = lag(Unknown("timeout", "no answer"), 10.0, (8.0, 10))
    assert (found.mark, found.within(100.0)) == (None, False)
    assert "no answer" in found.words
