"""An operator of the model world: the real engine, journal and playbook over ``simulate``.

``kill_before`` / ``kill_after`` end the operator as ``kill -9`` would, around the n-th change that reaches a
host. An operator that ``keeps`` its moments walks once, and each can be gone on from as often as wanted.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.unit.engine_world import walking
from tests.world.build import World
from tests.world.model.look import WorldLook
from tests.world.model.world import SLICE_S
from tests.world.model.world import World as Move
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.engine.events import Event, RunEnded
from zkmigrate.runbook.engine.hold_file import Hold, HoldFile
from zkmigrate.runbook.engine.journal import NAME, Journal, RealDisk
from zkmigrate.runbook.engine.ports import (
    Answer,
    HookRunner,
    WatchPort,
)
from zkmigrate.runbook.engine.run import Walk
from zkmigrate.runbook.model.change import Change, Outcome
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.step import AnyStep, Way
from zkmigrate.runbook.model.window import Word


def inventory(dest_hosts: int = 3, own_commands: bool = False) -> Inventory:
    """Three source hosts, dest hosts 11…, three brokers, as the lab has them. own_commands: no systemd, the
    inventory gives commands."""
    built = World().ensemble(3, dest_hosts).brokers(3)
    return built.commands().inventory if own_commands else built.inventory


def quiet_world(dest_hosts: int = 3, own_commands: bool = False) -> Move:
    """A world in which nothing has been done yet."""
    built = World().ensemble(3, dest_hosts).brokers(3)
    return built.commands().move() if own_commands else built.move()


class NoSync(RealDisk):
    """These operators die, their machines do not: what was written is there for the next one."""

    def fsync(self, fd: int) -> None:
        return None


class Killed(BaseException):
    """The operator's process is gone."""


def copied(world: Move) -> Move:
    """The same world once more: what happens in one is nothing to the other."""
    with world.lock:
        kept: dict[int, object] = {id(world.lock): threading.RLock(), id(world.inventory): world.inventory}
        for sent in (world.applied, world.acknowledged):  # nobody changes what is in them
            kept[id(sent)] = [*sent]
        return copy.deepcopy(world, kept)


@dataclass(frozen=True)
class Moment:
    """What is there when an operator is killed: the world, and the journal as bytes."""

    world: Move
    journal: bytes

    def again(self, run_dir: Path) -> Operator:
        """The next operator, at this moment. Each call gives a world and a journal of its own."""
        run_dir.mkdir(mode=0o700, parents=True)
        (run_dir / NAME).touch(mode=0o600)
        (run_dir / NAME).write_bytes(self.journal)
        return Operator(copied(self.world), run_dir)


@dataclass
class Operator:
    """One operator machine with its run directory; each call is one process.

    keeps: after each change, and before each, what a kill would leave is put into ``after`` and ``before``.
    """

    world: Move
    run_dir: Path
    playbook: Playbook = PLAYBOOK
    kill_before: int = 0
    kill_after: int = 0
    kill_before_second: str = ""
    kill_after_verb: tuple[str, str, int] = ("", "", 0)
    """A stage, a verb, and how often the stage still sends it."""
    copies: Callable[[bytes], Mapping[str, str]] | None = None
    answers: dict[str, Word] = field(default_factory=dict)
    unreachable: frozenset[str] = frozenset()
    events: list[Event] = field(default_factory=list)
    watch: WatchPort = field(default_factory=WatchPort)
    hooks: HookRunner = field(default_factory=HookRunner)
    calls: int = 0
    seconds: int = 0
    keeps: bool = False
    before: list[Moment] = field(default_factory=list)
    after: list[Moment] = field(default_factory=list)
    _journal: Journal = field(init=False, repr=False)

    def forward(self, until: str = "", hold_at: str = "", skip: tuple[str, ...] = ()) -> RunEnded:
        self._request(hold_at)
        with self._process() as walk:
            return walk.forward(until, skip)

    def resume(self, until: str = "", hold_at: str = "") -> RunEnded:
        self._request(hold_at)
        with self._process() as walk:
            return walk.resume(until)

    def _request(self, phase: str) -> None:
        """Request a hold at a phase, answered with go unless ``answers`` says otherwise."""
        if phase:
            self.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            HoldFile(self.run_dir).place(Hold(at=phase, by="tester"))
            self.answers.setdefault(phase.rpartition(".")[2], "go")

    def back(self, to: str = "") -> RunEnded:
        with self._process() as walk:
            return walk.back(to)

    @contextmanager
    def _process(self) -> Iterator[Walk]:
        names = self.world.inventory
        hosts = {"source": names.source_names, "dest": names.dest_names, "brokers": names.broker_names}
        begin = {"run": "run", "hosts": hosts}
        with walking(self.run_dir, self.playbook, names, NoSync(), begin, **self._ports()) as walk:
            self._journal = walk.journal
            yield walk

    def _ports(self) -> dict[str, Any]:
        return {
            "look": WorldLook(self.world, self.unreachable),
            "apply": self._apply,
            "clock": self,
            "confirm": self,
            "lock": self,
            "emit": self.events.append,
            "watch": self.watch,
            "hooks": self.hooks,
            "holds": HoldFile(self.run_dir),
            "copies": self.copies,
        }

    def _apply(self, change: Change, operation: str, fencing: int) -> Outcome:
        with self.world.lock:
            self.calls += 1
            if type(change).__name__ == self.kill_before_second:
                self.seconds += 1
                if self.seconds >= 2:  # nothing is sent by a process that is gone
                    raise Killed
            if self.kill_before and self.calls >= self.kill_before:
                raise Killed
            if self.kill_after and self.calls > self.kill_after:
                raise Killed  # another lane of the same wave: the n-th change was the last
            stage, verb, left = self.kill_after_verb
            if verb and not left:
                raise Killed  # likewise
            if self.keeps:
                self.before.append(self._moment())
            outcome = Outcome(*self.world.apply(change, operation, fencing))
            if self.keeps:
                self.after.append(self._moment())
            if self.kill_after and self.calls >= self.kill_after:
                raise Killed
            if operation.startswith(f"{stage}.") and change.verb == verb:
                self.kill_after_verb = (stage, verb, left - 1)
                if left == 1:
                    raise Killed
            return outcome

    def _moment(self) -> Moment:
        return Moment(copied(self.world), self._journal.content())

    # --- clock: time passes only here, and the lease is renewed as the watch does it -------------------

    def now(self) -> float:
        return self.world.now

    def wall(self) -> float:
        return self.world.wall

    def pause(self, seconds: float) -> None:
        lease = self.world.inventory.policy.lease
        end = self.world.now + seconds
        while self.world.now < end:
            for name in self.world.inventory.dest_names:
                if self.world.hosts[name].phase in ("fenced", "cut", "stopped"):
                    self.world.renew(name, lease.fence_ttl_ms, lease.cut_ttl_ms)
            self.world.advance(min(SLICE_S, end - self.world.now))

    # --- lock -------------------------------------------------------------------------------------------

    def fencing(self, stage: str, way: Way) -> int:
        return 1

    def close(self) -> None:
        return None

    # --- confirm, as --yes ------------------------------------------------------------------------------

    def step(self, stage: Stage, step: AnyStep, findings: tuple[Finding, ...]) -> Answer:
        return Answer("go", by="--yes")

    def consent(self, stage: Stage) -> Answer:
        return Answer("go", by="--yes")

    def decide(self, phase: str, finding: Finding, unanswered: Word, left_s: float | None) -> Answer:
        return Answer(unanswered, by="--yes")

    def listen(self) -> bool:
        return False

    def hold(self, phase: str) -> Answer | None:
        """Nobody answers a hold, unless a test says so."""
        return Answer(self.answers.pop(phase)) if phase in self.answers else None
