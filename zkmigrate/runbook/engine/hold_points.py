"""Where a hold makes the walk wait, what ends it, and what is journaled about it.

Outside the window the walk holds before a step, and between two waves of it, in either direction, as long as
the hold exists. In the window it holds only where ``--hold-at`` could, after a step of the way forward, and
never past the deadlines: before every host is sealed the watch turns back in time; afterwards the walk
continues by itself. A rehearsal is held before it begins, not inside.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from zkmigrate.errors import LockedError, UsageError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.engine import events, step_names
from zkmigrate.runbook.engine.history import Leave, Next
from zkmigrate.runbook.engine.hold_file import Hold
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.engine.ports import Answer, Ports
from zkmigrate.runbook.engine.window_walk import Window
from zkmigrate.runbook.model.change import inverses
from zkmigrate.runbook.model.finding import few
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.step import Context, Way
from zkmigrate.runbook.model.window import Trouble

_POLL_S = 0.2
_SAY_S = 60.0
_NAMED = 20
"""How many targets are named; the others are counted."""


class HoldPoints:
    """The places at which one walk can hold.

    It removes a hold that was answered at the run's own terminal.
    """

    def __init__(
        self,
        playbook: Playbook,
        inventory: Inventory,
        journal: Journal,
        window: Window,
        ports: Ports,
        stop_if_asked: Callable[[], None],
    ) -> None:
        self._playbook, self._inventory, self._journal = playbook, inventory, journal
        self._window, self._ports, self._stop_if_asked = window, ports, stop_if_asked
        self._answered: set[str] = set()
        self._run_out: set[tuple[str, str]] = set()
        self._noticed = ""
        self._pause_after = 0

    def pause_after(self, number: int) -> None:
        """Store ``--pause-after`` (0: unused).

        Raises UsageError if the walk cannot hold there: at the last target, or if more have been changed
        already.
        """
        self._pause_after = number
        if not number:
            return
        paced = self._playbook.paced
        if paced is None:
            raise UsageError(f"{self._playbook.id} has no step that pauses. Next: zkmigrate hold")
        history = self._journal.history
        every = paced.targets(self._inventory, history.records())
        changed, of = len(set(history.touched(paced.step)) & set(every)), len(every)
        if of and not changed <= number < of:
            raise UsageError(
                f"cannot pause after {number} of {of} {paced.many}; {changed} have been changed. Next: "
                f"a number from {max(1, changed)} to {of - 1}, or zkmigrate hold"
            )

    def counts(self, at: Next, targets: tuple[str, ...]) -> bool:
        """Return whether a wave changes targets of its step.

        A wave of the paced step may change other things only, such as the rates of brokers.
        """
        paced = self._playbook.paced
        if paced is None or at.id != paced.step:
            return True
        every = set(paced.targets(self._inventory, self._journal.history.records()))
        return not every or not every.isdisjoint(targets)

    def limit_wave(self, at: Next, targets: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
        """Return as many of these targets as ``--pause-after`` still allows, and False.

        If it allows none, write a hold into the hold file and return all targets and True.
        """
        paced = self._playbook.paced
        if not self._pause_after or at.way is Way.BACK or paced is None or at.id != paced.step:
            return targets, False
        if not self.counts(at, targets):
            return targets, False
        history = self._journal.history
        every = set(paced.targets(self._inventory, history.records()))
        left = self._pause_after - len(every.intersection(history.touched(at.id)).difference(targets))
        if left > 0:
            return targets[:left], False
        far = "begun" if paced.told else "moved"  # such a target is done long after its change
        why, by = f"as many {paced.many} have {far}", f"--pause-after {self._pause_after}"
        with contextlib.suppress(LockedError):  # another person holds here already
            self._ports.holds.place(Hold(why=why, by=by, since=self._ports.clock.wall()))
        self._pause_after = 0
        return targets, True

    def notice(self) -> None:
        """Report once that a hold is requested and where it takes effect, or that the request has ended."""
        hold = self._wanted()
        mark = "" if hold is None else hold.mark
        if mark == self._noticed:
            return
        self._noticed = mark
        if hold is None:
            self._ports.emit(events.Noted("nobody asks for a hold any more"))
        else:
            self._ports.emit(events.HoldAsked(step_names.holds(self._playbook, hold.at), hold.words()))

    def before(self, at: Next) -> Answer:
        """Hold before a step as long as a hold is requested there."""
        fresh = at.way is Way.FORWARD and not self._journal.history.entered(at.stage.id)

        def here(hold: Hold) -> bool:
            if at.stage.window and not fresh:
                return False
            named = {at.id} if not at.stage.window else set()
            named |= {at.stage.id} if fresh else set()
            return not hold.at or (at.way is Way.FORWARD and hold.at in named)

        return self._outside(at, here, self._progress(at, whole=False))

    def between(self, at: Next) -> Answer | None:
        """Hold between two waves of a step, as in :meth:`before`.

        Return None if the walk did not hold; after an answer the step must be observed again.
        """
        if at.stage.window or self._here(lambda hold: not hold.at) is None:
            return None
        return self._outside(at, lambda hold: not hold.at, self._progress(at, whole=True))

    def after(self, at: Next, asked_for: bool) -> Answer:
        """Hold after a step of the window.

        asked_for: whether ``--hold-at`` names the step, so that only an answer or a release ends the hold.
        """
        if not at.stage.window or at.stage.rehearsal or at.way is Way.BACK:
            return Answer("go")

        def here(hold: Hold) -> bool:
            over = (hold.mark, at.stage.id) in self._run_out
            return not over and not hold.wrong and hold.at in ("", at.id)

        first = self._here(here)
        if not asked_for and first is None:
            return Answer("go")
        hold = Hold(by="--hold-at", since=self._ports.clock.wall()) if first is None or asked_for else first

        def until() -> tuple[Answer, str]:
            return self._window.hold(
                at, hold, lambda: self._ended(hold, here, asked_for), self._stop_if_asked
            )

        return self._logged(at, hold, until, {"place": "after", "progress": ""})

    def announce_end(self, at: Next, hold_at: str, context: Context) -> None:
        """Report, before a window's question, when the deadline ends the hold of ``--hold-at``.

        With ``--yes`` the hold may get no answer.
        """
        window, ids = at.stage.window, [f"{at.stage.id}.{step.id}" for step in at.stage.steps]
        if window is None or at.way is Way.BACK:
            return
        begins, seals = f"{at.stage.id}.{window.steps.begins}", f"{at.stage.id}.{window.steps.seals}"
        if not {hold_at, begins, seals} <= set(ids):
            return
        if not ids.index(begins) <= ids.index(hold_at) < ids.index(seals):
            return
        left_s, begins = window.deadline_s(context), window.steps.begins.upper()
        when = "within seconds" if math.isinf(left_s) else f"{left_s:.1f} s after {begins}"
        text = (
            f"the hold after {hold_at} ends by itself: the way back must start {when}. Without an "
            "answer by then the run turns back (exit code 7). At the end of input it turns back at once"
        )
        self._ports.emit(events.Noted(text))

    # --- holding ---------------------------------------------------------------------------------------

    def _outside(self, at: Next, here: Callable[[Hold], bool], progress: str) -> Answer:
        hold = self._here(here)
        if hold is None:
            return Answer("go")

        def until_answered() -> tuple[Answer, str]:
            clock, said = self._ports.clock, None
            while not self._ended(hold, here, False):
                self._stop_if_asked()
                if said is None or clock.now() - said >= _SAY_S:
                    who = hold.words()
                    self._ports.emit(events.Holding("", None, before=at.id, who=who, progress=progress))
                    said = clock.now()
                answer = self._ports.confirm.hold(at.id, None, None)
                if answer is not None:
                    # On the way back there is nothing to turn: back means go on.
                    on = answer.word == "back" and at.way is Way.BACK
                    return (replace(answer, word="go", to="") if on else answer), "answered"
                clock.pause(_POLL_S)
            return Answer("go"), "released"

        where = {"place": "in" if progress else "before", "progress": progress}
        return self._logged(at, hold, until_answered, where)

    def _progress(self, at: Next, *, whole: bool) -> str:
        """Return the progress of a step in words; empty before its first target.

        whole: the last wave is over. Otherwise its targets count as begun, because a process may have ended
        inside it.
        """
        history = self._journal.history
        counted = next((c for c in self._playbook.counted if c.step == at.id), None)
        kind = counted.many if counted else "hosts"
        every = self._playbook.changed(self._inventory)
        if counted:
            every = counted.targets(self._inventory, history.records())
        applied = {t: history.applied(at.id, t) for t in history.touched(at.id) if t in every}
        if at.way is Way.BACK:
            left = [target for target, changes in applied.items() if inverses(changes)]
            return f"{len(left)} {kind} still to be put back ({few(left, _NAMED)})" if left else ""
        wave = f".{history.known_leg}"
        begun = [
            t for t, c in applied.items() if not whole and c[-1].operation.rpartition(".")[0].endswith(wave)
        ]
        done = [target for target in applied if target not in begun]
        names = f" ({few(done, _NAMED)})" if done else ""
        more = f", begun: {few(begun, _NAMED)}" if begun else ""
        word = "begun" if counted and counted.told else "done"
        return f"{len(done)} of {len(every)} {kind} {word}{names}{more}" if applied else ""

    def _logged(
        self, at: Next, hold: Hold, until: Callable[[], tuple[Answer, str]], where: Mapping[str, str]
    ) -> Answer:
        """Hold, with a journal line when it begins and when it ends.

        where: before, in or after the step, and its progress.
        """
        self._log(at, "begin", hold, where)
        how, by = "left", ""
        try:
            answer, how = until()
            if how == "released":
                released = self._ports.holds.released()
                by = released.by if released is not None else ""
            elif how == "answered":
                how, by = answer.word, answer.by
        except Leave as leave:
            how = "deadline" if any(f.id == Trouble.DEADLINE for f in leave.outcome.findings) else how
            raise
        finally:
            if hold.mark and how in ("go", "back"):
                self._answered.add(hold.mark)
                self._ports.holds.answered()
            if how == "deadline":
                self._run_out.add((hold.mark, at.stage.id))
            left = self._wanted()
            self._noticed = "" if left is None else left.mark
            self._log(at, "end", hold, {"how": how, "by": by})
            self._ports.emit(events.HoldEnded(at.id, how, by))
        return answer

    def _log(self, at: Next, event: str, hold: Hold, more: Mapping[str, str]) -> None:
        body = {"stage": at.stage.id, "step": at.step.id, "way": at.way.value, "event": event}
        self._journal.append("hold", {**body, "hold": hold.body(), **more})

    # --- what is wanted --------------------------------------------------------------------------------

    def _ended(self, hold: Hold, here: Callable[[Hold], bool], asked_for: bool) -> bool:
        if not asked_for:
            return self._here(here) is None
        released = self._ports.holds.released()
        return released is not None and released.since >= hold.since

    def _here(self, here: Callable[[Hold], bool]) -> Hold | None:
        hold = self._wanted()
        return hold if hold is not None and here(hold) else None

    def _wanted(self) -> Hold | None:
        """Return the requested hold that has not been answered.

        A hold that names no place of this playbook is invalid, and takes effect at the next place.
        """
        hold = self._ports.holds.wanted()
        if hold is None or hold.mark in self._answered:
            return None
        try:
            return replace(hold, at=step_names.place(self._playbook, hold.at))
        except UsageError as error:
            return replace(hold, at="", wrong=hold.wrong or str(error))
