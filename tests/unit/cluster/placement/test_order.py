"""X21: an order in which no broker is ever below 0 free, or the broker and how many bytes are short."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples, seeds
from tests.unit.cluster.placement.random_clusters import random_cluster
from zkmigrate.cluster.placement import order
from zkmigrate.cluster.placement.cluster import Broker, Cluster
from zkmigrate.cluster.placement.order import after, in_order
from zkmigrate.cluster.placement.plan import Reassignment, Refused


def brokers(*free: int) -> Cluster:
    """Brokers 1, 2, … with so many bytes free."""
    return Cluster.of((Broker(number, "", bytes_) for number, bytes_ in enumerate(free, 1)), ())


def moves(*wanted: tuple[Sequence[int], Sequence[int], int]) -> tuple[Reassignment, ...]:
    numbered = enumerate(wanted)
    return tuple(Reassignment("t", n, tuple(old), tuple(new), size) for n, (old, new, size) in numbered)


def lowest(free: Mapping[int, int], ordered: Iterable[Reassignment]) -> int:
    """The least that a broker that gets a copy has free at any moment: old copies are freed late."""
    left, least = dict(free), 0
    for move in ordered:
        for broker in set(move.after) - set(move.before):
            left[broker] -= move.size
            least = min(least, left[broker])
        for broker in (set(move.before) - set(move.after)) & left.keys():
            left[broker] += move.size
    return least


def numbers(ordered: tuple[Reassignment, ...] | Refused) -> list[int]:
    assert not isinstance(ordered, Refused)
    return [move.number for move in ordered]


def test_x21_an_order_that_works_is_kept() -> None:
    given_ = moves(([1], [2], 5), ([2], [1], 5), ([1, 2], [2, 1], 9))
    assert in_order(brokers(5, 5), given_) == given_
    could_begin_with_the_second = moves(([3], [1], 5), ([1], [2], 5), ([3], [1], 5))
    assert in_order(brokers(5, 5, 0), could_begin_with_the_second) == could_begin_with_the_second


def test_x21_a_move_waits_until_its_broker_has_lost_a_copy() -> None:
    assert numbers(in_order(brokers(0, 5, 10), moves(([2], [1], 5), ([1], [3], 5)))) == [1, 0]


def test_x21_a_rule_tries_a_move_again_that_waited() -> None:
    wanted = moves(([2], [1], 5), ([1], [3], 5))
    assert order._greedy({1: 0, 2: 5, 3: 5}, wanted, lambda move: move.number) == [wanted[1], wanted[0]]


def test_x21_the_new_copy_counts_before_the_old_one_is_freed() -> None:
    """Two full brokers cannot exchange, though each has room once the other is done."""
    refused = in_order(brokers(4, 3), moves(([1], [2], 5), ([2], [1], 5)))
    assert isinstance(refused, Refused)
    assert [reason.id for reason in refused.reasons] == ["placement.no-order"]
    assert refused.reasons[0].text == (
        "broker 1 is 1 bytes short: t-1 needs 5 bytes there, 4 are free when this move is due; "
        "no order of whole moves works"
    )


def test_x21_a_broker_that_is_short_in_the_end_is_named_with_its_bytes() -> None:
    refused = in_order(brokers(7, 2, 1), moves(([1], [2, 3], 5)))
    assert isinstance(refused, Refused)
    assert [reason.text for reason in refused.reasons] == [
        "broker 2 is 3 bytes short after all moves; free now: 2",
        "broker 3 is 4 bytes short after all moves; free now: 1",
    ]


def test_x21_a_gone_broker_frees_nothing_and_stops_nothing() -> None:
    assert numbers(in_order(brokers(5), moves(([9], [1], 5)))) == [0]


def test_x21_a_move_that_nobody_waits_for_comes_last() -> None:
    """It takes the room on 2 that the others need to pass through."""
    wanted = moves(([3], [2], 4), ([2], [1], 4), ([1], [2], 4))
    assert numbers(in_order(brokers(0, 4, 0), wanted)) == [2, 1, 0]


def test_x21_the_search_finds_an_order_that_no_rule_finds() -> None:
    """Neither as given, nor small or large ones first, forwards or backwards."""
    cluster = brokers(1, 6)
    there, back = ([1], [2]), ([2], [1])
    wanted = moves((*there, 3), (*back, 5), (*there, 2), (*back, 2), (*there, 5), (*back, 7), (*there, 7))
    free = {broker.id: broker.free for broker in cluster.brokers.values()}
    assert isinstance(order._by_rule(free, wanted), order._Stuck)
    ordered = in_order(cluster, wanted)
    assert sorted(numbers(ordered)) == list(range(7))
    assert not isinstance(ordered, Refused)
    assert lowest(free, ordered) == 0


def test_x21_the_search_gives_up_after_its_looks_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "LOOKS", 1)
    refused = in_order(brokers(4, 3), moves(([1], [2], 5), ([2], [1], 5)))
    assert isinstance(refused, Refused)
    assert refused.reasons[0].text.endswith(
        "the search gave up after 1 checks of a move; an order may still exist"
    )


def some_moves(seed: int) -> tuple[Cluster, tuple[Reassignment, ...]]:
    """Few brokers with little room and up to eight moves among them."""
    chance = random.Random(seed)
    ids = range(1, chance.randint(2, 4) + 1)
    cluster = brokers(*(chance.randint(0, 6) for _ in ids))
    wanted = []
    for _ in range(chance.randint(2, 8)):
        length = chance.randint(1, min(2, len(ids) - 1))
        wanted.append((chance.sample(ids, length), chance.sample(ids, length), chance.randint(1, 6)))
    return cluster, moves(*wanted)


def possible(free: Mapping[int, int], left: frozenset[Reassignment]) -> bool:
    """Whether any order works, by trying all that fit; what is free depends on what is left alone."""
    dead: set[frozenset[Reassignment]] = set()

    def ends(free: Mapping[int, int], left: frozenset[Reassignment]) -> bool:
        if left in dead:
            return False
        if not left or any(
            lowest(free, [move]) == 0 and ends(after(free, [move]), left - {move}) for move in left
        ):
            return True
        dead.add(left)
        return False

    return ends(free, left)


def test_x21_an_order_is_found_exactly_where_there_is_one() -> None:
    """Small inputs, against every order that there is."""
    outcomes = {"kept": 0, "found": 0, "refused": 0}
    for seed in seeds(3000):
        cluster, wanted = some_moves(seed)
        free = {broker.id: broker.free for broker in cluster.brokers.values()}
        ordered = in_order(cluster, wanted)
        if isinstance(ordered, Refused):
            assert not possible(free, frozenset(wanted)), seed
            outcomes["refused"] += 1
        else:
            assert lowest(free, ordered) == 0, seed
            assert sorted(move.number for move in ordered) == list(range(len(wanted))), seed
            outcomes["kept" if ordered == wanted else "found"] += 1
    assert min(outcomes.values()) > len(seeds(200)), outcomes


@given(st.integers(0, 2**32), st.integers(0, 5))
@settings(max_examples=examples(100))
def test_x21_no_broker_is_below_zero_in_larger_orders(seed: int, spare: int) -> None:
    """The moves are made from an order that works, then shuffled; brokers keep little room."""
    chance = random.Random(seed)
    cluster = random_cluster(seed, brokers=6, partitions=30)
    free = {broker.id: broker.free for broker in cluster.brokers.values()}
    wanted = []
    for partition in cluster.partitions:
        new = tuple(chance.sample(sorted(free), len(partition.replicas)))
        wanted.append(Reassignment(*partition.name, partition.replicas, new, partition.size or 0))
    need = dict.fromkeys(free, 0)
    left = dict(free)
    for move in wanted:
        for broker in move.added:
            left[broker] -= move.size
            need[broker] = min(need[broker], left[broker])
        for broker in move.dropped:
            left[broker] += move.size
    tight = Cluster.of(
        (Broker(broker, "", free[broker] - need[broker] + spare) for broker in free), cluster.partitions
    )
    shuffled = chance.sample(wanted, len(wanted))
    ordered = in_order(tight, shuffled)
    assert not isinstance(ordered, Refused)
    assert lowest({broker.id: broker.free for broker in tight.brokers.values()}, ordered) == 0
    assert ordered == in_order(tight, shuffled)
