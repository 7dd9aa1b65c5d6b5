"""How long a step may wait, and how often it may try the same: the engine's bounds on its own loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zkmigrate.model.change import Changes
from zkmigrate.model.finding import Finding, Held
from zkmigrate.model.step import Blocked, Waiting

TRIES = 3


class Patience:
    """State of one visit to one step."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._what = ""
        self._since = 0.0
        self._tries: dict[str, tuple[Changes, int]] = {}
        self._said: dict[str, str] = {}

    def left(self, waiting: Waiting) -> float:
        """Seconds until this wait counts as failed: its deadline runs from the first of the same ``what``."""
        if waiting.what != self._what:
            self._what, self._since = waiting.what, self._now()
        return waiting.deadline_s - (self._now() - self._since)

    def overdue(self, waiting: Waiting, *, back: bool) -> Blocked:
        """The refusal that a wait past its deadline becomes. back: there is a way back."""
        return Blocked(
            (
                Finding(
                    id="engine.wait-over",
                    claim=f"{waiting.what} within {waiting.deadline_s:g} s",
                    held=Held.NO,
                    seen=waiting.progress,
                    needed=waiting.what,
                    moves=("find out why it takes so long, then resume", *(("rollback",) if back else ())),
                ),
            )
        )

    def count(self, plans: Mapping[str, Changes]) -> int:
        """Note a wave about to be sent: how often in a row a target got the very same changes before."""
        self._what = ""
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
                    moves=("mend the host, then resume", *(("rollback",) if back else ())),
                    target=target,
                )
                for target in stuck
            )
        )
