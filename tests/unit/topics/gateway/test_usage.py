"""H21: usage rules, from what a gateway sees of its clients."""

from __future__ import annotations

from typing import Any

import pytest

from zkmigrate.runbook.model.finding import Finding, Held
from zkmigrate.topics.gateway.rules.seen import LONGEST, MOST_NAMES, Seen, count
from zkmigrate.topics.gateway.usage import usage

JAVA = "apache-kafka-java "


def judged(**tables: dict[str, int]) -> dict[str, Finding]:
    seen: dict[str, Any] = Seen().body(0.0)
    return {one.id.removeprefix("gateway."): one for one in usage("orders", seen | tables)}


def test_h21_clients_without_fault_hold_every_claim() -> None:
    software = {f"{JAVA}2.8.2": 2, f"{JAVA}4.3.1": 1, "confluent-kafka-python 2.16.1-rdkafka-2.16.0": 1}
    found = judged(software=software, acks={"-1": 9}, answered={"API_VERSIONS": 4, "PRODUCE": 9})
    wrong = {id: one for id, one in found.items() if one.held is not Held.YES}
    assert wrong.keys() == {"client-assign"}, "Java 2.8.2 has KAFKA-13563 where it uses assign()"
    assert all(one.target == "orders" for one in found.values())


@pytest.mark.parametrize(
    ("release", "stuck", "assigned"),
    [
        ("2.4.1", False, False),
        ("2.5.0", True, False),
        ("2.5.1", True, False),
        ("2.6.0", True, False),
        ("2.6.1", True, False),
        ("2.7.0", True, False),
        ("2.6.2", False, True),
        ("3.2.0", False, True),
        ("3.2.1", False, False),
        ("3.9.1", False, False),
        ("2.5.0-cp1", True, False),
    ],
)
def test_h21_releases_of_java_that_lose_their_coordinator(release: str, stuck: bool, assigned: bool) -> None:
    found = judged(software={JAVA + release: 1, "librdkafka 2.5.0": 1}, answered={"API_VERSIONS": 2})
    assert found["client-stuck"].held is (Held.NO if stuck else Held.YES)
    assert found["client-assign"].held is (Held.NO if assigned else Held.YES)
    assert (JAVA + release in found["client-assign"].seen) == assigned


def test_h21_who_does_not_tell_a_release_is_unknown() -> None:
    assert judged()["client-stuck"].held is Held.UNKNOWN
    found = judged(software={f"{JAVA}3.9.1": 1}, answered={"API_VERSIONS": 3})["client-stuck"]
    assert found.held is Held.UNKNOWN
    assert "2 connections did not report a release" in found.seen
    known = judged(software={f"{JAVA}2.7.0": 1}, answered={"API_VERSIONS": 3})["client-stuck"]
    assert known.held is Held.NO, "a known fault is not hidden by what is unknown"


@pytest.mark.parametrize(
    ("tables", "id", "said"),
    [
        ({"acks": {"-1": 5, "1": 2}}, "acks", "acks=1: 2 requests"),
        ({"acks": {"0": 3}}, "acks", "acks=0: 3 requests"),
        ({"transactional": {"pay-1": 4}}, "transactions", "4 requests with this transactional id"),
        (
            {"refused": {"api: CONSUMER_GROUP_HEARTBEAT is not offered": 1}},
            "new-groups",
            "CONSUMER_GROUP_HEART",
        ),
        ({"refused": {"api: SHARE_FETCH is not offered": 1}}, "new-groups", "SHARE_FETCH"),
        ({"refused": {"api: STREAMS_GROUP_HEARTBEAT is not offered": 1}}, "new-groups", "STREAMS_GROUP"),
        ({"lost": {"PRODUCE": 2}}, "lost", "PRODUCE 2"),
    ],
)
def test_h21_what_a_switch_has_to_think_of(tables: dict[str, Any], id: str, said: str) -> None:
    found = judged(**tables)
    assert found[id].held is Held.NO
    assert said in found[id].seen
    others = {name: one for name, one in found.items() if name not in (id, "client-stuck")}
    assert all(one.held is Held.YES for one in others.values())


def test_each_transactional_id_is_a_finding_that_somebody_can_accept_alone() -> None:
    tables = Seen().body(0.0) | {"transactional": {"pay": 4, "ship": 1}}
    found = [one for one in usage("orders", tables) if one.id == "gateway.transactions"]
    assert [one.target for one in found] == ["orders:pay", "orders:ship"]


def test_h21_another_refusal_is_not_about_groups() -> None:
    assert judged(refused={"api: DESCRIBE_CLUSTER is not offered": 1})["new-groups"].held is Held.YES


def test_h20_topics_are_counted_up_to_a_number_and_all_of_them_as_one() -> None:
    seen = Seen()
    for topics in ({"orders"}, {"orders", "x" * 250}, set[str](), None):
        seen.request({"Topics": topics}, "a")
    assert seen.body(0.0)["topics"] == {"*": 1, "orders": 2}
    seen.request({"Topics": {f"t{n}" for n in range(MOST_NAMES)}}, "a")
    assert (len(seen.topics), seen.topics["(more)"]) == (MOST_NAMES + 2, 2)


def test_who_sends_many_names_displaces_its_own_and_the_one_unused_longest() -> None:
    seen = Seen()
    seen.request({"Topics": {"orders"}, "TransactionalId": "pay"}, "honest")
    seen.request({"Topics": None}, "honest")
    for n in range(MOST_NAMES):
        seen.request({"Topics": {f"t{n}"}, "TransactionalId": f"x{n}"}, "other")
        seen.request({"Topics": {"t0"}}, "other")
    seen.request({"Topics": {"bills"}}, "late")
    names = seen.body(0.0)["topics"]
    assert len(names) == MOST_NAMES + 2, "with all topics, and those without room"
    assert (names["orders"], names["bills"], names["*"], names["t0"]) == (1, 1, 1, MOST_NAMES + 1)
    assert (names["(more)"], {"t1", "t2"} & names.keys()) == (2, set())
    assert sum(names.values()) == 2 * MOST_NAMES + 3
    assert seen.transactional["pay"] == 1
    assert "x0" not in seen.transactional


def test_a_name_that_was_displaced_does_not_come_back_beyond_the_bound() -> None:
    seen = Seen()
    seen.clients.add("old", "a")
    notes = seen.counters_of("old", {})
    count(notes)
    for n in range(MOST_NAMES):
        seen.clients.add(f"c{n}", "a")
    count(notes)
    assert (len(seen.clients), seen.clients["(more)"]) == (MOST_NAMES + 1, 3)


def test_a_name_is_kept_cut_and_in_one_line() -> None:
    """Nobody has logged in who sends it: it must not cost memory, nor pass for a line of ours."""
    seen = Seen()
    for name in ("n" * (1 << 20), "\n" * (1 << 20), "x\nothers: open on b"):
        seen.request({"ClientSoftwareName": name, "ClientSoftwareVersion": "1", "TransactionalId": name}, "a")
    for table in (seen.software, seen.transactional):
        assert all(len(name) <= LONGEST and "\n" not in name for name in table)
        assert next(name for name in table if "others" in name).startswith("x\\u000aothers: open on b")
    assert len(seen.software) == 3


def test_h25_waits_are_told_by_kind_while_they_last_and_the_longest_after() -> None:
    seen = Seen()
    seen.parked = {"c1": ("FETCH", 10.0), "c2": ("FETCH", 11.0), "c3": ("PRODUCE", 11.5)}
    body = seen.body(12.0)
    assert body["parked"] == {"FETCH": 2, "PRODUCE": 1}
    assert body["longest_wait_ms"] == {"FETCH": 2000, "PRODUCE": 500}
    seen.goes_on("c1", 13.5)
    seen.goes_on("c2", 13.6)
    seen.goes_on("c3", 12.0)
    assert (seen.body(99.0)["parked"], seen.longest_wait_ms) == ({}, {"FETCH": 3500, "PRODUCE": 500})
