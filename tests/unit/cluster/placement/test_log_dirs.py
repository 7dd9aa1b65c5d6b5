"""Log directories of a broker, planned one by one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.cluster.placement.random_clusters import random_cluster
from zkmigrate.cluster.placement.check import faults, log_dir_faults, log_dirs_of, sets_of
from zkmigrate.cluster.placement.cluster import Broker, Cluster, LogDir, Name, Partition
from zkmigrate.cluster.placement.log_dirs import (
    Usage,
    after,
    kafkas_choice,
    laid,
    levelled,
    narrowed,
    several,
    usage,
)
from zkmigrate.cluster.placement.maps import files
from zkmigrate.cluster.placement.phases import cut
from zkmigrate.cluster.placement.plan import Plan, Reassignment, Refused
from zkmigrate.cluster.placement.planner import planned
from zkmigrate.cluster.placement.request import By, Choice, LogDirs, Rebalance, Rebuild, Rollout


def broker(id_: int, **free: int) -> Broker:
    """A broker with these directories."""
    dirs = tuple(LogDir(f"/{name}", bytes_) for name, bytes_ in free.items())
    return Broker(id_, "", sum(free.values()), dirs=dirs)


def moving(target: Broker, *sizes: int) -> Plan:
    """Partitions of these sizes that go from broker 1 to a target, in this order."""
    partitions = [Partition("t", number, (1,), size) for number, size in enumerate(sizes)]
    cluster = Cluster.of([broker(1, d=1000), target], partitions)
    moves = (Reassignment("t", number, (1,), (target.id,), size) for number, size in enumerate(sizes))
    return Plan(cluster, tuple(moves))


def chosen(plan: Plan | Refused) -> dict[int, str]:
    """The directory by partition."""
    assert not isinstance(plan, Refused), plan
    return {name[1]: path for (name, _), path in plan.dirs.items()}


def test_the_heaviest_copy_goes_where_most_is_free() -> None:
    assert chosen(laid(moving(broker(2, a=10, b=12), 4, 4, 9))) == {2: "/b", 0: "/a", 1: "/a"}


def test_copies_are_packed_where_spreading_them_does_not_fit() -> None:
    # Spread, 5 and 3 go to /a, 4 and 3 to /b, and the last 3 fits nowhere.
    found = chosen(laid(moving(broker(2, a=9, b=9), 5, 4, 3, 3, 3)))
    assert found == {0: "/a", 1: "/a", 2: "/b", 3: "/b", 4: "/b"}


def test_what_an_earlier_move_freed_counts_only_where_nothing_else_fits() -> None:
    cluster = Cluster.of(
        [broker(1, d=50), broker(2, a=5, b=1)],
        [Partition("t", 0, (2,), 9, dirs=("/b",)), Partition("t", 1, (1,), 5), Partition("t", 2, (1,), 8)],
    )
    freeing, small, large = (
        Reassignment("t", 0, (2,), (1,), 9), Reassignment("t", 1, (1,), (2,), 5),
        Reassignment("t", 2, (1,), (2,), 8),
    )  # fmt: skip
    assert chosen(laid(Plan(cluster, (freeing, small)))) == {1: "/a"}
    assert chosen(laid(Plan(cluster, (freeing, large)))) == {2: "/b"}
    assert isinstance(laid(Plan(cluster, (large, freeing))), Refused)


def test_what_an_earlier_map_has_not_freed_yet_does_not_count() -> None:
    """With phases the old leader stays until the second map, so /b has no room in the first."""
    cluster = Cluster.of(
        [broker(1, d=50), broker(2, a=5, b=4)],
        [Partition("t", 0, (2,), 9, dirs=("/b",)), Partition("t", 1, (1,), 8)],
    )
    moves = Reassignment("t", 0, (2,), (1,), 9), Reassignment("t", 1, (1,), (2,), 8)
    assert chosen(laid(Plan(cluster, moves))) == {1: "/b"}
    whole = cut(Plan(cluster, moves), Rollout(phased=True))
    assert not isinstance(whole, Refused)
    assert isinstance(laid(whole), Refused)


@pytest.mark.parametrize("size", [0, None])
def test_copies_of_no_known_bytes_are_left_to_kafka(size: int | None) -> None:
    """In the emptiest directory they would all lie together."""
    target = replace(broker(2, a=9, b=9), new=True)
    cluster = Cluster.of([broker(1, d=9), target], [Partition("t", n, (1,), size) for n in range(9)])
    plan = planned(cluster, Rebuild(Choice(brokers=(2,)), use_meta=False))
    assert not isinstance(plan, Refused)
    assert (len(plan.moves), plan.dirs) == (9, {})
    made = list(files(plan, "plan.json").values())
    assert log_dir_faults(cluster, [sets_of(made[-1])], [log_dirs_of(made[-1])]) == ()


@pytest.mark.parametrize(("length", "paths"), [(213, {"/a"}), (214, set())])
def test_kafka_moves_no_name_so_long_between_directories(length: int, paths: set[str]) -> None:
    """With ``-0.UUID-future`` 255 characters are a name of a file, 256 are none."""
    topic = "t" * length
    here = Cluster.of(
        [broker(1, a=90, b=10), broker(2, a=50, b=10)], [Partition(topic, 0, (1,), 38, dirs=("/b",))]
    )
    plan = laid(Plan(here, (Reassignment(topic, 0, (1,), (2,), 38),)))
    assert not isinstance(plan, Refused)
    assert set(plan.dirs.values()) == paths
    inside = levelled(Plan(here, ()), {(topic, 0)}, (1,))
    assert set(inside.dirs.values()) == paths
    for made in (plan, inside):
        content = files(made, "plan.json")["plan.json"]
        assert ("log_dirs" in files(made, "plan.json")["plan-back.json"]) is bool(paths)
        assert log_dir_faults(here, [sets_of(content)], [log_dirs_of(content)]) == ()
    told = log_dir_faults(here, [{(topic, 0): (2,)}], [{(topic, 0): ("/a",)}])
    assert bool(told) is not bool(paths)


def test_kafka_chooses_by_number_of_partitions() -> None:
    held = [Partition("t", n, (1,), 1, dirs=("/b",)) for n in range(2)]
    cluster = Cluster.of([broker(1, a=0, b=90)], held)
    assert kafkas_choice(cluster, 1, 4) == ["/a", "/a", "/a", "/b"]


@pytest.mark.parametrize(("free", "short"), [(4, 0), (3, 1)])
def test_a_directory_that_kafka_may_fill_on_the_way_is_told(free: int, short: int) -> None:
    """Kafka begins the first copy in /a and the second in /b; both are meant for /b."""
    plan = laid(moving(broker(2, a=free, b=90), 4, 3))
    assert chosen(plan) == {0: "/b", 1: "/b"}
    assert not isinstance(plan, Refused)
    told = [one.text.split(":")[0] for one in plan.notices]
    assert told == [f"/a of broker 2 can be {short} bytes short during the moves"] * bool(short)


def test_balancing_log_dirs_that_are_not_known_refuses() -> None:
    plain = Cluster.of([broker(1, a=9), Broker(2, "", 9)], [Partition("t", 0, (1,), 1)])
    [told] = levelled(Plan(plain, ()), {("t", 0)}, (1, 2)).notices
    assert (told.id, told.refuses) == ("placement.log-dirs-unknown", True)
    assert levelled(Plan(TWO, ()), {("t", 0)}, (1, 2)).notices == ()


def test_a_refusal_names_broker_directories_and_the_largest_copy() -> None:
    refused = laid(moving(broker(2, a=5, b=6), 1, 7))
    assert isinstance(refused, Refused)
    assert [one.text for one in refused.reasons] == [
        "no arrangement was found to put 8 bytes of 2 copies into the directories of broker 2: /a (5 "
        "bytes free), "
        "/b (6 bytes free); the largest copy is t-1 with 7 bytes. Next: exclude the broker or the topic, "
        "or free space in a directory"
    ]


@pytest.mark.parametrize("target", [broker(2, a=10), Broker(2, "", 10)])
def test_a_broker_without_a_choice_gets_none(target: Broker) -> None:
    assert chosen(laid(moving(target, 4))) == {}


TWO = Cluster.of(
    [broker(1, a=90, b=10), broker(2, a=50, b=50)],
    [
        Partition("t", 0, (1, 2), 30, dirs=("/b", "/a")),
        Partition("t", 1, (1, 2), 38, dirs=("/b", "/a")),
        Partition("t", 2, (2, 1), 44, dirs=("/b", "/b")),
        Partition("u", 0, (1, 2), 40, dirs=("/b", "/b")),
    ],
)


def test_directories_of_a_broker_are_levelled_by_the_replica_nearest_to_half_of_the_difference() -> None:
    names = {("t", 0), ("t", 1), ("t", 2)}
    plan = levelled(Plan(TWO, ()), names, (1, 2))
    assert plan.dirs == {(("t", 1), 1): "/a"}
    assert usage(plan) == (
        Usage(1, "/a", 90, 52, 1), Usage(1, "/b", 10, 48, 0), Usage(2, "/a", 50, 50, 0),
        Usage(2, "/b", 50, 50, 0),
    )  # fmt: skip
    assert levelled(Plan(TWO, ()), names, (2,)).dirs == {}
    assert levelled(Plan(TWO, ()), {("t", 0)}, (1, 2)).dirs == {(("t", 0), 1): "/a"}


def test_a_replica_that_leaves_the_broker_is_not_moved_inside_it() -> None:
    leaving = Reassignment("t", 1, (1, 2), (3, 2), 38)
    cluster = Cluster.of([*TWO.brokers.values(), Broker(3, "", 100)], TWO.partitions)
    plan = levelled(Plan(cluster, (leaving,)), {("t", 1), ("t", 0)}, (1, 2, 3))
    assert plan.dirs == {(("t", 0), 1): "/a"}
    assert after(plan)[1, "/b"] == 10 + 38 + 30
    assert levelled(Plan(cluster, (leaving,)), {("t", 1)}, (1, 2, 3)).dirs == {}


def test_what_is_coming_takes_its_room_before_anything_moves_inside() -> None:
    cluster = Cluster.of(
        [broker(1, a=10, b=0), Broker(2, "", 50)],
        [
            Partition("t", 0, (1,), 8, dirs=("/b",)), Partition("t", 1, (1,), 50, dirs=("/a",)),
            Partition("t", 2, (2,), 5),
        ],
    )  # fmt: skip
    away, here = Reassignment("t", 1, (1,), (2,), 50), Reassignment("t", 2, (2,), (1,), 5)
    plan = laid(Plan(cluster, (away, here)))
    assert not isinstance(plan, Refused)
    assert plan.dirs == {(("t", 2), 1): "/a"}
    assert levelled(plan, {("t", 0)}, (1,)) == plan
    assert levelled(Plan(cluster, (away,)), {("t", 0)}, (1,)).dirs == {(("t", 0), 1): "/a"}


def test_directories_that_are_nearly_level_stay() -> None:
    for free, moved in ((55, 0), (56, 1)):
        cluster = Cluster.of([broker(1, a=free, b=50)], [Partition("t", 0, (1,), 3, dirs=("/b",))])
        assert len(levelled(Plan(cluster, ()), {("t", 0)}, (1,)).dirs) == moved


def test_the_maps_name_what_was_chosen_and_the_way_back_what_was() -> None:
    moved = Reassignment("t", 2, (2, 1), (2, 3), 44)
    cluster = Cluster.of([*TWO.brokers.values(), broker(3, a=50, b=60)], TWO.partitions)
    plan = laid(Plan(cluster, (moved,)))
    assert not isinstance(plan, Refused)
    made = files(levelled(plan, {("t", 1)}, (1,)), "plan.json")
    assert rows(made["plan.json"]) == [
        {"topic": "t", "partition": 2, "replicas": [2, 3], "log_dirs": ["any", "/b"]},
    ]
    made = files(levelled(plan, {("t", 0)}, (1,)), "plan.json")
    assert rows(made["plan.json"])[0]["log_dirs"] == ["any", "/b"]
    assert rows(made["plan-back.json"])[-1] == {
        "topic": "t", "partition": 2, "replicas": [2, 1], "log_dirs": ["any", "/b"],
    }  # fmt: skip
    inside = files(levelled(Plan(TWO, ()), {("t", 1)}, (1,)), "plan.json")
    assert rows(inside["plan.json"]) == [
        {"topic": "t", "partition": 1, "replicas": [1, 2], "log_dirs": ["/a", "any"]}
    ]
    assert rows(inside["plan-back.json"]) == [
        {"topic": "t", "partition": 1, "replicas": [1, 2], "log_dirs": ["/b", "any"]}
    ]


def rows(written: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(written)["partitions"]
    return found


def test_moves_inside_brokers_come_with_the_last_phase() -> None:
    moves = (Reassignment("t", 2, (2, 1), (1, 2), 44),)
    plan = Plan(TWO, moves, phases=(moves, moves), dirs={(("t", 1), 1): "/a"})
    made = files(plan, "plan.json")
    assert [len(rows(made[f"plan-phase{phase}.json"])) for phase in (0, 1)] == [1, 2]


CHECKED = Cluster.of([broker(1, a=9), broker(2, a=5, b=9)], [Partition("t", 0, (1,), 6)])


@pytest.mark.parametrize(
    ("replicas", "dirs", "told"),
    [
        ((2,), ("/b",), ""),
        ((2,), (), "broker 2 gets a copy without a log directory"),
        ((2,), ("/c",), "broker 2 has no log directory /c"),
        ((2,), ("/a",), "/a of broker 2 is 1 bytes short"),
        ((2,), ("/b", "/a"), "2 log directories"),
        ((1,), ("any",), ""),
    ],
)
def test_the_checker_reads_directories(replicas: tuple[int, ...], dirs: tuple[str, ...], told: str) -> None:
    found = log_dir_faults(CHECKED, [{("t", 0): replicas}], [{("t", 0): dirs}])
    assert [line.split(": ", 1)[1] for line in found] == ([told] if told else [])


def test_the_checker_counts_old_copies_until_the_next_move() -> None:
    full = Cluster.of(
        [broker(1, a=9, b=9), broker(2, a=5, b=0)],
        [Partition("t", 0, (2,), 6, dirs=("/b",)), Partition("t", 1, (1,), 6, dirs=("/a",))],
    )
    there, back = {("t", 0): (1,)}, {("t", 1): (2,)}
    dirs = {("t", 0): ("/a",), ("t", 1): ("/b",)}
    assert log_dir_faults(full, [there | back], [dirs]) == ()
    assert log_dir_faults(full, [back | there], [dirs]) == (
        "reassignment 1, t-1, [2]: /b of broker 2 is 6 bytes short",
    )
    inside = [{("t", 0): (2,)}, back]
    assert log_dir_faults(full, inside, [{("t", 0): ("/a",)}, dirs])[0].endswith(
        "/a of broker 2 is 1 bytes short"
    )


@pytest.mark.parametrize("paths", ["[1]", '"/a"', "{}"])
def test_the_checker_refuses_directories_that_are_no_list_of_paths(paths: str) -> None:
    row = f'{{"topic":"t","partition":0,"replicas":[1],"log_dirs":{paths}}}'
    with pytest.raises(ValueError, match="is not a list of paths"):
        log_dirs_of(f'{{"version":1,"partitions":[{row}]}}')


def test_another_plan_is_made_where_copies_fit_into_no_directory() -> None:
    """The emptier broker has room in all and in no single directory."""
    cluster = Cluster.of(
        [broker(1, a=0), broker(2, a=60, b=60), broker(3, a=70)],
        [Partition("t", 0, (1,), 65), Partition("t", 1, (1,), 1)],
    )
    plan = planned(cluster, Rebuild(Choice(brokers=(2, 3)), placement=By.STORAGE))
    assert not isinstance(plan, Refused)
    assert {move.name: move.after for move in plan.moves}["t", 0] == (3,)
    assert plan.cluster == cluster


def test_directories_may_be_left_to_kafka() -> None:
    cluster = Cluster.of([broker(1, a=0), broker(2, a=5, b=5)], [Partition("t", 0, (1,), 6)])
    request = Rebuild(Choice(brokers=(2,)), Rollout(log_dirs=LogDirs.KAFKA), placement=By.STORAGE)
    assert chosen(planned(cluster, request)) == {}
    assert isinstance(planned(cluster, replace(request, rollout=Rollout())), Refused)


def test_what_a_narrowed_broker_takes_surely_fits() -> None:
    cluster = Cluster.of([broker(1, a=9, b=4), broker(2, a=7)], [Partition("t", 0, (1,), 5)])
    assert limits(cluster, {("t", 0)}) == {1: 4, 2: None}
    assert limits(cluster, set()) == {1: 13, 2: None}


def limits(cluster: Cluster, names: set[Name]) -> dict[int, int | None]:
    return {id_: one.limit for id_, one in narrowed(cluster, names).brokers.items()}


REQUESTS: Mapping[str, Rebalance | Rebuild] = {
    "rebalance": Rebalance(partition_size_threshold=0, effort=0),
    "scale": Rebalance(scale=True, partition_size_threshold=0, effort=0),
    "count": Rebuild(Choice(brokers=(-2,)), effort=0),
    "storage": Rebuild(Choice(brokers=(1001, 1002, 1003, 1004)), placement=By.STORAGE, effort=0),
}


@pytest.mark.parametrize("kind", REQUESTS)
@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 10**6), dirs=st.integers(2, 4), rollout=st.sampled_from([0, 1, 2, 3]))
def test_no_directory_is_ever_below_zero(kind: str, seed: int, dirs: int, rollout: int) -> None:
    cluster = random_cluster(seed, new=1, dirs=dirs)
    cut = Rollout(
        phased=rollout == 1, chunk_step_size=int(rollout == 2),
        log_dirs=LogDirs.BALANCE if rollout == 3 else LogDirs.CHOOSE,
    )  # fmt: skip
    plan = planned(cluster, replace(REQUESTS[kind], rollout=cut))
    if isinstance(plan, Refused):
        return
    made = files(plan, "plan.json")
    _, *forward = made.values()
    maps = [sets_of(content) for content in forward]
    assert log_dir_faults(cluster, maps, [log_dirs_of(content) for content in forward]) == ()
    assert faults(cluster, maps) == ()
    assert min(after(plan).values(), default=0) >= 0
    assert set(after(plan)) == {(id_, path) for id_, free in several(cluster).items() for path in free}
