"""A toy runbook with a window of its own: changes on hosts, one on a cluster while clients are shut out, a
lease, and a door. Killed anywhere it goes on; killed anywhere before the door it comes home.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.engine_world import (
    HOSTS,
    ROLES,
    Killed,
    LookStep,
    Points,
    TinyInventory,
    WriteStep,
    back,
    eventually,
    forward,
    inventory,
    resume,
)
from tests.unit.runbook.engine.test_cluster_changes import AFTER, BEFORE, SettingStep, Site, Toy
from zkmigrate import deadline
from zkmigrate.errors import UsageError
from zkmigrate.inventory.inventory import Inventory, Lease, Policy
from zkmigrate.runbook.engine import journal, runs
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.run import Walk
from zkmigrate.runbook.engine.watch import Watch
from zkmigrate.runbook.model.change import Outcome
from zkmigrate.runbook.model.finding import Finding, claim
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.sampling import Note
from zkmigrate.runbook.model.step import AnyStep, Hazard, Verdict, Waiting, Way
from zkmigrate.runbook.model.window import Decision, Phase, Probe, Trouble, WindowSpec, WindowSteps

STEPS = WindowSteps(
    phases={
        "shut": Phase.FENCED,
        "setting": Phase.CUT,
        "keep": Phase.SEALED,
        "look": Phase.STARTED,
        "door": Phase.OPEN,
    },
    begins="shut",
    cuts="setting",
    seals="keep",
    serves="look",
    opens="door",
)
LEASE_S = 5.0
FILES = {(host, f"/{name}"): b"new" for name in ("file", "shut", "keep", "door") for host in HOSTS}


def decide(phase: str, finding: Finding, policy: Policy) -> Decision:
    return Decision.GO if phase in ("keep", "look", "door") else Decision.BACK


WINDOW = WindowSpec(
    STEPS,
    decide,
    lambda _context: 30.0,
    lambda all_sealed: "go" if all_sealed else "back",
    lease=lambda _context: Lease(renew_every_ms=5000),
)


@dataclass
class Windowed(Toy):
    """The toy of cluster changes with a window.

    renewed: hosts whose lease was renewed, in order. asked_for: for how long. noted: kinds of the samples of
    its probes. lapses: when the leases of hosts that are shut end, on
    the toy's clock.
    """

    renewed: list[str] = field(default_factory=list)
    asked_for: list[tuple[int, int]] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)
    lapses: float = 1e9
    window: WindowSpec = WINDOW
    verdict: Callable[[Way], Verdict | None] = lambda _way: None

    @property
    def playbook(self) -> Playbook:
        site: Site = self.hosts
        window: tuple[Any, ...] = (
            WriteStep("shut", site, Hazard.WINDOW),
            SettingStep(hazard=Hazard.WINDOW),
            WriteStep("keep", site, Hazard.WINDOW, verdict=self.verdict),
            LookStep(),
            WriteStep("door", site, Hazard.FINAL),
        )
        stages = (
            Stage("first", "look", (cast(AnyStep, LookStep("first")),), gate=True),
            Stage("before", "prepare", (cast(AnyStep, WriteStep("file", site)),), outdates="written files"),
            Stage(
                "main", "do", cast(tuple[AnyStep, ...], window), consent="Now?", window=self.window, gate=True
            ),
        )
        title = "A toy with a window"
        return Playbook("toy", title, stages, inventory=TinyInventory, roles=ROLES, alters_clusters=True)

    def process(self, act: Callable[[Walk], RunEnded], points: Points | None = None) -> RunEnded:
        """One process's life, with a watch of its own."""
        look, samples = cast(Look, None), self.noted.append

        def probes(stage: Stage) -> tuple[Probe, ...]:
            spec = stage.window
            return () if spec is None else spec.probes(inventory(), look, lambda kind, _body: samples(kind))

        self.watch = Watch(HOSTS, self._renew, self.clock.now, self.clock.wall, probes)
        try:
            return super().process(act, points)
        finally:
            self.watch.close()

    def _renew(self, host: str, fence_ms: int, cut_ms: int) -> Outcome:
        """As a host does: a lease that has ended is not renewed. It began when the host was shut."""
        self.renewed.append(host)
        self.asked_for.append((fence_ms, cut_ms))
        if (host, "/shut") in self.hosts.files and self.clock.t > self.lapses:
            return Outcome(3, "lapsed")
        return Outcome(0)

    @property
    def home(self) -> bool:
        return self.hosts.values == BEFORE and self.hosts.files == {}

    @property
    def there(self) -> bool:
        return self.hosts.values == AFTER and self.hosts.files == FILES


@pytest.fixture
def toy(tmp_path: Path) -> Windowed:
    return Windowed(tmp_path / "r")


def killed(tmp_path: Path, act: Callable[[Walk], RunEnded], until: str = "") -> list[Windowed]:
    """A toy for each change of ``act`` that it can be killed at, right after it was sent. until: the step
    that was walked to before."""
    toys: list[Windowed] = []
    while True:
        toy = Windowed(tmp_path / f"r{len(toys)}")
        if until:
            assert toy.process(lambda walk: walk.forward(until=until)).code == 0
        try:
            toy.process(act, Points(len(toys) + 1, kinds=("apply", "applied")))
        except Killed:
            toys.append(toy)
        else:
            return toys


def test_there_under_a_lease_that_is_renewed(toy: Windowed) -> None:
    assert toy.process(forward) == RunEnded(0, "toy is complete")
    assert toy.there
    assert set(toy.renewed) == set(HOSTS)


def test_killed_at_each_change_it_goes_on(tmp_path: Path) -> None:
    toys = killed(tmp_path, forward)
    for number, toy in enumerate(toys):
        assert toy.process(resume).code == 0, number
        assert toy.there, number
    assert len(toys) == 2 * (4 * len(HOSTS) + len(AFTER))


def test_killed_at_each_change_before_the_door_it_comes_home(tmp_path: Path) -> None:
    toys = killed(tmp_path, lambda walk: walk.forward(until="main.keep"))
    for number, toy in enumerate(toys):
        assert toy.process(back).code == 0, number
        assert toy.home, number
    assert len(toys) == 2 * (3 * len(HOSTS) + len(AFTER))


def test_killed_at_each_change_of_the_way_back_it_comes_home(tmp_path: Path) -> None:
    toys = killed(tmp_path, back, until="main.keep")
    for number, toy in enumerate(toys):
        way = journal.read(toy.run_dir).way
        assert toy.process(resume if way is Way.BACK else back).code == 0, number
        assert toy.home, number
    assert len(toys) == 2 * (3 * len(HOSTS) + len(AFTER))


@pytest.mark.parametrize("at", range(2 * len(AFTER)))
def test_a_lease_that_ended_while_nobody_was_there_turns_it_back(toy: Windowed, at: int) -> None:
    """It is killed at a change of the cluster inside the window, and taken up again too late."""
    behind = 2 * 2 * len(HOSTS)
    with pytest.raises(Killed):
        toy.process(forward, Points(behind + at + 1, kinds=("apply", "applied")))
    assert (HOSTS[0], "/shut") in toy.hosts.files
    toy.lapses = toy.clock.t + LEASE_S
    toy.clock.t += LEASE_S + 1
    ended = toy.process(resume)
    assert (ended.code, [finding.id for finding in ended.findings]) == (9, [Trouble.LEASE_LAPSED])
    assert (toy.hosts.values, set(toy.hosts.files)) == (BEFORE, {(host, "/file") for host in HOSTS})


def test_behind_the_door_there_is_no_way_back(toy: Windowed) -> None:
    assert toy.process(forward).code == 0
    ended = toy.process(back)
    assert (ended.code, toy.there) == (6, True)


def test_the_gate_of_a_run_is_what_its_playbook_says(tmp_path: Path) -> None:
    toy = Windowed(tmp_path / "tiny-1")

    def not_undone() -> tuple[runs.KnownRun, str] | None:
        return runs.past_first_gate(tmp_path, inventory(), toy.playbook)

    assert toy.process(lambda walk: walk.forward(until="first")).code == 0
    assert not_undone() is None, "nothing was changed yet"
    assert toy.process(lambda walk: walk.forward(until="before")).code == 0
    for act in (None, back):
        if act is not None:  # on its way back it looks at the first stage anew, and has written files still
            with pytest.raises(Killed):
                toy.process(act, Points(1, kinds=("apply",)))
        found = not_undone()
        assert found is not None
        assert (found[1], runs.gate_ahead(found[0], toy.playbook).id) == ("written files", "main")
    assert toy.process(resume).code == 0
    assert not_undone() is None
    assert toy.process(forward).code == 0
    [over] = runs.runs_of(tmp_path, inventory())
    with pytest.raises(UsageError, match="has passed every gate"):
        runs.gate_ahead(over, toy.playbook)


def test_a_window_brings_its_own_lease_and_probes(toy: Windowed) -> None:
    """What its probe finds in trouble turns it back, though the lease holds."""
    looked: list[bool] = []

    def probes(_inventory: Inventory, _look: Look, note: Note) -> tuple[Probe, ...]:
        def ask() -> Iterator[Finding]:
            looked.append(deadline.bounded())
            note("doors", {"shut": len(toy.hosts.files)})
            yield claim("toy.shut", "the doors stay shut", False)

        return (Probe("doors", 0.01, ask, within_s=1.0),)

    def seen(way: Way) -> Verdict | None:
        if way is Way.BACK:
            return None
        eventually("the probe's finding is there", lambda: toy.watch.finding() is not None)
        return Waiting("the doors", "", 1e9)

    own = Lease(fence_ttl_ms=9000, cut_ttl_ms=7000, renew_every_ms=5000)
    toy.window = replace(WINDOW, lease=lambda _context: own, probes=probes)
    toy.verdict = seen
    ended = toy.process(forward)
    assert (ended.code, [finding.id for finding in ended.findings]) == (7, ["toy.shut"])
    assert (toy.hosts.values, set(toy.hosts.files)) == (BEFORE, {(host, "/file") for host in HOSTS})
    assert (9000, 7000) in toy.asked_for
    assert (set(toy.noted), set(looked)) == ({"doors"}, {True})
