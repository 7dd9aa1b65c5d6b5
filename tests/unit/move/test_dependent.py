"""What a dependent promises of its ephemerals decides what is compared, and which checks are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.move.steps import test_check as at_the_door
from tests.unit.move.steps.facts import SILENT, proved, stopped_by, surveyed, well
from tests.unit.move.steps.facts import context as run
from tests.unit.move.steps.test_check import BASELINE, CHECKED, FIRST, ONE, SECOND, TWO, Z
from tests.unit.move.steps.test_survey import STATE, facts
from tests.unit.preflight_world import CHECKS, context, healthy
from zkmigrate.move import preflight
from zkmigrate.move.dependent import Words
from zkmigrate.move.dependents.kafka import KafkaDependent
from zkmigrate.move.facts.records import Drained, Surveyed
from zkmigrate.move.facts.sessions import Sessions, homes
from zkmigrate.move.preflight import members
from zkmigrate.move.preflight.check import Check
from zkmigrate.move.steps.check import CheckStep, same_ownership
from zkmigrate.move.steps.prove import ProveStep
from zkmigrate.move.steps.survey import SurveyStep
from zkmigrate.runbook.model.fact import Absent, Seen
from zkmigrate.runbook.model.finding import Held
from zkmigrate.runbook.model.step import Blocked, Verdict
from zkmigrate.runbook.model.step_record import needed
from zkmigrate.zookeeper.data.four_letter_words import Connection


class Half(KafkaDependent):
    """It must keep the first ephemeral of the baseline, and no other."""

    def keeps(self, path: str) -> bool:
        return path == ONE


class Nothing(KafkaDependent):
    """It keeps no ephemeral, and has no checks of its own."""

    words = replace(KafkaDependent.words, kind="keeper", one="keeper", many="keepers", system="Keeper")

    def keeps(self, path: str) -> bool:
        return path is None

    @property
    def checks(self) -> tuple[Check, ...]:
        return ()


def checked(owners: Mapping[int, tuple[str, ...]], **znodes: Any) -> Verdict:
    known: dict[str, Any] = {"drain": Drained(Z, None, {}).encode(), "prove": proved(baseline=BASELINE)}
    f = replace(CHECKED, owners=Seen(Sessions(owners, {})), znodes={**CHECKED.znodes, **znodes})
    return CheckStep(Half()).check(run(**known), f)


BOTH = at_the_door.OWNERS
NEW = "/kafka/brokers/ids/9"


@pytest.mark.parametrize(
    ("owners", "stopped"),
    [
        (BOTH, []),
        ({FIRST: (ONE,)}, []),
        ({SECOND: (TWO,)}, ["check.owners"]),
        ({FIRST: (ONE,), SECOND: (TWO, NEW)}, ["check.owners"]),
        ({FIRST: (ONE, TWO)}, ["check.owners"]),
        ({FIRST: (ONE,), 0x77: (TWO,)}, ["check.owners"]),
    ],
    ids=["all as before", "what need not stay is gone", "what must stay is gone", "one more is there",
         "what need not stay has another owner", "it has come back under a new session"],
)  # fmt: skip
def test_behind_the_door_the_kept_stay_and_nothing_is_added(
    owners: dict[int, tuple[str, ...]], stopped: list[str]
) -> None:
    assert [id for id, _ in stopped_by(checked(owners))] == stopped


def test_the_czxid_of_what_need_not_stay_is_not_compared() -> None:
    assert well(checked(BOTH, **{TWO: Absent("gone")}))
    assert [id for id, _ in stopped_by(checked(BOTH, **{ONE: Absent("gone")}))] == ["check.czxid"]
    assert well(checked(BOTH, **{TWO: SILENT}))


def test_behind_the_open_door_a_dependent_that_keeps_nothing_has_nothing_to_compare() -> None:
    owners = Seen(Sessions({0x77: (TWO,)}, {}))
    assert same_ownership(Nothing(), BASELINE, owners, {}, exact=False) == ()
    told = same_ownership(Half(), BASELINE, owners, {}, exact=False)
    assert [f.id for f in told if f.held is not Held.YES] == ["check.owners", "check.czxid"]


def test_a_session_of_which_nothing_must_be_kept_may_expire_on_source() -> None:
    c = run(survey=surveyed(on_dest=()))
    assert ProveStep(Half())._living(needed(Surveyed, c), BASELINE) == {SECOND}
    seen = run(survey=surveyed(on_dest=(FIRST,)))
    assert ProveStep(Half())._living(needed(Surveyed, seen), BASELINE) == {FIRST, SECOND}


def told_in(f: Any, dependent: KafkaDependent) -> dict[str, Held]:
    found = SurveyStep(dependent).check(run(), f)
    findings = found.findings if isinstance(found, Blocked) else getattr(found, "findings", ())
    return {x.id: x.held for x in findings}


def test_only_sessions_that_must_live_on_bound_the_window() -> None:
    f = facts(replace(STATE, timeouts=dict.fromkeys(STATE.timeouts, 4000)))
    assert told_in(f, KafkaDependent())["survey.way-back"] is Held.NO
    assert "survey.way-back" not in told_in(f, Nothing())
    nameless = facts(replace(STATE, timeouts={}))
    assert told_in(nameless, KafkaDependent())["survey.timeouts"] is Held.UNKNOWN
    assert told_in(nameless, Nothing())["survey.timeouts"] is Held.YES


def at(*sessions: int) -> Any:
    return Seen(tuple(Connection("10.0.0.21", 40000, 0, 1, 1, session, 18000) for session in sessions))


def test_a_session_that_need_not_live_on_may_be_nobodys_client_but_not_sources() -> None:
    there = {"dest1": at(1)}
    assert homes((1, 2), there, {"source1": at()}, unkept={2}).astray == {}
    assert homes((1, 2), there, {"source1": at()}).astray == {2: "client of no ensemble"}
    assert homes((1, 2), there, {"source1": at(2)}, unkept={2}).astray == {2: "client of source1"}


def test_every_dependent_has_the_checks_of_its_members_in_its_own_words() -> None:
    ids = [check.id for check in preflight.checks(Nothing())]
    assert ids[-len(members.CHECKS) :] == [
        "keeper.left-source",
        "keeper.sessions-on-dest",
        "keeper.session-timeout",
        "keeper.other-clients",
        "dest.foreign-client",
    ]
    (left,) = (c for c in preflight.checks(Nothing()) if c.id == "keeper.left-source")
    assert left.claim == "the keeper is no longer a client of source"
    assert len({check.id for check in CHECKS}) == len(CHECKS), "those that Kafka names come once"


def test_a_dependent_that_keeps_nothing_needs_no_timeout_for_the_way_back() -> None:
    found = preflight.run_preflight(context(), Nothing(), healthy(), "cutover")
    (timeout,) = (f for f in found if f.id == "keeper.session-timeout")
    assert (timeout.held, timeout.seen) == (Held.YES, "the keepers keep no session through the window")


def test_the_words_name_the_section_in_every_move() -> None:
    words: Words = Nothing.words
    assert words.wrong_section == "correct keeper.chroot or keeper.cluster_id in migration.yml"
    assert (
        words.longer_sessions == "raise zookeeper.session.timeout.ms and restart the keepers (the roll does)"
    )
