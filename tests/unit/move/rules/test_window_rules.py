"""The rules of the window: what is done about trouble, over the whole domain, and the two deadlines."""

from __future__ import annotations

import inspect
import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.unit.move.steps.facts import surveyed
from tests.world.operator import inventory
from zkmigrate.inventory.inventory import Policy
from zkmigrate.move.rules import probes, window_rules
from zkmigrate.move.rules.window_rules import BrokerPolicy
from zkmigrate.runbook.engine import watch
from zkmigrate.runbook.model.finding import Finding, Held
from zkmigrate.runbook.model.step import Context, Hazard
from zkmigrate.runbook.model.window import Decision, Phase, Trouble

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "window.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"

POLICIES: tuple[BrokerPolicy, ...] = ("back", "forward", "ask")
EVERY = tuple(itertools.product(Phase, Trouble, POLICIES))
decided = window_rules.decide
AT_RISK = (Phase.ARMED, Phase.FENCED, Phase.CUT, Phase.STOPPED)
GO_IS_OUT = (Phase.GO, Phase.STARTED, Phase.CHECKED)


def rendered() -> str:
    """The decisions as Markdown: neighbouring phases that decide alike share a column."""

    def column(phase: Phase) -> tuple[Decision, ...]:
        return tuple(decided(phase, t, p) for t in Trouble for p in POLICIES)

    groups = [tuple(same) for _, same in itertools.groupby(Phase, column)]
    lines = ["| trouble | " + " | ".join(", ".join(phases) for phases in groups) + " |"]
    lines.append("|---" * (len(groups) + 1) + "|")
    for trouble in Trouble:
        by_policy = {p: " | ".join(decided(phases[0], trouble, p) for phases in groups) for p in POLICIES}
        if len(set(by_policy.values())) == 1:
            lines.append(f"| `{trouble}` | {by_policy['ask']} |")
        else:
            lines += [f"| `{trouble}`, policy `{p}` | {cells} |" for p, cells in by_policy.items()]
    return "\n".join(lines) + "\n"


def test_the_reference_prints_the_table() -> None:
    """To renew the page, put ``rendered()`` between its two marks."""
    printed = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert printed.strip("\n") == rendered().strip("\n")


def test_the_decision_is_total() -> None:
    assert all(isinstance(decided(*row), Decision) for row in EVERY)


def test_nothing_turns_back_or_asks_after_open() -> None:
    assert {decided(Phase.OPEN, t, p) for t in Trouble for p in POLICIES} == {Decision.GO}


@pytest.mark.parametrize("phase", AT_RISK)
def test_before_seal_trouble_never_goes_on_by_itself(phase: Phase) -> None:
    """Only the operator's own word for a lost broker, or an answer to a question, goes on."""
    forward = {(t, p) for t in Trouble for p in POLICIES if decided(phase, t, p) is Decision.GO}
    assert forward == {(Trouble.BROKER_LOST, "forward")}


@pytest.mark.parametrize("trouble", [Trouble.LEASE_LAPSED, Trouble.HOST_UNREACHABLE, Trouble.LOOK_UNKNOWN])
@pytest.mark.parametrize("phase", GO_IS_OUT)
def test_once_go_is_out_what_is_not_known_never_turns_back(phase: Phase, trouble: Trouble) -> None:
    assert {decided(phase, trouble, p) for p in POLICIES} == {Decision.GO}


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_policy_for_a_lost_broker_counts_before_seal_only(phase: Phase, policy: BrokerPolicy) -> None:
    wanted = {"back": Decision.BACK, "forward": Decision.GO, "ask": Decision.ASK}[policy]
    expected = wanted if phase in AT_RISK else Decision.GO
    assert decided(phase, Trouble.BROKER_LOST, policy) is expected


def test_without_a_policy_a_lost_broker_is_asked_about() -> None:
    assert decided(Phase.FENCED, Trouble.BROKER_LOST) is Decision.ASK


def test_the_policy_changes_nothing_else() -> None:
    others = [t for t in Trouble if t is not Trouble.BROKER_LOST]
    assert all(len({decided(phase, t, p) for p in POLICIES}) == 1 for phase in Phase for t in others)


def test_nobody_to_ask_means_back_until_all_are_sealed_and_go_after() -> None:
    assert window_rules.without_operator(all_sealed=False) == "back"
    assert window_rules.without_operator(all_sealed=True) == "go"


def test_none_is_sealed_before_the_first_seal_is_sent() -> None:
    assert window_rules.NONE_SEALED == AT_RISK


def test_every_trouble_is_reported_by_somebody() -> None:
    """A row of the table that nothing reports would promise what is not watched."""
    reporters = inspect.getsource(watch) + inspect.getsource(probes)
    assert [t for t in Trouble if f"Trouble.{t.name}" not in reporters] == [Trouble.STEP_BLOCKED]


# --- findings as the engine brings them ------------------------------------------------------------------

PHASE_AFTER = {
    "": Phase.ARMED, "preflight": Phase.ARMED, "arm": Phase.ARMED, "survey": Phase.ARMED,
    "fence": Phase.FENCED, "drain": Phase.FENCED, "cut": Phase.CUT, "stop": Phase.STOPPED,
    "prove": Phase.STOPPED, "seal": Phase.SEALED, "go": Phase.GO, "serve": Phase.STARTED,
    "check": Phase.CHECKED, "open": Phase.OPEN,
}  # fmt: skip


def test_every_step_of_a_window_has_its_phase() -> None:
    steps = {step.id for stage in PLAYBOOK.stages if stage.window for step in stage.steps}
    assert steps == set(PHASE_AFTER) - {""}


def test_the_playbook_walks_the_steps_of_its_window_in_their_order() -> None:
    for stage in (stage for stage in PLAYBOOK.stages if stage.window):
        assert stage.window is not None
        order = list(stage.window.steps.phases)
        own = [step.id for step in stage.steps if step.id in order]
        assert own == order[: len(own)]
        assert own[-1] == (stage.window.steps.shut[-1] if stage.rehearsal else stage.window.steps.opens)


@pytest.mark.parametrize(("step", "phase"), PHASE_AFTER.items())
@pytest.mark.parametrize("held", [Held.NO, Held.UNKNOWN])
def test_a_finding_is_decided_by_its_id_its_phase_and_whether_it_is_known(
    step: str, phase: Phase, held: Held
) -> None:
    policy = Policy()
    for trouble, broker_lost in itertools.product(Trouble, POLICIES):
        finding = Finding(trouble.value, "a claim", held)
        decision = window_rules.decide_finding(step, finding, Policy(broker_lost_in_window=broker_lost))
        assert decision == decided(phase, trouble, broker_lost)
    own = window_rules.decide_finding(step, Finding("check.owners", "a claim", held), policy)
    not_heard = held is Held.UNKNOWN and phase in (*GO_IS_OUT, Phase.OPEN)
    assert own == decided(phase, Trouble.LOOK_UNKNOWN if not_heard else Trouble.STEP_BLOCKED)


def test_once_go_is_out_a_host_that_is_not_heard_turns_nothing_back_and_a_failed_check_does() -> None:
    unheard = Finding("host.dest1", "the host answers", Held.UNKNOWN)
    wrong = Finding("check.owners", "the owners are the same", Held.NO)
    for step in ("go", "serve", "check"):
        assert window_rules.decide_finding(step, unheard, Policy()) == "go"
        assert window_rules.decide_finding(step, wrong, Policy()) == "back"


def test_the_engines_marks_of_a_window_are_steps_of_the_playbook() -> None:
    [cutover] = [stage for stage in PLAYBOOK.stages if stage.id == "cutover"]
    assert cutover.window is not None
    marked, ids = cutover.window.steps, [step.id for step in cutover.steps]
    marks = [ids.index(mark) for mark in (marked.begins, marked.cuts, marked.seals, marked.opens)]
    assert marks == sorted(marks)
    assert cutover.steps[marks[-1]].hazard is Hazard.FINAL


# --- deadlines -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timeout_s", "way_back_s", "start_back", "clients_back"),
    [(18.0, 2.5, 6.5, 12.0), (30.0, 2.5, 14.5, 20.0), (6.0, 2.5, -1.5, 4.0), (6.0, 0.0, 1.0, 4.0)],
)
def test_deadlines(timeout_s: float, way_back_s: float, start_back: float, clients_back: float) -> None:
    limits = window_rules.deadlines(timeout_s, way_back_s)
    assert limits == window_rules.Deadlines(start_back, clients_back, timeout_s)


def test_sessions_of_six_seconds_leave_no_way_back_after_the_fence() -> None:
    """Even a way back as short as the policy's leaves less than nothing to reach SEAL in."""
    assert window_rules.deadlines(6.0, Policy().way_back_s).start_back < 0


@given(st.floats(0.1, 600), st.floats(0, 60))
def test_deadlines_keep_their_order(timeout_s: float, way_back_s: float) -> None:
    limits = window_rules.deadlines(timeout_s, way_back_s)
    assert limits.start_back < limits.clients_back < limits.forward
    gap = limits.clients_back - limits.start_back
    assert math.isclose(gap, way_back_s + window_rules.FIND_DOOR_S, rel_tol=1e-9, abs_tol=1e-9)


def context(seconds: dict[str, float], timeout_ms: int | None = 18_000, rehearsal: bool = False) -> Context:
    """A run after its rehearsal: seconds of each step's way back, and the smallest timeout SURVEY saw."""
    back = {step: {"forward": 0.5, "back": value} for step, value in seconds.items()}
    records: dict[str, dict[str, object]] = {
        "rehearse": {"seconds": back},
        "survey": surveyed(smallest_timeout_ms=timeout_ms),
    }
    return Context("run", inventory(), rehearsal=rehearsal, records=records)


def test_the_way_back_is_what_the_rehearsal_measured_but_never_less_than_the_policy() -> None:
    policy = inventory().policy.way_back_s
    slow = {"fence": 0.5, "drain": 0.25, "cut": 3.0, "stop": 1.5, "prove": 0.25}
    assert window_rules.expected_way_back_s(context(slow)) == 5.5
    assert window_rules.expected_way_back_s(context({"cut": 0.1})) == policy
    assert window_rules.expected_way_back_s(context({"seal": 60.0, "arm": 60.0, "go": 60.0})) == policy
    assert window_rules.deadline_s(context(slow)) == 12.0 - 5.5 - window_rules.FIND_DOOR_S


def test_a_way_back_from_behind_a_step_undoes_the_steps_up_to_it() -> None:
    slow = {"fence": 0.5, "drain": 2.25, "cut": 3.0, "stop": 1.5, "seal": 60.0}
    policy = inventory().policy.way_back_s
    assert window_rules.way_back_from_s(context(slow), "fence") == policy
    assert window_rules.way_back_from_s(context(slow), "cut") == 5.75
    assert window_rules.way_back_from_s(context(slow), "prove") == 7.25, "a step without a time takes none"
    assert window_rules.keeps_s(context(slow), "cut") == 12.0 - 5.75 - window_rules.FIND_DOOR_S


def test_a_rehearsal_and_a_chroot_without_sessions_have_no_deadline() -> None:
    nothing = Context("run", inventory())
    for free in (context({}, rehearsal=True), context({}, timeout_ms=None), nothing):
        assert window_rules.deadline_s(free) == math.inf
        assert window_rules.keeps_s(free, "cut") == math.inf


def test_without_a_rehearsal_and_a_round_trip_the_policy_tells_how_long_it_takes_to_seal() -> None:
    policy = inventory().policy
    assert window_rules.to_seal_s(Context("run", inventory())) == policy.way_back_s * policy.window_margin


@pytest.mark.parametrize(("verb", "most_s"), window_rules.SLOW_S.items())
def test_a_slow_verb_has_its_own_limit(verb: str, most_s: float) -> None:
    assert window_rules.limits("fence", verb, True, None) == (most_s, most_s)
