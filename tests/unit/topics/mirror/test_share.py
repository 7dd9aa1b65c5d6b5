"""Which copier copies which partition."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkmigrate.topics.mirror.rules.share import Share, owner

PARTS = [(topic, n) for topic in ("orders", "orders-1", "1") for n in range(400)]

parts = st.tuples(st.text(max_size=20), st.integers(0, 1 << 31))


@given(st.integers(1, 20), parts)
def test_another_copier_takes_partitions_from_the_others_and_moves_no_other(
    copiers: int, part: tuple[str, int]
) -> None:
    before, after = owner(copiers, part), owner(copiers + 1, part)
    assert 1 <= before <= copiers
    assert after in (before, copiers + 1)


@given(st.integers(1, 8), st.lists(parts, unique=True, max_size=20))
def test_each_partition_is_in_exactly_one_share(copiers: int, some: list[tuple[str, int]]) -> None:
    shares = [Share(number, copiers).of(some) for number in range(1, copiers + 1)]
    assert sorted(part for share in shares for part in share) == sorted(some)


@pytest.mark.parametrize("copiers", [2, 3, 7])
def test_shares_are_of_like_size(copiers: int) -> None:
    sizes = Counter(owner(copiers, part) for part in PARTS)
    fair = len(PARTS) / copiers
    assert all(0.75 * fair < size < 1.25 * fair for size in sizes.values()), sizes


def test_a_share_never_changes_from_release_to_release() -> None:
    """Copiers of two releases may run side by side."""
    assert [owner(3, ("orders", n)) for n in range(8)] == [2, 1, 2, 1, 3, 2, 3, 2]
