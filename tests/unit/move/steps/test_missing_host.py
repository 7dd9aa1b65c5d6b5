"""SERVE, CHECK, OPEN and VERIFY with a dest host that is missing: when the others go on without it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.unit.move.steps.facts import DEST, context, in_phases, proved, servers
from zkmigrate.move.dependents.kafka import KAFKA, Brokers
from zkmigrate.move.facts.dest_status import DestStates, Statuses
from zkmigrate.move.steps.check import CheckFacts, CheckStep, serving_only
from zkmigrate.move.steps.open_door import OpenStep
from zkmigrate.move.steps.serve import ServeStep
from zkmigrate.move.steps.verify import VerifyFacts, VerifyStep
from zkmigrate.runbook.model.fact import Absent
from zkmigrate.runbook.model.finding import Held, Severity
from zkmigrate.runbook.model.step import Blocked, Context, Done, Ready, Waiting, Way

QUORUM = servers(dest1=("leader", 2 << 32), dest2=("follower", 2 << 32))


CONTEXT = context(prove=proved())


GOES_ON = [
    (("started", "started", "-"), True),
    (("started", "checked", "sealed"), True),
    (("open", "go", "-"), True),
    (("started", "go", "-"), False),
    (("go", "go", "-"), False),
]


@pytest.mark.parametrize(("phases", "on"), GOES_ON)
def test_serve_goes_on_once_a_majority_serves_and_names_the_missing(
    phases: tuple[str, ...], on: bool
) -> None:
    verdict = ServeStep().check(CONTEXT, in_phases(*phases))
    assert isinstance(verdict, Done if on else Blocked)
    late = [f.target for f in verdict.findings if f.id == "serve.late"]
    assert late == [h for h, p in zip(DEST, phases, strict=True) if on and p in ("-", "sealed", "go")]


def test_serve_waits_for_a_host_that_has_go_and_answers() -> None:
    assert isinstance(ServeStep().check(CONTEXT, in_phases("started", "started", "go")), Waiting)


@pytest.mark.parametrize(
    "step", [ServeStep(), CheckStep(KAFKA), OpenStep(KAFKA)], ids=["serve", "check", "open"]
)
@pytest.mark.parametrize(
    "c", [context(rehearsal=True, prove=proved()), CONTEXT], ids=["rehearsal", "too few"]
)
def test_nobody_goes_on_in_a_rehearsal_or_without_a_majority(
    step: ServeStep | CheckStep | OpenStep, c: Context
) -> None:
    found = in_phases("checked", "checked" if c.rehearsal else "go", "-")
    if isinstance(step, ServeStep):
        verdict = step.check(c, found)
    elif isinstance(step, CheckStep):
        verdict = step.check(c, CheckFacts(found, QUORUM, 1, Absent("-"), {}))
    else:
        verdict = step.check(c, DestStates(found, Statuses({}, ())))
    assert isinstance(verdict, Blocked)
    assert [f.id for f in verdict.findings] == ["host.dest3"]


@pytest.mark.parametrize("first", ["started", "open"])
def test_check_without_a_leader_asks_again_while_the_silent_host_may_have_led(first: str) -> None:
    facts = CheckFacts(in_phases(first, "started", "-"), servers(), 0, Absent("leader"), {})
    verdict = CheckStep(KAFKA).check(CONTEXT, facts)
    assert isinstance(verdict, Blocked)
    assert [(f.id, f.held) for f in verdict.findings] == [("check.leader", Held.UNKNOWN)]


def test_check_waits_for_no_leader_once_every_host_that_answers_is_open() -> None:
    """The silent host may lead on, unheard by the operator alone: the others elect nobody then."""
    facts = CheckFacts(in_phases("open", "open", "-"), servers(), 0, Absent("leader"), {})
    verdict = CheckStep(KAFKA).check(CONTEXT, facts)
    assert isinstance(verdict, Done)
    assert [(f.id, f.severity) for f in verdict.findings] == [("check.leader", Severity.WARN)]


@pytest.mark.parametrize(("phases", "synced"), [(("started",) * 3, 1), (("started", "started", "sealed"), 0)])
def test_check_waits_until_every_host_that_serves_is_synced(phases: tuple[str, ...], synced: int) -> None:
    facts = CheckFacts(in_phases(*phases), QUORUM, synced, Absent("-"), {})
    assert isinstance(CheckStep(KAFKA).check(CONTEXT, facts), Waiting)


def test_open_opens_the_hosts_that_serve() -> None:
    found = in_phases("checked", "started", "-")
    verdict = OpenStep(KAFKA).check(CONTEXT, DestStates(found, Statuses({}, ())))
    assert isinstance(verdict, Ready)
    assert verdict.targets == ("dest1", "dest2")


@pytest.mark.parametrize("phase", ["sealed", "go"])
def test_open_is_done_though_a_host_that_is_missing_stays_shut(phase: str) -> None:
    found = in_phases("open", "open", phase)
    verdict = OpenStep(KAFKA).check(CONTEXT, DestStates(found, found))
    assert isinstance(verdict, Done)
    assert [f.target for f in verdict.findings if f.id == "serve.late"] == ["dest3"]


def test_open_walking_back_needs_every_host() -> None:
    found = in_phases("checked", "checked", "-")
    assert isinstance(
        OpenStep(KAFKA).check(replace(CONTEXT, way=Way.BACK), DestStates(found, found)), Blocked
    )


@pytest.mark.parametrize(
    ("phases", "waited", "verdict", "what"),
    [
        (("open", "open", "-"), 0.0, Waiting, "every dest host lets clients in"),
        (("open", "open", "-"), math.inf, Waiting, "twice the smallest"),
        (("open", "open", "go"), math.inf, Waiting, "twice the smallest"),
        (("open", "open", "idle"), math.inf, Waiting, "twice the smallest"),
        (("open", "go", "go"), math.inf, Waiting, "every dest host lets clients in"),
        (("open", "-", "-"), math.inf, Blocked, "host.dest2"),
        (("open", "idle", "go"), math.inf, Blocked, "verify.phase"),
        (("open", "open", "armed"), math.inf, Blocked, "verify.phase"),
        (("open", "open", "sealed"), math.inf, Ready, "dest3"),
    ],
)
def test_verify_waits_for_a_missing_host_for_a_while_and_needs_a_majority(
    phases: tuple[str, ...], waited: float, verdict: type[Waiting | Blocked | Ready], what: str
) -> None:
    view = servers(dest1=("leader", 2 << 32), dest2=("follower", 2 << 32), dest3=("observer", 0))
    facts = VerifyFacts(in_phases(*phases), 0.0, view, Absent("-"), {}, Brokers(Absent("-")), waited=waited)
    given = VerifyStep(KAFKA).check(replace(CONTEXT, records={}), facts)
    assert isinstance(given, verdict)
    if isinstance(given, Waiting):
        assert given.what.startswith(what)
    elif isinstance(given, Blocked):
        assert given.findings[0].id == what
    else:
        assert isinstance(given, Ready)
        assert given.targets == (what,)


def test_a_host_is_left_out_of_the_quorum_only_where_neither_it_nor_its_server_says_that_it_serves() -> None:
    def judged(phase: str, mode: str) -> bool:
        view = servers(dest1=("leader", 2 << 32), dest2=("follower", 2 << 32), dest3=(mode, 0))
        return "dest3" in serving_only(view, in_phases("started", "started", phase)).servers

    assert judged("started", "observer"), "it has served and does not follow: that is wrong"
    assert judged("-", "follower")
    assert not judged("-", "observer")
    assert not judged("sealed", "observer")
