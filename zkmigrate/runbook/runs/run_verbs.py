"""Walk a run: the verbs ``run``, ``resume`` and ``rollback``.

Each assembles the engine, walks, and closes all connections and files.
"""

from __future__ import annotations

import contextlib
import getpass
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from zkmigrate.errors import UsageError
from zkmigrate.inventory import inventory as inventories
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.engine import events, pause, planfile, runs, step_names
from zkmigrate.runbook.engine import journal as journals
from zkmigrate.runbook.engine.clock import RealClock
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.history import Arrived, Turn
from zkmigrate.runbook.engine.hold_file import HoldFile
from zkmigrate.runbook.engine.lock import UNWITNESSED, LocalLock
from zkmigrate.runbook.engine.planfile import PlanFile
from zkmigrate.runbook.engine.ports import Ports
from zkmigrate.runbook.engine.run import Walk
from zkmigrate.runbook.engine.samples import Samples
from zkmigrate.runbook.engine.throttle_file import ThrottleFile
from zkmigrate.runbook.model.finding import NO_WAY_BACK, Finding
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.step import Context, Way
from zkmigrate.runbook.runs import hooks, left_window, run_options
from zkmigrate.runbook.runs.open_run import JournalOpener, OpenJournal, refuse_stale
from zkmigrate.runbook.runs.output import RunInfo, line_output, run_output
from zkmigrate.runbook.runs.run_options import RunOptions
from zkmigrate.runbook.runs.verb_context import (
    Site,
    VerbContext,
    existing_run_dir,
    heading,
    inventory_options,
    load,
    next_command,
    open_site,
    remark,
    run_dir_of,
)
from zkmigrate.runbook.ui.console import StdConsole
from zkmigrate.runbook.ui.outlet import outlet
from zkmigrate.runbook.ui.run_files import recorded

_ASKED_TO_STOP = (
    "stop requested: changes in flight are finished and journaled first; Ctrl-C again stops at once"
)

_Act = Callable[[Walk, StdConsole, str], RunEnded]
"""``act(walk, console, back_to)`` walks. back_to: the place to which a recovered journal's way back leads."""


def run(context: VerbContext, options: RunOptions) -> int:
    """Begin a run, or continue a run in the forward direction."""
    inventory, playbook = _load(context, options)
    far = pause.parse(playbook, options.until, time.time(), end=True)
    hooks.refuse_missing(inventory.hooks)
    given_plan = planfile.read(options.plan) if options.plan is not None else None
    run_dir = runs.directory(context.runs, options.run_id) if options.run_id else None
    if given_plan is not None:
        runs.refuse_applied(context.runs, given_plan.digest, but="" if run_dir is None else run_dir.name)
        digest = inventories.digest(inventory)
        refuse_stale(given_plan, planfile.heading_differences(given_plan, playbook.id, digest))
    if run_dir is None or not runs.has_begun(run_dir):
        number = runs.new_id(context.runs, inventory, playbook)
        run_dir = run_dir or runs.directory(context.runs, number)
        runs.make(run_dir)

    def act(walk: Walk, _console: StdConsole, _back_to: str) -> RunEnded:
        return walk.forward(far.name, options.skip, far.at)

    return _walk(context, options, inventory, playbook, run_dir, act, given_plan, asked=Way.FORWARD)


def resume(context: VerbContext, options: RunOptions) -> int:
    """Continue a run where it stopped, in the direction it was going.

    A way back is announced and confirmed first, and refuses the options of the way forward.
    """
    inventory, playbook = _load(context, options)
    far = pause.parse(playbook, options.until, time.time(), end=True)
    run_dir = _run_dir(context, options, inventory, playbook)
    lost = Way(options.journal_lost) if options.journal_lost else None
    if lost is Way.BACK and (given := options.onward()):
        raise UsageError(
            f"{given} is for the way forward, and --journal-lost back goes back. Nothing was changed. Next: "
            f"the same command without {given}"
        )

    def act(walk: Walk, console: StdConsole, back_to: str) -> RunEnded:
        turn = walk.history.turn
        if lost is Way.BACK:
            turn = Turn(back_to, "--journal-lost back")
        if not walk.history.lost:
            _tell_of_window(walk)
        if turn is not None and turn.then == "end":
            _refuse_onward(context, walk, options, turn, left=lost is not None)
            steps = [at.id for at in walk.history.to_undo(playbook, turn.to)]
            if steps:
                why = f"this resume goes back to {turn.where} ({turn.why}), in {len(steps)} steps: "
                walk.ports.emit(events.Noted(why + ", ".join(steps)))
            if not _may_go_back(context, options, walk, console, steps):
                console.show(["not resumed: nothing was changed"])
                return RunEnded(130, "nothing was changed")
        if lost is Way.BACK:
            return walk.back(back_to)
        return walk.resume(far.name, options.skip, far.at)

    return _walk(context, options, inventory, playbook, run_dir, act, asked=lost)


def _tell_of_window(walk: Walk) -> None:
    """Show the state of a window that a dead process left, and what this resume does there."""
    history, playbook, ports = walk.history, walk.playbook, walk.ports
    stands = left_window.asked(history, playbook, walk.inventory, ports.look)
    left = left_window.judged(history, playbook, walk.inventory, stands, ports.clock.wall())
    if left is not None:
        for line in (*left.lines(), f"this resume: {left.follows()}"):
            ports.emit(events.Noted(line))


def _refuse_onward(context: VerbContext, walk: Walk, options: RunOptions, turn: Turn, *, left: bool) -> None:
    """Raise UsageError for an option that a way back would ignore.

    left: whether the journal was lost, so that every step counts as begun.
    """
    given, run = options.onward(), walk.history.run
    if not given:
        return
    words = f"{inventory_options(context)} --run-id {run}"
    again = f"zkmigrate run {words} {given}"
    if not left and isinstance(walk.history.next(walk.playbook), Arrived):
        raise UsageError(
            f"run {run} is back at {turn.where}, and resume does not go forward from there. Nothing was "
            f"changed. Next: {again}"
        )
    raise UsageError(
        f"run {run} is on its way back to {turn.where} ({turn.why}), and {given} is for the way forward. "
        f"Nothing was changed. Next: zkmigrate resume {words} finishes the way back, then {again} goes "
        "forward"
    )


def rollback(context: VerbContext, options: RunOptions) -> int:
    """Walk back to the start of a stage or step, or all the way."""
    inventory, playbook = _load(context, options)
    run_dir = _run_dir(context, options, inventory, playbook)

    def act(walk: Walk, console: StdConsole, _back_to: str) -> RunEnded:
        steps = [at.id for at in walk.history.to_undo(playbook, options.to)]
        if not _may_go_back(context, options, walk, console, steps):
            console.show(["not rolled back: nothing was changed"])
            return RunEnded(130, "nothing was changed")
        return walk.back(options.to, getpass.getuser())

    return _walk(context, options, inventory, playbook, run_dir, act, asked=Way.BACK)


def _may_go_back(
    context: VerbContext, options: RunOptions, walk: Walk, console: StdConsole, steps: Sequence[str]
) -> bool:
    """Ask whether to walk these steps back, and return the answer.

    Returns True without a question with ``--yes``, without a terminal, without steps to walk, and where the
    walk itself refuses.
    """
    refused = walk.history.no_way_back(walk.playbook) in steps
    if options.yes or not context.interactive or not steps or refused:
        return True
    return _agreed(console, steps, _remarks(walk))


def _remarks(walk: Walk) -> tuple[str, ...]:
    """Return the playbook's own lines about a way back, after a remark on steps that may never have begun."""
    history, paced = walk.history, walk.playbook.paced
    moved = history.unrestored(paced.step) if paced is not None else frozenset()
    records = history.records()
    context = Context(history.run, walk.inventory, records=records, unrestored=moved, way=Way.BACK)
    remarks = walk.playbook.foreseen_back(context)
    if not history.lost:
        return remarks
    return (
        "The journal was lost, so this list has every step, also those that never began.",
        "Each step reads the hosts and undoes only the changes that it finds there.",
        *remarks,
    )


def _agreed(console: StdConsole, steps: Sequence[str], remarks: Sequence[str]) -> bool:
    """Show the steps of a way back and ask whether to walk them; the end of input means no.

    remarks: further lines about the way back.
    """
    console.show(["these steps are walked back, in this order:", *(f"  {step}" for step in steps), *remarks])
    console.forget()
    while (line := console.ask("walk these steps back: go (g), stop (s)? ")) is not None:
        word = line.strip().lower()
        if word in ("g", "go", "y", "yes"):
            return True
        if word in ("s", "stop", "n", "no"):
            return False
        console.show([f"  not understood: {line.strip()!r}. g walks them back; s changes nothing"])
    return False


def _load(context: VerbContext, options: RunOptions) -> tuple[Inventory, Playbook]:
    """Load inventory and playbook, and check the options before hosts are queried or a directory is made.

    Raises UsageError for unknown names, and where questions can be neither asked nor skipped.
    """
    inventory, playbook = load(context)
    step_names.known(playbook, options.to)
    step_names.skippable(playbook, options.skip)
    if not options.yes and (context.as_json or not context.interactive):
        raise UsageError("Cannot prompt. Pass --yes, or run on a terminal without --json.")
    return inventory, playbook


def _run_dir(context: VerbContext, options: RunOptions, inventory: Inventory, playbook: Playbook) -> Path:
    """Return the directory of a run that has begun. With a lost journal, create it if it is missing."""
    if not options.journal_lost:
        return existing_run_dir(context, options.run_id, inventory, playbook)
    run_dir = run_dir_of(context, options.run_id, inventory, playbook)
    runs.make(run_dir)
    return run_dir


def _walk(
    context: VerbContext,
    options: RunOptions,
    inventory: Inventory,
    playbook: Playbook,
    run_dir: Path,
    act: _Act,
    given_plan: PlanFile | None = None,
    asked: Way | None = None,
) -> int:
    """Lock the run, open its journal and connect to the hosts; walk, then close everything.

    given_plan: the plan that the run must begin with, if any. asked: the direction that was requested; None
    for the run's own. Returns the exit code.
    """
    clock = RealClock(context.interrupt)
    context = replace(context, out=outlet(context.out, context.interrupt.ask))
    programs = hooks.HookProcesses(run_dir, context.inventory.resolve().parent, context.interrupt)
    with contextlib.ExitStack() as last, contextlib.ExitStack() as stack:
        stack.callback(programs.settle)  # last of all, so that a resume need not wait for them
        local = LocalLock(run_dir, context.verb)
        stack.callback(local.close)
        stack.callback(runs.remove_empty, run_dir)
        stack.callback(local.leave)
        beside = () if runs.has_begun(run_dir) else runs.other_open_runs(context.runs, inventory, playbook)
        emit = line_output(context)
        retired = journals.folded(journals.kept_lines(run_dir)).retired
        left = playbook.without(inventory, retired)
        site = stack.enter_context(open_site(context, left, run_dir.name))
        try:  # nothing is in flight yet: here the first Ctrl-C ends it
            if not context.as_json:
                emit(events.Noted("reading the state of the hosts; nothing is changed"))
            opener = JournalOpener(run_dir, playbook, inventory, site.look, clock.wall)
            opened = _open_journal(options, opener, site, given_plan)
        except KeyboardInterrupt:
            emit(events.RunEnded(130, "stopped while the hosts were read; nothing was changed", ()))
            raise
        stack.enter_context(context.interrupt.listening())
        stack.enter_context(context.interrupt.answered(lambda: emit(events.Noted(_ASKED_TO_STOP))))
        journal = opened.journal
        stack.callback(journal.close)
        lock = site.lock(clock, playbook, steal=options.steal)
        stack.callback(lock.close)
        views = contextlib.ExitStack()
        stack.callback(views.close)
        info = RunInfo(inventory, playbook, journal, holds=HoldFile(run_dir))
        info.foreseen = lambda: site.window_lines(playbook, journal.history.records())
        output = run_output(context, options.yes, views, info, playbook.views())
        shown = _with_metrics(options.metrics, output.emit, playbook, left)
        emit = info.emit = stack.enter_context(recorded(run_dir, shown))
        alone = () if lock.hosts else (UNWITNESSED,)
        for text in (*beside, *alone, *opened.remarks, *hooks.missing(inventory.hooks)):
            emit(events.Noted(text))
        samples = Samples(
            run_dir, clock.now, clock.wall, lambda text: emit(events.Noted(text)), show=output.sample
        )
        stack.callback(samples.close)
        stack.callback(site.sample(samples, playbook))
        ports = Ports(
            look=site.look,
            apply=site.apply,
            clock=clock,
            confirm=output.confirm,
            lock=lock,
            interrupt=context.interrupt,
            emit=samples.noting_stage(emit),
            watch=site.watch(clock, lock),
            copies=site.copies(clock, lock, lambda: journal.history.lost),
            holds=HoldFile(run_dir),
            overrides=ThrottleFile(run_dir).read,
            note=samples.note,
            hooks=programs,
        )
        walk = Walk(playbook, inventory, journal, ports)
        back = asked is Way.BACK or (asked is None and heading(journal.history, playbook) != "forward")
        options = run_options.keep(run_dir, options, playbook, clock.wall(), back=back)
        try:
            ended = act(walk, output.console, opened.back_to)
        except KeyboardInterrupt:
            programs.kill()
            emit(events.RunEnded(130, f"stopped at once; {walk.state()}; {walk.history.onward}", ()))
            views.close()
            _print_next_commands(context, options, walk, ())
            stack.pop_all()  # nothing here may wait for a host now; the process ends
            raise
        views.close()
        last.callback(_print_next_commands, context, options, walk, ended.findings)  # below all of -v
        return ended.code


def _with_metrics(
    path: Path | None, shown: events.Emit, playbook: Playbook, inventory: Inventory
) -> events.Emit:
    """Return a receiver of events that also writes the file of ``--metrics``, or ``shown`` without a path."""
    if path is None:
        return shown
    from zkmigrate.runbook.ui.metrics import Metrics  # its library is needed only here

    known = {counted.step: len(counted.targets(inventory, {})) for counted in playbook.counted}
    return Metrics(path, shown, {step: count for step, count in known.items() if count}, time.time)


def _open_journal(
    options: RunOptions, opener: JournalOpener, site: Site, given_plan: PlanFile | None
) -> OpenJournal:
    if options.journal_lost:
        return opener.recover(Way(options.journal_lost), getpass.getuser())
    if runs.has_begun(opener.run_dir):
        return opener.open(lambda: site.window_lines(opener.playbook, {}), given_plan)
    return opener.begin(site.window_lines(opener.playbook, {}), given_plan)


def _print_next_commands(
    context: VerbContext, options: RunOptions, walk: Walk, findings: Sequence[Finding]
) -> None:
    """Print the commands that continue an open run, each with its direction.

    findings: the findings with which this call ended. They may report hosts that opened by themselves, which
    no journal knows.
    """
    history, playbook = walk.history, walk.playbook
    if context.as_json or runs.state_of(history, playbook).state != "open":
        return
    words = f"{inventory_options(context)} --run-id {history.run}"
    onward = heading(history, playbook)
    command = next_command(context, history, playbook, options)
    said = remark(onward, command)
    commands = {f"go on {onward}": command + (f"\n   {said}" if said else "")}
    if final := history.no_way_back(playbook):
        commands["go back"] = f"none after {final}"
    elif any(f.id == NO_WAY_BACK for f in findings):
        commands["go back"] = "none, because clients have been let in"
    elif onward != (beginning := "back to the beginning"):
        commands[f"go {beginning}"] = f"zkmigrate rollback {words}"
    if onward.startswith("back"):
        commands["go forward"] = f"only from there: zkmigrate run {words}"
    commands["look"] = f"zkmigrate status {words}"
    context.out.write("".join(f"   {what}: {line}\n" for what, line in commands.items()))
    context.out.flush()
