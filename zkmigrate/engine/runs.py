"""Run directories on the operator's machine: ``<base>/<run>/`` with the journal.

The base is ``ZKMIGRATE_RUNS``, else ``runs`` in the current directory. A run is named after its inventory,
``<name>-<number>``, unless the operator names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from zkmigrate.engine import journal
from zkmigrate.engine.history import Arrived, History, Next
from zkmigrate.errors import JournalError, UsageError
from zkmigrate.model.playbook import Playbook
from zkmigrate.model.step import Way

_BEGUN = "begun"
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,23}")


class StaleError(UsageError):
    """The plan, inventory or playbook is not the one that the run was begun with."""

    exit_code = 4


@dataclass(frozen=True)
class Standing:
    """Where a run stands: ``complete``, ``back`` at the beginning, or ``open``; where as text."""

    state: str
    where: str


def base(environ: Mapping[str, str]) -> Path:
    """The directory that holds the runs."""
    return Path(environ.get("ZKMIGRATE_RUNS") or "runs")


def named(runs: Path, name: str) -> tuple[str, ...]:
    """Ids of the runs of an inventory, oldest first."""
    found = [p.name for p in runs.glob(f"{name}-*") if re.fullmatch(rf"{re.escape(name)}-\d+", p.name)]
    return tuple(sorted(found, key=lambda run: int(run.rpartition("-")[2])))


def latest(runs: Path, name: str) -> str:
    """The newest run of an inventory; UsageError when there is none."""
    found = tuple(run for run in named(runs, name) if has_begun(runs / run))
    if not found:
        raise UsageError(f"no run of {name} in {runs}. Possible now: zkmigrate run begins one")
    return found[-1]


def fresh(runs: Path, name: str, playbook: Playbook) -> str:
    """Id for a new run; UsageError while an older one of this inventory is still open."""
    found = tuple(run for run in named(runs, name) if has_begun(runs / run))
    for run in found:
        try:
            standing = stand(journal.read(runs / run), playbook)
        except JournalError as error:
            raise JournalError(f"run {run} is not finished and its journal does not read: {error}") from None
        if standing.state == "open":
            raise UsageError(
                f"run {run} is not finished ({standing.where}). Possible now: resume or rollback, "
                f"with --run-id {run}"
            )
    return f"{name}-{int(found[-1].rpartition('-')[2]) + 1 if found else 1}"


def copy_path(run: str) -> str:
    """Where a dest host keeps its copy of a run's journal."""
    return f"/var/lib/zkmigrate/{run}/{journal.NAME}"


def has_begun(run_dir: Path) -> bool:
    """True when the run has, or had, a journal. A directory without either was left by a refusal."""
    return (run_dir / journal.NAME).exists() or (run_dir / _BEGUN).exists()


def mark_begun(run_dir: Path) -> None:
    """Leave a mark beside the journal, so that a journal that is lost is missed."""
    (run_dir / _BEGUN).touch(mode=0o600)


def directory(runs: Path, run: str) -> Path:
    """The directory of a run; UsageError when the id is not ``[a-z0-9-]{1,24}``."""
    if not _ID.fullmatch(run):
        raise UsageError(f"run id {run!r} is not possible; needed: 1 to 24 of a-z, 0-9 and -, not - first")
    return runs / run


def stand(history: History, playbook: Playbook) -> Standing:
    """Where a run stands, from its history."""
    position = history.next(playbook)
    if isinstance(position, Next):
        return Standing("open", f"at {position.id}, {position.way.value}")
    if isinstance(position, Arrived) and position.turn is None:
        return Standing("complete", "at the end")
    if history.way is Way.BACK and not history.begun:
        return Standing("back", "back at the beginning")
    return Standing("open", f"back at the start of {history.turn.to}" if history.turn else "between stages")


def refuse_applied(runs: Path, plan: str) -> None:
    """StaleError when a run was begun with this plan (its digest) already."""
    for journal_file in sorted(runs.glob(f"*/{journal.NAME}")):
        history = journal.read(journal_file.parent)
        if history.plan == plan:
            raise StaleError(
                f"the plan {plan[:12]} was applied by run {history.run}. Possible now: resume or rollback "
                f"with --run-id {history.run}, or plan again"
            )


def check_same(history: History, playbook: str, inventory: str) -> None:
    """StaleError when a run that has changed hosts would go on with another playbook or inventory than it was
    begun with."""
    for what, seen, needed in (
        ("playbook", playbook, history.playbook),
        ("inventory", inventory[:12], history.inventory[:12]),
    ):
        if seen != needed:
            raise StaleError(
                f"run {history.run} was begun with {what} {needed}, this is {seen}, and hosts have been "
                "changed since. Possible now: give the one it was begun with; or roll back with it, then "
                "run with this one"
            )


def is_same(history: History, playbook: str, inventory: str) -> bool:
    """Whether a run was begun with this playbook and inventory (its digest)."""
    return (history.playbook, history.inventory) == (playbook, inventory)


def make(run_dir: Path) -> None:
    """Create the directory of a run, private, and what it lies in; UsageError when that cannot be."""
    try:
        run_dir.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        run_dir.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"the run directory {run_dir} cannot be made ({error.strerror}: {error.filename}); nothing was "
            "changed. Possible now: mend that, or name another place for runs in ZKMIGRATE_RUNS"
        ) from None
