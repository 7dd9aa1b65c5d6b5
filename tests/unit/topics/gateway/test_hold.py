"""Holds: what each order makes of an application, and what its requests get."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from tests.unit.topics.gateway.frames import head
from zkmigrate.topics.gateway.rules.apis import API_VERSIONS, APIS, FETCH, METADATA, PRODUCE, name_of
from zkmigrate.topics.gateway.rules.clients import MOST_CLIENTS, MOST_TOLD, Rejoined, Returned
from zkmigrate.topics.gateway.rules.hold import (
    FLIPPED_S,
    LONG_S,
    MEMBER_S,
    MOST_TTL_MS,
    SYNC_S,
    VERBS,
    Act,
    App,
    Gate,
    Order,
    Refused,
    Verdict,
    carry_out,
    decide,
    lapsed,
)

CLUSTERS = {"a": (), "b": ()}


def order(verb: str, **more: Any) -> Order:
    return Order(1, "id-1", verb, "orders", **more)


def told(app: App, verb: str, in_flight: int = 0, **more: Any) -> App | Refused:
    return carry_out(app, order(verb, **more), CLUSTERS, 100.0, 5000.0, in_flight)


def test_every_gate_and_request_has_a_verdict() -> None:
    for gate, key, version, synced in product(Gate, range(-1, 100), range(-1, 20), (True, False)):
        verdict = decide(gate, head(key, version), synced=synced)
        served = key in APIS and APIS[key].least <= version <= APIS[key].most
        newer = key == API_VERSIONS and version > 3
        assert (verdict.act is Act.ANSWER) == newer
        assert (verdict.act is Act.REFUSE) == (not served and not newer)
        if verdict.act in (Act.REFUSE, Act.PARK, Act.EMPTY):
            assert verdict.why


def test_settling_parks_fetch_alone() -> None:
    parked = {
        key
        for key, api in APIS.items()
        if decide(Gate.SETTLING, head(key, api.most), synced=True).act is Act.PARK
    }
    assert parked == {FETCH}


@pytest.mark.parametrize("gate", [Gate.HELD, Gate.SEALED, Gate.GONE])
def test_a_hold_parks_all_that_changes_or_reads_data(gate: Gate) -> None:
    parked = {
        name_of(key)
        for key, api in APIS.items()
        if decide(gate, head(key, api.most), synced=True).act is Act.PARK
    }
    assert parked >= {
        *("PRODUCE", "FETCH", "LIST_OFFSETS", "OFFSET_COMMIT", "OFFSET_FETCH", "JOIN_GROUP", "SYNC_GROUP"),
        *("HEARTBEAT", "LEAVE_GROUP", "INIT_PRODUCER_ID", "END_TXN", "TXN_OFFSET_COMMIT", "CREATE_TOPICS"),
    }
    assert not parked & {
        "API_VERSIONS",
        "METADATA",
        "FIND_COORDINATOR",
        "SASL_HANDSHAKE",
        "SASL_AUTHENTICATE",
    }


def test_fetch_gets_no_records_before_its_clients_sync_group() -> None:
    """Records of a FETCH that waited would be delivered beside those of the first one after it: librdkafka
    2.0.2 delivers both. Java 4.3.1 joins its group only once its FETCH is over."""
    early = Verdict(Act.EMPTY, "its group has not confirmed the client yet")
    assert decide(Gate.OPEN, head(FETCH, 11), synced=False) == early
    assert decide(Gate.OPEN, head(FETCH, 11), synced=True).act is Act.FORWARD
    assert decide(Gate.OPEN, head(PRODUCE, 9), synced=False).act is Act.FORWARD
    assert decide(Gate.OPEN, head(METADATA, 9), synced=False).act is Act.REWRITE


def test_refusals_name_what_is_needed() -> None:
    assert decide(Gate.OPEN, head(FETCH, 13), synced=True).why == "FETCH version 13, needed: 4 to 11"
    assert decide(Gate.OPEN, head(68, 0), synced=True).why == "CONSUMER_GROUP_HEARTBEAT is not offered"
    assert decide(Gate.OPEN, head(99, 0), synced=True).why == "request 99 is not offered"


def test_a_switch_and_its_way_back() -> None:
    app = told(App("a"), "route", to="b")
    assert app == App("a", staged="b")
    for verb, gate in [("settle", Gate.SETTLING), ("hold", Gate.HELD)]:
        app = told(app, verb, ttl_ms=2000)
        assert isinstance(app, App)
        assert (app.gate, app.until) == (gate, 102.0)
    app = told(app, "seal", hold="id-1")
    assert app == App("a", "b", Gate.SEALED, "id-1")
    gone = told(app, "go", ttl_ms=1000)
    assert gone == App("b", gate=Gate.GONE, until=101.0, flipped=5000.0, flips=1)
    assert told(gone, "unhold") == App("b", flipped=5000.0, flips=1)
    assert told(app, "go") == App("b", flipped=5000.0, flips=1)
    back = told(app, "unseal", ttl_ms=2000)
    assert back == App("a", "b", Gate.HELD, "id-1", 102.0)
    assert told(back, "unhold") == App("a", "b")


ALLOWED = {
    "route": {Gate.OPEN, Gate.SETTLING, Gate.HELD, Gate.GONE},
    "settle": {Gate.OPEN, Gate.SETTLING},
    "hold": {Gate.OPEN, Gate.SETTLING, Gate.HELD, Gate.GONE},
    "unhold": {Gate.OPEN, Gate.SETTLING, Gate.HELD, Gate.GONE},
    "seal": {Gate.HELD, Gate.GONE},
    "unseal": {Gate.SEALED},
    "go": {Gate.SEALED},
}


@pytest.mark.parametrize(("verb", "gate"), list(product(VERBS, Gate)))
def test_an_order_at_a_wrong_gate_is_refused_by_name(verb: str, gate: Gate) -> None:
    done = told(App("a", "b", gate, "id-1"), verb, to="b", hold="id-1", ttl_ms=1)
    assert isinstance(done, App) == (gate in ALLOWED[verb])
    if isinstance(done, Refused):
        assert done.why.startswith(f"orders is {gate.value}; {verb} needs ")


def test_seal_needs_the_hold_a_route_and_nothing_in_flight() -> None:
    held = App("a", "b", Gate.HELD, "id-1", 102.0)
    assert told(held, "seal", hold="id-1", in_flight=1) == Refused(
        "1 requests of orders are in flight; needed: 0"
    )
    assert isinstance(told(replace(held, staged=""), "seal", hold="id-1"), Refused)
    assert told(held, "seal", hold="id-0") == Refused("hold 'id-0' has ended; the current hold is 'id-1'")


def test_seal_needs_every_outcome_to_be_known_to_its_client() -> None:
    held = App("a", "b", Gate.HELD, "id-1", 102.0)
    wanted = order("seal", hold="id-1")
    refused = carry_out(held, wanted, CLUSTERS, 100.0, 5000.0, 0, ["batch 7 of c-1"])
    assert isinstance(refused, Refused)
    assert "outcome of 1 batches" in refused.why
    assert refused.why.endswith("batch 7 of c-1")


def test_one_that_was_sealed_without_a_hold_gets_one_when_it_is_unsealed() -> None:
    """The hold's name tells a later seal that it is still the same one."""
    assert told(App("b", "a", Gate.SEALED), "unseal", ttl_ms=2000) == App("b", "a", Gate.HELD, "id-1", 102.0)


def test_a_lease_ends_by_itself_and_a_new_hold_is_another_one() -> None:
    held = App("a", "b", Gate.HELD, "id-0", 102.0)
    assert lapsed(held, 101.9) == held
    opened = lapsed(held, 102.0)
    assert opened == App("a", "b", lapsed=True)
    again = told(opened, "hold", ttl_ms=1000)
    assert isinstance(again, App)
    assert (again.gate, again.hold, again.lapsed) == (Gate.HELD, "id-1", False)
    assert isinstance(told(again, "seal", hold="id-0"), Refused), "it lapsed in between"
    gone = App("b", gate=Gate.GONE, until=102.0)
    assert lapsed(gone, 102.0) == App("b"), "after GO it opens; nothing lapsed"
    assert lapsed(App("a", "b", Gate.SEALED, "id-0"), 1e9).gate is Gate.SEALED


def test_a_renewed_hold_stays_the_same() -> None:
    held = App("a", "b", Gate.HELD, "id-0", 102.0)
    assert told(held, "hold", ttl_ms=5000) == replace(held, until=105.0)


@pytest.mark.parametrize("ttl_ms", [0, -1, MOST_TTL_MS + 1])
def test_a_lease_has_bounds(ttl_ms: int) -> None:
    assert isinstance(told(App("a"), "hold", ttl_ms=ttl_ms), Refused)


def test_the_bounds_of_a_lease_are_leases() -> None:
    for ttl_ms in (1, MOST_TTL_MS):
        held = told(App("a"), "hold", ttl_ms=ttl_ms)
        assert held == App("a", "", Gate.HELD, "id-1", 100.0 + ttl_ms / 1000)
    gone = told(App("a", "b", Gate.SEALED, "id-1"), "go", ttl_ms=1)
    assert gone == App("b", gate=Gate.GONE, until=100.001, flipped=5000.0, flips=1)


def test_settling_begins_anew_after_a_lease_that_lapsed() -> None:
    assert told(App("a", "b", lapsed=True), "settle", ttl_ms=1000) == App(
        "a", "b", Gate.SETTLING, until=101.0
    )


@pytest.mark.parametrize("to", ["a", "c", ""])
def test_a_route_leads_to_another_cluster(to: str) -> None:
    done = told(App("a"), "route", to=to)
    assert isinstance(done, Refused)
    assert done.why.endswith("needed: b")


def test_a_client_fetches_after_its_sync_group_or_after_10_s() -> None:
    clients, me, other = Rejoined(), ("c-1", "10.0.0.1"), ("c-1", "10.0.0.2")
    assert clients.may_fetch(me, 0.0, 1000.0, 0.0), "no flip"
    assert not clients.may_fetch(me, 1000.0, 1001.0, 0.0)
    clients.confirmed(other)
    assert not clients.may_fetch(me, 1000.0, 1002.0, 0.0)
    assert clients.may_fetch(other, 1000.0, 1002.0, 0.0)
    assert not clients.may_fetch(me, 1000.0, 1001.0 + SYNC_S - 0.1, 0.0)
    assert clients.may_fetch(me, 1000.0, 1001.0 + SYNC_S, 0.0), "it has no group"
    assert not clients.may_fetch(other, 1003.0, 1004.0, 0.0), "another flip"
    assert clients.may_fetch(("late", ""), 1003.0, 1003.0 + FLIPPED_S, 0.0)
    clients.state(0.0, 1006.0, closed=False)
    clients.confirmed(me)
    assert clients.may_fetch(me, 1006.0, 1007.0, 0.0), "it has joined before anybody fetched"


def test_a_member_of_a_group_waits_longer_for_it_may_join_slowly() -> None:
    clients, me = Rejoined(), ("c-1", "10.0.0.1")
    clients.member(me)
    assert not clients.may_fetch(me, 1000.0, 1001.0, 0.0)
    assert not clients.may_fetch(me, 1000.0, 1001.0 + MEMBER_S - 0.1, 0.0)
    assert clients.may_fetch(me, 1000.0, 1001.0 + MEMBER_S, 0.0)
    assert not clients.may_fetch(me, 2000.0, 2001.0, 0.0)
    assert not clients.may_fetch(me, 2000.0, 2001.0 + MEMBER_S - 0.1, 0.0), "and behind the next flip"
    clients.confirmed(me)
    assert clients.may_fetch(me, 2000.0, 2001.0, 0.0)


def test_after_a_long_hold_a_member_fetches_once_its_group_has_confirmed_it() -> None:
    clients, me, other = Rejoined(), ("c-1", "10.0.0.1"), ("c-2", "10.0.0.1")

    def may(client: tuple[str, str], now: float) -> bool:
        return clients.may_fetch(client, 0.0, 1000.0, now)

    clients.member(me)
    assert may(me, 100.0), "no hold"
    clients.state(100.0, 0.0, closed=True)
    clients.state(100.0 + LONG_S - 0.1, 0.0, closed=False)
    assert may(me, 100.0 + LONG_S), "the hold was short"
    clients.state(200.0, 0.0, closed=True)
    clients.state(201.0, 0.0, closed=True)
    clients.state(200.0 + LONG_S, 0.0, closed=False)
    clients.state(201.0 + LONG_S, 0.0, closed=False)
    assert not may(me, 202.0 + LONG_S)
    assert not may(me, 199.9 + LONG_S + MEMBER_S)
    assert may(other, 202.0 + LONG_S), "it has no group"
    assert may(me, 200.0 + LONG_S + MEMBER_S)
    clients.confirmed(me)
    assert may(me, 202.0 + LONG_S)
    clients.state(300.0, 0.0, closed=True)
    clients.state(310.0, 0.0, closed=False)
    assert not may(me, 310.0), "another hold"


def test_after_a_switch_a_gateway_that_was_started_again_takes_a_heartbeat_for_membership() -> None:
    """It has forgotten who joined, and nobody joins again: for a minute no member got a record."""
    clients, me = Rejoined(), ("c-1", "10.0.0.1")
    clients.member(me)
    assert not clients.may_fetch(me, 1000.0, 1100.0, 0.0)
    clients.confirmed(me)
    assert clients.may_fetch(me, 1000.0, 1100.0, 0.0)


def test_the_table_of_clients_is_bounded() -> None:
    clients = Rejoined()
    for n in range(MOST_CLIENTS + 5):
        assert not clients.may_fetch((str(n), ""), 1000.0, 1000.0, 0.0)
        clients.member((str(n), ""))
    assert len(clients._begun) == len(clients._members) == MOST_CLIENTS


def test_h25_who_came_back_since_a_flip_and_when_is_told_and_who_did_not_by_name() -> None:
    clients, ids = Returned(), [(f"c-{n}", "10.0.0.1") for n in range(4)]
    assert clients.body() == {}, "no flip"
    clients.connected(ids[0], 90.0)
    clients.flipped(ids[:3], 100.0)
    assert clients.body() == {
        "back": 0,
        "first_s": None,
        "last_s": None,
        "missing": 3,
        "names": ["c-0 at 10.0.0.1", "c-1 at 10.0.0.1", "c-2 at 10.0.0.1"],
    }
    for client, now in ((ids[1], 100.4), (ids[3], 101.0), (ids[0], 102.5), (ids[1], 109.0)):
        clients.connected(client, now)
    assert clients.body() == {
        "back": 2,
        "first_s": 0.4,
        "last_s": 2.5,
        "missing": 1,
        "names": ["c-2 at 10.0.0.1"],
    }, "a new client, and one that connects twice, do not count"


def test_h25_whom_a_flip_left_missing_the_next_one_a_short_time_later_misses_further() -> None:
    clients, gone, there = Returned(), ("gone", "10.0.0.1"), ("there", "10.0.0.1")
    clients.flipped([gone, there], 100.0)
    clients.connected(there, 101.0)
    clients.flipped([there], 100.0 + FLIPPED_S - 0.1)
    assert (clients.body()["missing"], clients.body()["back"]) == (2, 0)
    clients.connected(there, 900.0)
    clients.flipped([there], 100.0 + 3 * FLIPPED_S)
    assert clients.body()["names"] == ["there at 10.0.0.1"]


def test_h25_the_tables_of_missing_clients_are_bounded() -> None:
    clients = Returned()
    clients.flipped([(str(n), "") for n in range(MOST_CLIENTS + 5)], 100.0)
    assert clients.body()["missing"] == MOST_CLIENTS
    assert len(clients.body()["names"]) == MOST_TOLD


def test_h17_the_way_back_before_open_is_a_hold_on_the_new_route() -> None:
    gone = App("b", gate=Gate.GONE, until=101.0, flipped=5000.0)
    held = told(gone, "hold", ttl_ms=2000)
    assert isinstance(held, App)
    assert held == App("b", "", Gate.HELD, "id-1", 102.0, flipped=5000.0)
    assert isinstance(told(held, "seal", hold="id-1"), Refused), "first a route"
    assert lapsed(held, 102.0) == App("b", lapsed=True, flipped=5000.0), "it opens where it is"
    staged = told(held, "route", to="a")
    assert isinstance(staged, App)
    back = told(staged, "seal", hold="id-1")
    assert back == App("b", "a", Gate.SEALED, "id-1", flipped=5000.0)
    assert isinstance(back, App)
    assert told(back, "go", ttl_ms=1000) == App("a", gate=Gate.GONE, until=101.0, flipped=5000.0, flips=1)


def test_an_application_that_has_gone_is_sealed_unless_it_went_on_by_itself() -> None:
    """In one order: between a look and a hold clients may have written."""
    gone = App("b", gate=Gate.GONE, until=101.0, flipped=5000.0)
    assert isinstance(told(gone, "seal"), Refused), "no route is staged"
    staged = told(gone, "route", to="a")
    assert isinstance(staged, App)
    assert told(staged, "seal") == App("b", "a", Gate.SEALED, flipped=5000.0)
    assert isinstance(told(staged, "seal", hold="id-1"), Refused), "it has no hold"
    assert isinstance(told(lapsed(staged, 101.0), "seal"), Refused), "it went on"


def test_a_sealed_application_without_a_staged_route_stays() -> None:
    """An order to go may come late, when the way back has begun."""
    sealed = App("a", "b", Gate.SEALED, "id-1")
    stays = told(sealed, "route", to="a")
    assert stays == replace(sealed, staged="")
    assert isinstance(stays, App)
    assert told(stays, "go", ttl_ms=1) == Refused("orders has no staged route; it remains on a")
    assert isinstance(told(stays, "route", to="b"), Refused)
