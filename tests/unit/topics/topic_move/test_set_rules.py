"""H20, H21: what a set leaves out, by what gateways and clusters tell."""

from __future__ import annotations

from typing import Any

import pytest

from zkmigrate.runbook.model.finding import Finding, Held, Severity
from zkmigrate.topics.topic_move.facts import AppSeen, Gateways
from zkmigrate.topics.topic_move.set_rules import (
    app_topics,
    node_ids,
    other_apps,
    other_groups,
    staged_elsewhere,
)
from zkmigrate.topics.topic_move.verify_step import left_ports

SET = ("orders", "bills")


def app(*topics: str, route: str = "old", staged: str = "") -> AppSeen:
    told = {"topics": dict.fromkeys(topics, 3)}
    return AppSeen(route, staged, "open", "", False, 0, 1, 0, told)


def judged(*found: Finding) -> list[tuple[str, Held, bool, str]]:
    return [(one.target, one.held, one.blocks, one.seen) for one in found]


def test_h20_an_application_that_asks_for_its_sets_topics_alone_may_switch() -> None:
    found = Gateways({("g1", "shop"): app("orders", "__consumer_offsets"), ("g2", "shop"): app("bills")}, ())
    assert judged(*app_topics(found, SET)) == [("shop", Held.YES, False, "bills, orders")]


def test_h20_each_topic_outside_the_set_is_named_once_whichever_gateways_saw_it() -> None:
    found = Gateways({("g1", "shop"): app("orders", "dead"), ("g2", "shop"): app("dead", "audit")}, ())
    assert judged(*app_topics(found, SET)) == [
        ("shop:audit", Held.NO, True, "its clients requested this topic"),
        ("shop:dead", Held.NO, True, "its clients requested this topic"),
    ]


@pytest.mark.parametrize(
    ("one", "held", "seen"),
    [
        (app("*", "orders"), Held.NO, "all topics"),
        (app("(more)", "*"), Held.NO, "all topics, topics that the gateway does not list by name"),
        (app(), Held.UNKNOWN, "no client has requested a topic"),
        (
            AppSeen("old", "", "open", "", False, 0, 1, 0, {}),
            Held.NO,
            "topics that the gateway does not list by name",
        ),
    ],
)
def test_h20_what_the_gateway_cannot_name_warns(one: AppSeen, held: Held, seen: str) -> None:
    assert judged(*app_topics(Gateways({("g1", "shop"): one}, ()), SET)) == [("shop", held, False, seen)]


def test_h20_another_application_on_source_may_not_ask_for_topics_of_the_set() -> None:
    others: dict[tuple[str, str], AppSeen] = {
        ("g1", "others"): app("logs"),
        ("g2", "others"): app("orders", "logs"),
        ("g1", "tools"): app("*"),
        ("g1", "moved"): app("orders", "*", route="new"),
    }
    assert judged(*other_apps(Gateways({}, (), {}, others), SET, "old")) == [
        ("others:orders", Held.NO, True, "its clients requested this topic"),
        ("tools", Held.NO, False, "all topics"),
    ]
    del others["g2", "others"], others["g1", "tools"]
    assert judged(*other_apps(Gateways({}, (), {}, others), SET, "old")) == [("", Held.YES, False, "none")]


def test_h12_each_group_outside_the_set_blocks_by_its_name() -> None:
    assert judged(*other_groups({"mail": "the group has members"})) == [
        ("mail", Held.NO, True, "the group has members")
    ]
    assert judged(*other_groups({})) == [("", Held.YES, False, "none")]


def test_h21_a_route_to_a_third_cluster_is_told() -> None:
    at: dict[tuple[str, str], Any] = {
        ("g1", "a"): app(staged="new"),
        ("g1", "b"): app(),
        ("g2", "b"): app(staged="third"),
    }
    [told] = staged_elsewhere(Gateways(at, ()), "new")
    assert (told.target, told.seen, told.blocks) == ("g2:b", "third", False)


@pytest.mark.parametrize(
    ("here", "there", "seen"),
    [
        ((1, 2, 3), (3, 2, 1), ""),
        ((1, 2, 3), (11, 12), ""),
        ((1, 2, 3, 4), (1, 2), ""),
        ((1, 2, 3), (2, 3, 4), "2, 3"),
        ((1, 2, 3), (3,), ""),
        ((2, 3, 4), (1, 2), "2"),
    ],
)
def test_h21_node_ids_that_stand_elsewhere_on_target_are_told(
    here: tuple[int, ...], there: tuple[int, ...], seen: str
) -> None:
    told = node_ids(here, there)
    assert (told.held, told.severity) == (Held.NO if seen else Held.YES, Severity.WARN)
    assert told.seen == (seen or "every shared node id has the same position in both lists")


def test_h23_those_who_still_connect_to_left_ports_are_named_and_nobody_else() -> None:
    def one(left: int, *names: str) -> AppSeen:
        told = {"left_clients": names, "clients": {"old-hand": 9}}
        return AppSeen("new", "", "open", "", False, 0, 5, left, told)

    at = {("g1", "shop"): one(2, "mail-1 at 10.0.0.1", "web at 10.0.0.2"), ("g2", "shop"): one(0)}
    told = left_ports(Gateways(at, ()))
    assert told.seen == "connections g1:shop: 2; clients: mail-1 at 10.0.0.1, web at 10.0.0.2"
