"""Operators of a switch: the real engine, journal and playbook, process after process."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar
from unittest import mock

from playbooks.kafka_topic_move import PLAYBOOK
from tests.unit.engine_world import walking
from tests.world.operator import Killed, NoSync
from tests.world.switch.look import SwitchLook, brokers
from tests.world.switch.site import EPOCH, TOPIC, World, unit_name
from zkmigrate.errors import HostError, LockedError
from zkmigrate.inventory.inventory import Policy, Ssh
from zkmigrate.runbook.engine import apply, journal
from zkmigrate.runbook.engine.events import Event, RunEnded
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.engine.journal import NAME
from zkmigrate.runbook.engine.ports import WatchPort
from zkmigrate.runbook.engine.run import Walk
from zkmigrate.runbook.engine.samples import Samples
from zkmigrate.runbook.engine.watch import past_deadline
from zkmigrate.runbook.model.change import Change, ClusterChange, Outcome
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.sampling import note_nothing
from zkmigrate.runbook.model.step import Context, Way
from zkmigrate.runbook.model.window import WindowSteps
from zkmigrate.topics.gateway.order import GatewayOrder
from zkmigrate.topics.mirror.changes import AlterAcls, CopyOffsets, SetDirection
from zkmigrate.topics.topic_move.section import (
    Cluster,
    Gateways,
    Machine,
    Mirrors,
    TopicMove,
    TopicMoveInventory,
    TopicSet,
)

T = TypeVar("T")
Kind = Literal[
    "die-before",
    "die-after",
    "lost",
    "never",
    "late",
    "asleep",
    "gateway",
    "silent",
    "dark",
    "taken-over",
    "cut",
    "boot",
    "by-hand",
]
BEAT_S = 5.0
"""An operator whose lock was taken knows it after so long at the latest."""


def inventory(world: World) -> TopicMoveInventory:
    """The switch that is under way."""
    return TopicMoveInventory(
        version=1,
        name="switch",
        ssh=Ssh(user="ops", key="k", known_hosts="h"),
        policy=Policy(open_limit_s=world.shape.open_limit_s, step_deadline_s=20.0),
        clusters=tuple(
            Cluster(name=name, brokers=(brokers(name),), mirror=unit_name(name)) for name in world.clusters
        ),
        gateways=Gateways(hosts=_machines(world.gateways, 1)),
        mirrors=Mirrors(hosts=_machines(world.hosts, 101)),
        sets=(TopicSet(name="shop", topics=(TOPIC,), apps=world.apps, groups=world.groups),),
        topic_move=TopicMove(
            set="shop",
            source=world.source.name,
            target=world.target.name,
            settle_ms=1_500,
            hold_ms=4_000,
            client_timeout_ms=30_000,
        ),
    )


def _machines(names: Mapping[str, object], first: int) -> tuple[Machine, ...]:
    return tuple(Machine(name=name, address=f"192.0.2.{n}") for n, name in enumerate(names, first))


@dataclass(frozen=True)
class Fault:
    """Something that befalls one change, by its number: among all, or among those of a step (``stage.step``)
    and its way back. amount: seconds, of a kind that lasts."""

    number: int
    kind: Kind
    amount: float = 0.0
    step: str = ""


class Deadline(WatchPort):
    """The deadline of a window that renews nothing, as the watch finds it. It asks no probe."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._end: float | None = None
        self._steps: WindowSteps | None = None
        self._told = False

    def follow(self, stage: Stage, history: History, context: Context, /) -> None:
        self._end = None
        if stage.window is None:
            return
        steps = self._steps = stage.window.steps
        first = history.first_sent.get(f"{stage.id}.{steps.begins}")
        if first is not None and f"{stage.id}.{steps.seals}" not in history.done:
            self._end = first[1] - EPOCH + stage.window.deadline_s(context)

    def finding(self) -> Finding | None:
        if self._end is None or self._steps is None or self._told or self._now() < self._end:
            return None
        return past_deadline(self._steps)

    def answered(self, _finding: Finding, /) -> None:
        self._told = True

    def left_s(self) -> float | None:
        return None if self._end is None else self._end - self._now()


@dataclass
class Lock:
    """The lock on the mirror hosts. lost_at: when another operator took it; told a little later."""

    world: World
    number: int = 0
    lost_at: float | None = None

    def fencing(self, stage: str, way: Way) -> int:
        if self.lost_at is not None and self.world.t >= self.lost_at + BEAT_S:
            raise LockedError("another operator has the lock")
        if not self.number and not (way is Way.FORWARD and stage in PLAYBOOK.unlocked):
            self.number = self.world.take_lock()
        return self.number

    def close(self) -> None:
        return None


def broken(why: str) -> None:
    """What a process must not have to say."""
    raise AssertionError(why)


@dataclass
class Operator:
    """The operator of one run. Each call is one process. faults: one that has come about is taken out.
    taken_over: the run directory of the operator who took the run over. changes: how many were sent, by step
    and in all. samples: whether its processes leave some."""

    world: World
    run_dir: Path
    faults: list[Fault] = field(default_factory=list)
    deaf: float = 0.0
    playbook: Playbook = PLAYBOOK
    events: list[Event] = field(default_factory=list)
    taken_over: Path | None = None
    dead: bool = False
    changes: Counter[str] = field(default_factory=Counter)
    samples: bool = False

    def forward(self, until: str = "") -> RunEnded | None:
        """None for a process that was killed."""
        return self._process(lambda walk: walk.forward(until))

    def resume(self) -> RunEnded | None:
        return self._process(Walk.resume)

    def back(self) -> RunEnded | None:
        return self._process(lambda walk: walk.back())

    @property
    def history(self) -> History:
        """What the journal says."""
        return journal.read(self.run_dir)

    @property
    def begun(self) -> bool:
        return (self.run_dir / NAME).exists()

    def _process(self, act: Callable[[Walk], RunEnded]) -> RunEnded | None:
        world = self.world
        self.dead, self.lock = False, Lock(world)
        self.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        note = Samples(self.run_dir, world.now, world.wall, broken).note if self.samples else note_nothing
        with walking(
            self.run_dir,
            self.playbook,
            inventory(world),
            NoSync(),
            {"run": self.run_dir.name, "hosts": {}},
            look=SwitchLook(world, self.deaf),
            apply=self._apply,
            clock=self,
            lock=self.lock,
            emit=self.events.append,
            watch=Deadline(world.now),
            note=note,
        ) as walk:
            try:
                with mock.patch.object(apply, "together", self._in_turn):
                    return act(walk)
            except Killed:
                return None

    def _in_turn(self, work: Mapping[str, Callable[[], T]], _late: object = None) -> dict[str, T]:
        """The lanes of a wave one after the other, in an order of their own: a seed gives one run."""
        names = list(work)
        self.world.rng.shuffle(names)
        results = {name: work[name]() for name in names}
        return {name: results[name] for name in work}

    # -- clock

    def now(self) -> float:
        return self.world.t

    def wall(self) -> float:
        return self.world.wall()

    def pause(self, seconds: float) -> None:
        self.world.advance(max(seconds, 0.001))

    # -- changes

    def _apply(self, change: Change, operation: str, fencing: int) -> Outcome:
        world, rng = self.world, self.world.rng
        kind, amount = self._befalls(operation)
        if kind == "die-before":
            raise Killed
        if kind == "asleep":
            world.advance(amount)
        if kind == "taken-over":
            self._taken_over(amount)
        if kind == "gateway":
            self._kill_gateway(amount)
        if kind == "silent":
            gateway = rng.choice(list(world.gateways.values()))
            gateway.silent = True
            world.later(amount, lambda: setattr(gateway, "silent", False))
        if kind == "boot":
            rng.choice(list(world.hosts.values())).reboot()
        if kind == "by-hand":
            world.by_hand()
        if kind == "dark":
            world.dark = max(world.dark, world.t + amount)
        if kind == "cut":
            world.cut()
        world.advance(rng.uniform(0.001, 0.1))
        if isinstance(change, GatewayOrder):
            operation = f"{self.run_dir.name.partition('+')[0]}.{operation}"
        if kind in ("late", "never"):
            if kind == "late":
                world.later(amount, partial(self._send, change, operation, fencing))
            world.advance(1.0)
            raise HostError(f"{change.where}: no answer")
        outcome = self._send(change, operation, fencing)
        if kind == "die-after":
            raise Killed
        world.advance(rng.uniform(0.001, 0.1))
        if outcome is None or kind == "lost":
            raise HostError(f"{change.where}: no answer")
        return outcome

    def _befalls(self, operation: str) -> tuple[str, float]:
        """The fault of this change, if any."""
        step = ".".join(operation.split(".")[:2])
        self.changes.update(("", step))
        for fault in self.faults:
            if fault.step in ("", step) and fault.number == self.changes[fault.step]:
                self.faults.remove(fault)
                return fault.kind, fault.amount
        return "", 0.0

    def _send(self, change: Change, operation: str, fencing: int) -> Outcome | None:
        assert isinstance(change, CopyOffsets | AlterAcls | SetDirection) or not isinstance(
            change, ClusterChange
        ), change
        return self.world.apply(change, operation, fencing)

    def _kill_gateway(self, amount: float) -> None:
        """Some gateway dies within a second, and serves again so much later."""
        gateway = self.world.rng.choice(list(self.world.gateways.values()))
        soon = self.world.rng.uniform(0.0, 1.0)
        self.world.later(soon, gateway.kill)
        self.world.later(soon + amount, gateway.start)

    def _taken_over(self, amount: float) -> None:
        """This process stands still. Another operator takes the lock and the journal's copy, and goes on or
        back."""
        if self.taken_over is not None or not any(host.installed for host in self.world.hosts.values()):
            return
        other = self.run_dir.with_name(f"{self.run_dir.name}+")
        shutil.copytree(self.run_dir, other)
        made = Operator(self.world, other, self.faults, self.deaf, self.playbook, changes=self.changes)
        self.lock.lost_at = self.world.t
        made.back() if amount < 1 else made.resume()
        self.taken_over = made.taken_over or other
        self.lock.lost_at = self.world.t
