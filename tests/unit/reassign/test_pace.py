"""The time that the rest takes at the pace of the last minutes."""

from __future__ import annotations

import pytest

from zkmigrate.reassign.pace import LEAST_S, SPAN_S, Pace


def after(*looks: tuple[float, int]) -> Pace:
    pace = Pace()
    for at, left in looks:
        pace = pace.seen(at, left)
    return pace


def test_a_steady_pace_tells_when_it_ends() -> None:
    pace = Pace()
    for second in range(0, 4000, 2):
        left = 10_000 - 2 * second
        if second >= LEAST_S:
            assert pace.seconds(1e9 + second, left) == pytest.approx(left / 2)
        else:
            assert pace.seconds(1e9 + second, left) is None
        pace = pace.seen(1e9 + second, left)
        assert len(pace.looks) <= SPAN_S / 10 + 1


def test_only_the_last_minutes_count() -> None:
    pace = after(*((t, 100_000 - t) for t in range(0, 4000, 10)))
    pace = after(*pace.looks, *((t, 96_000 - 10 * (t - 4000)) for t in range(4000, 5900, 10)))
    assert pace.seconds(5900.0, 77_000) == pytest.approx(7_700)


def test_bytes_that_became_more_and_a_clock_set_back_begin_anew() -> None:
    assert after((0, 100), (70, 50), (80, 60)).looks == ((0, 100), (80, 60))
    assert after((0, 100), (70, 50), (80, 160)).looks == ((80, 160),)
    assert after((1000, 100), (1070, 50), (500, 40)).looks == ((500, 40),)
    assert after((0, 100)).seconds(600.0, 100) is None, "nothing was copied"
