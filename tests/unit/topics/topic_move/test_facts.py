"""What a gateway's status is for the steps of a switch."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.world.switch.look import SwitchLook
from tests.world.switch.operator import inventory
from tests.world.switch.site import Shape, World
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import Held
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.sampling import Body
from zkmigrate.runbook.model.step import Context
from zkmigrate.topics.gateway.rules.hold import App, Gate
from zkmigrate.topics.gateway.rules.orders import fresh
from zkmigrate.topics.gateway.rules.plan import Plan
from zkmigrate.topics.gateway.serving.gateway import Gateway
from zkmigrate.topics.mirror.questions import BothEnds
from zkmigrate.topics.topic_move.facts import (
    AppSeen,
    Brokers,
    Gateways,
    both_ends,
    ends_back,
    gateways,
    parse_status,
    parse_statuses,
)
from zkmigrate.topics.topic_move.rules import check_reach, client_findings


class Notes(list[tuple[str, Body]]):
    """The samples that were noted."""

    def __call__(self, kind: str, body: Body) -> None:
        self.append((kind, body))


class _Record:
    async def write(self, body: Any) -> None: ...


def status(app: App) -> str:
    """As the gateway itself tells it."""
    state = fresh({"shop": "old"})
    plan = Plan({"old": {1: "b:9092"}, "new": {}}, {}, {}, {})
    gateway = Gateway(plan, type(state)({"shop": app}, {}), _Record(), print, lambda: 0.0, lambda: 0.0)
    return json.dumps(gateway.status())


def test_the_gateways_own_status_is_read() -> None:
    held = App("old", "new", Gate.HELD, "run.hold-1", until=5.0, lapsed=False)
    apps, brokers, check_restarts, certificates = parse_status(status(held))
    assert certificates == {"left_s": {}, "kept": ""}
    assert check_restarts is None
    seen = apps["shop"]
    assert (seen.route, seen.staged, seen.gate, seen.hold) == ("old", "new", "held", "run.hold-1")
    assert (seen.in_flight, seen.connections, seen.on_left_ports, seen.lapsed) == (0, 0, 0, False)
    assert brokers == {"old": {1: "not checked yet"}, "new": {}}
    assert parse_status(status(App("new", lapsed=True)))[0]["shop"].words.endswith("expired")


def test_h20_every_other_application_of_a_gateway_is_known_too() -> None:
    look = SwitchLook(World(1, Shape(gateways=2)))
    found = gateways(Context("run", inventory(look.world)), cast(Look, look))
    assert set(found.at) == {("gw1", "orders"), ("gw2", "orders")}
    assert set(found.others) == {("gw1", "others"), ("gw2", "others")}


def test_a_gateway_that_lacks_an_application_of_the_set_is_not_passed_over() -> None:
    """No order would go there, and its clients would go on at source."""
    found = parse_statuses(inventory(World(1, Shape())), {"gw1": Seen(status(App("old")))})
    assert [(one.target, one.seen) for one in found.unknown] == [
        ("gw1", "the gateway has no application orders")
    ]


def test_h25_what_the_gateways_tell_is_noted_for_the_report() -> None:
    held = status(App("old", "new", Gate.HELD))
    notes, look = Notes(), SwitchLook(World(1, Shape(gateways=3)))
    context = Context("run", inventory(look.world), note=notes)
    look.world.gateways["gw2"].silent = True
    look.world.advance(3.0)
    gateways(context, cast(Look, look))
    [(kind, body)] = notes
    assert kind == "gateways"
    assert body["unknown"] == ["gw2"]
    assert set(body["apps"]) == {"gw1", "gw3"}
    app = body["apps"]["gw1"]["orders"]
    assert (app["route"], app["gate"], app["parked"], app["returned"]) == ("old", "open", {}, {})
    assert app["answered"] > 0
    json.dumps(body)
    told = parse_status(held)[0]["shop"]
    before = {name: one for name, one in told.seen.items() if not name.startswith("long")}
    assert replace(told, seen=before).sample["longest_ms"] == {}, "an earlier gateway"


def test_h25_where_both_logs_end_is_noted_for_the_report_in_both_directions() -> None:
    notes, world = Notes(), World(1, Shape())
    context, look = Context("run", inventory(world), note=notes), cast(Look, SwitchLook(world))
    for part, records in zip(world.parts, (5, 2), strict=True):
        world.source.logs[part] = ["x"] * records
    for host in world.hosts.values():
        host.units["new"].running = False
    world.clients.clear()
    both_ends(context, look)
    ends_back(context, look)
    world.dark = world.t + 60
    both_ends(context, look)
    assert notes == [
        ("mirror", {"from": "old", "to": "new", "behind": 7, "written": 7, "copied": 0}),
        ("mirror", {"from": "new", "to": "old", "behind": 0, "written": 0, "copied": 7}),
        ("mirror", {"from": "old", "to": "new", "behind": None, "written": 7, "copied": None}),
    ]


def test_open_outcomes_and_a_restart_are_read() -> None:
    told = json.loads(status(App("old", "new", Gate.HELD)))
    told["restarted_s"] = 20.5
    own = told["apps"]["shop"]["outcomes"] = {
        "open": 7,
        "names": ["producer 5", "producer 6"],
        "left_s": 99.6,
    }
    look = SwitchLook(World(1, Shape()))
    told["apps"]["orders"] = told["apps"]["shop"]
    found = parse_statuses(inventory(look.world), {"gw1": Seen(json.dumps(told))})
    assert found.at["gw1", "orders"].unsure == "producer 5, producer 6 and 5 more, for at most 100 s"
    assert found.restarted == {"gw1": 20.5}
    own |= {"open": 0, "names": [], "left_s": 0}
    assert parse_status(json.dumps(told))[0]["shop"].unsure == ""


def test_preflight_names_certificates_that_end_soon_and_files_that_a_gateway_could_not_read() -> None:
    told = json.loads(status(App("old", "new", Gate.OPEN)))
    left = {"listeners.a.tls": -3600.0, "listeners.b.tls": 86400.0, "tls.old": 15 * 86400.0}
    told["certificates"] = {"left_s": left, "kept": "no such file"}
    found = parse_statuses(inventory(World(1, Shape())), {"gw1": Seen(json.dumps(told))})
    seen = {one.target: one for one in client_findings(found) if one.id.startswith("gateway.certificate")}
    assert {target: (one.held, one.blocks) for target, one in seen.items()} == {
        "gw1:listeners.a.tls": (Held.NO, True),
        "gw1:listeners.b.tls": (Held.NO, False),
        "gw1:tls.old": (Held.YES, False),
        "gw1": (Held.NO, False),
    }
    assert seen["gw1:listeners.a.tls"].seen == "it expired 0.0 days ago"
    assert seen["gw1"].seen == "no such file"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"clusters": {}, "apps": 3}',
        '{"clusters": {}, "apps": {"shop": {}}}',
        '{"clusters": {}, "apps": {"s": 1}}',
        '{"apps": {}, "clusters": {"a": {}}}',
        '{"apps": {}, "clusters": {"a": {"brokers": {"x": ""}}}}',
        '{"apps": {}, "clusters": {}, "more": NaN}',
        "[" * 100_000,
    ],
)
def test_what_is_no_status_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"status|Expecting|literal|NaN|nested"):
        parse_status(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lapsed", "false"),
        ("lapsed", 0),
        ("requests_in_flight", "0"),
        ("requests_in_flight", 0.5),
        ("requests_in_flight", -1),
        ("requests_in_flight", None),
        ("connections", True),
        ("gate", "shut"),
        ("route", 5),
        ("hold", None),
        ("lost", {"PRODUCE": "3"}),
        ("outcomes", None),
        ("outcomes", {"open": "0", "names": [], "left_s": 0.0}),
        ("acks", []),
        ("returned", {"missing": "3", "names": []}),
        ("returned", {"missing": 3, "names": 1}),
    ],
)
def test_a_status_with_an_odd_value_is_refused_by_its_field(field: str, value: object) -> None:
    told = json.loads(status(App("old", "new", Gate.HELD)))
    told["apps"]["shop"][field] = value
    with pytest.raises(ValueError, match=rf"^this is not the status of a gateway: apps\.shop\.{field}"):
        parse_status(json.dumps(told))


def test_h20_a_gateway_reaches_each_broker_that_there_is() -> None:
    brokers: dict[str, Brokers] = {
        "g1": {"new": {1: "", 2: ""}},
        "g2": {"new": {1: "", 2: "TimeoutError"}},
        "g3": {"old": {}},
    }
    told = check_reach(Gateways({}, (), brokers), "new", [1, 2, 3])
    assert told.held is Held.NO
    assert told.seen == (
        "g1: broker 3 is not in the gateway's configuration, g2: broker 2: TimeoutError, "
        "g2: broker 3 is not in the gateway's configuration, "
        "g3: broker 1 is not in the gateway's configuration, "
        "g3: broker 2 is not in the gateway's configuration and 1 more"
    )
    assert check_reach(Gateways({}, (), {"g1": brokers["g1"]}), "new", [1, 2]).held is Held.YES


def test_orders_go_to_the_applications_of_one_gateway_alone() -> None:
    def app(gate: str) -> AppSeen:
        return AppSeen("old", "new", gate, "", False, 0, 1, 0, {})

    found = Gateways({("g1", "a"): app("open"), ("g1", "b"): app("held"), ("g2", "a"): app("open")}, ())
    orders = found.orders("g1", "hold", lambda one: one.gate == "open", ttl_ms=500)
    assert [(one.host, one.app, one.ttl_ms) for one in orders] == [("g1", "a", 500)]
    assert found.hosts(lambda one: one.gate == "open") == ("g1", "g2")
    assert [one.target for one in found.not_in_state("x.y", lambda one: one.gate == "open", "open")] == [
        "g1:b"
    ]


@pytest.mark.parametrize(
    ("ends", "lag", "equal"),
    [
        (BothEnds(5, 5, 5), 0, True),
        (BothEnds(5, 4, 5), 0, False),
        (BothEnds(5, 5, 3), 2, False),
        (BothEnds(None, None, 3), None, False),
        (BothEnds(5, 5, None), None, False),
    ],
)
def test_ends_are_equal_without_an_open_transaction(ends: BothEnds, lag: int | None, equal: bool) -> None:
    assert (ends.lag, ends.equal) == (lag, equal)
