"""A tiny world and playbook for the engine's own tests: hosts are dictionaries of files.

Steps write one file per machine and take it back. Faults are counted points: every journal write, every
fsync and both sides of every apply call :meth:`Points.hit`, which raises at the chosen one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar, cast

from zkmigrate.inventory.hooks import Hooks
from zkmigrate.inventory.inventory import Inventory, Lease, Policy
from zkmigrate.move.rules.window_rules import WINDOW
from zkmigrate.runbook.engine import chain, events, journal
from zkmigrate.runbook.engine.clock import Interrupt
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.hold_file import Hold, HoldFile
from zkmigrate.runbook.engine.journal import NAME, Disk, Journal
from zkmigrate.runbook.engine.ports import (
    Answer,
    HookRunner,
    Ports,
    WatchPort,
)
from zkmigrate.runbook.engine.run import Walk
from zkmigrate.runbook.model.change import Applied, Change, Changes, Outcome, PutFile, Restore, inverses
from zkmigrate.runbook.model.finding import Finding, claim
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook, Role, Stage
from zkmigrate.runbook.model.step import AnyStep, Blocked, Context, Done, Hazard, Ready, Verdict, Waiting, Way
from zkmigrate.runbook.model.window import Decide, Decision, WindowSpec, Word, no_limits

HOSTS = ("d1", "d2", "d3")


class TinyInventory(Inventory):
    """The shape of the tiny playbook: machines, and none of the sections of a move."""

    machines: dict[str, str]

    @property
    def hosts(self) -> dict[str, tuple[str, ...]]:
        return {"source": ("s1",), "machines": tuple(self.machines)}

    def address(self, name: str) -> str:
        return self.machines[name]


def inventory(**policy: Any) -> TinyInventory:
    machines = {name: f"192.0.2.2{number}" for number, name in enumerate(HOSTS)}
    return TinyInventory(version=1, name="tiny", machines=machines, policy=Policy(**policy))


ROLES = (Role("source", "source hosts"), Role("machines", "machines", changed=True, witness=True))


class Killed(BaseException):
    """The process died here."""


class Points:
    """Counts the places where a process can die or a disk can fail; raises ``error`` at number ``at``.

    A process that died does nothing more, in whichever thread.
    """

    def __init__(self, at: int = 0, error: BaseException | None = None, kinds: tuple[str, ...] = ()) -> None:
        self.at, self.error, self.kinds = at, error or Killed(), kinds
        self.seen = 0
        self.turn = threading.Lock()

    def hit(self, kind: str) -> None:
        with self.turn:
            if self.kinds and kind not in self.kinds:
                return
            self.seen += 1
            dead = isinstance(self.error, Killed) and self.seen > self.at > 0
            fails = self.seen == self.at or dead
        if fails:
            raise self.error


CHANGES = ("apply", "applied")
"""The points before and after each change."""


class Moments(Points):
    """Points at which nobody dies. ``keep`` is called at every so many of them, while no other one passes."""

    def __init__(self, keep: Callable[[], None], kinds: tuple[str, ...], every: int) -> None:
        super().__init__(kinds=kinds)
        self._keep, self._every = keep, every

    def hit(self, kind: str) -> None:
        with self.turn:
            if self.kinds and kind not in self.kinds:
                return
            self.seen += 1
            if self.seen % self._every == 0:
                self._keep()


class Desk(Protocol):
    """An operator, process after process."""

    run_dir: Path

    @property
    def there(self) -> bool:
        """Whether the world is as the run wants it."""

    @property
    def home(self) -> bool:
        """Whether the world is as it was before the run."""

    def process(self, act: Callable[[Walk], RunEnded], points: Points | None = None) -> RunEnded:
        """One process's life."""

    def copy(self, run_dir: Path) -> Self:
        """What the next process finds: the world, the time and the run's files, all as they are now. What is
        done to one copy is nothing to the other."""


AnyDesk = TypeVar("AnyDesk", bound=Desk)


def left_by_kills(
    made: AnyDesk, act: Callable[[Walk], RunEnded], kinds: tuple[str, ...] = CHANGES, every: int = 1
) -> list[AnyDesk]:
    """What a kill at each point of ``act`` would leave, or at every so many of them. The walk is done once,
    and comes to its end."""
    left: list[AnyDesk] = []

    def keep() -> None:
        left.append(made.copy(made.run_dir.with_name(f"{made.run_dir.name}-{len(left)}")))

    assert made.process(act, Moments(keep, kinds, every)).code == 0
    return left


def on_and_back(left: Sequence[AnyDesk]) -> Iterator[tuple[AnyDesk, AnyDesk]]:
    """Each of them goes on to the end, and a copy of it turns back to the beginning."""
    for number, made in enumerate(left):
        other = made.copy(made.run_dir.with_name(f"{made.run_dir.name}-back"))
        assert made.process(resume).code == 0, number
        assert made.there, number
        assert other.process(back).code == 0, number
        assert other.home, number
        yield made, other


def homeward(left: Sequence[AnyDesk]) -> Iterator[AnyDesk]:
    """Each of them, which a kill on the way back left, comes to the beginning."""
    for number, made in enumerate(left):
        turned = journal.read(made.run_dir).way is Way.BACK
        assert made.process(resume if turned else back).code == 0, number
        assert made.home, number
        yield made


def opened(run_dir: Path, wall: Callable[[], float], disk: Disk, begin: Mapping[str, Any]) -> Journal:
    """A run's journal, begun if it is new."""
    kept = (Journal.open if (run_dir / NAME).exists() else Journal.create)(run_dir, wall, disk)
    if not kept.history.run:
        kept.append("begin", {"run": "r-1", "name": "", "inventory": "0", "plan": "0", **begin})
    return kept


@contextmanager
def walking(
    run_dir: Path,
    playbook: Playbook,
    inventory: Inventory,
    disk: Disk,
    begin: Mapping[str, Any],
    **ports: Any,
) -> Iterator[Walk]:
    """One process of a run: its journal is opened, and closed however it ends.

    disk: what the journal is written to. begin: what its first line says beside the usual. ports: those of
    ``Ports``; clock and apply are needed.
    """
    kept = opened(run_dir, ports["clock"].wall, disk, {"playbook": playbook.id, **begin})
    given: dict[str, Any] = {
        "look": None,
        "confirm": TinyConfirm(),
        "lock": TinyLock(),
        "interrupt": Interrupt(),
        "emit": lambda _event: None,
        **ports,
    }
    try:
        yield Walk(playbook, inventory, kept, Ports(**given))
    finally:
        kept.close()


class PointDisk:
    """Real writes with a point before and in the middle of each; fsync is a point only, to be quick."""

    def __init__(self, points: Points) -> None:
        self._points = points

    def write(self, fd: int, data: bytes) -> int:
        self._points.hit("write")
        done = os.write(fd, data[: len(data) // 2])
        self._points.hit("write-half")
        return done + os.write(fd, data[len(data) // 2 :])

    def fsync(self, _fd: int) -> None:
        self._points.hit("fsync")


@dataclass
class Hosts:
    """What is on the hosts: files, and the outcome of every operation id, as zkm-host keeps it."""

    files: dict[tuple[str, str], bytes] = field(default_factory=dict)
    before: dict[str, tuple[tuple[str, str], bytes | None]] = field(default_factory=dict)
    operations: dict[str, Change] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    journal: Path | None = None
    answer: Callable[[Change], Outcome | None] = lambda _change: None
    points: Points = field(default_factory=Points)

    def apply(self, change: Change, operation: str, fencing: int) -> Outcome:
        assert fencing == 7
        self.points.hit("apply")
        self._intent_is_durable(operation)
        self.sent.append(operation)
        if (said := self.answer(change)) is not None:
            return said
        if operation in self.operations:
            assert self.operations[operation] == change, "one operation id for two changes"
            return Outcome(0, "already done")
        self.operations[operation] = change
        self._do(change, operation)
        self.points.hit("applied")
        return Outcome(0)

    def _do(self, change: Change, operation: str) -> None:
        if isinstance(change, PutFile):
            where = (change.host, change.path)
            self.before[operation] = (where, self.files.get(where))
            self.files[where] = change.content
        elif isinstance(change, Restore):
            if change.operation not in self.before:
                return
            where, content = self.before[change.operation]
            if content is None:
                self.files.pop(where, None)
            else:
                self.files[where] = content
        else:
            raise AssertionError(f"the tiny world has no {change}")

    def _intent_is_durable(self, operation: str) -> None:
        if self.journal is None:
            return
        entries = chain.parse(self.journal.read_bytes()).entries
        assert any(e.kind == "intent" and e.body["operation"] == operation for e in entries)


class TinyClock:
    """Time passes only in pauses."""

    def __init__(self) -> None:
        self.t = 1000.0
        self.pauses = 0

    def now(self) -> float:
        return self.t

    def wall(self) -> float:
        return 1_700_000_000.0 + self.t

    def pause(self, seconds: float) -> None:
        self.pauses += 1
        self.t += seconds


@dataclass
class WriteStep:
    """Writes ``/<id>`` on every machine; done when it is everywhere."""

    id: str
    hosts: Hosts
    hazard: Hazard = Hazard.REVERSIBLE
    title: str = "write"
    content: bytes = b"new"
    verdict: Callable[[Way], Verdict | None] = lambda _way: None

    def observe(self, c: Context, look: Look) -> dict[str, bytes | None]:
        return {host: self.hosts.files.get((host, f"/{self.id}")) for host in HOSTS}

    def check(self, c: Context, f: dict[str, bytes | None]) -> Verdict:
        if (said := self.verdict(c.way)) is not None:
            return said
        if c.way is Way.BACK and self.hazard is Hazard.FINAL and any(f.values()):
            return Blocked((claim("tiny.final", "there is a way back", False),))
        todo = tuple(h for h in HOSTS if (f[h] == self.content) is (c.way is Way.BACK))
        if todo:
            return Ready(todo)
        return Done((claim(f"tiny.{self.id}", "it is there", True),), {"seen": len(c.records)})

    def plan(self, c: Context, f: dict[str, bytes | None], target: str) -> Changes:
        return (PutFile(target, f"/{self.id}", self.content, "root:root"),)

    def undo(self, c: Context, f: object, target: str, applied: tuple[Applied, ...]) -> Changes:
        return inverses(applied)


@dataclass
class LookStep:
    """Only looks."""

    id: str = "look"
    title: str = "look"
    hazard: Hazard = Hazard.READ_ONLY
    verdict: Callable[[Way], Verdict | None] = lambda _way: None
    visits: int = 0

    def observe(self, c: Context, look: Look) -> int:
        self.visits += 1
        return self.visits

    def check(self, c: Context, f: int) -> Verdict:
        return self.verdict(c.way) or Done()

    def plan(self, c: Context, f: int, target: str) -> Changes:
        raise AssertionError("a step that only looks plans nothing")

    def undo(self, c: Context, f: int, target: str, applied: tuple[Applied, ...]) -> Changes:
        raise AssertionError("a step that only looks undoes nothing")


@dataclass
class TinyConfirm:
    """Says go, unless a test put another answer for a step, stage or phase in ``words``."""

    words: dict[str, Answer] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    ask_means: Word | None = None
    found: dict[str, tuple[Finding, ...]] = field(default_factory=dict)

    def step(self, stage: Stage, step: AnyStep, findings: tuple[Finding, ...]) -> Answer:
        self.found[f"{stage.id}.{step.id}"] = findings
        return replace(self._say(f"{stage.id}.{step.id}"), by="tester")

    def consent(self, stage: Stage) -> Answer:
        return replace(self._say(stage.id), by="tester")

    def decide(self, phase: str, finding: Finding, unanswered: Word, left_s: float | None) -> Answer:
        self.asked.append(f"decide {phase} {finding.id}")
        return Answer(self.ask_means or unanswered, by="tester" if self.ask_means else "")

    def listen(self) -> bool:
        return self._say("listen").word == "stop"

    def hold(self, phase: str) -> Answer | None:
        return self._say(f"hold {phase}")

    def _say(self, name: str) -> Answer:
        self.asked.append(name)
        return self.words.get(name, Answer("go"))


class TinyLock:
    def fencing(self, stage: str, way: Way) -> int:
        return 7

    def close(self) -> None:
        return None


def decide(phase: str, finding: Finding, policy: Policy) -> Decision:
    return Decision.GO if phase == "open" else Decision.BACK


LEASE = Lease(fence_ttl_ms=5000, cut_ttl_ms=2000, renew_every_ms=100)


def tiny_window(decide: Decide = decide, deadline_s: float = 8.0) -> WindowSpec:
    """The move's window, with other rules."""
    return replace(
        WINDOW,
        decide=decide,
        deadline_s=lambda _context: deadline_s,
        limits=no_limits,
        lease=lambda _context: LEASE,
    )


@dataclass
class Tiny:
    """One playbook over one world, to be walked by as many processes as a test wants."""

    run_dir: Path
    hosts: Hosts = field(default_factory=Hosts)
    steps: dict[str, Any] = field(default_factory=dict)
    confirm: TinyConfirm = field(default_factory=TinyConfirm)
    interrupt: Interrupt = field(default_factory=Interrupt)
    clock: TinyClock = field(default_factory=TinyClock)
    seen: list[events.Event] = field(default_factory=list)
    watch: WatchPort = field(default_factory=WatchPort)
    window: WindowSpec = field(default_factory=tiny_window)
    policy: dict[str, Any] = field(default_factory=dict)
    hooks: Hooks = field(default_factory=Hooks)
    runner: HookRunner = field(default_factory=HookRunner)

    def __post_init__(self) -> None:
        self.steps = {
            "look": LookStep(),
            **{name: WriteStep(name, self.hosts) for name in ("one", "two")},
            **{name: WriteStep(name, self.hosts, Hazard.WINDOW) for name in ("fence", "cut", "seal")},
            "prove": LookStep("prove"),
            "open": WriteStep("open", self.hosts, Hazard.FINAL),
        }
        self.hosts.journal = self.run_dir / NAME

    @property
    def playbook(self) -> Playbook:
        def pick(*names: str) -> tuple[AnyStep, ...]:
            return tuple(cast(AnyStep, self.steps[name]) for name in names)

        return Playbook(
            "tiny",
            "A tiny playbook",
            (
                Stage("preflight", "look", pick("look"), locked=False, refused=3, gate=True),
                Stage("prepare", "write", pick("one", "two")),
                Stage("rehearse", "try", pick("fence", "cut"), rehearsal=True, window=self.window),
                Stage(
                    "main",
                    "do",
                    pick("fence", "cut", "prove", "seal", "open"),
                    consent="Now?",
                    window=self.window,
                ),
            ),
            inventory=TinyInventory,
            sections=("machines",),
            roles=ROLES,
        )

    def journal(self, points: Points | None = None) -> Journal:
        disk = PointDisk(points or Points())
        return opened(self.run_dir, self.clock.wall, disk, {"run": "tiny-1", "playbook": "tiny"})

    def process(self, act: Callable[[Walk], RunEnded], points: Points | None = None) -> RunEnded:
        """One process's life: open the journal, act, close."""
        self.hosts.points = points or Points()
        with closing(self.journal(points)) as journal:
            return act(self.walk(journal))

    def hold(self, at: str = "") -> None:
        """Request a hold."""
        self.run_dir.mkdir(mode=0o700, exist_ok=True)
        HoldFile(self.run_dir).place(Hold(at=at, by="tester"))

    def walk(self, journal: Journal) -> Walk:
        ports = Ports(
            look=cast(Look, None),
            apply=self.hosts.apply,
            clock=self.clock,
            confirm=self.confirm,
            lock=TinyLock(),
            interrupt=self.interrupt,
            emit=self.seen.append,
            watch=self.watch,
            hooks=self.runner,
            holds=HoldFile(self.run_dir),
        )
        known = inventory(**self.policy).model_copy(update={"hooks": self.hooks})
        return Walk(self.playbook, known, journal, ports)

    def everything(self) -> dict[tuple[str, str], bytes]:
        """The files of a completed run."""
        names = ("one", "two", "fence", "cut", "seal", "open")
        return {(host, f"/{name}"): b"new" for name in names for host in HOSTS}


def waiting(what: str, deadline_s: float) -> Callable[[Way], Verdict]:
    return lambda _way: Waiting(what, "not yet", deadline_s)


def blocked(id: str, way: Way = Way.FORWARD) -> Callable[[Way], Verdict | None]:
    return lambda w: Blocked((claim(id, "it is fine", False, seen="sick"),)) if w is way else None


def forward(walk: Walk) -> RunEnded:
    return walk.forward()


def resume(walk: Walk) -> RunEnded:
    return walk.resume()


def back(walk: Walk) -> RunEnded:
    return walk.back()


def until(name: str) -> Callable[[Walk], RunEnded]:
    return lambda walk: walk.forward(until=name)


def ended(*threads: threading.Thread, deadline_s: float = 60.0) -> None:
    """Wait for threads to end."""
    for thread in threads:
        thread.join(deadline_s)
        assert not thread.is_alive(), f"{thread.name} never ends"


def eventually(name: str, true: Callable[[], bool], deadline_s: float = 20.0) -> None:
    """Wait for a named condition."""
    end = time.monotonic() + deadline_s
    while not true():
        assert time.monotonic() < end, f"never: {name}"
        threading.Event().wait(0.01)
