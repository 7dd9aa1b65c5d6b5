"""Begin, open and check, or recover the journal of a run for a verb."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from zkmigrate import deadline
from zkmigrate.errors import HostError, JournalError, LostJournalError, UsageError, ZkmigrateError
from zkmigrate.inventory import inventory as inventories
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.engine import held_copies, lost_journal, plan, planfile, runs
from zkmigrate.runbook.engine import journal as journals
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.engine.planfile import PlanFile
from zkmigrate.runbook.model.look import Look, RandomReader
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.step import Way
from zkmigrate.runbook.ui.run_files import write_plan

T = TypeVar("T")
_COPIES_S = 5.0
"""The most seconds to wait for a host's answer about its copy of the journal."""
_COPY_LIMIT = 1 << 28
"""The most bytes to read of a host's copy of the journal; far more than of other files."""


@dataclass(frozen=True)
class OpenJournal:
    """A journal ready for a walk.

    back_to: the stage or step to which the way back of a recovered journal leads; empty for the beginning.
    remarks: lines to show to the operator.
    """

    journal: Journal
    back_to: str = ""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class JournalOpener:
    """Opens the journal of one run. wall: the clock, seconds since the epoch."""

    run_dir: Path
    playbook: Playbook
    inventory: Inventory
    look: Look
    wall: Callable[[], float]

    def open(
        self, window_lines: Callable[[], tuple[str, ...]], given_plan: PlanFile | None = None
    ) -> OpenJournal:
        """Open the journal of a run that has begun.

        Lines that only the hosts' copies have are added first. If inventory or playbook differ from those of
        the journal, a run that has changed no host begins again.

        window_lines: returns the plan's lines about the window; needed only to begin again. given_plan: the
        plan with which to begin again.

        Raises JournalError if the journal cannot be used or a copy has other lines. Raises StaleError if
        inventory or playbook differ and the run has changed hosts, or if ``given_plan`` comes too late or is
        not valid.
        """
        taken = self._take_from_hosts()
        journal = Journal.open(self.run_dir, self.wall)
        if taken:
            journal.append("note", {"text": taken})
        if journal.history.run not in ("", self.run_dir.name):
            journal.close()
            raise JournalError(
                f"{self.run_dir / journals.NAME} is the journal of run {journal.history.run}; needed: "
                f"the journal of {self.run_dir.name}. Next: put that journal there"
            )
        if journal.history.lost and not journal.history.rebuilt:
            journal.close()
            place = str(self.run_dir / journals.NAME)
            seen = f"the journal {place} was lost, and the hosts' records are not in it yet"
            raise LostJournalError(seen, self.run_dir.name, place)
        history, digest = journal.history, inventories.digest(self.inventory)
        same = runs.is_same(history, self.playbook.id, digest)
        if given_plan is None and (not history.run or history.binds or same):
            return OpenJournal(self._checked(journal), remarks=(taken,) if taken else ())
        try:
            if given_plan is not None and history.binds:
                raise runs.plan_comes_late(history, given_plan.digest)
            plan_now = self._plan(window_lines(), given_plan)
        except ZkmigrateError:
            journal.close()
            raise
        self._write_begin(journal, plan_now.digest)
        write_plan(self.run_dir, plan_now)
        remark = "begun again with this inventory and playbook: no host had been changed"
        journal.append("note", {"text": remark})
        return OpenJournal(journal, remarks=(remark, *_note_given_plan(journal, given_plan)))

    def begin(self, window_lines: tuple[str, ...], given_plan: PlanFile | None) -> OpenJournal:
        """Create the journal of a new run, with its plan.

        given_plan: the plan to begin with; without one a new plan is made. Raises StaleError if the given
        plan differs from a plan made now, or if another run was begun with it. Raises JournalError if a host
        has a copy of a journal of this run.
        """
        if held := [host for host, copy in self._copies(lambda _copy: True).items() if copy]:
            raise JournalError(
                f"a run {self.run_dir.name} has begun elsewhere: {', '.join(held)} has a copy of its "
                "journal, and this machine has no journal. Nothing was changed. Next: pass another --run-id; "
                f"or, to continue that run, put its journal at {self.run_dir / journals.NAME}"
            )
        plan_now = self._plan(window_lines, given_plan)
        journal = Journal.create(self.run_dir, self.wall)
        self._write_begin(journal, plan_now.digest)
        runs.mark_begun(self.run_dir)
        write_plan(self.run_dir, plan_now)
        return OpenJournal(self._checked(journal), remarks=_note_given_plan(journal, given_plan))

    def _plan(self, window_lines: tuple[str, ...], given_plan: PlanFile | None) -> PlanFile:
        """Return the given plan if it is still valid; without one, make a plan."""
        fresh = planfile.from_plan(plan.make(self.playbook, self.inventory, self.look, window_lines))
        if given_plan is not None:
            refuse_stale(given_plan, planfile.differences(given_plan, fresh))
            # Once more, now that the hosts have answered: another run may have begun with it since.
            runs.refuse_applied(self.run_dir.parent, given_plan.digest, but=self.run_dir.name)
        return given_plan or fresh

    def recover(self, way: Way, by: str) -> OpenJournal:
        """Rebuild a lost journal from its remaining lines and from the hosts' own records.

        way: the direction in which the run continues. by: the user who chose the direction.

        Raises JournalError, before anything is written, if the hosts' records are not enough for the
        playbook. Raises HostError if a host does not answer, and UsageError if neither journal, hosts nor
        this machine know the run.
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
                f"there is no trace of a run {run}: this machine has no journal, and no host has a copy or a "
                "change of that run. Next: pass the right --run-id; or zkmigrate run begins a run"
            )
        journal = Journal.recover(self.run_dir, self.wall, copies=copies)
        if not journal.history.run:
            self._write_begin(journal, "")
        text = (
            f"the journal is incomplete: {left.entries} of its lines are left, and the hosts report "
            f"{len(found.operations)} changes that are not undone; the run goes {way.value}, as {by} asks"
        )
        remarks = [text]
        if left.way is Way.BACK:
            why = f"asked by {by}: --journal-lost {way.value}; the remaining lines say {_heading(left)}"
            journal.append("turn", {"way": Way.FORWARD.value, "why": why, "kept": [], "by": by})
            remarks.append(f"turned: {why}")
        journal.append("found", found.body(text))
        # Unless the hosts know something newer, finish the way back that is in the remaining lines.
        same = left.way is Way.BACK and left.turn is not None and left.turn.then == "end" and not found.newer
        back_to = left.turn.to if same and left.turn else ""
        return OpenJournal(self._checked(journal), back_to, tuple(remarks))

    def _refuse_untold(self) -> None:
        if self.playbook.tells_all(self.inventory):
            return
        why, copies = "no host keeps a record of a run", ""
        if self.playbook.witnesses(self.inventory):
            why = "only the journal has the earlier state of a cluster"
            copies = f", or the newest copy that the {self.playbook.many_witnesses} keep,"
        raise JournalError(
            f"a run of {self.playbook.id} cannot continue without its journal: {why}. Nothing was changed. "
            f"Next: put the journal of {self.run_dir.name}{copies} at "
            f"{self.run_dir / journals.NAME}, then resume without --journal-lost. "
            f"Where no copy has all lines, remove {self.run_dir / journals.BEGUN} as well"
        )

    def _take_from_hosts(self) -> str:
        """Append to the journal the lines that only copies have.

        Returns a sentence about what was added; empty if nothing. Raises JournalError if a copy has other
        lines.
        """
        before = journals.content(self.run_dir)
        if not before:  # it is damaged, or its first line was never written
            return ""
        copies = self._copies(lambda copy: held_copies.beyond(before, copy))
        content = held_copies.longest(self.run_dir / journals.NAME, before, copies)
        if content == before:
            return ""
        Journal.extend(self.run_dir, before, content)
        lines = content.count(b"\n") - before.count(b"\n")
        return f"the journal on this machine lacked {lines:,} lines of its copies on hosts; these were added"

    def _copies(self, look: Callable[[RandomReader], T]) -> dict[str, T]:
        """Apply ``look`` to each host's copy of the journal; return the results by host.

        A host without a copy, or that does not answer within ``_COPIES_S``, is left out.
        """
        path, missing = runs.copy_path(self.run_dir.name), object()

        def one(host: str) -> T | object:
            try:
                copy = self.look.reader(host, path)
                return look(copy) if copy.size() else missing
            except HostError:
                return missing

        with deadline.within(_COPIES_S):
            found = self.look.each(self.playbook.witnesses(self.inventory), one)
        return {host: cast("T", copy) for host, copy in found.items() if copy is not missing}

    def _copy(self, host: str) -> bytes:
        """Read a host's copy of the journal; return nothing without a copy or an answer."""
        try:
            return self.look.reader(host, runs.copy_path(self.run_dir.name)).read(0, _COPY_LIMIT)
        except HostError:
            return b""

    def _write_begin(self, journal: Journal, plan_digest: str) -> None:
        digest = inventories.digest(self.inventory)
        names = {"run": self.run_dir.name, "name": self.inventory.name, "playbook": self.playbook.id}
        hosts = {part: list(names) for part, names in self.playbook.hosts(self.inventory).items()}
        journal.append("begin", {**names, "inventory": digest, "plan": plan_digest, "hosts": hosts})

    def _checked(self, journal: Journal) -> Journal:
        if not journal.history.run:  # the process died before the first line was whole
            self._write_begin(journal, "")
        runs.check_same(journal.history, self.playbook.id, inventories.digest(self.inventory))
        return journal


def _heading(left: History) -> str:
    if left.turn is None or not left.turn.to:
        return "back to the beginning"
    return f"back to the start of {left.turn.to} ({left.turn.why})"


def refuse_stale(plan_file: PlanFile, differs: tuple[str, ...]) -> None:
    """Raise StaleError if a plan differs from what would be done now.

    differs: the differences, in words.
    """
    if differs:
        raise runs.StaleError(
            f"the plan {plan_file.digest[:12]} is stale: {planfile.summary(differs)}; needed: a plan "
            "that matches the present state. Next: plan again, compare the plans, and run the new one"
        )


def _note_given_plan(journal: Journal, plan_file: PlanFile | None) -> tuple[str, ...]:
    if plan_file is None:
        return ()
    remark = f"the given plan {plan_file.digest[:12]} is still valid"
    journal.append("note", {"text": remark})
    return (remark,)
