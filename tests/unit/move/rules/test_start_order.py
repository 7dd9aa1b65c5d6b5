"""Who starts first: for one to five hosts, and however many of them hold the newest transaction."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest

from zkmigrate.move.rules.start_order import forms_quorum, freshest, places

NEEDED = 0x100000EEC

# hosts, those that hold the newest transaction: (first, quorum, rest)
TABLE = {
    (1, 1): (1, 0, 0), (3, 1): (1, 1, 1), (3, 2): (2, 0, 1), (3, 3): (3, 0, 0), (4, 1): (1, 2, 1),
    (4, 2): (2, 1, 1), (4, 3): (3, 0, 1), (4, 4): (4, 0, 0), (5, 1): (1, 2, 2), (5, 2): (2, 1, 2),
    (5, 3): (3, 0, 2), (5, 4): (4, 0, 1), (5, 5): (5, 0, 0),
}  # fmt: skip


def hosts(count: int) -> tuple[str, ...]:
    return tuple(f"dest{n}" for n in range(1, count + 1))


@pytest.mark.parametrize(("count", "fresh"), TABLE)
def test_places_for_every_set_of_hosts_that_hold_the_newest_transaction(count: int, fresh: int) -> None:
    every, majority = hosts(count), count // 2 + 1
    for first in combinations(every, fresh):
        found = places(every, first)
        assert tuple(found) == every
        counts = Counter(found.values())
        assert (counts["first"], counts["quorum"], counts["rest"]) == TABLE[count, fresh]
        assert {host for host in every if found[host] == "first"} == set(first)
        laggards = [host for host in every if host not in first]
        assert [found[h] for h in laggards] == sorted((found[h] for h in laggards), key="quorum rest".index)
        # Before a leader is known as many run as can elect one, and no majority without one of F.
        assert counts["first"] + counts["quorum"] >= majority > counts["quorum"]


@pytest.mark.parametrize("count", [3, 5])
def test_nobody_starts_where_nobody_holds_the_newest_transaction(count: int) -> None:
    with pytest.raises(ValueError, match="nothing may start"):
        places(hosts(count), ())


@pytest.mark.parametrize("count", [3, 5])
def test_the_freshest_are_those_that_reach_what_is_needed(count: int) -> None:
    for fresh in range(count + 1):
        for first in combinations(hosts(count), fresh):
            newest = {host: NEEDED if host in first else NEEDED - 1 for host in hosts(count)}
            assert freshest(newest, NEEDED) == first


def test_a_host_beyond_what_is_needed_is_fresh_and_an_older_epoch_never_is() -> None:
    newest = {"dest1": NEEDED + 7, "dest2": 0x0FFFFFFFF, "dest3": 0x200000000}
    assert freshest(newest, NEEDED) == ("dest1", "dest3")


def serve_alone(every: tuple[str, ...], first: tuple[str, ...], told: frozenset[str]) -> bool:
    """What the hosts do that were told to start, each by itself: whether a majority comes to serve."""
    place, majority = places(every, first), len(every) // 2 + 1
    up: set[str] = set()
    while True:
        quorum = len(up) >= majority
        may = {"first": True, "quorum": set(first) <= up, "rest": quorum}
        more = {host for host in told - up if may[place[host]]}
        if not more:
            return quorum
        up |= more


@pytest.mark.parametrize(("count", "fresh"), TABLE)
def test_a_part_of_the_hosts_forms_the_quorum_exactly_where_their_places_let_it(
    count: int, fresh: int
) -> None:
    every = hosts(count)
    for first in combinations(every, fresh):
        for size in range(count + 1):
            for told in combinations(every, size):
                assert forms_quorum(every, first, told) == serve_alone(every, first, frozenset(told))
