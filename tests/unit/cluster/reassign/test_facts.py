"""Where moves stand, and how a throttle's values are made, by hand-made facts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tests.answers import Answering
from zkmigrate.cluster.reassign.answers import Cluster, Disks, LogEnds, disks, log_ends
from zkmigrate.cluster.reassign.choice import next_moves
from zkmigrate.cluster.reassign.facts import stands
from zkmigrate.cluster.reassign.moves import Move, Stand
from zkmigrate.cluster.reassign.section import Reassign
from zkmigrate.cluster.reassign.throttle import (
    FOLLOWER_LIST,
    LEADER_LIST,
    LEADER_RATE,
    Limits,
    SentRates,
    Throttles,
    Values,
)
from zkmigrate.kafka.questions import InFlight, LogDir, LogEnd, PartitionState, TopicPartitions
from zkmigrate.kafka.rates import Rate
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Way
from zkmigrate.runbook.model.step_record import recorded

MOVE = Move("a", 0, (1, 2), (3, 2), 100, 1)


def stand(
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    way: Way = Way.FORWARD,
    flight: InFlight | None = None,
    alive: frozenset[int] = frozenset({1, 2, 3}),
) -> Stand:
    state = PartitionState("a", 0, isr[0], replicas, isr)
    seen = TopicPartitions("i", alive, (1, 2), {"a": Seen((state,))})
    flights = {} if flight is None else {("a", 0): flight}
    return stands((MOVE,), Cluster(Seen(flights), Seen(seen)), way, Disks({}, {})).of["a", 0]


@pytest.mark.parametrize(
    ("replicas", "isr", "forward", "back"),
    [
        ((1, 2), (1, 2), Stand.TO_SUBMIT, Stand.DONE),
        ((2, 1), (1, 2), Stand.TO_SUBMIT, Stand.TO_SUBMIT),
        ((3, 2), (2, 3), Stand.DONE, Stand.TO_SUBMIT),
        ((3, 2), (2,), Stand.BEHIND, Stand.TO_SUBMIT),
        ((1, 2), (2,), Stand.TO_SUBMIT, Stand.BEHIND),
        ((2, 3), (2, 3), Stand.TO_SUBMIT, Stand.TO_SUBMIT),
        ((3, 2, 1), (1, 2), Stand.FOREIGN, Stand.FOREIGN),
    ],
)
def test_a_set_counts_with_its_order_and_all_of_it_in_sync(
    replicas: tuple[int, ...], isr: tuple[int, ...], forward: Stand, back: Stand
) -> None:
    assert stand(replicas, isr) is forward
    assert stand(replicas, isr, Way.BACK) is back


def test_what_is_in_flight_counts_before_what_is_there() -> None:
    ours, others = InFlight((3, 2, 1), (3,), (1,)), InFlight((4, 2, 1), (4,), (1,))
    assert stand((3, 2), (3, 2), flight=ours) is Stand.MOVING
    assert stand((3, 2), (3, 2), Way.BACK, ours) is Stand.TURNED
    assert stand((3, 2), (3, 2), flight=others) is Stand.FOREIGN


def test_the_way_back_does_not_wait_for_a_broker_that_is_down() -> None:
    assert stand((1, 2), (2,), Way.BACK, alive=frozenset({2, 3})) is Stand.DONE
    assert stand((3, 2), (2,), alive=frozenset({1, 2})) is Stand.BEHIND, "forward it is the move"


def test_a_partition_that_is_gone_is_no_partition_that_is_done() -> None:
    seen = TopicPartitions("i", frozenset(), (1,), {"a": Seen(())})
    assert stands((MOVE,), Cluster(Seen({}), Seen(seen)), Way.FORWARD, Disks({}, {})).of["a", 0] is Stand.GONE


def caps(**given: int) -> Reassign:
    return Reassign.model_validate({"plan": "p", "throttle_bytes_s": 1000, **given})


def test_a_full_broker_lets_those_behind_pass() -> None:
    moves = (
        Move("a", 0, (1,), (3,), 1, 1),
        Move("a", 1, (2,), (3,), 1, 2),
        Move("a", 2, (2,), (4,), 1, 2),
        Move("a", 3, (1,), (5,), 1, 1),
    )
    assert next_moves(caps(per_broker=1), (), moves, Way.FORWARD) == (moves[0], moves[2])
    assert next_moves(caps(per_broker=1), moves[:1], moves[1:], Way.FORWARD) == (moves[2],)
    assert next_moves(caps(in_flight=1), moves[:1], moves[1:], Way.FORWARD) == ()


FOUND: Values = {"topic-a": {LEADER_LIST: "7:1, 0:1", FOLLOWER_LIST: None}, "broker-1": {LEADER_RATE: None}}
RECORDS = Throttles(FOUND, {1: Rate(5, 6)}), SentRates({1: (Rate(8, 8),)})
LIMITS, BACK = (Limits.of(*RECORDS, (MOVE,), way) for way in (Way.FORWARD, Way.BACK))


def test_a_list_is_merged_and_given_back_as_it_was() -> None:
    assert LIMITS.on("topic-a", LEADER_LIST, "7:1, 0:1") == "7:1,0:1,0:2,0:3"
    assert LIMITS.on("topic-a", LEADER_LIST, "7:1,0:1,0:2,0:3") == "7:1,0:1,0:2,0:3"
    assert LIMITS.on("topic-a", LEADER_LIST, ",0:1") == "0:1,0:2,0:3", "APPEND left an empty entry"
    assert LIMITS.on("topic-a", FOLLOWER_LIST, "*") == "*"
    assert LIMITS.on("topic-a", FOLLOWER_LIST, None) == "0:3", "who receives, and nobody in sync"
    assert BACK.on("topic-a", FOLLOWER_LIST, None) == "0:1"
    assert BACK.on("topic-a", LEADER_LIST, None) == LIMITS.on("topic-a", LEADER_LIST, None) == "0:1,0:2,0:3"
    assert LIMITS.off("topic-a", FOLLOWER_LIST, "0:3") is BACK.off("topic-a", FOLLOWER_LIST, "0:3") is None
    assert LIMITS.off("topic-a", LEADER_LIST, "7:1,0:1,0:2,0:3") == "7:1, 0:1", "byte for byte"
    assert LIMITS.off("topic-a", LEADER_LIST, "7:1,0:1,0:2,0:3,8:8") == "7:1,0:1,8:8"
    assert LIMITS.off("topic-a", FOLLOWER_LIST, "0:3,0:1") is None, "unset, not empty"
    assert LIMITS.off("topic-a", LEADER_LIST, "0:2,0:3") is None, "others removed what was found"


def test_a_rate_of_another_hand_stays() -> None:
    assert LIMITS.on("broker-1", LEADER_RATE, None) == "5"
    assert LIMITS.off("broker-1", LEADER_RATE, "5") is None
    assert LIMITS.off("broker-1", LEADER_RATE, "8") is None, "sent later"
    assert LIMITS.off("broker-1", LEADER_RATE, "9") == "9"


def test_the_record_of_a_throttle_survives_the_journal() -> None:
    record = Throttles(FOUND, {1: Rate(5, 6)})
    assert recorded(Throttles, record.encode(), "r") == record
    sent = SentRates({}).with_rates({1: Rate(5, 6)}).with_rates({1: Rate(7, 8), 2: Rate(5, 6)})
    assert recorded(SentRates, sent.encode(), "r") == sent
    assert sent.rates == {1: (Rate(5, 6), Rate(7, 8)), 2: (Rate(5, 6),)}


@pytest.mark.parametrize(
    ("copy", "leader", "words"),
    [
        (LogEnd(5, None, 1), LogEnd(28, 21, 1), "LEO 5 of 28, records behind: 23, HW 21, leader epoch 1"),
        (LogEnd(9, None, 1), LogEnd(8, 8, 1), "LEO 9 of 8, records behind: 0, HW 8, leader epoch 1"),
        (
            LogEnd(5, None, 0),
            LogEnd(28, 21, 1),
            "LEO 5 of 28, records behind: 23, HW 21, leader epoch 1 and 0 by this broker",
        ),
        (None, LogEnd(28, 21, 1), "LEO unknown of 28, records behind: unknown, HW 21, leader epoch 1"),
        (
            LogEnd(5),
            LogEnd(28),
            "LEO 5 of 28, records behind: 23, HW unknown, leader epoch unknown",
        ),
        (
            LogEnd(0, None, 0),
            None,
            "LEO 0 of unknown, records behind: unknown, HW unknown, leader epoch unknown"
            " and 0 by this broker",
        ),
    ],
)
def test_p14_what_no_broker_tells_of_a_log_is_unknown_and_never_0(
    copy: LogEnd | None, leader: LogEnd | None, words: str
) -> None:
    told = {(2, ("a", 0)): copy, (1, ("a", 0)): leader}
    ends = LogEnds({at: end for at, end in told.items() if end is not None})
    assert ends.words(2, 1, ("a", 0)) == words


def test_no_more_partitions_are_asked_about_than_may_be_in_flight() -> None:
    """Of those behind: the leader, and each replica that is alive and not in sync."""
    states = tuple(PartitionState("a", n, 1, (1, 2, 9), (1,) if n else (1, 2, 9)) for n in range(4))
    seen = TopicPartitions("i", frozenset({1, 2, 3}), (1, 2), {"a": Seen(states)})
    asked: list[object] = []

    class Questions(Answering):
        def log_ends(self, cluster: str, replicas: object) -> Seen[dict[int, object]]:
            asked.append((cluster, replicas))
            return Seen({})

    names = [("a", n) for n in range(4)]
    told = log_ends(cast(Look, Questions()), Cluster(Seen({}), Seen(seen)), names, 2)
    assert told == LogEnds({})
    assert asked == [("kafka", {1: {"a": [1, 2]}, 2: {"a": [1, 2]}})]


@pytest.mark.parametrize(
    ("shut", "room"),
    [((False, False), 5), ((True, False), 2), ((True, True), 5)],
    ids=["none", "one: Kafka chooses the other", "all: Kafka chooses among them, as on the way back"],
)
def test_a_cordoned_directory_has_no_room_unless_all_are_cordoned(shut: tuple[bool, bool], room: int) -> None:
    dirs = {path: Seen(LogDir((), 9 + n, 3 - n, shut[n])) for n, path in enumerate(("/a", "/b"))}
    told = SimpleNamespace(ask=lambda _request: Seen({4: Seen(dirs)}))
    found = disks(cast(Look, told), [4], [("t", 0)])
    assert (found.room, found.shut(4), found.shut(5)) == ({4: room}, all(shut), False)
    assert found.cordoned == {4: {path for path, one in dirs.items() if one.value.cordoned}}
