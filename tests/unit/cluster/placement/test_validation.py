"""What a choice names, and what is checked before any plan."""

from __future__ import annotations

from zkmigrate.cluster.placement.cluster import Broker, Cluster, Partition
from zkmigrate.cluster.placement.plan import Refused
from zkmigrate.cluster.placement.request import MAPPED, REGISTERED, Choice
from zkmigrate.cluster.placement.validation import Chosen, additions_only, chosen, sizes_missing

ALL = Choice()


def cluster(
    *partitions: tuple[str, tuple[int, ...]], brokers: tuple[int, ...] = (1, 2, 3), rack: str = ""
) -> Cluster:
    return Cluster.of(
        [Broker(broker, rack or f"r{broker}", 100) for broker in brokers],
        [Partition(topic, 0, replicas, 1) for topic, replicas in partitions],
    )


def found(cluster: Cluster, choice: Choice = ALL) -> Chosen:
    answer = chosen(cluster, choice)
    assert isinstance(answer, Chosen), answer
    return answer


def refused(cluster: Cluster, choice: Choice = ALL) -> list[str]:
    answer = chosen(cluster, choice)
    assert isinstance(answer, Refused), answer
    return [reason.id for reason in answer.reasons]


def ids(answer: Chosen) -> list[str]:
    return [notice.id for notice in answer.notices]


def test_r1_only_matched_and_not_excluded_topics_are_chosen() -> None:
    seen = cluster(("a.b", (1,)), ("axb", (1,)), ("orders", (1,)), ("orders-old", (1,)), ("other", (1,)))
    choice = Choice(topics=("a.b", "orders.*"), exclude=("orders-old", ".*never.*"))
    answer = found(seen, choice)
    assert [one.topic for one in answer.partitions] == ["a.b", "orders"]
    assert ids(answer) == ["placement.exclude-unmatched", "placement.broker-new"]


def test_r1_a_name_is_whole_and_a_pattern_is_searched_as_topicmappr_does() -> None:
    seen = cluster(("orders", (1,)), ("orders-old", (1,)), ("pay.v1", (1,)), ("repay", (1,)))

    def topics(*chosen: str, exclude: tuple[str, ...] = ()) -> list[str]:
        return [one.topic for one in found(seen, Choice(chosen or (".*",), exclude)).partitions]

    assert topics("orders") == ["orders"]
    assert topics("order.") == topics("^order") == ["orders", "orders-old"]
    assert topics(exclude=("^pay",)) == ["orders", "orders-old", "repay"]
    assert topics(exclude=("pay$", "^pay", "orders")) == ["orders-old"]
    assert topics(exclude=("order",)) == ["orders", "orders-old", "pay.v1", "repay"]
    assert topics("pay.v1") == ["pay.v1"]


def test_b1_named_partitions_are_chosen_alone_and_topics_narrow_them() -> None:
    seen = Cluster.of([Broker(1, "", 9)], [Partition(topic, at, (1,), 1) for topic in "ab" for at in (0, 1)])
    named = frozenset({("a", 1), ("b", 0)})
    assert [one.name for one in found(seen, Choice(partitions=named)).partitions] == [("a", 1), ("b", 0)]
    narrowed = found(seen, Choice(topics=("a",), partitions=named))
    assert [one.name for one in narrowed.partitions] == [("a", 1)]
    assert refused(seen, Choice(topics=("a",), partitions=frozenset({("b", 0)}))) == ["placement.no-topic"]


def test_r1_what_matches_nothing_is_told() -> None:
    seen = cluster(("orders", (1,)))
    answer = found(seen, Choice(topics=("orders", "orderz")))
    unmatched = answer.notices[0]
    assert (unmatched.id, unmatched.refuses) == ("placement.topic-unmatched", True)
    assert "orderz" in unmatched.text
    assert refused(seen, Choice(topics=("orderz",))) == ["placement.no-topic"]
    assert refused(seen, Choice(exclude=(".*",))) == ["placement.no-topic"]
    assert refused(seen, Choice(topics=("*",))) == ["placement.topic-pattern"]
    assert refused(seen, Choice(exclude=("(",))) == ["placement.topic-pattern"]


def test_r2_mapped_brokers_are_those_of_the_chosen_sets_and_registered_ones_are_all() -> None:
    seen = cluster(("a", (1, 2)), ("b", (3,)), brokers=(1, 2, 3, 4))
    assert found(seen, Choice(topics=("a",), brokers=(MAPPED,))).brokers == (1, 2)
    assert found(seen, Choice(topics=("a",), brokers=(REGISTERED,))).brokers == (1, 2, 3, 4)
    assert found(seen, Choice(topics=("a",), brokers=(MAPPED, 4))).brokers == (1, 2, 4)
    assert found(seen, Choice(topics=("a",), brokers=(4, 2))).brokers == (2, 4)


def test_r2_other_numbers_below_0_and_brokers_that_are_all_gone_are_refused() -> None:
    seen = cluster(("a", (1, 9)))
    assert refused(seen, Choice(brokers=(1, -3))) == ["placement.broker-id"]
    assert refused(seen, Choice(brokers=(8, 9))) == ["placement.no-broker"]


def test_r11_only_additions_pass_for_rebalance_and_scale() -> None:
    seen = cluster(("a", (1, 2, 9)), brokers=(1, 2, 3))
    reasons = additions_only(found(seen, Choice(brokers=(1, 3, 7))))
    assert [reason.id for reason in reasons] == [
        "placement.broker-gone",
        "placement.broker-left-out",
        "placement.broker-unregistered",
    ]
    assert additions_only(found(cluster(("a", (1, 2))), Choice(brokers=(1, 2, 3)))) == ()


def test_r12_brokers_without_a_rack_are_named() -> None:
    seen = Cluster.of(
        [Broker(1, "a", 1), Broker(2, "", 1), Broker(3, "", 1)], [Partition("t", 0, (1, 2, 3), 1)]
    )
    (told,) = found(seen).notices
    assert (told.id, told.refuses) == ("placement.no-rack", False)
    assert "2 brokers (2, 3)" in told.text


def test_r16_each_of_the_four_checks_of_brokers_has_its_count_and_ids() -> None:
    seen = cluster(("a", (1, 2, 8, 9)), brokers=(1, 2, 3, 4))
    answer = found(seen, Choice(brokers=(1, 3, 4, 7)))
    assert (answer.missing, answer.replaced) == ((8, 9), (2,))
    assert (answer.unregistered, answer.new) == ((7,), (3, 4))
    told = {notice.id: notice for notice in answer.notices}
    assert "2 brokers (8, 9)" in told["placement.broker-gone"].text
    assert "1 broker (2)" in told["placement.broker-left-out"].text
    assert "1 broker (7)" in told["placement.broker-unregistered"].text
    assert "2 brokers (3, 4)" in told["placement.broker-new"].text
    assert [notice.id for notice in answer.notices if notice.refuses] == ["placement.broker-unregistered"]


def test_x13_a_plan_that_needs_sizes_is_refused_without_them() -> None:
    known = [Partition("t", number, (1,), 0) for number in range(3)]
    assert sizes_missing(known) is None
    unknown = [Partition("t", number, (1,), None) for number in range(12)]
    answer = sizes_missing([*known, *unknown])
    assert answer
    (reason,) = answer.reasons
    assert reason.id == "placement.size-missing"
    assert "12 partitions" in reason.text
    assert "t-9 and 2 more" in reason.text


def test_p13_brokers_on_one_address_are_told_as_one_failure_domain() -> None:
    seen = Cluster.of(
        [Broker(1, "a", 1, host="h"), Broker(2, "b", 1, host="h"), Broker(3, "c", 1, host="i")],
        [Partition("t", 0, (1, 2, 3), 1)],
    )
    (told,) = found(seen).notices
    assert told.id == "placement.one-host"
    assert "2 brokers (1, 2)" in told.text
    assert found(seen, Choice(brokers=(2, 3))).notices[1:] == ()


def test_p13_brokers_that_are_all_in_one_rack_are_told_as_one_failure_domain() -> None:
    assert ids(found(cluster(("t", (1, 2, 3)), rack="a"))) == ["placement.one-rack"]
    assert ids(found(cluster(("t", (1,)), brokers=(1,), rack="a"))) == []


def test_a_set_that_names_a_broker_twice_or_none_is_refused() -> None:
    assert refused(cluster(("t", (1, 1)))) == ["placement.set-twice"]
    assert refused(cluster(("t", ()))) == ["placement.set-empty"]
    assert refused(cluster(("t", (1, 1))), Choice(topics=("other",))) == ["placement.no-topic"]
