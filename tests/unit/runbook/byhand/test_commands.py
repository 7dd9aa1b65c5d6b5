"""One change as the line that is typed for it."""

from __future__ import annotations

import re

import pytest

from zkmigrate.errors import UsageError
from zkmigrate.inventory.inventory import GatewayProgram
from zkmigrate.runbook.byhand.commands import Position, command_line, readable, reply_pattern
from zkmigrate.runbook.engine import plan
from zkmigrate.runbook.model.step import Way
from zkmigrate.topics.gateway.order import GatewayOrder

ORDERS = {
    "route orders --to new": GatewayOrder("g1", "route", "orders", to="new"),
    "hold orders --ttl-ms 10000": GatewayOrder("g1", "hold", "orders", ttl_ms=10_000),
    "seal orders --hold r-1.switch.hold.g1.7.1": GatewayOrder(
        "g1", "seal", "orders", hold="r-1.switch.hold.g1.7.1"
    ),
    "unhold orders": GatewayOrder("g1", "unhold", "orders"),
}


@pytest.mark.parametrize("words", ORDERS)
def test_an_order_is_typed_on_the_gateways_host_under_the_id_that_its_relay_makes(words: str) -> None:
    program = GatewayProgram(("/usr/bin/sudo", "/opt/zkmigrate"), "/etc/gw.yml")
    position = Position("r-1", "switch.hold", Way.FORWARD, gateway=program)
    order = ORDERS[words]
    verb, *rest = words.split(" ", 1)
    typed = command_line(position, order, position.operation("g1", 1))
    assert typed == (
        "at g1 /usr/bin/sudo /opt/zkmigrate gateway order --config /etc/gw.yml --as $N "
        f"{verb} r-1.switch.hold.g1.$LEG.1 {rest[0]}"
    )


def test_an_order_needs_an_inventory_that_says_how_the_gateway_is_reached() -> None:
    position = Position("r-1", "switch.hold", Way.FORWARD)
    with pytest.raises(UsageError, match="g1: the inventory names no gateway"):
        command_line(position, ORDERS["unhold orders"], "o.1")


def test_the_plan_shows_an_order_and_its_answer() -> None:
    order = ORDERS["route orders --to new"]
    assert plan.command(order) == (
        "zkmigrate gateway order --config CONFIG --as N route RUN.OPID orders --to new"
    )
    pattern = reply_pattern(order)
    assert re.search(pattern, "done: orders: open on old")
    assert not re.search(pattern, "refused: orders is sealed; route needs open, settling or held")
    assert readable(pattern) == "`done:`"
