"""Claims about clients that were switched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.judge_fixtures import event
from zkmigrate.lab.judge.clients import Figures, Row
from zkmigrate.lab.judge.switches import NEVER, client_claims, parts_claim
from zkmigrate.lab.load.json_lines import Recording
from zkmigrate.runbook.model.finding import Held

GOOD = Figures("lib 1", 10, 0, 20, 0, 0, 0, 0, 0, 0, 1.5, 2.5, 3)
EVENTS = {"producer": "ack", "consumer": "consumed"}


def rows(**changed: Any) -> list[Row]:
    """Two clients; the second one's figures are changed."""
    return [Row("a", GOOD, Held.YES, ""), Row("b", replace(GOOD, **changed), Held.YES, "")]


def held(found: list[Row]) -> dict[str, Held]:
    return {claim.id: claim.held for claim in client_claims(found)}


def test_clients_that_lost_nothing_hold_and_their_gaps_are_told() -> None:
    claims = {claim.id: claim for claim in client_claims(rows())}
    assert {claim.held for claim in claims.values()} == {Held.YES}
    assert (claims["acked"].value, claims["again"].value, claims["clients_in_order"].value) == (20, 0, 2)
    assert claims["longest_ack_gap_s"].value == {"a": 1.5, "b": 1.5}
    assert claims["longest_delivery_gap_s"].value == {"a": 2.5, "b": 2.5}


@pytest.mark.parametrize("figure", NEVER)
def test_each_figure_that_must_be_0_is_judged(figure: str) -> None:
    assert held(rows(**{figure: 2}))[figure] is Held.NO


def test_what_is_not_known_is_not_0() -> None:
    assert held(rows(lost=None))["lost"] is Held.UNKNOWN
    assert held(rows(consume_gap_s=None))["longest_delivery_gap_s"] is Held.UNKNOWN
    assert held(rows(acked=0))["acked"] is Held.NO


def test_a_client_that_did_not_end_in_order_is_named() -> None:
    broken = [*rows(), Row("c", GOOD, Held.UNKNOWN, "no closing line")]
    claim = next(one for one in client_claims(broken) if one.id == "clients_in_order")
    assert (claim.held, claim.value, claim.detail) == (Held.NO, 2, "c: no closing line")


def recorded(producer: list[int], consumer: list[int]) -> dict[str, Recording]:
    return {
        "a-producer": Recording("p", [event("ack", at) for at in producer]),
        "a-consumer": Recording("c", [event("consumed", at) for at in consumer]),
    }


def test_each_program_must_do_something_before_between_and_after_the_switches() -> None:
    switches = [(10, 20), (30, 40)]
    good = parts_claim(recorded([5, 25, 45], [6, 26, 46, 47]), EVENTS, switches)
    assert (good.held, good.value) == (Held.YES, [1, 1, 1])
    idle = parts_claim(recorded([5, 15, 35, 45], [6, 26, 46]), EVENTS, switches)
    assert (idle.held, idle.value, idle.detail) == (Held.NO, [1, 0, 1], "a-producer: [1, 0, 1]")
    assert parts_claim({}, EVENTS, switches).held is Held.NO
