"""Apply: how a change reaches a host or a cluster, and the wave that journals around it.

The real Apply is :class:`zkmigrate.engine.channel.ChannelApply`.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol, TypeAlias

from zkmigrate import deadline
from zkmigrate.engine.codec import encode_change
from zkmigrate.engine.events import ChangeEnded, ChangeSent, Emit
from zkmigrate.engine.history import Next
from zkmigrate.engine.journal import Journal
from zkmigrate.errors import HostError, LockedError, UsageError
from zkmigrate.hosts.parallel import GiveUp, together
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.model.change import Applied, Change, Changes, ClusterChange, Outcome, inverse
from zkmigrate.model.playbook import Playbook
from zkmigrate.model.step import Way

FENCED_OFF = 9
_OUTPUT_KEPT = 4000

Limits: TypeAlias = Callable[[str], tuple[float, float]]
"""``limits(verb)``: seconds that one message of a change with this verb, of a look where it is empty, and all
of it, may take now; infinite outside a window."""


def unlimited(_verb: str) -> tuple[float, float]:
    """Outside a window a change takes as long as its own limit says (``engine/channel.py``)."""
    return math.inf, math.inf


class Apply(Protocol):
    """Send one change. HostError when host or cluster did not confirm: then the outcome is unknown."""

    def __call__(self, change: Change, operation: str, fencing: int) -> Outcome: ...


def operation_id(step: str, target: str, way: Way, leg: int, number: int) -> str:
    """``<stage>.<step>.<target>.<leg>.<n>`` in at most 80 characters; a long target name is shortened.

    Walking back it is ``back<leg>``: without the journal the host's own record must tell what is to be undone
    from what undid it (``hosts/facts/operations.py``).
    """
    ends = f".{'back' if way is Way.BACK else ''}{leg}.{number}"
    if len(step) + len(target) + 1 + len(ends) > 80:
        target = f"{target[:12]}-{hashlib.sha256(target.encode()).hexdigest()[:8]}"
    return f"{step}.{target}{ends}"


class Wave:
    """Applies the plans of several targets at once, the changes of one target in order.

    All intents of the wave are made durable with one fsync before the first change is sent; the outcomes
    with one after the last. A change that fails or stays unknown ends its target's plan: the rest is
    journaled as skipped, and the step looks again. In a window each change has a limit, and targets that
    answered do not wait for one that is late: its change counts as unknown, and nothing more is sent to it.
    """

    def __init__(
        self,
        journal: Journal,
        playbook: Playbook,
        inventory: Inventory,
        apply: Apply,
        emit: Emit,
        now: Callable[[], float],
    ) -> None:
        self._journal = journal
        self._playbook = playbook
        self._inventory = inventory
        self._changed = frozenset(playbook.changed(inventory))
        self._apply = apply
        self._emit = emit
        self._now = now

    def run(
        self, at: Next, plans: Mapping[str, Changes], fencing: int, limits: Limits = unlimited
    ) -> dict[str, str]:
        """Apply and journal; returns how each failed target failed (empty when all is done).

        LockedError when a host fenced this operator off; JournalError when something could not be recorded.
        """
        for changes in plans.values():
            self._refuse(changes)
        leg = self._journal.history.leg + 1
        lanes = {
            target: tuple(
                (operation_id(at.id, target, at.way, leg, number), change)
                for number, change in enumerate(changes, start=1)
            )
            for target, changes in plans.items()
        }
        for target, lane in lanes.items():
            for operation, change in lane:
                self._intend(at, target, leg, operation, change)
        self._journal.sync()
        quick_s, whole_s = limits("")
        end = self._now() + whole_s
        seconds = {change.verb: limits(change.verb)[0] for changes in plans.values() for change in changes}
        walks = {target: _Lane(lane, seconds, end) for target, lane in lanes.items()}
        late = None
        if not math.isinf(quick_s):
            late = GiveUp(quick_s, lambda target: self._left(target, walks[target]), self._now)
        failures = together(
            {target: partial(self._walk, target, lane, fencing) for target, lane in walks.items()}, late
        )
        self._journal.sync()
        for target, failure in failures.items():
            if failure.startswith(f"rc {FENCED_OFF}:"):
                raise LockedError(
                    f"{target} refuses this operator: {failure}. Another operator took the lock with a "
                    "higher fencing number. Possible now: status; or, when the other one is gone, --steal"
                )
        return {target: failure for target, failure in failures.items() if failure}

    def _refuse(self, changes: Changes) -> None:
        """UsageError for what the playbook does not say that it does."""
        for change in changes:
            if not isinstance(change, ClusterChange):
                if change.host not in self._changed:
                    part = next((p for p, names in self._inventory.hosts.items() if change.host in names), "")
                    raise UsageError(
                        f"{part or 'a host that is not in the inventory'} is read-only, refused on "
                        f"{change.host}: {change.describe()}"
                    )
            elif _has_before(change) and self._playbook.tells_all(self._inventory):
                raise UsageError(
                    f"{self._playbook.id} does not say that it alters clusters (alters_clusters), refused on "
                    f"{change.cluster}: {change.describe()}"
                )

    def _intend(self, at: Next, target: str, leg: int, operation: str, change: Change) -> None:
        body = {
            "stage": at.stage.id,
            "step": at.step.id,
            "target": target,
            "way": at.way.value,
            "leg": leg,
            "operation": operation,
            "change": encode_change(change),
            "mono": self._now(),
        }
        self._journal.append("intent", body, sync=False)

    def _walk(self, target: str, lane: _Lane, fencing: int) -> str:
        """The changes of one target in order; returns what the first one that failed said."""
        failure = ""
        for operation, change in lane.changes:
            if failure:
                self._ended(target, lane, operation, "skipped", Outcome(-1))
                continue
            with lane.guard:
                if lane.left:
                    return ""
                lane.sent = operation
            self._emit(ChangeSent(target, operation, change))
            try:
                with deadline.within(lane.seconds[change.verb], lane.end - self._now(), self._now):
                    outcome = self._apply(change, operation, fencing)
            except HostError as error:
                failure = f"not confirmed: {error}"
                self._ended(target, lane, operation, "unknown", Outcome(-1, str(error)))
                continue
            if outcome.rc:
                failure = f"rc {outcome.rc}: {outcome.output.strip()}"
            self._ended(target, lane, operation, "failed" if outcome.rc else "done", outcome)
        return failure

    def _left(self, target: str, lane: _Lane) -> str:
        """Wait no longer for a target: what was sent is unknown, and nothing more is sent to it."""
        said = f"{target}: no answer yet, while most of the others have answered"
        with lane.guard:
            for operation, _ in lane.changes:
                if operation not in lane.ended:
                    status = "unknown" if operation == lane.sent else "skipped"
                    self._ended(target, lane, operation, status, Outcome(-1, said))
            lane.left = True
        return f"not confirmed: {said}"

    def _ended(self, target: str, lane: _Lane, operation: str, status: str, outcome: Outcome) -> None:
        with lane.guard:
            if lane.left:
                return
            lane.ended.add(operation)
            output = outcome.output[-_OUTPUT_KEPT:]
            body = {
                "operation": operation,
                "status": status,
                "rc": outcome.rc,
                "output": output,
                "mono": self._now(),
            }
            self._journal.append("outcome", body, sync=False)
        self._emit(ChangeEnded(target, operation, status, outcome.rc, output))


def _has_before(change: ClusterChange) -> bool:
    """Whether what a cluster held before is needed to take the change back."""
    return inverse(Applied(change, "", confirmed=True)) is not None


class _Lane:
    """The changes of one target of a wave. seconds: what a change with a verb may take. end: by the clock, of
    all of them. left: nobody waits for it any more. sent: the last one sent."""

    def __init__(
        self, changes: tuple[tuple[str, Change], ...], seconds: Mapping[str, float], end: float
    ) -> None:
        self.changes = changes
        self.seconds = seconds
        self.end = end
        self.guard = threading.RLock()
        self.left = False
        self.sent = ""
        self.ended: set[str] = set()
