"""An operator of runs over a model Kafka cluster, process after process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from tests.unit.engine_world import PointDisk, Points, TinyClock, TinyConfirm, walking
from tests.world.cluster import Cluster
from tests.world.cluster_look import ClusterLook
from zkmigrate.runbook.engine import events, journal
from zkmigrate.runbook.engine.codec import decode_finding
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.engine.hold_file import Hold, HoldFile
from zkmigrate.runbook.engine.run import Walk
from zkmigrate.runbook.engine.throttle_file import ThrottleFile
from zkmigrate.runbook.model.change import Change, ClusterChange, Outcome
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.sampling import Body


@dataclass
class ClusterDesk:
    """One run over one cluster. first: the cluster as it was before."""

    run_dir: Path
    cluster: Cluster
    inventory: Any
    confirm: TinyConfirm = field(default_factory=TinyConfirm)
    seen: list[events.Event] = field(default_factory=list)
    before_change: Callable[[Change], object] = lambda _change: None
    after_change: Callable[[Change], object] = lambda _change: None
    noted: list[tuple[float, Body]] = field(default_factory=list)
    playbook: ClassVar[Playbook]
    chroot: ClassVar[str] = ""

    def __post_init__(self) -> None:
        self.points = Points()
        self.first = self.cluster.copy()

    @property
    def clock(self) -> TinyClock:
        return self.cluster.clock

    @clock.setter
    def clock(self, clock: TinyClock) -> None:
        self.cluster.clock = clock

    def copy(self, run_dir: Path) -> Self:
        """As :class:`tests.unit.engine_world.Desk`."""
        shutil.copytree(self.run_dir, run_dir)
        made = type(self)(run_dir, self.cluster.copy(), self.inventory)
        made.first = self.first
        return made

    def hold(self, at: str) -> None:
        """Request a hold."""
        self.run_dir.mkdir(mode=0o700, exist_ok=True)
        HoldFile(self.run_dir).place(Hold(at=at, by="tester"))

    def look(self) -> Look:
        """What a process sees."""
        return cast(Look, ClusterLook(self.cluster, self.chroot))

    @property
    def there(self) -> bool:
        """The cluster is as the run wants it."""
        raise NotImplementedError

    @property
    def home(self) -> bool:
        """The cluster is as it was."""
        raise NotImplementedError

    @property
    def leaders_back(self) -> bool:
        """Every preferred leader that led before leads again."""
        now = self.cluster.held
        led = [(name, held) for name, held in self.first.held.items() if held.leader == held.replicas[0]]
        return all(now[name].leader == held.leader for name, held in led)

    @property
    def settings_kept(self) -> bool:
        """Every setting is as it was; what was born meanwhile has none."""
        born = {topic for topic, _ in self.cluster.birthplaces}
        old = {topic: own for topic, own in self.cluster.topics.items() if topic not in born}
        mine = [topic for topic in born if self.cluster.topics[topic]]
        return old == self.first.topics and self.cluster.own_rates == self.first.own_rates and not mine

    def process(self, act: Callable[[Walk], RunEnded], points: Points | None = None) -> RunEnded:
        """One process's life."""
        self.points = points or Points()
        with walking(
            self.run_dir,
            self.playbook,
            self.inventory,
            PointDisk(self.points),
            {},
            look=self.look(),
            apply=self._apply,
            clock=self.clock,
            confirm=self.confirm,
            emit=self.seen.append,
            holds=HoldFile(self.run_dir),
            overrides=ThrottleFile(self.run_dir).read,
            note=lambda _kind, body: self.noted.append((self.clock.now(), body)),
        ) as walk:
            return act(walk)

    @property
    def history(self) -> History:
        """What the journal means now."""
        return journal.read(self.run_dir)

    def told(self, id: str) -> list[Finding]:
        """The findings with this id that the journal holds, oldest first."""
        return [
            decode_finding(body)
            for entry in journal.kept_lines(self.run_dir)
            for body in (entry.body.get("findings") or [entry.body.get("finding")])
            if isinstance(body, dict) and body["id"] == id
        ]

    def _apply(self, change: Change, operation: str, fencing: int) -> Outcome:
        self.before_change(change)
        self.points.hit("apply")
        if isinstance(change, ClusterChange):
            outcome = Outcome(*self.cluster.alter(change))
        else:
            outcome = self.cluster.on_host(change, operation, fencing)
        self.after_change(change)
        self.points.hit("applied")
        return outcome


def at(number: int, kind: type[Change], act: Callable[[], object]) -> Callable[[Change], None]:
    """Does ``act`` at the change of this kind and number."""
    numbers = iter(range(1, 1000))

    def heeded(change: Change) -> None:
        if isinstance(change, kind) and next(numbers) == number:
            act()

    return heeded
