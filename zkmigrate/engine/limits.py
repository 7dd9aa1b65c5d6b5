"""How long a step may wait, and how often it may try the same: the engine's bounds on its own loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zkmigrate.model.change import Changes, ClusterChange
from zkmigrate.model.finding import Finding, Held, meanings
from zkmigrate.model.step import Blocked, Waiting

TRIES = 3


class Patience:
    """State of one visit to one step.

    It counts on the clock that nobody sets, from this process's own looks: a process that resumes gives the
    full time again. A wait stands still from one look that it waits after to the next that finds the same
    mark: neither a wave nor an operator's hold counts. Where the process itself was stopped in between, that
    time counts too: the mark was the same at both ends of it.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._what = ""
        self._since = 0.0
        self._looked: float | None = None
        self._still: dict[str, tuple[object, float]] = {}
        self._tries: dict[str, tuple[Changes, int]] = {}
        self._said: dict[str, str] = {}

    def left(self, waiting: Waiting) -> float:
        """Seconds until this wait counts as failed: its deadline runs from the first of the same ``what``,
        and between two movements of its mark it may stand still for ``stalled_s``."""
        now = self._now()
        if waiting.what != self._what:
            self._what, self._since = waiting.what, now
        still_s = 0.0
        if waiting.what in self._still and self._still[waiting.what][0] == waiting.mark:
            still_s = self._still[waiting.what][1] + (0.0 if self._looked is None else now - self._looked)
        self._looked, self._still[waiting.what] = now, (waiting.mark, still_s)
        return min(waiting.deadline_s - (now - self._since), waiting.stalled_s - still_s)

    def ready(self) -> None:
        """The step has something to do: whatever it waits for after that, it waits for anew."""
        self._what, self._looked = "", None

    def overdue(self, waiting: Waiting, *, back: bool) -> Blocked:
        """The refusal that a wait becomes that is past its deadline, or stands still. back: there is a way
        back."""
        claim, seen = f"{waiting.what} within {waiting.deadline_s:g} s", waiting.progress
        _, still_s = self._still.get(waiting.what, (None, 0.0))
        if still_s >= waiting.stalled_s:
            claim = f"{waiting.what}: progress every {waiting.stalled_s:g} s"
            seen = f"{seen}; no progress for {still_s:.0f} s"
        return Blocked(
            (
                Finding(
                    id="engine.wait-over",
                    claim=claim,
                    held=Held.NO,
                    seen=seen,
                    needed=waiting.what,
                    moves=("find out why it takes so long, then resume", *(("rollback",) if back else ())),
                ),
            )
        )

    def count(self, plans: Mapping[str, Changes]) -> int:
        """Note a wave about to be sent: how often in a row a target got the very same changes before."""
        before = {t: n for t, (changes, n) in self._tries.items() if plans.get(t) == changes}
        self._tries = {t: (changes, before.get(t, 0) + 1) for t, changes in plans.items()}
        return max(before.values(), default=0)

    def note(self, failures: Mapping[str, str]) -> None:
        """Remember what the targets of the last wave said."""
        self._said = dict(failures)

    def exhausted(self, plans: Mapping[str, Changes], *, back: bool) -> Blocked:
        """The refusal after the same changes were sent ``TRIES`` times in a row without getting anywhere.
        back: there is a way back."""
        stuck = [t for t, (changes, n) in self._tries.items() if n > TRIES and plans.get(t) == changes]
        return Blocked(
            tuple(
                Finding(
                    id="engine.no-progress",
                    claim="a change brings its target forward",
                    held=Held.NO,
                    seen=f"the same change {TRIES} times in a row; the last time: "
                    + (self._said.get(target) or "confirmed, yet the step still wants it"),
                    needed="; ".join(change.describe() for change in plans[target]) or "a change to send",
                    moves=(f"mend the {_kind(plans[target])}, then resume", *(("rollback",) if back else ())),
                    target=target,
                )
                for target in stuck
            )
        )


def _kind(changes: Changes) -> str:
    """What the last of these changes touches."""
    return "cluster" if changes and isinstance(changes[-1], ClusterChange) else "host"


MEANINGS = meanings(
    """
    engine.wait-over: A step waited longer than its limit, or saw no progress for too long. Cause: The
    finding says what the step waited for and what it saw last. To do: Find out why it takes so long, then
    resume. Or roll back.

    engine.no-progress: zkmigrate sent the same change several times, and the target did not move. Cause:
    The host refuses the change, or something undoes it. The finding quotes the host's last answer. To do:
    Repair the target, then resume. Or roll back.
    """
)
