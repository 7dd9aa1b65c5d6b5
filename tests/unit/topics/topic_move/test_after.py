"""After a switch: source follows, each application is open on target, and the end stops the copiers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.topics.topic_move.facts import (
    BOTH,
    EQUAL,
    SILENT,
    UNHEARD,
    C,
    P,
    Q,
    app,
    copiers,
    ends,
    sent,
    warned,
    way,
    why,
)
from zkmigrate.runbook.model.change import Applied
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import Held
from zkmigrate.runbook.model.step import Done, Ready, Verdict, Waiting, Way
from zkmigrate.topics.mirror.changes import MIRRORED, SetDirection
from zkmigrate.topics.mirror.questions import BothEnds, MirrorSurvey
from zkmigrate.topics.topic_move.direction import DIRECTION
from zkmigrate.topics.topic_move.facts import Ends, Gateways
from zkmigrate.topics.topic_move.finish_step import FinishFacts, FinishStep
from zkmigrate.topics.topic_move.turn_step import TurnFacts, TurnStep
from zkmigrate.topics.topic_move.verify_step import VerifyFacts, VerifyStep

RUN = copiers("active", "active")

# -- turn


def facts(**odd: Any) -> TurnFacts:
    """All is well, but for this."""
    return replace(TurnFacts(RUN, copiers(unit="old"), way("backward"), ends()), **odd)


def turned(now: Seen[Ends], kept: Any = None) -> Verdict:
    return TurnStep().check(replace(C, kept=kept or {}), facts(ends=now))


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
    assert TurnStep().check(C, facts(copiers=copiers("inactive", "active"))) == Ready(("m2",))
    for silent in ("copiers", "there"):
        assert why(TurnStep().check(C, facts(**{silent: copiers("", "active")}))) == [("switch.copier", "m2")]
    assert isinstance(TurnStep().check(C, facts(ends=SILENT)), Waiting)
    assert isinstance(TurnStep().check(C, facts(direction=SILENT)), Waiting)


@pytest.mark.parametrize("file", ["enabled", "enabled-runtime"])
@pytest.mark.parametrize("state", ["inactive", "failed", "active"])
def test_copiers_to_target_start_no_more_at_boot(state: str, file: str) -> None:
    """This comes before any copier to source starts."""
    found = facts(copiers=copiers(), there=copiers(state, file=file, unit="old"))
    assert TurnStep().check(C, found) == Ready(("m2",))
    stop = ["stop old"] if state == "active" else []
    assert sent(TurnStep().plan(C, found, "m2")) == [*stop, "disable old"]


@pytest.mark.parametrize(("file", "enable"), [("disabled", ["enable unit"]), ("static", []), ("", [])])
def test_copiers_to_source_start_now_and_at_boot(file: str, enable: list[str]) -> None:
    found = facts(copiers=copiers("inactive", "active", file=file))
    assert sent(TurnStep().plan(C, found, "m2")) == [*enable, "start unit"]


@pytest.mark.parametrize("copies", ["", "forward", "none", "mixed"])
def test_copiers_may_write_on_source_before_they_are_started(copies: str) -> None:
    found = facts(copiers=copiers(), direction=way(copies))
    assert TurnStep().check(C, found) == Ready((DIRECTION,))
    [change] = TurnStep().plan(replace(C, fencing=7), found, DIRECTION)
    assert change == SetDirection(MIRRORED, "backward", ("orders",), 7)


def test_on_the_way_back_copiers_to_source_start_no_more_at_boot() -> None:
    back, found = replace(C, way=Way.BACK), facts(copiers=copiers(file="enabled"))
    assert TurnStep().check(back, found) == Ready(("m2",))
    assert sent(TurnStep().undo(back, found, "m2", ())) == ["disable unit"]
    assert TurnStep().check(back, facts(copiers=copiers())) == Done()


def test_h17_what_a_copier_gave_up_is_not_waited_for() -> None:
    assert why(TurnStep().check(C, facts(ends=ends(7, 7, 6), failed=["orders-1: why"]))) == [
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


def test_h25_a_client_that_did_not_come_back_is_a_warning_with_or_without_its_name() -> None:
    for names, said in (({"names": ["app-9"]}, "(app-9)"), ({}, "()")):
        found = warned(verified(at(seen={"returned": {"missing": 1, **names}})), "switch.clients")
        assert found.seen.endswith(f"; not connected again: 1 of gw2:orders {said}")


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


def test_at_the_end_no_copier_starts_at_boot_and_the_way_back_knows_which_did() -> None:
    found = FinishFacts(copiers(file="enabled"), LEFT)
    assert FinishStep().check(C, found) == Ready(("m2",))
    changes = FinishStep().plan(C, found, "m2")
    assert sent(changes) == ["disable unit"]
    back = replace(C, way=Way.BACK)
    applied = tuple(Applied(one, "o.1", confirmed=True) for one in changes)
    assert FinishStep().check(back, FinishFacts(copiers(), LEFT)) == Ready(("m1", "m2"))
    assert sent(FinishStep().undo(back, found, "m2", applied)) == ["enable unit", "start unit"]
    assert sent(FinishStep().undo(back, found, "m1", ())) == ["start unit"]
