"""Run directories on the operator's machine: ``<base>/<run>/`` with the journal.

The base is ``ZKMIGRATE_RUNS``, else ``runs`` in the current directory. A run is called ``<inventory
name>-<number>``, unless the operator names it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from zkmigrate.errors import JournalError, LockedError, LostJournalError, UsageError
from zkmigrate.hosts import zkm_host
from zkmigrate.inventory.inventory import Inventory, digest
from zkmigrate.runbook.engine import journal, process
from zkmigrate.runbook.engine.history import Arrived, History, Next, NotUndone
from zkmigrate.runbook.model.entry import Entry
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.step import Way

_NAMED = 5
"""How many hosts are named; the others are counted."""
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,23}")


class StaleError(UsageError):
    """The plan, inventory or playbook is not the one that the run began with."""

    exit_code = 4


@dataclass(frozen=True)
class RunState:
    """The state of a run.

    state: ``complete``, ``back`` (at the beginning) or ``open``. where: the position in words.
    """

    state: str
    where: str


def base(environ: Mapping[str, str]) -> Path:
    """Return the directory that holds the runs."""
    return Path(environ.get("ZKMIGRATE_RUNS") or "runs")


@dataclass(frozen=True)
class KnownRun:
    """A run of an inventory.

    history: computed from the intact beginning of its journal. begun_at: seconds since the epoch. damaged:
    why the journal cannot be read, else None.
    """

    run: str
    history: History
    begun_at: float
    damaged: JournalError | None

    @property
    def unreadable(self) -> str:
        """Why the run's journal cannot be read, as a clause; empty if it can."""
        lost = self.damaged
        if lost is None:
            return ""
        why = lost.seen if isinstance(lost, LostJournalError) else str(lost)
        return f"run {self.run} may have changed hosts, and its journal cannot be read: {why}"

    def is_open(self, playbook: Playbook) -> bool:
        """Return whether anything is left to do; True if unknown."""
        if self.damaged or self.is_of(playbook):
            return self.damaged is not None or state_of(self.history, playbook).state == "open"
        return not self.history.is_over

    def is_of(self, playbook: Playbook) -> bool:
        """Return whether the run uses this playbook; True if its journal does not say."""
        return self.history.playbook in ("", playbook.id)


def runs_of(runs: Path, inventory: Inventory) -> tuple[KnownRun, ...]:
    """Return the runs of an inventory, oldest first, whatever their names.

    The journal names the inventory. If it does not, the inventory's digest or a name ``NAME-NUMBER`` decides.
    """
    found = []
    for path in runs.iterdir() if runs.is_dir() else ():
        if not (is_id(path.name) and has_begun(path)):
            continue
        entries: tuple[Entry, ...] = ()
        damaged: JournalError | None = None
        try:
            parsed = journal.parsed(path)
            entries = parsed.entries
            parsed.intact(path / journal.NAME)
        except JournalError as error:
            damaged = error
        history = journal.folded(entries)
        if history.name == inventory.name or (
            not history.name
            and (history.inventory == digest(inventory) or _number(path.name, inventory.name) is not None)
        ):
            found.append(KnownRun(path.name, history, entries[0].at if entries else 0.0, damaged))
    return tuple(sorted(found, key=lambda run: (run.begun_at, _number(run.run, inventory.name) or 0)))


def _number(run: str, name: str) -> int | None:
    """Return the number of ``NAME-NUMBER``, or None for a run with another name."""
    found = re.fullmatch(rf"{re.escape(name)}-(\d+)", run)
    return int(found[1]) if found else None


def latest(runs: Path, inventory: Inventory, playbook: Playbook) -> str:
    """Return the open run of an inventory, or its newest run if none is open.

    A run of another playbook is returned only if there is none of this one. Raises UsageError if there is no
    run, or if several are open.
    """
    found = runs_of(runs, inventory)
    if not found:
        raise UsageError(f"no run of {inventory.name} in {runs}. Next: zkmigrate run begins one")
    found = tuple(run for run in found if run.is_of(playbook)) or found
    still = [run.run for run in found if run.is_open(playbook)]
    if len(still) > 1:
        raise UsageError(
            f"{len(still)} runs of {inventory.name} are open: {', '.join(still)}. Next: name "
            "one with --run-id"
        )
    return still[0] if still else found[-1].run


def newest(runs: Path, inventory: Inventory, playbook: Playbook) -> KnownRun | None:
    """Return the open run of an inventory and playbook, else its newest; None if there is none.

    Raises JournalError if its journal is damaged, and UsageError if several runs are open.
    """
    known = {run.run: run for run in runs_of(runs, inventory) if run.is_of(playbook)}
    if not known:
        return None
    run = known[latest(runs, inventory, playbook)]
    refuse_damaged(runs, run)
    return run


def new_id(runs: Path, inventory: Inventory, playbook: Playbook) -> str:
    """Return ``NAME-NUMBER`` for a new run.

    Raises UsageError while an older run of this inventory and playbook is open (LockedError if a process is
    working on it), and JournalError if a damaged journal leaves that unknown.
    """
    for run in runs_of(runs, inventory):
        refuse_damaged(runs, run)
        if run.is_of(playbook) and run.is_open(playbook):
            if (working := process.at_work(runs / run.run)) is not None:
                raise LockedError(
                    f"process {working.pid} works on run {run.run} of this inventory. Next: zkmigrate status "
                    "shows what it does, and zkmigrate hold makes it wait"
                )
            raise UsageError(
                f"run {run.run} is not finished ({state_of(run.history, playbook).where}){_not_undone(run)}. "
                f"Next: resume or rollback, with --run-id {run.run}; or run --run-id {run.run}, which goes "
                "forward again after a way back"
            )
    begun = [path.name for path in runs.glob(f"{inventory.name}-*") if has_begun(path)]
    numbers = [number for run in begun if (number := _number(run, inventory.name)) is not None]
    return f"{inventory.name}-{max(numbers, default=0) + 1}"


def refuse_damaged(runs: Path, run: KnownRun) -> None:
    """Raise JournalError if a run's journal cannot be read, because its changes are then unknown."""
    lost = run.damaged
    if lost is None:
        return
    away = f"Or look at what this run has changed, then move {runs / run.run} out of {runs}."
    if isinstance(lost, LostJournalError):
        raise LostJournalError(run.unreadable, lost.run, lost.place, away)
    raise JournalError(f"{run.unreadable}. {away}")


def other_open_runs(runs: Path, inventory: Inventory, playbook: Playbook) -> tuple[str, ...]:
    """Return a remark on each open run of this inventory and another playbook."""
    return tuple(
        f"run {run.run} of {run.history.playbook} is open as well{_not_undone(run)}"
        for run in runs_of(runs, inventory)
        if not run.is_of(playbook) and run.is_open(playbook)
    )


def _not_undone(run: KnownRun) -> str:
    lines = not_undone_lines(run.history.not_undone())
    return f"; not undone: {'; '.join(lines)}" if lines else ""


def not_undone_lines(stands: Iterable[NotUndone]) -> list[str]:
    """Return a line for each step with changes that are not undone: their number and where they are."""
    by_step: dict[str, list[NotUndone]] = {}
    for one in stands:
        by_step.setdefault(one.step, []).append(one)
    return [_of_step(step, found) for step, found in by_step.items()]


def _of_step(step: str, found: list[NotUndone]) -> str:
    number = sum(one.changes for one in found)
    names = [f"cluster {one.where}" if one.cluster else one.where for one in found]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{step}: {number} change{'s' * (number != 1)} on {', '.join(names[:_NAMED])}{more}"


def past_first_gate(runs: Path, inventory: Inventory, playbook: Playbook) -> tuple[KnownRun, str] | None:
    """Return the open run whose changes make the first gate's checks obsolete, and those changes as text.

    The text comes from ``Stage.outdates``. Raises JournalError if a journal of this playbook is damaged.
    """
    known = runs_of(runs, inventory)
    for run in known:
        if run.is_of(playbook):
            refuse_damaged(runs, run)
    found = [
        (run, stage.outdates)
        for run in known
        if run.is_open(playbook)
        for stage in playbook.stages
        if stage.outdates and run.history.touched_in(stage.id)
    ]
    return found[-1] if found else None


def gate_ahead(run: KnownRun, playbook: Playbook) -> Stage:
    """Return the next gate after the first that a run has not passed. Raises UsageError if there is none."""
    for stage in playbook.gates[1:]:
        if stage.id not in run.history.stages_done:
            return stage
    after = "".join(f", or preflight --stage {stage.id}" for stage in playbook.looks)
    raise UsageError(
        f"run {run.run} has passed every gate ({state_of(run.history, playbook).where}). Next: "
        f"zkmigrate status, resume{after}"
    )


def copy_path(run: str) -> str:
    """Return where a witness keeps its copy of a run's journal."""
    return f"{zkm_host.run_dir(run)}/{journal.NAME}"


def known_ids(runs: Path) -> list[str]:
    """Return the ids of the runs that have begun, the newest last."""
    begun = [path for path in runs.iterdir() if is_id(path.name) and has_begun(path)] if runs.is_dir() else []
    return [path.name for path in sorted(begun, key=lambda path: path.stat().st_mtime)]


def has_begun(run_dir: Path) -> bool:
    """Return whether the run has, or had, a journal.

    A run that was refused leaves a directory without a journal and without the mark of a begun run.
    """
    return (run_dir / journal.NAME).exists() or (run_dir / journal.BEGUN).exists()


def mark_begun(run_dir: Path) -> None:
    """Create the file beside the journal that marks the run as begun, by which lost lines are noticed."""
    (run_dir / journal.BEGUN).touch(mode=0o600)


def is_id(run: str) -> bool:
    return _ID.fullmatch(run) is not None


def directory(runs: Path, run: str) -> Path:
    """Return the directory of a run. Raises UsageError unless the id matches ``[a-z0-9][a-z0-9-]{0,23}``."""
    if not is_id(run):
        raise UsageError(f"run id {run!r} is invalid; needed: 1 to 24 of a-z, 0-9 and -, not - first")
    return runs / run


def state_of(history: History, playbook: Playbook) -> RunState:
    """Return the state of a run, as its history shows it."""
    position = history.next(playbook)
    if isinstance(position, Next):
        return RunState("open", f"at {position.id}, {position.way.value}")
    if isinstance(position, Arrived) and position.turn is None:
        return RunState("complete", "at the end")
    if history.way is Way.BACK and not history.begun:
        return RunState("back", "back at the beginning")
    return RunState("open", f"back at the start of {history.turn.to}" if history.turn else "between stages")


def applied_by(runs: Path, plan: str) -> str:
    """Return the run that began with this plan, else an empty string.

    plan: the plan's digest. Raises JournalError for a damaged journal.
    """
    for journal_file in sorted(runs.glob(f"*/{journal.NAME}")):
        history = journal.read(journal_file.parent)
        if history.plan == plan:
            return history.run
    return ""


def refuse_applied(runs: Path, plan: str, but: str = "") -> None:
    """Raise StaleError if a run other than ``but`` began with this plan. plan: its digest."""
    run = applied_by(runs, plan)
    if run not in ("", but):
        raise StaleError(
            f"run {run} has applied the plan {plan[:12]} already; needed: a plan that no run has applied. "
            f"Next: resume or rollback with --run-id {run}, or plan again"
        )


def plan_comes_late(history: History, plan: str) -> StaleError:
    """Return the error for a plan given to a run that has changed hosts. plan: its digest."""
    seen = "this plan" if history.plan == plan else f"plan {history.plan[:12]}"
    return StaleError(
        f"run {history.run} was begun with {seen} and has changed hosts since; a plan is for a run that "
        f"begins. Next: the same command without --plan continues run {history.run}"
    )


def check_same(history: History, playbook: str, inventory: str) -> None:
    """Raise StaleError if a run would continue with another playbook or inventory.

    inventory: its digest.
    """
    for what, seen, needed in (
        ("playbook", playbook, history.playbook),
        ("inventory", inventory[:12], history.inventory[:12]),
    ):
        if seen != needed:
            raise StaleError(
                f"run {history.run} was begun with {what} {needed}, this is {seen}, and hosts have been "
                f"changed since. Next: use the {what} that the run began with; or roll back with it, and "
                f"begin a new run with this {what}"
            )


def is_same(history: History, playbook: str, inventory: str) -> bool:
    """Return whether a run began with this playbook and inventory. inventory: its digest."""
    return (history.playbook, history.inventory) == (playbook, inventory)


def make(run_dir: Path) -> None:
    """Create the private directory of a run, and its parents. Raises UsageError if that fails."""
    try:
        run_dir.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        run_dir.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"the run directory {run_dir} cannot be created ({error.strerror}: {error.filename}); nothing "
            "was changed. Next: fix that, or name another directory for runs in ZKMIGRATE_RUNS"
        ) from None


def remove_empty(run_dir: Path) -> None:
    """Remove the directory of a run that was refused before it began, if it is empty."""
    with contextlib.suppress(OSError):
        run_dir.rmdir()
