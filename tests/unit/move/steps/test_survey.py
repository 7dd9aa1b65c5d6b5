"""SURVEY: what must be known, and how much time must be left, before the window is begun."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.move.steps.facts import DEST, HIGH, HIGH_TEXT, SILENT, context, stopped_by, tail, well
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.facts.sessions import Homes
from zkmigrate.move.facts.subtree import Comparison
from zkmigrate.move.facts.tenants import Tenant, Tenants
from zkmigrate.move.rules.foreign_clients import foreign
from zkmigrate.move.rules.window_rules import FIND_DOOR_S, TO_SEAL
from zkmigrate.move.steps.survey import LEAST_TO_SEAL_S, SurveyFacts, SurveyStep
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.step import Blocked, Context, Done, Verdict
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.tree import Difference
from zkmigrate.zookeeper.data.txnlog import Cursor
from zkmigrate.zookeeper.facts.ownership import Ephemeral, Ownership

NOW = 0x100000040
SESSION = 0x1000021C3000000
STATE = Ownership(Chroot("/kafka"), NOW, NOW, {"/kafka/ids/1": Ephemeral(SESSION, NOW - 5)}, {SESSION: 18000})
PLACE = Cursor("log.100000001", 16, NOW)


def facts(state: Ownership = STATE, **changes: Any) -> SurveyFacts:
    good = SurveyFacts(
        "source2",
        1,
        5,
        Seen((state, PLACE)),
        dict.fromkeys(DEST, tail(NOW)),
        Seen(Comparison(NOW, 9, dict.fromkeys(DEST, Seen(())))),
        Homes(frozenset({SESSION}), {}, ()),
    )
    return replace(good, **{"renewals": dict.fromkeys(DEST, Seen(0.05)), **changes})


def rehearsed(to_seal_s: float, back_s: float = 0.0) -> Context:
    """A rehearsal that took so long from FENCE to SEAL, and back."""
    seconds = {step: {"forward": to_seal_s / len(TO_SEAL), "back": 0.0} for step in TO_SEAL}
    seconds["stop"]["back"] = back_s
    return context(rehearse={"seconds": seconds})


def verdict(f: SurveyFacts, c: Context | None = None) -> Verdict:
    return SurveyStep(KAFKA).check(c or rehearsed(1.0), f)


def test_what_can_be_read_and_leaves_time_is_recorded() -> None:
    done = verdict(facts())
    assert isinstance(done, Done)
    assert done.record is not None
    assert (done.record["leader"], done.record["epoch"], done.record["learners"]) == ("source2", 1, 5)
    assert done.record["smallest_timeout_ms"] == 18000
    assert done.record["on_dest"] == [hex(SESSION)]
    assert set(done.record["cursors"]) == {*DEST, "source2"}


def compared(found: Reading[tuple[Difference, ...]]) -> Reading[Comparison]:
    return Seen(Comparison(NOW, 9, {**dict.fromkeys(DEST, Seen(())), "dest2": found}))


def trips(of_dest2_s: float) -> dict[str, Reading[float]]:
    """The longest round trip of each dest host."""
    return {**dict.fromkeys(DEST, Seen(0.05)), "dest2": Seen(of_dest2_s)}


LESS = Difference("/kafka/x", "data", "a", "b")
WRONG: dict[str, tuple[Mapping[str, Any], tuple[str, str]]] = {
    "a dest disk is not read": ({"tails": {**facts().tails, "dest2": SILENT}}, ("survey.tail", "dest2")),
    "source's tree is not read": ({"ownership": SILENT}, ("survey.subtree", "source2")),
    "learners are not told": ({"learners": None}, ("survey.learners", "")),
    "a dest host is no learner": ({"learners": 2}, ("survey.learners", "")),
    "no ephemerals": ({"ownership": Seen((replace(STATE, ephemerals={}), PLACE))}, ("survey.baseline", "")),
    "a session elsewhere": (
        {"homes": Homes(frozenset(), {SESSION: "source1"}, ())},
        ("survey.sessions-on-dest", ""),
    ),
    "a client list is not read": (
        {"homes": Homes(frozenset({SESSION}), {}, ("dest1: denied",))},
        ("survey.sessions-on-dest", ""),
    ),
    "the client lists were not read": ({"homes": None}, ("survey.sessions-on-dest", "")),
    "a disk holds another tree": ({"comparison": compared(Seen((LESS,)))}, ("survey.same-tree", "dest2")),
    "a disk was not compared": ({"comparison": compared(SILENT)}, ("survey.same-tree", "dest2")),
    "no disk was compared": ({"comparison": None}, ("survey.same-tree", "")),
    "a foreign client of dest": (
        {"foreign": foreign(KAFKA.words, Tenants((Tenant("10.0.0.77", ("dest2",), 1, ()),), ()))},
        ("dest.foreign-client", "10.0.0.77"),
    ),
    "dest's clients are not told": (
        {"foreign": foreign(KAFKA.words, Tenants((), ("dest1: denied",)))},
        ("dest.foreign-client", ""),
    ),
    "a host that answers too late for any lease": ({"renewals": trips(2.2)}, ("survey.lease", "")),
    "a host that is not heard while it is measured": (
        {"renewals": {**trips(0.05), "dest2": SILENT}},
        ("survey.lease", ""),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_false_fact_blocks(name: str) -> None:
    changes, blocks = WRONG[name]
    assert stopped_by(verdict(facts(**changes))) == [blocks]


def test_an_owner_without_a_timeout_blocks() -> None:
    state = replace(STATE, ephemerals={**STATE.ephemerals, "/kafka/ids/2": Ephemeral(0x99, NOW)})
    assert stopped_by(verdict(facts(state))) == [("survey.timeouts", "")]


def test_the_smallest_timeout_must_leave_time_for_a_way_back() -> None:
    """Two thirds of 18 s, less the way back and the 3 s in which clients find the door; more than 1 s."""
    assert (FIND_DOOR_S, LEAST_TO_SEAL_S) == (3.0, 1.0)
    assert well(verdict(facts(), rehearsed(0.1, 7.9)))
    for seconds in (8.0, 8.5, 8.8):
        assert stopped_by(verdict(facts(), rehearsed(0.1, seconds))) == [("survey.way-back", "")], seconds


@pytest.mark.parametrize(("took_s", "fits"), [(4.3, True), (4.4, False), (6.4, False)])
def test_the_rehearsed_time_to_seal_and_its_margin_must_fit(took_s: float, fits: bool) -> None:
    """18 s sessions and a way back of 2.5 s leave 6.5 s; the margin is half as much again."""
    seen = verdict(facts(), rehearsed(took_s))
    assert stopped_by(seen) == ([] if fits else [("survey.window-fits", "")])


@pytest.mark.parametrize(
    ("timeout_ms", "trip_s", "fits"),
    [(13900, 0.05, True), (13800, 0.05, False), (18000, 0.36, True), (18000, 0.37, False)],
)
@pytest.mark.parametrize("skipped", [context(), context(rehearse={"seconds": {"fence": {"forward": 0.1}}})])
def test_a_window_that_was_not_rehearsed_must_fit_as_well(
    timeout_ms: int, trip_s: float, fits: bool, skipped: Context
) -> None:
    """Half as much again as the policy's 2.5 s is 3.75 s, 18 round trips of 0.37 s are more than 6.5 s."""
    f = facts(replace(STATE, timeouts={SESSION: timeout_ms}), renewals=trips(trip_s))
    assert stopped_by(verdict(f, skipped)) == ([] if fits else [("survey.window-fits", "")])


@pytest.mark.parametrize(
    ("hold_at", "to_seal_s", "fits"),
    [
        ("fence", 2.99, True),
        ("fence", 3.01, False),
        ("prove", 3.01, False),
        ("seal", 3.01, True),
        ("", 3.01, True),
    ],
)
def test_a_hold_before_seal_must_leave_time_for_an_answer(hold_at: str, to_seal_s: float, fits: bool) -> None:
    """6.5 s are left; the margin makes 4.5 s of 3 s, the answer takes 2 s."""
    seen = verdict(facts(), replace(rehearsed(to_seal_s), hold_at=hold_at))
    assert stopped_by(seen) == ([] if fits else [("survey.window-fits", "")])


def test_the_lease_is_chosen_by_the_slowest_host() -> None:
    for of_dest2_s, lease in ((0.05, (5000, 2000)), (0.9, (6000, 4000))):
        done = verdict(facts(renewals=trips(of_dest2_s)))
        assert isinstance(done, Done)
        assert done.record is not None
        assert done.record["lease"] == {"fence_ttl_ms": lease[0], "cut_ttl_ms": lease[1]}


def test_the_door_must_open_before_dest_expires_a_session() -> None:
    c = context()
    late = c.inventory.policy.model_copy(update={"open_limit_s": 15.0})
    c = replace(c, inventory=c.inventory.model_copy(update={"policy": late}))
    assert stopped_by(verdict(facts(), c)) == [("survey.open-limit", "")]


def test_a_rehearsal_reads_and_asks_for_no_more() -> None:
    rehearsal = context(rehearsal=True)
    f = facts(replace(STATE, ephemerals={}), comparison=None, homes=None)
    assert well(verdict(f, rehearsal))
    assert stopped_by(verdict(replace(f, learners=2), rehearsal)) == [("survey.learners", "")]


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_session_is_named_as_zookeeper_prints_it(elsewhere: bool) -> None:
    nameless = replace(STATE, ephemerals={**STATE.ephemerals, "/kafka/ids/2": Ephemeral(HIGH, NOW)})
    f = facts(homes=Homes(frozenset(), {HIGH: "source1"}, ())) if elsewhere else facts(nameless)
    said = verdict(f)
    assert isinstance(said, Blocked)
    assert any(HIGH_TEXT in x.seen for x in said.findings)
