"""After a switch: source follows, each application is open on target, and the end stops the copiers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.topic_move.facts import BOTH, EQUAL, SILENT, UNHEARD, C, P, Q, app, copiers, ends, warned, why
from zkmigrate.model.fact import Seen
from zkmigrate.model.finding import Held
from zkmigrate.model.look import BothEnds, MirrorSurvey
from zkmigrate.model.step import Done, Ready, Verdict, Waiting
from zkmigrate.topic_move.facts import Ends, Gateways
from zkmigrate.topic_move.finish_step import FinishFacts, FinishStep
from zkmigrate.topic_move.turn_step import TurnFacts, TurnStep
from zkmigrate.topic_move.verify_step import VerifyFacts, VerifyStep

RUN = copiers("active", "active")

# -- turn


def turned(now: Seen[Ends], kept: Any = None) -> Verdict:
    return TurnStep().check(replace(C, kept=kept or {}), TurnFacts(RUN, now))


def test_h17_source_follows_where_it_has_all_that_was_written_before_the_step() -> None:
    verdict = turned(ends())
    assert isinstance(verdict, Done)
    assert [one.seen for one in verdict.findings] == ["unit, 2 partitions"]


@pytest.mark.parametrize("source", [6, None])
def test_h17_what_clients_wrote_before_the_step_is_waited_for_and_no_more(source: int | None) -> None:
    waiting = turned(ends(7, 7, source))
    assert isinstance(waiting, Waiting)
    assert waiting.progress == "orders-1"
    assert isinstance(turned(ends(9, 9, 6), waiting.keep), Waiting)
    assert isinstance(turned(Seen({P: EQUAL[P]}), waiting.keep), Waiting)
    assert isinstance(turned(ends(9, 9, 7), waiting.keep), Done)


def test_h17_an_end_that_target_does_not_tell_is_waited_for() -> None:
    waiting = turned(ends(None, None, 4))
    assert isinstance(waiting, Waiting)
    later = turned(ends(7, 7, 6), waiting.keep)
    assert isinstance(later, Waiting)
    assert isinstance(turned(Seen({P: BothEnds(20, 20, 9), Q: BothEnds(9, 9, 7)}), later.keep), Done)


def test_h17_copiers_are_started_and_one_that_does_not_tell_stops_the_step() -> None:
    assert TurnStep().check(C, TurnFacts(copiers("inactive", "active"), ends())) == Ready(("m2",))
    assert why(TurnStep().check(C, TurnFacts(copiers("", "active"), ends()))) == [("switch.copier", "m2")]
    assert isinstance(TurnStep().check(C, TurnFacts(RUN, SILENT)), Waiting)


def test_h17_what_a_copier_gave_up_is_not_waited_for() -> None:
    assert why(TurnStep().check(C, TurnFacts(RUN, ends(7, 7, 6), ["orders-1: why"]))) == [
        ("switch.turned", "")
    ]


# -- verify

SURVEY = MirrorSurvey(("one", "other"), ([], []), {}, {}, {}, {}, (), (), {}, {}, ())


def at(**odd: Any) -> Gateways:
    """Every gateway has clients, and the last one differs."""
    found = app("open", target=True, **odd)
    first = replace(found.at["gw1", "orders"], connections=2)
    last = replace(found.at["gw2", "orders"], connections=odd.get("connections", 1))
    return replace(found, at={("gw1", "orders"): first, ("gw2", "orders"): last})


def verified(found: Gateways, state: str = "behind") -> Verdict:
    """state: of the last partition."""
    survey = replace(SURVEY, partitions={P: ("equal", ""), Q: (state, "why")})
    return VerifyStep().check(C, VerifyFacts(found, Seen(survey)))


def test_h23_nothing_is_found_where_all_is_well() -> None:
    verdict = verified(at())
    assert isinstance(verdict, Done)
    assert [one.id for one in verdict.findings if one.held is not Held.YES] == []


@pytest.mark.parametrize("odd", [{"route": "old"}, {"gate": "held"}, {"gate": "gone"}])
def test_an_application_that_is_not_open_on_target_is_named(odd: dict[str, str]) -> None:
    assert why(verified(at(**odd))) == [("switch.verify-open", "gw2:orders")]


@pytest.mark.parametrize("state", ["failed", "missing", "unknown"])
def test_h2_h17_a_partition_that_is_not_mirrored_back_is_named(state: str) -> None:
    assert why(verified(at(), state)) == [("switch.verify-mirror", "")]


def test_who_does_not_answer_is_named() -> None:
    assert why(verified(UNHEARD)) == [("switch.gateway", "gw2")]
    assert why(VerifyStep().check(C, VerifyFacts(at(), SILENT))) == [(BOTH, "")]


def test_h25_an_application_without_a_client_is_a_warning() -> None:
    found = warned(verified(at(connections=0)), "switch.clients")
    assert (found.held, found.seen) == (Held.NO, "connections: gw1:orders: 2, gw2:orders: 0")


LEFT = at(on_left_ports=2, seen={"left_clients": ["app-9"]})
NAMED = "connections gw2:orders: 2; clients: app-9"


def test_h23_who_connects_to_a_left_port_is_named() -> None:
    found = warned(verified(LEFT), "switch.left-ports")
    assert (found.held, found.seen) == (Held.NO, NAMED)


# -- finish


def test_h23_the_end_is_there_once_no_copier_runs() -> None:
    verdict = FinishStep().check(C, FinishFacts(copiers(), LEFT))
    assert isinstance(verdict, Done)
    assert [(one.id, one.held) for one in verdict.findings] == [
        ("switch.finished", Held.YES),
        ("switch.stays", Held.YES),
        ("switch.left-ports", Held.NO),
    ]
    for state in ("active", "activating", "deactivating"):
        assert FinishStep().check(C, FinishFacts(copiers(state), LEFT)) == Ready(("m2",))
    assert why(FinishStep().check(C, FinishFacts(copiers(""), LEFT))) == [("switch.copier", "m2")]
