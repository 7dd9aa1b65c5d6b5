"""A world of directories, for tests of whole commands: ``$TINY_WORLD/<host>/<file>``.

Run as a program this is the command line over that world, so that signals and kills can be tried on a real
process: ``python -m tests.unit.disk_world VERB …``. A change of the file ``slow`` announces itself as
``<host>/slow.begun`` and ends when ``$TINY_WORLD/release`` exists.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from tests.memory_files import BytesReader
from zkmigrate.cli.main import cli
from zkmigrate.errors import HostError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.rules.sampling import BROKERS
from zkmigrate.move.rules.sampling import ENSEMBLES
from zkmigrate.runbook.engine import runs
from zkmigrate.runbook.engine.clock import Clock
from zkmigrate.runbook.engine.lock import HostLock
from zkmigrate.runbook.engine.ports import WatchPort
from zkmigrate.runbook.engine.samples import Samples
from zkmigrate.runbook.model.change import Applied, Change, Changes, Outcome, PutFile, Restore, inverses
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import claim
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook, Role, Stage
from zkmigrate.runbook.model.step import (
    AnyStep,
    Blocked,
    Context,
    Done,
    Forecast,
    Hazard,
    Ready,
    Records,
    Step,
    Verdict,
    Way,
)
from zkmigrate.zookeeper.data.reader import RandomReader

T = TypeVar("T")


def world() -> Path:
    return Path(os.environ["TINY_WORLD"])


class DiskLook:
    """As much of a look as the verbs and the steps below use."""

    def file(self, host: str, path: str) -> Reading[bytes]:
        try:
            return Seen((world() / host / path.lstrip("/")).read_bytes())
        except FileNotFoundError:
            return Absent(path)

    def reader(self, host: str, path: str) -> RandomReader:
        content = self.file(host, path)
        if not isinstance(content, Seen):
            raise HostError(f"{host}: {path} is not there")
        return BytesReader(content.value)

    def zkm(self, host: str, *words: str) -> Reading[str]:
        record = world() / host / ".before/ops"
        if words[0] == "ops":
            lines = sorted(p.name for p in record.iterdir()) if record.is_dir() else []
            return Seen("".join(f"{id} {(record / id).read_text().split()[0]} 0\n" for id in lines))
        if words[0] == "op":
            return Seen(f"verb {(record / words[1]).read_text()}\nrc 0\n")
        return Unknown("missing-tool", f"{host} has no zkm-host to ask for {words[0]}")

    def each(self, hosts: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        return {host: ask(host) for host in hosts}


def apply(change: Change, operation: str, fencing: int) -> Outcome:
    before = world() / change.where / ".before"
    (before / "ops").mkdir(parents=True, exist_ok=True)
    if isinstance(change, PutFile):
        path = world() / change.where / change.path.lstrip("/")
        if path.name == "slow":
            _wait_for_release(path)
        if path.exists():
            (before / operation).write_bytes(path.read_bytes())
        path.write_bytes(change.content)
    elif isinstance(change, Restore):
        path = world() / change.where / change.what.lstrip("/")
        if (before / change.operation).exists():
            path.write_bytes((before / change.operation).read_bytes())
        else:
            path.unlink(missing_ok=True)
    what = change.operation if isinstance(change, Restore) else getattr(change, "path", "-")
    (before / "ops" / operation).write_text(f"{change.verb} {what}")
    return Outcome(0)


def _wait_for_release(path: Path) -> None:
    path.with_suffix(".begun").touch()
    while not (world() / "release").exists():
        threading.Event().wait(0.02)
    path.with_suffix(".begun").unlink()


@dataclass
class FileStep(Step[dict[str, bool]]):
    """Writes one file on every dest host."""

    id: str
    hazard: Hazard = Hazard.REVERSIBLE
    title: str = "write a file"

    def observe(self, c: Context, look: Look) -> dict[str, bool]:
        return {h: isinstance(look.file(h, f"/{self.id}"), Seen) for h in c.inventory.dest_names}

    def check(self, c: Context, f: dict[str, bool]) -> Verdict:
        todo = tuple(host for host, there in f.items() if there is (c.way is Way.BACK))
        return Ready(todo) if todo else Done((claim(f"disk.{self.id}", "the file is there", True),))

    def plan(self, c: Context, f: object, target: str) -> Changes:
        return (PutFile(target, f"/{self.id}", b"tickTime=2000\n", "root:root"),)

    def undo(self, c: Context, f: object, target: str, applied: tuple[Applied, ...]) -> Changes:
        return inverses(applied)

    def forecast(self, c: Context, look: Look) -> Forecast[dict[str, bool]]:
        return Forecast({}, c.inventory.dest_names)


@dataclass
class SickStep(Step[bool]):
    """Blocks while ``$TINY_WORLD/sick`` exists."""

    id: str = "sick"
    hazard: Hazard = Hazard.READ_ONLY
    title: str = "look"

    def observe(self, c: Context, look: Look) -> bool:
        return (world() / "sick").exists()

    def check(self, c: Context, f: bool) -> Verdict:
        found = (
            claim("disk.well", "the world is well", not f, seen="sick" if f else "well", moves=("heal it",)),
        )
        return Blocked(found) if f else Done(found)

    def plan(self, c: Context, f: object, target: str) -> Changes:
        return ()

    def undo(self, c: Context, f: object, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()


def _steps(*steps: object) -> tuple[AnyStep, ...]:
    return tuple(cast(AnyStep, step) for step in steps)


PLAYBOOK = Playbook(
    "disk",
    "Files on directories",
    (
        Stage("preflight", "Look first", _steps(SickStep()), locked=False, refused=3, gate=True),
        Stage("install", "Install", _steps(FileStep("one")), locked=False),
        Stage("prepare", "Prepare", _steps(FileStep("slow"), FileStep("two")), consent="Write?"),
    ),
    roles=(
        Role("source", "source hosts"),
        Role("dest", "dest hosts", changed=True, witness=True),
        Role("brokers", "brokers", changed=True),
    ),
    sampling=(ENSEMBLES, BROKERS),
)


class DiskSite:
    """The site of ``operate`` over this world."""

    def __init__(self, inventory: Inventory, run: str) -> None:
        self.look = cast(Look, DiskLook())
        self.apply = apply
        self._inventory = inventory
        self._run = run

    def lock(self, clock: Clock, playbook: Playbook, *, steal: bool) -> HostLock:
        names, given = playbook.witnesses(self._inventory), Outcome(0, "fencing 7")
        return HostLock(names, "tester", lambda _h, _w, _f: given, 1, steal=steal, before=playbook.unlocked)

    def watch(self, clock: Clock, lock: HostLock) -> WatchPort:
        return WatchPort()

    def sample(self, samples: Samples, playbook: Playbook) -> Callable[[], None]:
        return lambda: None

    def copies(
        self, clock: Clock, lock: HostLock, _recovered: Callable[[], bool]
    ) -> Callable[[bytes], Mapping[str, str]]:
        def copy(content: bytes) -> dict[str, str]:
            for host in lock.held:
                path = world() / host / runs.copy_path(self._run).lstrip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            return {}

        return copy

    def window_lines(self, playbook: Playbook, records: Records) -> tuple[str, ...]:
        return ("window: none here",)

    def close(self) -> None:
        return None


def main(**extra: Any) -> None:
    cli(obj=DiskSite, **extra)


if __name__ == "__main__":
    main()
