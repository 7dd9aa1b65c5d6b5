"""What the verbs do: open a run, put the engine together, walk, report. ``cli.py`` only parses.

Each function returns the exit code (docs/reference/exit-codes.md) or raises a ZkmigrateError that carries it.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO

from zkmigrate import books, control, hooks, standing
from zkmigrate import inventory as inventories
from zkmigrate.engine import asked, events, plan, planfile, runs
from zkmigrate.engine import journal as journals
from zkmigrate.engine.apply import Apply
from zkmigrate.engine.clock import Clock, Interrupt, RealClock
from zkmigrate.engine.codec import encode_finding
from zkmigrate.engine.history import Arrived, History
from zkmigrate.engine.hold import HoldFile
from zkmigrate.engine.journal import Journal
from zkmigrate.engine.lock import HostLock, LocalLock
from zkmigrate.engine.planfile import PlanFile
from zkmigrate.engine.ports import WatchPort, WindowRules
from zkmigrate.engine.run import Ended, Walk, World
from zkmigrate.engine.samples import Samples
from zkmigrate.errors import UsageError, ZkmigrateError
from zkmigrate.face import RunLookUp, face_of, say_interrupted
from zkmigrate.inventory import Inventory
from zkmigrate.model.finding import Finding, blocking
from zkmigrate.model.look import Look
from zkmigrate.model.playbook import Playbook
from zkmigrate.model.step import Blocked, Context, Done, Records, Way
from zkmigrate.opening import Opened, Opening, refuse_stale
from zkmigrate.places import places
from zkmigrate.runbook import export
from zkmigrate.ui import planned, survey
from zkmigrate.ui.console import StdConsole
from zkmigrate.ui.record import recorded

_WAIT_S = 0.5


class Site(Protocol):
    """The reachable world of one inventory and run; ``wiring.Site`` is the real one."""

    look: Look
    apply: Apply

    def lock(self, clock: Clock, *, steal: bool) -> HostLock: ...
    def rules(self) -> WindowRules: ...
    def watch(self, clock: Clock, lock: HostLock) -> WatchPort: ...
    def sample(self, samples: Samples) -> Callable[[], None]: ...
    def copies(self, lock: HostLock) -> Callable[[bytes], None]: ...
    def window_lines(self, records: Records) -> tuple[str, ...]: ...
    def close(self) -> None: ...


@dataclass
class Setting:
    """One call of the command line. site: how hosts are reached. interactive: somebody is at a terminal.
    verb: its name, for those who ask who works on a run."""

    inventory: Path
    playbook: str
    as_json: bool
    runs: Path
    site: Callable[[Inventory, str], Site]
    out: TextIO = field(default_factory=lambda: sys.stdout)
    stdin: int = 0
    interactive: bool = False
    verb: str = ""
    interrupt: Interrupt = field(default_factory=Interrupt)


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


@dataclass(frozen=True)
class Begun:
    """A walk that is ready. back_to: where a way back leads that a lost journal was recovered for."""

    walk: Walk
    console: StdConsole
    back_to: str


def preflight(setting: Setting) -> int:
    """Look first: every check of the first gate alone; once a run has joined dest, of its next one."""
    inventory, playbook = _read(setting)
    under_way = runs.joined(setting.runs, inventory, playbook)
    gate = runs.gate_ahead(under_way, playbook).id if under_way else "preflight"
    records = under_way.history.records() if under_way else {}
    context = Context(run=under_way.run if under_way else "look", inventory=inventory, records=records)
    if under_way and not setting.as_json:
        setting.out.write(f"run {under_way.run} has joined dest: judged as before its stage {gate}\n")
    if setting.interactive and not setting.as_json:
        hosts = len({*inventory.source_names, *inventory.dest_names, *inventory.broker_names})
        setting.out.write(f"looking at {hosts} hosts, their ensembles and Kafka; nothing is changed …\n")
        setting.out.flush()
    findings: list[Finding] = []
    with _site(setting, inventory, context.run) as site:
        looks = [s for stage in playbook.stages if stage.id == gate for s in stage.steps]
        for step in looks[:1] if under_way else looks:
            verdict = step.check(context, step.observe(context, site.look), Way.FORWARD)
            findings += verdict.findings if isinstance(verdict, Done | Blocked) else ()
    code = 3 if blocking(findings) else 0
    if setting.as_json:
        body = {"code": code, "counts": survey.tally(findings), "gate": gate}
        _print_json(setting, {**body, "findings": [encode_finding(f) for f in findings]})
        return code
    survey.show(setting.out, findings, places(setting.inventory), _words_on(setting))
    return code


def show_plan(setting: Setting, run_id: str, out: Path | None = None, *, force: bool = False) -> int:
    """Print the plan; only looks. run_id: the run whose rehearsal tells how long the window will be.

    out: where to write it too, over another file only with ``force``.
    """
    inventory, playbook = _read(setting)
    if out is not None:
        planfile.refuse_taken(out, force=force)
    made = _planned(setting, inventory, playbook, _measured(setting, run_id, inventory, playbook))
    if out is not None:
        planfile.write(out, made, force=force)
    if setting.as_json:
        _print_json(setting, made.to_json())
    else:
        setting.out.write("".join(f"{line}\n" for line in planned.lines(made)))
        if out is not None:
            setting.out.write(f"written to {out}: plan {made.digest}\n")
            setting.out.write(
                f"   apply it: zkmigrate run {_words_on(setting)} --plan {shlex.quote(str(out))}\n"
            )
    return 8 if made.unknown else 0


def show_planned(setting: Setting, file: Path, *, offline: bool) -> int:
    """Print a plan that was written, and whether it still holds: a remark, never a refusal.

    offline: without asking the hosts.
    """
    planned_then = planfile.read(file)
    remarks = _remarks_on(setting, planned_then, offline=offline)
    if setting.as_json:
        _print_json(setting, {**planned_then.to_json(), "remarks": remarks})
        return 0
    setting.out.write("".join(f"{line}\n" for line in planned.lines(planned_then)))
    setting.out.write("".join(f"warning: {remark}\n" for remark in remarks))
    return 0


def _remarks_on(setting: Setting, then: PlanFile, *, offline: bool) -> list[str]:
    """Why ``run --plan`` would refuse this plan now, as far as it can be told."""
    remarks = []
    try:
        if run_id := runs.applied_by(setting.runs, then.digest):
            remarks.append(f"run {run_id} was begun with this plan")
    except ZkmigrateError as error:
        remarks.append(f"whether a run was begun with this plan cannot be told: {error}")
    try:
        inventory, playbook = _read(setting)
        refuse_stale(then, planfile.heading_differences(then, playbook.id, inventories.digest(inventory)))
        if not offline:
            now = _planned(setting, inventory, playbook, {})
            refuse_stale(then, planfile.differences(then, now))
    except runs.StaleError as error:
        remarks.append(str(error))
    except ZkmigrateError as error:
        remarks.append(f"whether this plan still holds cannot be told: {error}")
    return remarks


def _planned(setting: Setting, inventory: Inventory, playbook: Playbook, records: Records) -> PlanFile:
    with _site(setting, inventory, "plan") as site:
        return planfile.of(plan.make(playbook, inventory, site.look, site.window_lines(records)))


def _measured(setting: Setting, run_id: str, inventory: Inventory, playbook: Playbook) -> Records:
    """What the run of this id recorded; nothing without an id. StaleError for a run of another inventory."""
    history = _told(setting, run_id, inventory, playbook)
    return history.records() if history is not None else {}


def _told(setting: Setting, run_id: str, inventory: Inventory, playbook: Playbook) -> History | None:
    if not run_id:
        return None
    history = journals.read(_existing(setting, Wishes(run_id=run_id), inventory, playbook))
    if history.binds:
        runs.check_same(history, playbook.id, inventories.digest(inventory))
    return history


def show_runbook(setting: Setting, run_id: str, out: Path | None, *, go_no_go: bool) -> int:
    """Write the runbook by hand, or the go/no-go page; only looks.

    run_id: whose rehearsal's figures to use, and under whose id a hand goes on. out: the file, else standard
    output.
    """
    export.check_out(out)
    inventory, playbook = _read(setting)
    begun = bool(run_id) and runs.has_begun(runs.directory(setting.runs, run_id))
    history = _told(setting, run_id if begun or go_no_go else "", inventory, playbook)
    with _site(setting, inventory, "plan") as site:
        made = plan.make(playbook, inventory, site.look, ())
        if go_no_go:
            text = export.go_no_go(made, inventory, site.look, history)
        else:
            text = export.runbook(playbook, made, inventory, site.look, run_id, history, out)
    written = export.write(out, text, with_program=not go_no_go) if out is not None else ()
    if setting.as_json:
        _print_json(setting, export.to_json(made, text, written))
    elif written:
        setting.out.write("".join(f"wrote {path}\n" for path in written))
        if made.unknown:
            setting.out.write("the page is not whole, it says what is missing: mend that, export again\n")
    else:
        setting.out.write(text)
    return 8 if made.unknown else 0


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
        number = runs.fresh(setting.runs, inventory, playbook)
        run_dir = run_dir or runs.directory(setting.runs, number)
        runs.make(run_dir)
    assert run_dir is not None

    def act(begun: Begun) -> Ended:
        return begun.walk.forward(wishes.until, wishes.hold_at, wishes.skip)

    return _walk(setting, wishes, inventory, playbook, run_dir, act, wanted)


def resume(setting: Setting, wishes: Wishes) -> int:
    """Go on where a run stands, in the direction it was going."""
    inventory, playbook = _asked(setting, wishes)
    run_dir = _existing(setting, wishes, inventory, playbook)

    def act(begun: Begun) -> Ended:
        if wishes.journal_lost == Way.BACK.value:
            return begun.walk.back(begun.back_to)
        return begun.walk.resume(wishes.until, wishes.hold_at, wishes.skip)

    return _walk(setting, wishes, inventory, playbook, run_dir, act)


def rollback(setting: Setting, wishes: Wishes) -> int:
    """Walk back to the start of a stage or step, or all the way."""
    inventory, playbook = _asked(setting, wishes)
    run_dir = _existing(setting, wishes, inventory, playbook)

    def act(begun: Begun) -> Ended:
        if setting.interactive and not wishes.yes:
            steps = [at.id for at in begun.walk.history.to_undo(playbook, wishes.to)]
            begun.console.show(
                ["these steps are walked back, in this order:", *(f"  {step}" for step in steps)]
            )
            begun.console.forget()
            if (begun.console.ask("roll back? (yes) ") or "").lower() not in ("y", "yes", "go", "g"):
                begun.console.show(["not rolled back: nothing was changed"])
                return Ended(130, "nothing was changed")
        return begun.walk.back(wishes.to)

    return _walk(setting, wishes, inventory, playbook, run_dir, act)


def status(
    setting: Setting,
    run_id: str,
    *,
    offline: bool,
    wait: str = "",
    timeout_s: float | None = None,
    findings: str = "",
) -> int:
    """Print where a run stands; writes nothing.

    wait: first wait, at most ``timeout_s``, until this stage or step is done or the process at work has ended
    (``standing.END``); the exit code tells which (``standing.waited``). findings: also those of this stage or
    step, whole.
    """
    inventory, playbook = _read(setting)
    if wait != standing.END:
        asked.known(playbook, wait)
    if findings != "all":
        asked.known(playbook, findings)
    run_dir = _existing(setting, Wishes(run_id=run_id), inventory, playbook)
    code = _waited(setting, run_dir, wait, timeout_s) if wait else 0
    body = standing.of_run(run_dir, playbook, (*inventory.dest_names, *inventory.broker_names), time.time)
    if wait:
        body["waited"] = {"for": wait, "code": code}
    if findings:
        body["findings"] = standing.findings(run_dir, findings)
    if not offline:
        with _site(setting, inventory, run_dir.name) as site:
            body["hosts"] = standing.of_hosts(site.look, inventory)
    if setting.as_json:
        _print_json(setting, body)
    else:
        setting.out.write("".join(f"{line}\n" for line in standing.lines(body)))
    return code


def _waited(setting: Setting, run_dir: Path, wait: str, timeout_s: float | None) -> int:
    """Poll the files of the run until the wait is over; 130 when it was interrupted."""
    clock = RealClock(setting.interrupt)
    end = None if timeout_s is None else clock.now() + timeout_s
    with setting.interrupt.listening():
        while (code := standing.waited(run_dir, wait)) is None:
            if setting.interrupt.wanted:
                return 130
            left = _WAIT_S if end is None else min(_WAIT_S, end - clock.now())
            if left <= 0:
                return standing.NOT_REACHED
            clock.pause(left)
    return code


def hold(setting: Setting, run_id: str, at: str, why: str) -> int:
    """Ask a run to hold, under way or not."""
    inventory, playbook = _read(setting)
    asked.place(playbook, at)
    run_dir = _existing(setting, Wishes(run_id=run_id), inventory, playbook)
    body = control.hold(run_dir, playbook, at, why)
    control.tell(setting.out, body, control.hold_lines(body), as_json=setting.as_json)
    return 0


def release(setting: Setting, run_id: str) -> int:
    """Let a run go on that is held."""
    inventory, playbook = _read(setting)
    run_dir = _existing(setting, Wishes(run_id=run_id), inventory, playbook)
    body = control.release(run_dir, playbook)
    control.tell(setting.out, body, control.release_lines(body), as_json=setting.as_json)
    return 0


def _read(setting: Setting) -> tuple[Inventory, Playbook]:
    return inventories.load(setting.inventory), books.load(setting.playbook)


def _asked(setting: Setting, wishes: Wishes) -> tuple[Inventory, Playbook]:
    """As ``_read``, and what the wishes name is there: before a host is asked or a directory made."""
    inventory, playbook = _read(setting)
    for name in (wishes.until, wishes.to):
        asked.known(playbook, name)
    asked.phase(playbook, wishes.hold_at)
    asked.skippable(playbook, wishes.skip)
    if not wishes.yes and (setting.as_json or not setting.interactive):
        raise UsageError("nobody can be asked here: give --yes, or run it on a terminal without --json")
    return inventory, playbook


@contextlib.contextmanager
def _site(setting: Setting, inventory: Inventory, run: str) -> Iterator[Site]:
    site = setting.site(inventory, run)
    try:
        yield site
    finally:
        site.close()


def _existing(setting: Setting, wishes: Wishes, inventory: Inventory, playbook: Playbook) -> Path:
    if wishes.run_id:
        run_dir = runs.directory(setting.runs, wishes.run_id)
    else:
        run_dir = setting.runs / runs.latest(setting.runs, inventory, playbook)
    if wishes.journal_lost:
        runs.make(run_dir)
    elif not runs.has_begun(run_dir):
        raise UsageError(f"no run {run_dir.name} in {setting.runs}. Possible now: --run-id of another")
    return run_dir


def _walk(
    setting: Setting,
    wishes: Wishes,
    inventory: Inventory,
    playbook: Playbook,
    run_dir: Path,
    act: Callable[[Begun], Ended],
    wanted: PlanFile | None = None,
) -> int:
    """Lock the run, open its journal and hosts, walk, and give everything up again.

    act: what to do with the walk. wanted: the plan that a run must begin with, if any.
    """
    clock = RealClock(setting.interrupt)
    programs = hooks.HookProcesses(run_dir, setting.inventory.resolve().parent, setting.interrupt)
    with contextlib.ExitStack() as stack:
        stack.callback(programs.settle)  # last of all: a resume need not wait for them
        alone = LocalLock(run_dir, setting.verb)
        stack.callback(alone.close)
        stack.callback(runs.unmake, run_dir)
        stack.callback(alone.leave)
        stack.enter_context(setting.interrupt.listening())
        site = stack.enter_context(_site(setting, inventory, run_dir.name))
        start = _opened(wishes, Opening(run_dir, playbook, inventory, site.look, clock.wall), site, wanted)
        journal = start.journal
        stack.callback(journal.close)
        lock = site.lock(clock, steal=wishes.steal)
        stack.callback(lock.close)
        faces = contextlib.ExitStack()
        stack.callback(faces.close)
        look_up = RunLookUp(inventory, playbook, journal)
        face = face_of(setting, wishes.yes, faces, look_up)
        emit = look_up.tell = stack.enter_context(recorded(run_dir, face.emit))
        stack.callback(say_interrupted(setting.interrupt, emit).set)
        for text in (*start.said, *hooks.missing(inventory.hooks)):
            emit(events.Noted(text))
        samples = Samples(
            run_dir, clock.now, clock.wall, lambda text: emit(events.Noted(text)), show=face.sample
        )
        stack.callback(samples.close)
        stack.callback(site.sample(samples))
        world = World(
            look=site.look,
            apply=site.apply,
            clock=clock,
            confirm=face.confirm,
            lock=lock,
            interrupt=setting.interrupt,
            emit=emit,
            rules=site.rules(),
            watch=site.watch(clock, lock),
            copies=site.copies(lock),
            holds=HoldFile(run_dir),
            hooks=programs,
        )
        walk = Walk(playbook, inventory, journal, world)
        try:
            code = act(Begun(walk, face.console, start.back_to)).code
        except KeyboardInterrupt:
            programs.kill()
            emit(events.RunEnded(130, f"stopped at once; {walk.state()}; resume goes on", ()))
            faces.close()
            _say_ways_on(setting, journal, playbook)
            stack.pop_all()  # nothing here may wait for a host now; the process ends
            raise
        faces.close()
        _say_ways_on(setting, journal, playbook)
        return code


def _opened(wishes: Wishes, opening: Opening, site: Site, wanted: PlanFile | None) -> Opened:
    """The journal of the run: recovered where it is lost, else opened, or begun."""
    if wishes.journal_lost:
        return opening.recovered(site.rules(), Way(wishes.journal_lost), getpass.getuser())
    if runs.has_begun(opening.run_dir):
        return opening.opened(lambda: site.window_lines({}), wanted)
    return opening.begun(site.window_lines({}), wanted)


def _say_ways_on(setting: Setting, journal: Journal, playbook: Playbook) -> None:
    """The commands that go on from here, ready to be typed, while the run is open.

    A run that has walked back to where it was sent is turned forward by ``run``; any other goes on by
    ``resume``.
    """
    if setting.as_json or runs.stand(journal.history, playbook).state != "open":
        return
    same = f"{_words_on(setting)} --run-id {journal.history.run}"
    onward = "run" if isinstance(journal.history.next(playbook), Arrived) else "resume"
    for what, verb in (("go on", onward), ("go back", "rollback"), ("look", "status")):
        setting.out.write(f"   {what}: zkmigrate {verb} {same}\n")
    setting.out.flush()


def _words_on(setting: Setting) -> str:
    """The options that name this inventory and playbook again, for a shell."""
    words = ["-i", str(setting.inventory)]
    if setting.playbook != books.DEFAULT:
        words += ["--playbook", setting.playbook]
    return shlex.join(words)


def _print_json(setting: Setting, body: dict[str, Any]) -> None:
    setting.out.write(json.dumps(body, ensure_ascii=False, sort_keys=True) + "\n")
