"""A plan is made from what each step forecasts: ``check`` says whom it would change, ``plan`` what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.unit.engine_world import inventory
from tests.world.model.look import WorldLook
from tests.world.operator import quiet_world
from tests.world.test_arm import by_name
from zkmigrate.errors import HostError
from zkmigrate.runbook.engine import plan
from zkmigrate.runbook.engine.plan import PlannedStep
from zkmigrate.runbook.model.change import Applied, Changes, SetService
from zkmigrate.runbook.model.finding import Severity, claim
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.step import (
    Blocked,
    Context,
    Done,
    Forecast,
    Hazard,
    Ready,
    Records,
    Step,
    Verdict,
    Waiting,
    Way,
)

REFUSED = Blocked(
    (
        claim("toy.seen", "it is there", True, target="d1", seen="there"),
        claim("toy.slow", "it is quick", False, target="d1", seen="slow", severity=Severity.WARN),
        claim("toy.full", "there is room", False, target="d2", seen="no room"),
        claim("toy.said", "it answers", None, target="d3", seen="no answer"),
    )
)

REHEARSED = next(stage.steps for stage in PLAYBOOK.stages if stage.rehearsal)


@dataclass
class Toy(Step[str]):
    """Restarts a service that is called as what it sees, and one as an earlier step recorded."""

    verdict: Verdict
    id: str = "toy"
    title: str = "A toy"
    hazard: Hazard = Hazard.REVERSIBLE
    asked: list[Context] = field(default_factory=list)

    def observe(self, c: Context, look: Look) -> str:
        self.asked.append(c)
        return "now"

    def check(self, c: Context, f: str) -> Verdict:
        assert c.way is Way.FORWARD
        return self.verdict

    def plan(self, c: Context, f: str, target: str) -> Changes:
        word = c.records.get("before", {}).get("word", "nothing")
        return tuple(SetService(target, f"{unit}.service", "restart") for unit in (f, word))

    def undo(self, c: Context, f: str, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()


@dataclass
class Foretelling(Toy):
    """A toy that says itself what it will see."""

    targets: tuple[str, ...] | None = None
    records: Records = field(default_factory=dict)

    def forecast(self, c: Context, look: Look) -> Forecast[str]:
        return Forecast("later", self.targets, self.records)


@dataclass
class Silent(Toy):
    """A toy whose turn nobody can foretell."""

    def forecast(self, c: Context, look: Look) -> None:
        return None


def planned(step: Toy) -> PlannedStep:
    playbook = Playbook("toys", "Toys", (Stage("main", "do", (step,)),))
    return plan.make(playbook, inventory(), cast(Look, None), ()).stages[0].steps[0]


def words(step: PlannedStep) -> dict[str, list[str]]:
    """By target, the names of the services that are restarted."""
    return {t: [c.text.split()[1].partition(".")[0] for c in cs] for t, cs in step.targets.items()}


def test_a_step_that_says_nothing_else_is_planned_from_what_it_sees_now() -> None:
    found = planned(Toy(Ready(("d1", "d3"))))
    assert words(found) == {"d1": ["now", "nothing"], "d3": ["now", "nothing"]}
    assert (found.note, found.unknown, found.facts) == ("", "", "now")


def test_a_forecast_says_what_is_seen_at_its_turn_and_what_was_recorded_before() -> None:
    found = planned(Foretelling(Ready(("d2",)), records={"before": {"word": "BOOT"}}))
    assert words(found) == {"d2": ["later", "BOOT"]}
    assert found.facts == "later"


def test_targets_that_check_cannot_tell_yet_are_taken_from_the_forecast() -> None:
    assert list(words(planned(Foretelling(REFUSED, targets=("d2", "d1"))))) == ["d2", "d1"]
    assert planned(Foretelling(Ready(("d1",)), targets=())).note == plan.NOTHING


def test_what_is_done_already_needs_nothing() -> None:
    found = planned(Toy(Done()))
    assert (found.targets, found.note, found.unknown) == ({}, plan.NOTHING, "")


@pytest.mark.parametrize(
    "step", [Toy(Waiting("rain", "dry", 1.0)), Silent(Ready(("d1",)))], ids=["waits", "none"]
)
def test_what_can_not_be_told_yet_is_decided_later_and_is_no_gap_of_the_plan(step: Toy) -> None:
    found = planned(step)
    assert (found.targets, found.note, found.unknown) == ({}, plan.LATER, "")
    assert found.facts == (None if isinstance(step, Silent) else "now")


def test_a_step_that_would_refuse_is_not_known_now_and_says_why() -> None:
    found = planned(Toy(REFUSED))
    assert found.unknown == "d2: no room; d3: no answer"
    assert (found.targets, found.note) == ({}, f"not known now: {found.unknown}")


def test_a_step_that_only_looks_is_not_asked() -> None:
    step = Toy(Ready(("d1",)), hazard=Hazard.READ_ONLY)
    assert (planned(step).note, step.asked) == (plan.READS, [])


def test_the_steps_of_the_window_foresee_a_turn_at_which_check_lets_them_go() -> None:
    """Who goes is not said twice: all but CHECK, which compares with what only the window knows."""
    world = quiet_world()
    c = Context("RUN", world.inventory)
    sure = []
    for step in REHEARSED:
        if step.hazard is Hazard.READ_ONLY:
            continue
        foreseen = step.forecast(c, WorldLook(world))
        assert foreseen is not None
        if foreseen.targets is None:
            sure.append(step.id)
            assert step.check(c, foreseen.facts) == Ready(world.inventory.dest_names)
    assert sure == ["arm", "fence", "cut", "stop", "seal", "go"]


def test_hosts_known_by_name_only_are_said_and_do_not_end_the_plan() -> None:
    world = quiet_world()
    step = next(s for s in REHEARSED if s.id == "arm")
    playbook = Playbook("arms", "Arms", (Stage("main", "do", (step,)),))
    made = plan.make(playbook, by_name(addresses=False), WorldLook(world), ())
    assert made.unknown["main.arm"].startswith("source1: source1.example")


def test_a_forecast_that_fails_is_not_known_now() -> None:
    class Deaf(Toy):
        def observe(self, c: Context, look: Look) -> str:
            raise HostError("d1: no answer")

    assert planned(Deaf(Done())).unknown == "d1: no answer"
