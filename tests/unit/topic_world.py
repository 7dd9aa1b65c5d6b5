"""An operator of the model world of topics: engine, journal and playbook, process after process."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, cast

from playbooks.kafka_topic_config import PLAYBOOK
from tests.unit.engine_world import PointDisk, Points, TinyClock, TinyConfirm, TinyLock
from zkmigrate.engine import events
from zkmigrate.engine.clock import Interrupt
from zkmigrate.engine.events import RunEnded
from zkmigrate.engine.history import History
from zkmigrate.engine.hold_file import HoldPort
from zkmigrate.engine.journal import NAME, Journal
from zkmigrate.engine.ports import Ports, WatchPort
from zkmigrate.engine.run import Walk
from zkmigrate.inventory.inventory import Broker, Inventory, Kafka
from zkmigrate.model.change import Change, ClusterChange, Outcome
from zkmigrate.model.finding import Finding, Held
from zkmigrate.model.look import Look
from zkmigrate.model.playbook import Playbook, Stage
from zkmigrate.model.step import Context, Way
from zkmigrate.model.window import Probe
from zkmigrate.moves.world.topics import TopicQuestions, TopicWorld
from zkmigrate.topics.section import TopicConfig, TopicConfigInventory
from zkmigrate.topics.set_step import TopicConfigStep

KEY, VALUE = "retention.ms", "86400000"
ID = "A" * 22


def names(count: int) -> tuple[str, ...]:
    return tuple(f"t{n:05}" for n in range(count))


def topics(count: int) -> dict[str, dict[str, str]]:
    """Every third topic sets another value, every tenth has the wanted one, the rest sets nothing."""
    found: dict[str, dict[str, str]] = {"__consumer_offsets": {"cleanup.policy": "compact"}}
    for n, name in enumerate(names(count)):
        found[name] = {"cleanup.policy": "delete"}
        if n % 10 == 9:
            found[name][KEY] = VALUE
        elif n % 3 == 0:
            found[name][KEY] = str(1000 + n)
    return found


def inventory(**section: object) -> TopicConfigInventory:
    wanted = TopicConfig.model_validate({"key": KEY, "value": VALUE, "topics": ("t*",), **section})
    brokers = tuple(Broker(name=f"broker{n}", address=f"10.0.0.2{n}", id=n) for n in (1, 2, 3))
    kafka = Kafka(cluster_id=ID, brokers=brokers)
    return TopicConfigInventory(version=1, name="topics", kafka=kafka, topic_config=wanted)


@dataclass(frozen=True)
class TopicLook(TopicQuestions):
    """A look at nothing but topics."""

    world: TopicWorld
    clock: TinyClock

    @property
    def cluster(self) -> TopicWorld:
        return self.world

    def now(self) -> float:
        return self.clock.now()

    def wall(self) -> float:
        return self.clock.wall()


class PromptWatch(WatchPort):
    """Asks each probe whenever the walk asks for what was seen, so that no clock decides what a test sees."""

    def __init__(self, inventory: Inventory, look: Look) -> None:
        self._inventory, self._look = inventory, look
        self._probes: tuple[Probe, ...] = ()
        self._found: dict[str, Finding] = {}
        self._answered: dict[str, Held] = {}

    def follow(self, stage: Stage, history: History, _context: Context) -> None:
        if stage.watched is None or history.way is Way.BACK:
            self._probes = ()
        elif not self._probes:
            self._probes = stage.watched.probes(self._inventory, self._look)

    def finding(self) -> Finding | None:
        for probe in self._probes:
            self._found |= {finding.id: finding for finding in probe.ask()}
        open_ = [f for f in self._found.values() if f.blocks and self._answered.get(f.id) is not f.held]
        return next(iter(open_), None)

    def answered(self, finding: Finding) -> None:
        self._answered[finding.id] = finding.held


@dataclass
class Desk:
    """One run over one cluster. watched: what is watched beside its steps is asked."""

    run_dir: Path
    cluster: TopicWorld
    wave: int = 3
    inventory: TopicConfigInventory = field(default_factory=inventory)
    clock: TinyClock = field(default_factory=TinyClock)
    confirm: TinyConfirm = field(default_factory=TinyConfirm)
    seen: list[events.Event] = field(default_factory=list)
    before_change: Callable[[Change], None] = lambda _change: None
    watched: bool = False
    holds: HoldPort = field(default_factory=HoldPort)

    def __post_init__(self) -> None:
        self.points = Points()
        self.first = {name: dict(own) for name, own in self.cluster.topics.items()}

    def copy(self, run_dir: Path) -> Self:
        """As :class:`tests.unit.engine_world.Desk`."""
        shutil.copytree(self.run_dir, run_dir)
        with self.cluster._turn:
            now = {name: dict(own) for name, own in self.cluster.topics.items()}
            cluster = replace(self.cluster, topics=now, altered=[*self.cluster.altered], _old={})
        made = replace(self, run_dir=run_dir, cluster=cluster, clock=copy.copy(self.clock), seen=[])
        made.first = self.first
        return made

    @property
    def playbook(self) -> Playbook:
        """As the shipped one, with smaller waves."""
        look, change = PLAYBOOK.stages
        return replace(PLAYBOOK, stages=(look, replace(change, steps=(TopicConfigStep(self.wave),))))

    @property
    def home(self) -> bool:
        return self.cluster.topics == self.first

    @property
    def there(self) -> bool:
        """Every topic that is meant has the value, and nothing else has changed."""
        wanted = {
            name: {**own, KEY: VALUE} if name.startswith("t") else own for name, own in self.first.items()
        }
        return self.cluster.topics == wanted

    def process(self, act: Callable[[Walk], RunEnded], points: Points | None = None) -> RunEnded:
        """One process's life."""
        self.points = points or Points()
        disk = PointDisk(self.points)
        there = (self.run_dir / NAME).exists()
        journal = (Journal.open if there else Journal.create)(self.run_dir, self.clock.wall, disk)
        if not journal.history.run:
            body = {"run": "r-1", "playbook": "kafka_topic_config", "inventory": "0", "plan": "0"}
            journal.append("begin", body)
        look = cast(Look, TopicLook(self.cluster, self.clock))
        ports = Ports(
            look=look,
            apply=self._apply,
            clock=self.clock,
            confirm=self.confirm,
            lock=TinyLock(),
            interrupt=Interrupt(),
            watch=PromptWatch(self.inventory, look) if self.watched else WatchPort(),
            emit=self.seen.append,
            holds=self.holds,
        )
        try:
            return act(Walk(self.playbook, self.inventory, journal, ports))
        finally:
            journal.close()

    def _apply(self, change: Change, operation: str, fencing: int) -> Outcome:
        assert isinstance(change, ClusterChange), "no host takes part"
        self.before_change(change)
        self.points.hit("apply")
        outcome = Outcome(*self.cluster.alter(change))
        self.points.hit("applied")
        return outcome
