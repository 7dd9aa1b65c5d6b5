"""The search behind rebalance and scale: its corridor, and what it may and may not move."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from zkmigrate.cluster.placement.board import Replicas, Task
from zkmigrate.cluster.placement.search import cheapest, edges, refined, search


def task(
    level: Sequence[int],
    held: Mapping[int, Sequence[int]],
    takers: Sequence[int],
    *,
    room: Sequence[int] | None = None,
    size: Sequence[int] | None = None,
    enough: int = 0,
    steps: int = 10_000,
) -> Task:
    """Brokers with levels; sources hold partitions of one replica with these weights."""
    rows = [(source, weight) for source, weights in held.items() for weight in weights]
    return Task(
        sets=[[source] for source, _ in rows],
        racks=range(len(level)),
        needed=[1] * len(rows),
        level=level,
        room=room or level,
        ranked=range(len(level)),
        sources=list(held),
        takers=takers,
        replicas=Replicas(
            range(len(rows)),
            [0] * len(rows),
            [source for source, _ in rows],
            [weight for _, weight in rows],
            size or [weight for _, weight in rows],
        ),
        lowest=0,
        highest=10**9,
        local=False,
        window=1000,
        enough=enough,
        steps=steps,
    )


def lower_bound(levels: Sequence[int], width: int, edges: range) -> int:
    """The fewest bytes for a corridor of this width, tried edge by edge."""
    return min(
        max(sum(max(low - f, 0) for f in levels), sum(max(f - low - width, 0) for f in levels))
        for low in edges
    )


@pytest.mark.parametrize("width", [0, 5, 20, 50])
def test_the_corridor_is_the_one_that_the_fewest_bytes_reach(width: int) -> None:
    levels = [10, 20, 90, 100, 80]
    asked = task(levels, {0: [], 1: []}, [2, 3, 4])
    low = cheapest(asked, width, edges(asked, width))
    assert lower_bound(levels, width, range(low, low + 1)) == lower_bound(
        levels, width, range(60 - width, 61)
    )


def test_no_corridor_leaves_out_a_broker_that_cannot_come_in() -> None:
    # Broker 1 takes only, broker 2 does neither.
    still = task([10, 50, 90], {0: []}, [1])
    assert not edges(still, 39)
    assert list(edges(still, 40)) == [50]


def test_the_corridor_moves_where_a_broker_cannot_come_into_the_cheapest() -> None:
    # Broker 2 has no room: 100 stays. 4 to broker 1 leave 90; the cheapest corridor lies lower.
    found = search(task([0, 60, 100], {0: [30, 10, 10, 4]}, [1, 2], room=[0, 60, 3]))
    assert found.level == (30, 30, 100)


def test_a_replica_that_overshoots_gives_way_to_a_lighter_one() -> None:
    found = search(task([10, 60, 80], {0: [19, 18, 17]}, [1, 2]))
    assert (found.moves, found.level) == ({1: 2, 2: 2}, (45, 60, 45))


def test_a_move_that_is_of_no_use_is_taken_back() -> None:
    # The range of 17 needs broker 2 to take 28; 9 more would help broker 0 for nothing.
    found = search(task([30, 50, 95], {0: [9, 28, 14]}, [1, 2]))
    assert (found.moves, found.level) == ({1: 2}, (58, 50, 67))


def test_two_replicas_change_places_where_no_single_move_helps() -> None:
    assert search(task([5, 85, 95], {0: [17, 8, 9, 24]}, [1, 2])).level == (63, 60, 62)


def test_of_two_replicas_with_one_weight_the_cheaper_moves() -> None:
    found = search(task([0, 20], {0: [10, 10]}, [1], room=[0, 10**6], size=[900, 100]))
    assert found.moves == {1: 1}


def test_a_taker_never_holds_more_than_it_has_room_for() -> None:
    tight = task([0, 100], {0: [50]}, [1], room=[0, 49])
    assert search(tight).moves == {}
    assert search(task([0, 100], {0: [50]}, [1], room=[0, 50])).moves == {0: 1}


def test_a_set_is_never_on_one_broker_twice() -> None:
    one = task([0, 100], {0: [50]}, [1])
    assert search(one).moves == {0: 1}
    held = Task(**{**{name: getattr(one, name) for name in Task.__slots__}, "sets": [[0, 1]]})
    assert search(held).moves == {}


def test_what_a_broker_gives_makes_no_room_for_what_it_takes() -> None:
    levels, held = [0, 20], {0: [30], 1: [20]}
    assert search(task(levels, held, [0, 1], room=[20, 30])).level == (10, 10)
    assert search(task(levels, held, [0, 1], room=[20, 29])).moves == {}


def test_a_refined_answer_moves_no_more_bytes_and_is_no_wider() -> None:
    cheaper = narrower = 0
    for seed in range(20):
        chance = random.Random(seed)
        held = {one: [chance.randint(5_000, 60_000) for _ in range(8)] for one in range(5)}
        levels = [chance.randint(0, 400_000) for _ in held]
        asked = task(levels, held, list(held), room=[10**6] * 5, enough=seed % 2 * 20_000)
        found = search(asked)
        better = refined(asked, found)
        before, after = (sum(asked.replicas.size[row] for row in one.moves) for one in (found, better))
        width, narrow = (max(one.level) - min(one.level) for one in (found, better))
        assert after <= before
        assert narrow <= max(width, asked.enough)
        cheaper += after < before
        narrower += narrow < width and after == before
    assert cheaper
    assert narrower


def test_the_search_ends_at_its_bound_with_what_it_has() -> None:
    levels = [0, 0, 100, 100]
    held = {0: [10] * 10, 1: [10] * 10}
    short, long = search(task(levels, held, [2, 3], steps=3)), search(task(levels, held, [2, 3]))
    assert short.spent <= 3 + 1
    assert max(short.level) - min(short.level) <= 100
    assert max(long.level) - min(long.level) == 0
