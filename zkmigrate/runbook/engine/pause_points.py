"""Pause the walk where ``--until`` or a hold requests a pause, and journal the holds.

Outside the window the walk holds before a step, and between two waves of it, in either direction, as long as
the hold exists. In the window it holds after a step of the way forward, and never past the deadlines: before
every host is sealed the watch turns back in time; afterwards the walk continues by itself. A rehearsal is
held before it begins, not inside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.engine import events, pause
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.history import Leave, Next
from zkmigrate.runbook.engine.hold_file import Hold
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.engine.pause import Moment, Pause, Spot, Verdict, decide
from zkmigrate.runbook.engine.ports import Answer, Ports
from zkmigrate.runbook.engine.window_walk import Window
from zkmigrate.runbook.model.change import inverses
from zkmigrate.runbook.model.finding import few
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.step import Way
from zkmigrate.runbook.model.window import Trouble

_POLL_S = 0.1
_SAY_S = 60.0
_NAMED = 20
"""How many targets are named; the others are counted."""


class PausePoints:
    """The places at which one walk can pause.

    A hold that was answered at the run's own terminal is removed. until: the place where the walk ends; None
    for the playbook's end.
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
        self.until: Pause | None = None

    def ended(self, at: Next) -> RunEnded | None:
        """Return the end of a walk that ``--until`` ends before a step; None if it goes on."""
        until = self.until
        if until is None or decide(until, self._spot(at), self._ports.clock.wall()) is not Verdict.END:
            return None
        when = f"after {until.name}" if until.at is None else f"at {pause.words(until.at)}"
        return RunEnded(0, f"stopped {when} as asked; zkmigrate resume continues")

    def counts(self, at: Next, targets: tuple[str, ...]) -> bool:
        """Return whether a wave changes targets of its step.

        A wave of the paced step may change other things only, such as the rates of brokers.
        """
        every = self._paced(at)
        return not every or not every.isdisjoint(targets)

    def limited(self, at: Next, targets: tuple[str, ...]) -> tuple[str, ...]:
        """Return as many targets of a wave as may be changed before the hold begins, at least one.

        Only a hold at a number of changed targets limits them.
        """
        hold = self._wanted()
        if hold is None or not hold[1].number or at.way is Way.BACK or self._paced(at).isdisjoint(targets):
            return targets
        return targets[: max(1, hold[1].number - self._changed(at, targets))]

    def notice(self) -> None:
        """Report a new hold and where it takes effect, or that its request has ended; each only once."""
        hold = self._wanted()
        mark = "" if hold is None else hold[0].mark
        if mark == self._noticed:
            return
        self._noticed = mark
        if hold is None:
            self._ports.emit(events.Noted("no hold is requested any more"))
        else:
            self._ports.emit(events.HoldAsked(pause.where(self._playbook, hold[1]), hold[0].words()))

    def before(self, at: Next) -> Answer:
        """Hold before a step as long as a hold is requested there."""
        return self._hold(self._spot(at)) or Answer("go")

    def between(self, at: Next, targets: tuple[str, ...], *, whole: bool) -> Answer | None:
        """Hold before a wave of a step, as in :meth:`before`.

        whole: whether this process has already applied a wave of this step. Return None if the walk did not
        hold; after an answer the step must be observed again.
        """
        hold = self._wanted()
        if hold is None:
            return None
        counts = hold[1].number and self.counts(at, targets)
        spot = self._spot(at, Moment.BETWEEN, self._changed(at, targets) if counts else 0)
        return self._hold(spot, whole=whole)

    def after(self, at: Next) -> Answer:
        """Hold after a step of the window."""
        return self._hold(self._spot(at, Moment.AFTER)) or Answer("go")

    def phase(self) -> str:
        """Return the step of the window after which a hold is requested, or empty."""
        hold = self._wanted()
        return "" if hold is None else hold[1].name.partition(".")[2]

    # --- where the walk is -------------------------------------------------------------------------------

    def _spot(self, at: Next, moment: Moment = Moment.BEFORE, changed: int = 0) -> Spot:
        history = self._journal.history
        return Spot(at, moment, history.entered(at.stage.id), history.done | history.stages_done, changed)

    def _paced(self, at: Next) -> frozenset[str]:
        """Return all targets of the paced step; an empty set at another step."""
        paced = self._playbook.paced
        if paced is None or at.id != paced.step:
            return frozenset()
        return frozenset(paced.targets(self._inventory, self._journal.history.records()))

    def _changed(self, at: Next, wave: tuple[str, ...]) -> int:
        """Return how many targets of the paced step are changed, not counting those of the coming wave."""
        return len(self._paced(at).intersection(self._journal.history.touched(at.id)).difference(wave))

    def _progress(self, at: Next, *, whole: bool) -> str:
        """Return the progress of a step in words; empty before its first target.

        whole: whether the last wave is over. If not, its targets count as begun, because a process may have
        ended inside it.
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

    # --- holding ---------------------------------------------------------------------------------------

    def _hold(self, spot: Spot, *, whole: bool = False) -> Answer | None:
        """Hold if it is requested here, with a journal line when it begins and when it ends.

        whole: as in :meth:`between`. Return None if the walk did not hold.
        """
        hold = self._here(spot)
        if hold is None:
            return None
        progress = "" if spot.moment is Moment.AFTER else self._progress(spot.at, whole=whole)
        place = "after" if spot.moment is Moment.AFTER else "in" if progress else "before"
        self._log(spot.at, "begin", hold, {"place": place, "progress": progress})
        how, by = "left", ""
        try:
            answer, how = self._until_ended(spot, hold, progress)
            if how == "released":
                by = self._ports.holds.released_by()
            elif how == "answered":
                how, by = answer.word, answer.by
            elif hold.at:  # the run goes on past its place
                self._ports.holds.answered()
        except Leave as leave:
            how = "deadline" if any(f.id == Trouble.DEADLINE for f in leave.outcome.findings) else how
            raise
        finally:
            if how in ("go", "back"):
                self._answered.add(hold.mark)
                self._ports.holds.answered()
            if how == "deadline":
                self._run_out.add((hold.mark, spot.at.stage.id))
            left = self._wanted()
            self._noticed = "" if left is None else left[0].mark
            self._log(spot.at, "end", hold, {"how": how, "by": by})
            self._ports.emit(events.HoldEnded(spot.at.id, how, by))
        return answer

    def _until_ended(self, spot: Spot, hold: Hold, progress: str) -> tuple[Answer, str]:
        """Wait until a hold ends. Return the answer, and ``released``, ``answered`` or ``deadline``."""
        at, clock, said = spot.at, self._ports.clock, -math.inf
        inside = spot.moment is Moment.AFTER
        while self._here(spot) is not None:
            self._stop_if_asked()
            if inside:
                holding = self._window.holding(at, hold.words())
                if holding is None:
                    return Answer("go"), "deadline"
                self._ports.emit(holding)
            elif clock.now() - said >= _SAY_S:
                who = hold.words()
                self._ports.emit(events.Holding("", None, before=at.id, who=who, progress=progress))
                said = clock.now()
            answer = self._ports.confirm.hold(at.step.id if inside else at.id)
            if answer is not None:
                # On the way back there is nothing to turn: back means go on.
                on = answer.word == "back" and at.way is Way.BACK
                return (replace(answer, word="go", to="") if on else answer), "answered"
            clock.pause(_POLL_S)
        return Answer("go"), "released"

    def _log(self, at: Next, event: str, hold: Hold, more: Mapping[str, str]) -> None:
        body = {"stage": at.stage.id, "step": at.step.id, "way": at.way.value, "event": event}
        self._journal.append("hold", {**body, "hold": hold.body(), **more})

    # --- what is wanted --------------------------------------------------------------------------------

    def _here(self, spot: Spot) -> Hold | None:
        """Return the hold that makes the walk wait at a place, if any.

        In the window the walk does not wait for an invalid hold, nor for a hold whose deadline has passed.
        """
        wanted = self._wanted()
        if wanted is None:
            return None
        hold, where = wanted
        ignored = hold.wrong or (hold.mark, spot.at.stage.id) in self._run_out
        if spot.moment is Moment.AFTER and ignored:
            return None
        return hold if decide(where, spot, self._ports.clock.wall()) is Verdict.WAIT else None

    def _wanted(self) -> tuple[Hold, Pause] | None:
        """Return the requested hold that has not been answered, and the pause it requests; None without one.

        A hold at a place that this playbook does not have takes effect at the next place, and carries the
        error in ``wrong``.
        """
        hold = self._ports.holds.wanted()
        if hold is None or hold.mark in self._answered:
            return None
        where, wrong = pause.requested(self._playbook, hold)
        return replace(hold, wrong=hold.wrong or wrong), where
