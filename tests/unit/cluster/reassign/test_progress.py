"""The time that the rest takes at the throughput of the last minutes."""

from __future__ import annotations

import pytest

from zkmigrate.cluster.reassign.progress import LEAST_S, SPAN_S, Throughput


def after(*looks: tuple[float, int]) -> Throughput:
    copying = Throughput()
    for at, left in looks:
        copying = copying.seen(at, left)
    return copying


def test_a_steady_throughput_tells_when_it_ends() -> None:
    copying = Throughput()
    for second in range(0, 4000, 2):
        left = 10_000 - 2 * second
        if second >= LEAST_S:
            assert copying.seconds(1e9 + second, left) == pytest.approx(left / 2)
        else:
            assert copying.seconds(1e9 + second, left) is None
        copying = copying.seen(1e9 + second, left)
        assert len(copying.looks) <= SPAN_S / 10 + 1


def test_only_the_last_minutes_count() -> None:
    copying = after(*((t, 100_000 - t) for t in range(0, 4000, 10)))
    copying = after(*copying.looks, *((t, 96_000 - 10 * (t - 4000)) for t in range(4000, 5900, 10)))
    assert copying.seconds(5900.0, 77_000) == pytest.approx(7_700)


def test_bytes_that_became_more_and_a_clock_set_back_begin_anew() -> None:
    assert after((0, 100), (70, 50), (80, 60)).looks == ((0, 100), (80, 60))
    assert after((0, 100), (70, 50), (80, 160)).looks == ((80, 160),)
    assert after((1000, 100), (1070, 50), (500, 40)).looks == ((500, 40),)
    assert after((0, 100)).seconds(600.0, 100) is None, "nothing was copied"
