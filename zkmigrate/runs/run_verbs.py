"""The verbs that walk a run: run, resume, rollback. Put the engine together, walk, give all up again."""

from __future__ import annotations

import contextlib
import getpass
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from zkmigrate.engine import events, planfile, runs, step_names
from zkmigrate.engine import journal as journals
from zkmigrate.engine.clock import RealClock
from zkmigrate.engine.events import RunEnded
from zkmigrate.engine.hold_file import HoldFile
from zkmigrate.engine.journal import Journal
from zkmigrate.engine.lock import UNWITNESSED, LocalLock
from zkmigrate.engine.planfile import PlanFile
from zkmigrate.engine.ports import World
from zkmigrate.engine.run import Walk
from zkmigrate.engine.samples import Samples
from zkmigrate.errors import UsageError
from zkmigrate.inventory import inventory as inventories
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.model.finding import NO_WAY_BACK, Finding
from zkmigrate.model.playbook import Playbook
from zkmigrate.model.step import Way
from zkmigrate.runs import hooks
from zkmigrate.runs.open_run import Opened, Opening, refuse_stale
from zkmigrate.runs.output import RunLookUp, face_of, in_lines
from zkmigrate.runs.verb_context import (
    Setting,
    Site,
    directory,
    existing,
    onward_command,
    reached,
    read,
    words_on,
)
from zkmigrate.ui.console import StdConsole
from zkmigrate.ui.run_files import recorded

_ASKED_TO_STOP = (
    "asked to stop: what is in flight on the hosts is finished and journaled first; once more stops at once"
)


@dataclass(frozen=True)
class Wishes:
    """The options of run, resume and rollback."""

    yes: bool = False
    run_id: str = ""
    until: str = ""
    hold_at: str = ""
    skip: tuple[str, ...] = ()
    to: str = ""
    plan: Path | None = None
    steal: bool = False
    journal_lost: str = ""
    metrics: Path | None = None
    pause_after: int = 0


@dataclass(frozen=True)
class Begun:
    """A walk that is ready. back_to: where a way back leads that a lost journal was recovered for."""

    walk: Walk
    console: StdConsole
    back_to: str


def run(setting: Setting, wishes: Wishes) -> int:
    """Begin a run, or walk one forward that has begun."""
    inventory, playbook = _asked(setting, wishes)
    hooks.refuse_missing(inventory.hooks)
    wanted = planfile.read(wishes.plan) if wishes.plan is not None else None
    run_dir = runs.directory(setting.runs, wishes.run_id) if wishes.run_id else None
    fresh = run_dir is None or not runs.has_begun(run_dir)
    if wanted is not None:
        runs.refuse_applied(setting.runs, wanted.digest, but="" if run_dir is None else run_dir.name)
        digest = inventories.digest(inventory)
        refuse_stale(wanted, planfile.heading_differences(wanted, playbook.id, digest))
    if fresh:
        number = runs.new_id(setting.runs, inventory, playbook)
        run_dir = run_dir or runs.directory(setting.runs, number)
        runs.make(run_dir)
    assert run_dir is not None

    def act(begun: Begun) -> RunEnded:
        return begun.walk.forward(wishes.until, wishes.hold_at, wishes.skip, wishes.pause_after)

    return _walk(setting, wishes, inventory, playbook, run_dir, act, wanted)


def resume(setting: Setting, wishes: Wishes) -> int:
    """Go on where a run stands, in the direction it was going."""
    inventory, playbook = _asked(setting, wishes)
    run_dir = _run_dir(setting, wishes, inventory, playbook)

    def act(begun: Begun) -> RunEnded:
        if wishes.journal_lost == Way.BACK.value:
            return begun.walk.back(begun.back_to)
        return begun.walk.resume(wishes.until, wishes.hold_at, wishes.skip, wishes.pause_after)

    return _walk(setting, wishes, inventory, playbook, run_dir, act)


def rollback(setting: Setting, wishes: Wishes) -> int:
    """Walk back to the start of a stage or step, or all the way."""
    inventory, playbook = _asked(setting, wishes)
    run_dir = _run_dir(setting, wishes, inventory, playbook)

    def act(begun: Begun) -> RunEnded:
        steps = [at.id for at in begun.walk.history.to_undo(playbook, wishes.to)]
        refused = begun.walk.history.no_way_back(playbook) in steps
        if setting.interactive and not wishes.yes and not refused and not _agreed(begun.console, steps):
            begun.console.show(["not rolled back: nothing was changed"])
            return RunEnded(130, "nothing was changed")
        return begun.walk.back(wishes.to, getpass.getuser())

    return _walk(setting, wishes, inventory, playbook, run_dir, act)


def _agreed(console: StdConsole, steps: Sequence[str]) -> bool:
    """Show which steps a way back walks, and ask whether it may; the end of input is a no."""
    console.show(["these steps are walked back, in this order:", *(f"  {step}" for step in steps)])
    console.forget()
    while (line := console.ask("walk these steps back: go (g), stop (s)? ")) is not None:
        word = line.strip().lower()
        if word in ("g", "go", "y", "yes"):
            return True
        if word in ("s", "stop", "n", "no"):
            return False
        console.show([f"  not understood: {line.strip()!r}. g walks them back; s changes nothing"])
    return False


def _asked(setting: Setting, wishes: Wishes) -> tuple[Inventory, Playbook]:
    """As ``read``, and what the wishes name is there: before a host is asked or a directory made."""
    inventory, playbook = read(setting)
    for name in (wishes.until, wishes.to):
        step_names.known(playbook, name)
    step_names.phase(playbook, wishes.hold_at)
    step_names.skippable(playbook, wishes.skip)
    if not wishes.yes and (setting.as_json or not setting.interactive):
        raise UsageError("nobody can be asked here: give --yes, or run it on a terminal without --json")
    return inventory, playbook


def _run_dir(setting: Setting, wishes: Wishes, inventory: Inventory, playbook: Playbook) -> Path:
    """The directory of a run that has begun; made where its journal is lost."""
    if not wishes.journal_lost:
        return existing(setting, wishes.run_id, inventory, playbook)
    run_dir = directory(setting, wishes.run_id, inventory, playbook)
    runs.make(run_dir)
    return run_dir


def _walk(
    setting: Setting,
    wishes: Wishes,
    inventory: Inventory,
    playbook: Playbook,
    run_dir: Path,
    act: Callable[[Begun], RunEnded],
    wanted: PlanFile | None = None,
) -> int:
    """Lock the run, open its journal and hosts, walk, and give everything up again.

    act: what to do with the walk. wanted: the plan that a run must begin with, if any.
    """
    clock = RealClock(setting.interrupt)
    programs = hooks.HookProcesses(run_dir, setting.inventory.resolve().parent, setting.interrupt)
    with contextlib.ExitStack() as stack:
        stack.callback(programs.settle)  # last of all: a resume need not wait for them
        local = LocalLock(run_dir, setting.verb)
        stack.callback(local.close)
        stack.callback(runs.remove_empty, run_dir)
        stack.callback(local.leave)
        beside = () if runs.has_begun(run_dir) else runs.other_open_runs(setting.runs, inventory, playbook)
        emit = in_lines(setting)
        retired = journals.folded(journals.kept_lines(run_dir)).retired
        left = playbook.without(inventory, retired)
        site = stack.enter_context(reached(setting, left, run_dir.name))
        try:  # nothing is in flight yet: here the first Ctrl-C ends it
            if not setting.as_json:
                emit(events.Noted("the hosts are asked where they stand; nothing is changed"))
            start = _opened(
                wishes, Opening(run_dir, playbook, inventory, site.look, clock.wall), site, wanted
            )
        except KeyboardInterrupt:
            emit(events.RunEnded(130, "stopped while the hosts were asked; nothing was changed", ()))
            raise
        stack.enter_context(setting.interrupt.listening())
        stack.enter_context(setting.interrupt.answered(lambda: emit(events.Noted(_ASKED_TO_STOP))))
        journal = start.journal
        stack.callback(journal.close)
        lock = site.lock(clock, playbook, steal=wishes.steal)
        stack.callback(lock.close)
        faces = contextlib.ExitStack()
        stack.callback(faces.close)
        look_up = RunLookUp(inventory, playbook, journal, holds=HoldFile(run_dir))
        face = face_of(setting, wishes.yes, faces, look_up, look_up.news, playbook.views())
        shown = _measured(wishes.metrics, face.emit, playbook, left)
        emit = look_up.tell = stack.enter_context(recorded(run_dir, shown))
        alone = () if lock.hosts else (UNWITNESSED,)
        for text in (*beside, *alone, *start.said, *hooks.missing(inventory.hooks)):
            emit(events.Noted(text))
        samples = Samples(
            run_dir, clock.now, clock.wall, lambda text: emit(events.Noted(text)), show=face.sample
        )
        stack.callback(samples.close)
        stack.callback(site.sample(samples, playbook))
        world = World(
            look=site.look,
            apply=site.apply,
            clock=clock,
            confirm=face.confirm,
            lock=lock,
            interrupt=setting.interrupt,
            emit=samples.noting_stage(emit),
            watch=site.watch(clock, lock),
            copies=site.copies(clock, lock),
            holds=HoldFile(run_dir),
            hooks=programs,
        )
        walk = Walk(playbook, inventory, journal, world)
        try:
            ended = act(Begun(walk, face.console, start.back_to))
        except KeyboardInterrupt:
            programs.kill()
            emit(events.RunEnded(130, f"stopped at once; {walk.state()}; resume goes on", ()))
            faces.close()
            _say_ways_on(setting, journal, playbook, ())
            stack.pop_all()  # nothing here may wait for a host now; the process ends
            raise
        faces.close()
        _say_ways_on(setting, journal, playbook, ended.findings)
        return ended.code


def _measured(path: Path | None, shown: events.Emit, playbook: Playbook, inventory: Inventory) -> events.Emit:
    """What is shown, and ``--metrics`` beside it."""
    if path is None:
        return shown
    from zkmigrate.ui.metrics import Metrics  # only here is its library needed

    known = {counted.step: len(counted.targets(inventory, {})) for counted in playbook.counted}
    return Metrics(path, shown, {step: count for step, count in known.items() if count}, time.time)


def _opened(wishes: Wishes, opening: Opening, site: Site, wanted: PlanFile | None) -> Opened:
    """The journal of the run: recovered where it is lost, else opened, or begun."""
    if wishes.journal_lost:
        return opening.recovered(Way(wishes.journal_lost), getpass.getuser())
    if runs.has_begun(opening.run_dir):
        return opening.opened(lambda: site.window_lines(opening.playbook, {}), wanted)
    return opening.begun(site.window_lines(opening.playbook, {}), wanted)


def _say_ways_on(setting: Setting, journal: Journal, playbook: Playbook, findings: Sequence[Finding]) -> None:
    """The commands that go on from here, ready to be typed, while the run is open. findings: what it ended
    with; hosts that opened by themselves say there what the journal does not know."""
    if setting.as_json or runs.state_of(journal.history, playbook).state != "open":
        return
    same = f"{words_on(setting)} --run-id {journal.history.run}"
    onward = onward_command(setting, journal.history, playbook)
    back, look = f"zkmigrate rollback {same}", f"zkmigrate status {same}"
    if final := journal.history.no_way_back(playbook):
        back = f"none after {final}"
    elif any(f.id == NO_WAY_BACK for f in findings):
        back = "none, the door is open"
    for what, command in (("go on", onward), ("go back", back), ("look", look)):
        setting.out.write(f"   {what}: {command}\n")
    setting.out.flush()
