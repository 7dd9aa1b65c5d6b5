"""A plan's maps as Kafka's reassignment JSON: the same bytes each time, and a way back."""

from __future__ import annotations

import json

import pytest

from tests.examples import seeds
from tests.unit.cluster.placement.random_clusters import random_cluster
from zkmigrate.cluster.placement.check import faults, sets_of
from zkmigrate.cluster.placement.cluster import Broker, Cluster, Partition
from zkmigrate.cluster.placement.cluster_file import ClusterFileError
from zkmigrate.cluster.placement.maps import files, mapped, no_way_back, parse, text
from zkmigrate.cluster.placement.order import in_order
from zkmigrate.cluster.placement.phases import cut
from zkmigrate.cluster.placement.plan import Plan, Reassignment, Refused
from zkmigrate.cluster.placement.rebalance import rebalance
from zkmigrate.cluster.placement.request import Rebalance, Rollout

CLUSTER = Cluster.of(
    [Broker(1, "", 10), Broker(2, "", 90), Broker(3, "", 90)],
    [Partition("t", 0, (1, 2), 5, 2.0), Partition("t", 1, (1, 9), 7)],
)
MOVES = (Reassignment("t", 0, (1, 2), (3, 2), 5), Reassignment("t", 1, (1, 9), (2, 1), 7))


def test_a_map_is_what_kafka_s_tool_takes_a_partition_a_line() -> None:
    written = text((move.name, move.after, ()) for move in MOVES)
    assert written == (
        '{"version":1,"partitions":[\n'
        '{"topic":"t","partition":0,"replicas":[3,2]},\n'
        '{"topic":"t","partition":1,"replicas":[2,1]}\n'
        "]}\n"
    )
    assert json.loads(written)["partitions"][1] == {"topic": "t", "partition": 1, "replicas": [2, 1]}
    assert text([]) == '{"version":1,"partitions":[]}\n'


def test_u1_the_way_back_has_the_sets_before_in_their_order_the_last_move_first() -> None:
    plan = Plan(CLUSTER, (MOVES[0], Reassignment("t", 1, (1, 2), (2, 1), 7)))
    assert list(files(plan, "plan.json")) == ["plan-back.json", "plan.json"]
    assert list(sets_of(files(plan, "plan.json")["plan-back.json"]).items()) == [
        (("t", 1), (1, 2)),
        (("t", 0), (1, 2)),
    ]
    assert no_way_back(plan) == ()


def test_u1_a_set_with_a_broker_that_is_gone_has_no_way_back_and_this_is_told() -> None:
    plan = Plan(CLUSTER, MOVES)
    assert sets_of(files(plan, "plan.json")["plan-back.json"]) == {("t", 0): (1, 2)}
    [notice] = no_way_back(plan)
    assert notice.id == "placement.no-way-back"
    assert (
        notice.text
        == "The way back leaves out 1 partition that has a replica on a broker that no longer exists."
    )


def test_phases_are_files_of_their_own_that_sort_and_end_at_the_plan() -> None:
    plan = Plan(CLUSTER, MOVES, phases=tuple((MOVES[0],) for _ in range(11)))
    names = list(files(plan, "out.of.json"))
    assert names[:3] == ["out.of-back.json", "out.of-phase00.json", "out.of-phase01.json"]
    assert names[-2:] == ["out.of-phase10.json", "out.of.json"]
    assert names == [names[0], *sorted(names[1:-1]), names[-1]]


REQUESTS = [
    Rebalance(partition_size_threshold=0),
    Rebalance(partition_size_threshold=0, rollout=Rollout(phased=True, chunk_step_size=1)),
    Rebalance(partition_size_threshold=0, rollout=Rollout(optimize_leadership=True), locality_scoped=True),
]


def written(cluster: Cluster, request: Rebalance) -> dict[str, str]:
    plan = rebalance(cluster, request)
    assert isinstance(plan, Plan)
    done = cut(plan, request.rollout)
    assert isinstance(done, Plan)
    return files(done, "plan.json")


@pytest.mark.parametrize("request_", REQUESTS, ids=range(len(REQUESTS)))
@pytest.mark.parametrize("seed", seeds(8))
def test_r17_the_same_request_gives_the_same_bytes_whatever_the_order_of_the_input(
    seed: int, request_: Rebalance
) -> None:
    cluster = random_cluster(seed, brokers=5, partitions=12)
    first = written(cluster, request_)
    assert written(cluster, request_) == first
    turned = Cluster.of(list(cluster.brokers.values())[::-1], cluster.partitions[::-1])
    assert written(turned, request_) == first


@pytest.mark.parametrize("seed", seeds(20))
def test_u1_plan_and_way_back_keep_every_rule_and_end_where_they_began(seed: int) -> None:
    cluster = random_cluster(seed, brokers=6, partitions=15, room=0.3)
    made = written(cluster, Rebalance(partition_size_threshold=0))
    there, back = sets_of(made["plan.json"]), sets_of(made["plan-back.json"])
    assert faults(cluster, [there, back]) == ()
    assert back == {name: cluster.by_name[name].replicas for name in there}


def test_the_order_backwards_has_room_wherever_the_order_forwards_has() -> None:
    """Two brokers that swap a large replica for small ones, with room for one after the other only."""
    cluster = Cluster.of(
        [Broker(1, "", 4), Broker(2, "", 4)],
        [*(Partition("s", n, (1,), 3) for n in range(3)), Partition("t", 0, (2,), 3)],
    )
    moves = [Reassignment("s", 0, (1,), (2,), 3), Reassignment("t", 0, (2,), (1,), 3)]
    ordered = in_order(cluster, moves)
    assert not isinstance(ordered, Refused)
    made = files(Plan(cluster, ordered), "plan.json")
    assert faults(cluster, [sets_of(made["plan.json"]), sets_of(made["plan-back.json"])]) == ()


def test_b1_a_literal_map_changes_its_own_sets_alone() -> None:
    dirs = Partition("d", 0, (1, 2), 3, None, ("/a", "/b"))
    cluster = Cluster.of(CLUSTER.brokers.values(), [*CLUSTER.partitions, dirs])
    given = parse(b'{"partitions": [{"topic": "t", "partition": 1, "replicas": [3, 1]}]}', "--map-string")
    assert mapped(cluster, given) == Cluster.of(
        CLUSTER.brokers.values(), [dirs, CLUSTER.partitions[0], Partition("t", 1, (3, 1), 7)]
    )
    assert mapped(cluster, {("d", 0): (1, 2)}) == cluster
    other = mapped(cluster, {("d", 0): (2, 1)})
    assert isinstance(other, Cluster)
    assert other.by_name["d", 0] == Partition("d", 0, (2, 1), 3)


def test_b1_a_partition_that_the_cluster_lacks_is_refused() -> None:
    refused = mapped(CLUSTER, {("t", 0): (1,), ("n", 4): (1,), ("t", 2): (1,)})
    assert isinstance(refused, Refused)
    assert [one.id for one in refused.reasons] == ["placement.map-unknown"]
    assert "names n-4, t-2, which" in refused.reasons[0].text


def test_b1_the_map_of_the_cluster_is_the_cluster() -> None:
    cluster = random_cluster(3, brokers=5, partitions=12, dirs=2)
    whole = text((one.name, one.replicas, ()) for one in cluster.partitions)
    assert mapped(cluster, parse(whole.encode(), "--map-string")) == cluster


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "line 1, column 1: Expecting value; "),
        (b"[]", "the reassignment: seen []; needed: Kafka's reassignment JSON"),
        (b'{"partitions": []}', "partitions: seen []; needed: Kafka's reassignment JSON"),
        (b'{"version": 2, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}',
            "version: seen 2; "),
        (
            b'{"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}',
            'partitions[0].replicas[0]: seen "1"; ',
        ),
        (
            b'{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}',
            "partitions[0] (topic t, partition 0).replicas: seen a broker twice in [1, 1]; ",
        ),
        (
            b'{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}, '
            b'{"topic": "t", "partition": 0, "replicas": [1]}]}',
            "partitions[1] (topic t, partition 0): seen a second time; ",
        ),
    ],
)  # fmt: skip
def test_a_map_that_is_none_is_refused(content: bytes, told: str) -> None:
    with pytest.raises(ClusterFileError) as caught:
        parse(content, "m.json")
    assert str(caught.value).startswith(f"m.json: {told}")
