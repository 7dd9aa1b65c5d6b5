"""The loop of ``watch``: look, remember, tell what has changed, wait."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from zkmigrate.dependents.kafka import KAFKA
from zkmigrate.engine import journal, runs
from zkmigrate.engine.clock import Clock, Interrupt, RealClock
from zkmigrate.engine.codec import encode_finding
from zkmigrate.errors import UsageError
from zkmigrate.inventory import inventory as inventories
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.model.fact import Seen
from zkmigrate.model.finding import Finding, Held, blocking
from zkmigrate.model.look import Look
from zkmigrate.model.step import Context
from zkmigrate.model.step_record import known
from zkmigrate.moves.facts.after_move import Position, look_around
from zkmigrate.moves.facts.records import Proved, Surveyed
from zkmigrate.moves.rules import after_move
from zkmigrate.moves.verbs.watching import memory as memories
from zkmigrate.moves.verbs.watching.memory import Memory
from zkmigrate.runs import playbook_files
from zkmigrate.runs.verb_context import VerbContext
from zkmigrate.ui import finding_lines

WRONG = 10
UNKNOWN = 11
STATE = "watch.json"
_SAY_EVERY_S = 3600.0


@dataclass(frozen=True)
class Wanted:
    """every, for_s: seconds; once: one look. state: where to remember, None: in the run's directory."""

    once: bool = False
    every: float = 30.0
    for_s: float = 3 * 86400.0
    run_id: str = ""
    state: Path | None = None
    from_now: bool = False


def watch(setting: VerbContext, wanted: Wanted) -> int:
    """Look until the time is over, or once; the exit code."""
    inventory = inventories.load(setting.inventory)
    path, begin = _remembered(setting, wanted, inventory)
    if (run_dir := _run(setting, wanted, inventory)) is not None:
        retired = journal.folded(journal.kept_lines(run_dir)).retired
        inventory = inventories.without_brokers(inventory, retired)
    site = setting.site(inventory, "watch")
    try:
        with setting.interrupt.listening():
            clock = RealClock(setting.interrupt)
            screen = Screen(setting.out, setting.as_json, wanted.once)
            made = Watch(inventory, site.look, clock, setting.interrupt, path, begin, screen)
            return made.run(wanted)
    finally:
        site.close()


def _remembered(setting: VerbContext, wanted: Wanted, inventory: Inventory) -> tuple[Path | None, Memory]:
    """Where the watch remembers and what it begins with: its own file, else where the run's proof ended."""
    run_dir = _run(setting, wanted, inventory)
    path = wanted.state or (run_dir / STATE if run_dir is not None else None)
    if wanted.from_now:
        return path, Memory(inventory.name)
    kept = memories.load(path, inventory.name) if path is not None else None
    if kept is not None:
        return path, kept
    return path, Memory(inventory.name, None if run_dir is None else _proof_end(run_dir, inventory))


def _run(setting: VerbContext, wanted: Wanted, inventory: Inventory) -> Path | None:
    if wanted.run_id:
        run_dir = runs.directory(setting.runs, wanted.run_id)
        if not runs.has_begun(run_dir):
            raise UsageError(f"no run {run_dir.name} in {setting.runs}. Possible now: --run-id of another")
        return run_dir
    if not runs.known(setting.runs, inventory):
        return None
    return setting.runs / runs.latest(setting.runs, inventory, playbook_files.load(setting.playbook))


def _proof_end(run_dir: Path, inventory: Inventory) -> Position | None:
    """Where PROVE stopped reading source's log; None where the run has not opened, or its record is lost."""
    history = journal.read(run_dir)
    c = Context(history.run, inventory, records=history.records())
    proved, survey = known(Proved, c), known(Surveyed, c)
    if "cutover.open" not in history.done or proved is None or survey is None:
        return None
    return Position(survey.leader, proved.delta.last, proved.cursor)


@dataclass
class Screen:
    """Says what a look found. first, changed: for people; with ``as_json`` one object a look."""

    out: TextIO
    as_json: bool
    once: bool

    def look(self, at: float, code: int, shown: Iterable[Finding], count: int) -> None:
        """shown: all of the first look, then those that have changed. count: how many there are."""
        shown = list(shown)
        if self.as_json:
            encoded = [encode_finding(f) for f in shown]
            body: dict[str, Any] = {"code": code, "findings": encoded}
            if not self.once:
                body = {"at": round(at, 3), "event": "Looked", "claims": count, **body}
            self._line(json.dumps(body, ensure_ascii=False, sort_keys=True))
            return
        for line in finding_lines.findings(shown):
            self._line(f"{_stamp(at)} {line}")
        for move in finding_lines.moves(shown):
            self._line(f"   possible now: {move}")

    def still(self, at: float, looks: int, last: Mapping[tuple[str, str], Finding]) -> None:
        """A sign of life."""
        if not self.as_json:
            bad = [f for f in last.values() if f.blocks]
            rest = f"{len(bad)} do not hold" if bad else "all hold"
            self._line(f"{_stamp(at)} {looks} looks; {len(last)} claims, {rest}")

    def end(self, at: float, code: int, looks: int, why: str) -> None:
        """The last line of a watch."""
        if self.once:
            return
        if self.as_json:
            body = {"at": round(at, 3), "event": "WatchEnded", "code": code, "looks": looks, "message": why}
            self._line(json.dumps(body, ensure_ascii=False, sort_keys=True))
        else:
            self._line(f"{_stamp(at)} {why} after {looks} looks (exit code {code})")

    def _line(self, text: str) -> None:
        self.out.write(f"{text}\n")
        self.out.flush()


def _stamp(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


@dataclass
class Watch:
    """One process of the watch. path: where to remember, None: nowhere."""

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

    def run(self, wanted: Wanted) -> int:
        """Look until the time is over or somebody interrupts; the exit code."""
        end = self.clock.now() + wanted.for_s
        said = self.clock.now()
        self.read_log = not wanted.once or self.path is not None
        code = self._once()
        while not wanted.once:
            left = end - self.clock.now()
            if left <= 0 or self.interrupt.wanted:
                break
            self.clock.pause(min(wanted.every, left))
            if self.interrupt.wanted:
                break
            code = self._once()
            if self.clock.now() - said >= _SAY_EVERY_S:
                said = self.clock.now()
                self.screen.still(self.clock.wall(), self.looks, self.last)
        if self.interrupt.wanted:
            self.screen.end(self.clock.wall(), 130, self.looks, "interrupted")
            return 130
        self.screen.end(self.clock.wall(), code, self.looks, "the time is over")
        return code

    def _once(self) -> int:
        seen = look_around(self.inventory, KAFKA, self.look, self.memory.position, self.read_log)
        findings = after_move.findings(self.inventory, seen, self.memory.writes, self.read_log)
        if isinstance(seen.written, Seen):
            words = after_move.in_words(seen.written.value, seen.at_source)
            self.memory = self.memory.after(seen.written.value, words)
            if self.path is not None:
                memories.save(self.path, self.memory)
        now = {(f.id, f.target): f for f in findings}
        shown = [f for key, f in now.items() if self._is_news(self.last.get(key), f)]
        self.last, self.looks = now, self.looks + 1
        code = self._code(findings)
        if shown or self.looks == 1:
            self.screen.look(self.clock.wall(), code, shown, len(findings))
        return code

    def _is_news(self, before: Finding | None, now: Finding) -> bool:
        """What holds changes its words with each look; what does not is told again when it says more."""
        if before is None or before.held is not now.held:
            return True
        return now.held is Held.NO and before.seen != now.seen

    def _code(self, findings: Iterable[Finding]) -> int:
        refusing = blocking(findings)
        self.was_wrong = self.was_wrong or any(f.held is Held.NO for f in refusing)
        return WRONG if self.was_wrong else UNKNOWN if refusing else 0


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
            f"{text[:40]!r} is no time (needed: a number above 0 with s, m, h or d, such as 30s)"
        )
    return value
