"""A plan that leaves a set in fewer racks than possible is refused; ``--fix-racks`` plans the repairs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from tests.examples import seeds
from tests.unit.cluster.placement.random_clusters import random_cluster
from zkmigrate.cluster.placement.check import faults
from zkmigrate.cluster.placement.cluster import Broker, Cluster, Partition
from zkmigrate.cluster.placement.plan import Plan, Refused
from zkmigrate.cluster.placement.planner import planned
from zkmigrate.cluster.placement.request import Choice, FixRacks, Rebalance, Rebuild, Request

GB = 10**9


def cluster(racks: str, *sets: tuple[int, ...], free: Sequence[int] = (), size: int = GB) -> Cluster:
    """Brokers from 1 on, a letter each; a dot is a broker without a rack. free: in GB, 100 without it."""
    return Cluster.of(
        (
            Broker(id_, rack.replace(".", ""), (free[id_ - 1] if free else 100) * GB)
            for id_, rack in enumerate(racks, 1)
        ),
        (Partition("t", number, replicas, size) for number, replicas in enumerate(sets)),
    )


def plan_of(of: Cluster, request: Request | None = None) -> Plan:
    made = planned(of, request or FixRacks())
    assert isinstance(made, Plan), made
    return made


def refusing(made: Plan | Refused) -> set[str]:
    """The ids of what keeps a plan from being written."""
    notices = made.reasons if isinstance(made, Refused) else [one for one in made.notices if one.refuses]
    return {one.id for one in notices}


def possible(of: Cluster, replicas: tuple[int, ...], brokers: Sequence[int]) -> int:
    """The most racks that any set of this length spans on its own and the chosen brokers."""
    among = sorted({*replicas, *brokers})
    racks = [of.brokers[b].rack or str(b) if b in of.brokers else f"gone {b}" for b in among]
    return next(k for k in range(len(replicas), 0, -1) if len(set(racks)) >= k)


def spanned(of: Cluster, replicas: tuple[int, ...]) -> int:
    return len({of.brokers[b].rack or str(b) if b in of.brokers else f"gone {b}" for b in replicas})


TEN = ((1, 2, 3),) * 10


@pytest.mark.parametrize(
    "request_", [Rebuild(), Rebalance(), Rebalance(any_broker=True), Rebalance(locality_scoped=True)]
)
def test_ten_sets_in_one_of_two_racks_are_no_plan_of_nothing(request_: Request) -> None:
    made = planned(cluster("aaabbb", *TEN), request_)
    assert refusing(made) == {"placement.rack-shared"}
    assert isinstance(made, Plan)
    text = next(one.text for one in made.notices if one.id == "placement.rack-shared")
    assert "10 replica lists" in text
    assert "t-0 (1 of 2 racks)" in text
    assert "--fix-racks" in text


def test_fix_racks_moves_one_replica_of_each_and_keeps_its_leader() -> None:
    made = plan_of(cluster("aaabbb", *TEN, free=(90, 90, 90, 100, 100, 100)))
    assert len(made.moves) == 10
    assert made.bytes == 10 * GB
    assert refusing(made) == set()
    for move in made.moves:
        assert move.after[0] == move.before[0]
        assert len(move.added) == 1
    assert max(sum(b in move.after for move in made.moves) for b in (4, 5, 6)) <= 4


@pytest.mark.parametrize(
    ("racks", "replicas", "moves"),
    [
        ("aabbccdd", (1, 2, 3), 1),  # more racks than replicas
        ("aaab", (1, 2, 3), 1),  # fewer racks than replicas, and one rack of one broker
        ("aab", (1, 2, 3), 0),  # every broker is in the set
        ("aaa", (1, 2), 0),  # one rack
        ("a..", (1, 2), 0),  # no rack is a rack of its own
        ("aa.", (1, 2), 1),
        ("aaabc", (1, 2, 3), 2),
        ("abc", (1,), 0),
    ],
)
def test_fix_racks_at_the_edges(racks: str, replicas: tuple[int, ...], moves: int) -> None:
    of = cluster(racks, replicas)
    made = plan_of(of)
    assert sum(len(move.added) for move in made.moves) == moves
    after = made.moves[0].after if made.moves else replicas
    assert spanned(of, after) == possible(of, replicas, tuple(of.brokers))
    assert refusing(made) <= {"placement.worse-range"}  # the brokers' free bytes were equal
    assert ("placement.rack-shared" in refusing(planned(of, Rebalance()))) == bool(moves)
    assert ("placement.rack-shared" in refusing(planned(of, Rebuild()))) == bool(moves)


def test_a_rack_outside_the_chosen_brokers_is_not_possible() -> None:
    of = cluster("aab", (1, 2))
    assert refusing(planned(of, Rebalance(Choice(brokers=(1, 2))))) == set()
    assert plan_of(of, FixRacks(Choice(brokers=(1, 2)))).moves == ()


def test_rebuild_asks_for_no_more_racks_than_it_was_asked_for() -> None:
    of = cluster("aabbcc", (1, 2, 3))
    assert refusing(planned(of, Rebuild(min_rack_ids=2))) == set()
    assert refusing(planned(of, Rebuild(use_meta=False))) == set()
    assert refusing(planned(of, Rebuild(min_rack_ids=3))) == {"placement.rack-shared"}


def test_b8_a_set_that_grows_while_its_replicas_share_a_rack_is_refused_by_name() -> None:
    made = plan_of(cluster("aabc", (1, 2)), Rebuild(replication=3))
    assert [move.after[:2] for move in made.moves] == [(1, 2)]
    assert "t-0 (2 of 3 racks)" in next(one.text for one in made.notices if one.refuses)


def test_topics_outside_the_choice_are_neither_named_nor_moved() -> None:
    of = Cluster.of(
        cluster("aabb", (1, 2)).brokers.values(),
        [Partition("t", 0, (1, 2), GB), Partition("u", 0, (1, 2), GB)],
    )
    assert {move.topic for move in plan_of(of, FixRacks(Choice(("u",)))).moves} == {"u"}
    assert refusing(planned(of, Rebalance(Choice(("u",))))) == {"placement.rack-shared"}


def test_a_rack_without_room_is_refused_with_the_set_and_the_limit() -> None:
    made = planned(cluster("aab", (1, 2), free=(9, 9, 1), size=2 * GB), FixRacks())
    assert isinstance(made, Refused)
    assert refusing(made) == {"placement.no-place"}
    assert "t-0 could span 1 more racks: the limit is disk" in made.reasons[0].text


def test_a_planned_copy_makes_room_for_one_that_fits_nowhere_else() -> None:
    """t-1 could go to both brokers of rack b, and u-0 only to the one that t-1 would choose."""
    of = Cluster.of(
        [Broker(1, "a", 0), Broker(2, "a", 0), Broker(3, "b", 10), Broker(4, "c", 9), Broker(5, "c", 0)],
        [Partition("t", 0, (1, 2), 9), Partition("u", 0, (4, 5), 9)],
    )
    made = plan_of(of)
    assert {move.name: move.added for move in made.moves} == {("t", 0): (4,), ("u", 0): (3,)}


def test_the_leader_moves_where_the_range_would_grow_otherwise() -> None:
    of = cluster("aab", (1, 2), free=(0, 10, 10), size=2 * GB)
    assert [move.after for move in plan_of(of).moves] == [(3, 2)]


def test_a_range_that_must_grow_is_written_only_in_spite_of_a_warning() -> None:
    assert refusing(planned(cluster("aab", (1, 2), free=(9, 9, 9)), FixRacks())) == {"placement.worse-range"}


@pytest.mark.parametrize("seed", seeds(60))
def test_fix_racks_on_random_clusters(seed: int) -> None:
    """Each set spans as many racks as any could, by so many moves as it lacked; no rule is broken."""
    of = random_cluster(seed, brokers=7, partitions=25, racks=1 + seed % 4, gone=seed % 3 == 0)
    made = planned(of, FixRacks())
    if isinstance(made, Refused):
        assert refusing(made) <= {"placement.no-place"}
        return
    targets = tuple(of.brokers)
    after = {move.name: move.after for move in made.moves}
    assert not faults(of, [after])
    for one in of.partitions:
        most = possible(of, one.replicas, targets)
        replicas = after.get(one.name, one.replicas)
        assert spanned(of, replicas) == most
        assert len(set(replicas) - set(one.replicas)) == most - spanned(of, one.replicas)
    free = dict(of.free)
    for move in made.moves:
        for broker in move.added:
            free[broker] -= move.size
        for broker in set(move.dropped) & free.keys():
            free[broker] += move.size
    wider = max(free.values()) - min(free.values()) > max(of.free.values()) - min(of.free.values())
    assert wider == ("placement.worse-range" in refusing(made))
    assert "placement.rack-shared" not in refusing(made)
    assert planned(of, FixRacks()) == made


@pytest.mark.parametrize("seed", seeds(40))
def test_the_range_grows_only_where_every_choice_of_repairs_widens_it(seed: int) -> None:
    """All ways to repair three sets of two are tried."""
    chance = random.Random(seed)
    of = Cluster.of(
        [Broker(id_, rack, chance.randint(20, 60)) for id_, rack in enumerate("aabbc", 1)],
        [
            Partition("t", number, chance.choice([(1, 2), (2, 1), (3, 4)]), chance.randint(1, 9))
            for number in range(3)
        ],
    )
    made = plan_of(of)
    before = max(of.free.values()) - min(of.free.values())
    ranges = []
    ways = [
        [(home, to) for home in one.replicas for to in of.brokers if of.rack(to) != of.rack(home)]
        for one in of.partitions
    ]
    for way in itertools.product(*ways):
        free = dict(of.free)
        for one, (home, to) in zip(of.partitions, way, strict=True):
            free[home] += one.size or 0
            free[to] -= one.size or 0
        ranges.append(max(free.values()) - min(free.values()))
    assert ("placement.worse-range" in refusing(made)) == (min(ranges) > before)


@pytest.mark.parametrize("seed", seeds(40))
def test_every_verb_repairs_or_refuses_what_it_leaves_in_too_few_racks(seed: int) -> None:
    of = random_cluster(seed, brokers=7, partitions=20, racks=1 + seed % 4, new=2)
    requests = (
        Rebalance(storage_threshold=0.0, partition_size_threshold=0),
        Rebalance(any_broker=True),
        Rebalance(scale=True),
        Rebuild(Choice(brokers=tuple(of.brokers)[1:])),
        Rebuild(force_rebuild=True),
    )
    for request in requests:
        made = planned(of, request)
        if isinstance(made, Refused):
            continue
        after = {one.name: one.replicas for one in of.partitions} | {m.name: m.after for m in made.moves}
        brokers = request.choice.brokers if request.choice.brokers[0] > 0 else tuple(of.brokers)
        poor = [n for n, set_ in after.items() if spanned(of, set_) < possible(of, set_, brokers)]
        assert ("placement.rack-shared" in refusing(made)) == bool(poor)
