"""The verb watch: look again and again after a move, and report what is wrong.

Between looks it keeps in a file how far it has read source's log, and the writes found there."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from zkmigrate import input_file
from zkmigrate.errors import UsageError
from zkmigrate.inventory import inventory as inventories
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.json_stamp import stamped
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.facts.after_move import (
    LogPosition,
    NewWrites,
    look_after_move,
    position_from_json,
    position_to_json,
)
from zkmigrate.move.facts.records import Proved, Surveyed
from zkmigrate.move.rules import after_move
from zkmigrate.runbook.engine import journal, runs
from zkmigrate.runbook.engine.clock import Clock, Interrupt, RealClock
from zkmigrate.runbook.engine.codec import encode_finding
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import Finding, Held, blocking
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context
from zkmigrate.runbook.model.step_record import known
from zkmigrate.runbook.runs import playbook_files
from zkmigrate.runbook.runs.verb_context import VerbContext
from zkmigrate.runbook.ui import finding_lines

WRONG = 10
UNKNOWN = 11
STATE = "watch.json"
_ALIVE_EVERY_S = 3600.0
_MOST_WRITES = 100
_VERSION = 1


@dataclass(frozen=True)
class Options:
    """every, for_s: seconds; once: one look. state: the file of the memory, None: in the run's directory."""

    once: bool = False
    every: float = 30.0
    for_s: float = 3 * 86400.0
    run_id: str = ""
    state: Path | None = None
    from_now: bool = False


def watch(setting: VerbContext, options: Options) -> int:
    """Look until the time is over, or once; the exit code."""
    inventory = inventories.load(setting.inventory)
    run_dir = _run_dir(setting, options, inventory)
    path = options.state or (run_dir / STATE if run_dir is not None else None)
    memory = _first_memory(options, inventory, run_dir, path)
    if run_dir is not None:
        retired = journal.folded(journal.kept_lines(run_dir)).retired
        inventory = inventories.without_brokers(inventory, retired)
    site = setting.site(inventory, "watch")
    try:
        with setting.interrupt.listening():
            clock = RealClock(setting.interrupt)
            screen = Screen(setting.out, setting.as_json, options.once)
            looking = Watch(inventory, site.look, clock, setting.interrupt, path, memory, screen)
            return looking.run(options)
    finally:
        site.close()


def _run_dir(setting: VerbContext, options: Options, inventory: Inventory) -> Path | None:
    if options.run_id:
        run_dir = runs.directory(setting.runs, options.run_id)
        if not runs.has_begun(run_dir):
            raise UsageError(f"no run {run_dir.name} in {setting.runs}. Next: --run-id of another")
        return run_dir
    if not runs.runs_of(setting.runs, inventory):
        return None
    return setting.runs / runs.latest(setting.runs, inventory, playbook_files.load(setting.playbook))


def _first_memory(options: Options, inventory: Inventory, run_dir: Path | None, path: Path | None) -> Memory:
    """The kept memory; without one, source's log is read from where the run's proof ended."""
    if options.from_now:
        return Memory(inventory.name)
    if path is not None and (kept := load(path, inventory.name)) is not None:
        return kept
    return Memory(inventory.name, None if run_dir is None else _proof_end(run_dir, inventory))


def _proof_end(run_dir: Path, inventory: Inventory) -> LogPosition | None:
    """Where PROVE stopped reading source's log; None: the run has not opened, or its record is lost."""
    history = journal.read(run_dir)
    c = Context(history.run, inventory, records=history.records())
    proved, survey = known(Proved, c), known(Surveyed, c)
    if "cutover.open" not in history.done or proved is None or survey is None:
        return None
    return LogPosition(survey.leader, proved.delta.last, proved.cursor)


@dataclass(frozen=True)
class Memory:
    """name: of the migration; the file of another one is refused. position: None before the first look.
    writes: in words, at most ``_MOST_WRITES``."""

    name: str
    position: LogPosition | None = None
    writes: tuple[str, ...] = ()

    def after(self, written: NewWrites, words: Sequence[str]) -> Memory:
        """The memory after a look. A hole in the log does not go away, so the position stays before it."""
        if written.unproved:
            return self
        return replace(self, position=written.upto, writes=(*self.writes, *words)[:_MOST_WRITES])


def load(path: Path, name: str) -> Memory | None:
    """The kept memory; None: no file. Raises UsageError for another file."""
    try:
        body: Any = json.loads(input_file.content(path).decode())
        if body["version"] != _VERSION or body["name"] != name:
            raise ValueError(f"it is of {body['name']!r}")
        kept = body["position"]
        position = None if kept is None else position_from_json(kept)
        return Memory(name, position, tuple(str(line) for line in body["writes"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}. Next: --state another") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is not what watch keeps for {name} ({error}). Next: --state another; or "
            "--from-now, which begins it anew"
        ) from error


def save(path: Path, memory: Memory) -> None:
    """Write the memory, whole or not at all. Raises UsageError."""
    position = None if memory.position is None else position_to_json(memory.position)
    body = {"version": _VERSION, "name": memory.name, "position": position, "writes": list(memory.writes)}
    fresh = path.with_name(f".{path.name}.new")
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(body, file, ensure_ascii=False, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}. Next: --state another") from error


@dataclass
class Screen:
    """Prints findings: lines for a reader, or with ``as_json`` one object per look."""

    out: TextIO
    as_json: bool
    once: bool

    def look(self, at: float, code: int, shown: Iterable[Finding], count: int) -> None:
        """shown: all findings of the first look, later those that changed. count: how many there are."""
        shown = list(shown)
        if self.as_json:
            body: dict[str, Any] = {"code": code, "findings": [encode_finding(f) for f in shown]}
            if not self.once:
                body |= {"at": round(at, 3), "event": "Looked", "claims": count}
            self._line(json.dumps(stamped(body, at), ensure_ascii=False, sort_keys=True))
            return
        for line in finding_lines.findings(shown):
            self._line(f"{_stamp(at)} {line}")
        for move in finding_lines.moves(shown):
            self._line(f"   next: {move}")

    def alive(self, at: float, looks: int, last: Mapping[tuple[str, str], Finding]) -> None:
        """A sign of life."""
        if not self.as_json:
            bad = sum(f.blocks for f in last.values())
            rest = f"{bad} do not hold" if bad else "all hold"
            self._line(f"{_stamp(at)} {looks} looks; {len(last)} claims, {rest}")

    def end(self, at: float, code: int, looks: int, why: str) -> None:
        """The last line of a watch."""
        if self.once:
            return
        if self.as_json:
            body = {"at": round(at, 3), "event": "WatchEnded", "code": code, "looks": looks, "message": why}
            self._line(json.dumps(stamped(body, at), ensure_ascii=False, sort_keys=True))
        else:
            self._line(f"{_stamp(at)} {why} after {looks} looks (exit code {code})")

    def _line(self, text: str) -> None:
        self.out.write(f"{text}\n")
        self.out.flush()


def _stamp(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


@dataclass
class Watch:
    """One process of the watch. path: the file of the memory; None: none."""

    inventory: Inventory
    look: Look
    clock: Clock
    interrupt: Interrupt
    path: Path | None
    memory: Memory
    screen: Screen
    read_log: bool = True
    looks: int = 0
    was_wrong: bool = False
    last: dict[tuple[str, str], Finding] = field(default_factory=dict)

    def run(self, options: Options) -> int:
        """Look until the time is over or the operator interrupts; the exit code."""
        end = self.clock.now() + options.for_s
        printed = self.clock.now()
        self.read_log = not options.once or self.path is not None
        code = self._once()
        while not options.once:
            left = end - self.clock.now()
            if left <= 0 or self.interrupt.wanted:
                break
            self.clock.pause(min(options.every, left))
            if self.interrupt.wanted:
                break
            code = self._once()
            if self.clock.now() - printed >= _ALIVE_EVERY_S:
                printed = self.clock.now()
                self.screen.alive(self.clock.wall(), self.looks, self.last)
        code, why = (130, "interrupted") if self.interrupt.wanted else (code, "the time is over")
        self.screen.end(self.clock.wall(), code, self.looks, why)
        return code

    def _once(self) -> int:
        seen = look_after_move(self.inventory, KAFKA, self.look, self.memory.position, self.read_log)
        findings = after_move.findings(self.inventory, seen, self.memory.writes, self.read_log)
        if isinstance(seen.written, Seen):
            words = after_move.written_lines(seen.written.value, seen.at_source)
            self.memory = self.memory.after(seen.written.value, words)
            if self.path is not None:
                save(self.path, self.memory)
        now = {(f.id, f.target): f for f in findings}
        news = [f for key, f in now.items() if _is_news(self.last.get(key), f)]
        self.last, self.looks = now, self.looks + 1
        code = self._code(findings)
        if news or self.looks == 1:
            self.screen.look(self.clock.wall(), code, news, len(findings))
        return code

    def _code(self, findings: Iterable[Finding]) -> int:
        refusing = blocking(findings)
        self.was_wrong = self.was_wrong or any(f.held is Held.NO for f in refusing)
        return WRONG if self.was_wrong else UNKNOWN if refusing else 0


def _is_news(before: Finding | None, now: Finding) -> bool:
    """Whether to print a finding. One that holds changes its words at each look; one that fails is printed
    again if it says something else."""
    if before is None or before.held is not now.held:
        return True
    return now.held is Held.NO and before.seen != now.seen


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    """``30s``, ``5m``, ``12h``, ``3d``, or plain seconds, above 0. Raises UsageError."""
    number, unit = (text[:-1], _UNITS[text[-1]]) if text[-1:] in _UNITS else (text, 1.0)
    try:
        value = float(number) * unit
    except ValueError:
        value = 0.0
    if not 0 < value <= 366 * 86400:
        raise UsageError(
            f"{text[:40]!r} is not a time (needed: a number above 0 with s, m, h or d, such as 30s)"
        )
    return value
