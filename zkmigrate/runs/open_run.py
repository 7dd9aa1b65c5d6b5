"""The journal of a run as a verb needs it: begun, opened and compared with what is asked, or recovered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from zkmigrate.engine import journal as journals
from zkmigrate.engine import lost_journal, plan, planfile, runs
from zkmigrate.engine.history import History
from zkmigrate.engine.journal import Journal
from zkmigrate.engine.planfile import PlanFile
from zkmigrate.errors import HostError, JournalError, UsageError, ZkmigrateError
from zkmigrate.inventory import inventory as inventories
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.model.look import Look
from zkmigrate.model.playbook import Playbook
from zkmigrate.model.step import Way
from zkmigrate.ui.run_files import keep_plan

_COPY_LIMIT = 1 << 28
"""Bytes of a copy of the journal that are read: a look at a file takes far fewer."""


@dataclass(frozen=True)
class Opened:
    """An open journal. back_to: where a way back that is asked for leads. said: remarks for the operator."""

    journal: Journal
    back_to: str = ""
    said: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opening:
    """What it takes to open the journal of one run. wall: seconds since the epoch."""

    run_dir: Path
    playbook: Playbook
    inventory: Inventory
    look: Look
    wall: Callable[[], float]

    def opened(self, window_lines: Callable[[], tuple[str, ...]], wanted: PlanFile | None = None) -> Opened:
        """The journal of a run that has begun. JournalError; StaleError when it was begun with another
        inventory or playbook, and has changed hosts since. Where it has not, it is begun again with these.

        window_lines: what the plan says of the window, asked for only where the run is begun again. wanted:
        the plan to begin it again with, as for ``begun``; StaleError when it has changed hosts.
        """
        journal = Journal.open(self.run_dir, self.wall)
        if journal.history.lost and not journal.history.rebuilt:
            journal.close()
            raise JournalError(
                f"the journal of {self.run_dir.name} was lost, and what the hosts say is not in it yet. "
                "Next: resume --journal-lost forward|back again"
            )
        history, digest = journal.history, inventories.digest(self.inventory)
        same = runs.is_same(history, self.playbook.id, digest)
        if wanted is None and (not history.run or history.binds or same):
            return Opened(self._checked(journal))
        try:
            if wanted is not None and history.binds:
                raise runs.plan_comes_late(history, wanted.digest)
            made = self._made(window_lines(), wanted)
        except ZkmigrateError:
            journal.close()
            raise
        self._begin(journal, made.digest)
        keep_plan(self.run_dir, made)
        said = "begun again with this inventory and playbook: nothing had been changed on any host"
        journal.append("note", {"text": said})
        return Opened(journal, said=(said, *_given(journal, wanted)))

    def begun(self, window_lines: tuple[str, ...], wanted: PlanFile | None) -> Opened:
        """A new journal with the plan of now. wanted: the plan it must be, if any; StaleError when it is not,
        or when another run was begun with it."""
        made = self._made(window_lines, wanted)
        journal = Journal.create(self.run_dir, self.wall)
        self._begin(journal, made.digest)
        runs.mark_begun(self.run_dir)
        keep_plan(self.run_dir, made)
        return Opened(self._checked(journal), said=_given(journal, wanted))

    def _made(self, window_lines: tuple[str, ...], wanted: PlanFile | None) -> PlanFile:
        """The plan to begin with: the one that was given, where it still holds; else that of now."""
        made = planfile.from_plan(plan.make(self.playbook, self.inventory, self.look, window_lines))
        if wanted is not None:
            refuse_stale(wanted, planfile.differences(wanted, made))
            # Once more, now that the hosts have answered: another run may have begun with it since.
            runs.refuse_applied(self.run_dir.parent, wanted.digest, but=self.run_dir.name)
        return wanted or made

    def recovered(self, asked: Way, by: str) -> Opened:
        """A journal from the lines that are left and what the hosts say; the direction is ``asked`` for.

        With nothing written: JournalError where hosts cannot tell all that the playbook does; HostError when
        a host does not tell what was done on it; UsageError when neither a line, nor a host, nor this machine
        knows of the run.
        """
        self._refuse_untold()
        copies = tuple(
            filter(None, self.look.each(self.playbook.witnesses(self.inventory), self._copy).values())
        )
        left = journals.folded(journals.kept_lines(self.run_dir, copies))
        if left.run:
            runs.check_same(left, self.playbook.id, inventories.digest(self.inventory))
        run = self.run_dir.name
        found = lost_journal.ask_hosts(left, self.playbook, self.inventory, self.look, run)
        if not (left.run or found.operations or found.stages or runs.has_begun(self.run_dir)):
            raise UsageError(
                f"nothing tells of a run {run}: no journal here, no copy of one, no change of its on any "
                "host. Next: --run-id of the run that is meant; or zkmigrate run begins one"
            )
        journal = Journal.recover(self.run_dir, self.wall, copies=copies)
        if not journal.history.run:
            self._begin(journal, "")
        text = (
            f"without the whole journal: {left.entries} lines of it are left, the hosts tell of "
            f"{len(found.operations)} changes that stand; going {asked.value}, as {by} asks"
        )
        said = [text]
        if left.way is Way.BACK:
            why = (
                f"asked by {by}: --journal-lost {asked.value}; the lines that are left said {_heading(left)}"
            )
            journal.append("turn", {"way": Way.FORWARD.value, "why": why, "kept": [], "by": by})
            said.append(f"turned: {why}")
        journal.append("found", found.body(text))
        # Where the lines are the newest word there is, the way back that was begun is the one to finish.
        same = left.way is Way.BACK and left.turn is not None and left.turn.then == "end" and not found.newer
        return Opened(self._checked(journal), left.turn.to if same and left.turn else "", tuple(said))

    def _refuse_untold(self) -> None:
        if self.playbook.tells_all(self.inventory):
            return
        why, copies = "no host keeps a record of a run", ""
        if self.playbook.witnesses(self.inventory):
            why = "only the journal knows what a cluster held before"
            copies = f", or the newest copy that the {self.playbook.many_witnesses} keep,"
        raise JournalError(
            f"a run of {self.playbook.id} does not go on without its journal: {why}. Nothing was changed. "
            f"Next: put the journal of {self.run_dir.name}{copies} at "
            f"{self.run_dir / journals.NAME}, then resume without --journal-lost"
        )

    def _copy(self, host: str) -> bytes:
        """The copy of the journal there; nothing where there is none, or the host does not answer."""
        try:
            return self.look.reader(host, runs.copy_path(self.run_dir.name)).read(0, _COPY_LIMIT)
        except HostError:
            return b""

    def _begin(self, journal: Journal, made: str) -> None:
        digest = inventories.digest(self.inventory)
        names = {"run": self.run_dir.name, "name": self.inventory.name, "playbook": self.playbook.id}
        hosts = {part: list(names) for part, names in self.playbook.hosts(self.inventory).items()}
        journal.append("begin", {**names, "inventory": digest, "plan": made, "hosts": hosts})

    def _checked(self, journal: Journal) -> Journal:
        if not journal.history.run:  # died before its first line was whole
            self._begin(journal, "")
        runs.check_same(journal.history, self.playbook.id, inventories.digest(self.inventory))
        return journal


def _heading(left: History) -> str:
    """The direction of a run that was on its way back."""
    if left.turn is None or not left.turn.to:
        return "back to the beginning"
    return f"back to the start of {left.turn.to} ({left.turn.why})"


def refuse_stale(wanted: PlanFile, differs: tuple[str, ...]) -> None:
    """StaleError when there are differences between a plan and what would be done now."""
    if differs:
        raise runs.StaleError(
            f"the plan {wanted.digest[:12]} is stale: {planfile.summary(differs)}; needed: what was planned "
            "is still what would be done. Next: plan again, compare, and run that"
        )


def _given(journal: Journal, wanted: PlanFile | None) -> tuple[str, ...]:
    """Journals that the plan was given, and found to hold."""
    if wanted is None:
        return ()
    said = f"the plan {wanted.digest[:12]} that was given still holds"
    journal.append("note", {"text": said})
    return (said,)
