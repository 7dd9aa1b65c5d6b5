"""A toy runbook with a window of its own: changes on hosts, one on a cluster while clients are shut out, a
lease, and a door. Killed anywhere it goes on; killed anywhere before the door it comes home.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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
    forward,
    resume,
)
from tests.unit.test_cluster_changes import AFTER, BEFORE, SettingStep, Site, Toy
from zkmigrate.engine import journal
from zkmigrate.engine.apply import Outcome
from zkmigrate.engine.run import Ended, Walk
from zkmigrate.engine.watch import LEASE_LAPSED, Watch
from zkmigrate.inventory.inventory import Lease, Policy
from zkmigrate.model.finding import Finding
from zkmigrate.model.playbook import Playbook, Stage
from zkmigrate.model.step import AnyStep, Hazard, Way
from zkmigrate.model.window import Decision, Phase, WindowSpec, WindowSteps

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


WINDOW = WindowSpec(STEPS, decide, lambda _context: 30.0, lambda all_sealed: "go" if all_sealed else "back")


@dataclass
class Windowed(Toy):
    """The toy of cluster changes with a window.

    renewed: hosts whose lease was renewed, in order. lapses: when the leases of hosts that are shut end, on
    the toy's clock.
    """

    renewed: list[str] = field(default_factory=list)
    lapses: float = 1e9

    @property
    def playbook(self) -> Playbook:
        site: Site = self.hosts
        window: tuple[Any, ...] = (
            WriteStep("shut", site, Hazard.WINDOW),
            SettingStep(site, hazard=Hazard.WINDOW),
            WriteStep("keep", site, Hazard.WINDOW),
            LookStep(),
            WriteStep("door", site, Hazard.FINAL),
        )
        stages = (
            Stage("before", "prepare", (cast(AnyStep, WriteStep("file", site)),)),
            Stage("main", "do", cast(tuple[AnyStep, ...], window), consent="Now?", window=WINDOW),
        )
        title = "A toy with a window"
        return Playbook("toy", title, stages, inventory=TinyInventory, roles=ROLES, alters_clusters=True)

    def process(self, act: Callable[[Walk], Ended], points: Points | None = None) -> Ended:
        """One process's life, with a watch of its own."""
        lease = Lease(renew_every_ms=5000)
        self.watch = Watch(HOSTS, lambda _c: lease, self._renew, self.clock.now, self.clock.wall)
        try:
            return super().process(act, points)
        finally:
            self.watch.close()

    def _renew(self, host: str, fence_ms: int, cut_ms: int) -> Outcome:
        """As a host does: a lease that has ended is not renewed. It began when the host was shut."""
        self.renewed.append(host)
        if (host, "/shut") in self.hosts.files and self.clock.t > self.lapses:
            return Outcome(3, "lapsed")
        return Outcome(0)

    @property
    def home(self) -> bool:
        return self.hosts.values == BEFORE and self.hosts.files == {}

    @property
    def there(self) -> bool:
        return self.hosts.values == AFTER and self.hosts.files == FILES


def killed(tmp_path: Path, act: Callable[[Walk], Ended], until: str = "") -> list[Windowed]:
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


def test_there_under_a_lease_that_is_renewed(tmp_path: Path) -> None:
    toy = Windowed(tmp_path / "r")
    assert toy.process(forward) == Ended(0, "toy is complete")
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
def test_a_lease_that_ended_while_nobody_was_there_turns_it_back(tmp_path: Path, at: int) -> None:
    """It is killed at a change of the cluster inside the window, and taken up again too late."""
    toy = Windowed(tmp_path / "r")
    behind = 2 * 2 * len(HOSTS)
    with pytest.raises(Killed):
        toy.process(forward, Points(behind + at + 1, kinds=("apply", "applied")))
    assert (HOSTS[0], "/shut") in toy.hosts.files
    toy.lapses = toy.clock.t + LEASE_S
    toy.clock.t += LEASE_S + 1
    ended = toy.process(resume)
    assert (ended.code, [finding.id for finding in ended.findings]) == (9, [LEASE_LAPSED])
    assert (toy.hosts.values, set(toy.hosts.files)) == (BEFORE, {(host, "/file") for host in HOSTS})


def test_behind_the_door_there_is_no_way_back(tmp_path: Path) -> None:
    toy = Windowed(tmp_path / "r")
    assert toy.process(forward).code == 0
    ended = toy.process(back)
    assert (ended.code, toy.there) == (6, True)
