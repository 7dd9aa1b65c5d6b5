"""Send changes to hosts and clusters, and journal each change before and after it is sent."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from zkmigrate import deadline
from zkmigrate.errors import HostError, LockedError, UsageError
from zkmigrate.hosts.parallel import GiveUp, together
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.engine.codec import encode_change
from zkmigrate.runbook.engine.events import ChangeEnded, ChangeSent, Emit
from zkmigrate.runbook.engine.history import Next
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.engine.step_names import operation_id
from zkmigrate.runbook.model.change import (
    Change,
    Changes,
    ClusterChange,
    InstallProgram,
    Outcome,
    UninstallProgram,
)
from zkmigrate.runbook.model.playbook import Playbook

if TYPE_CHECKING:  # readers of a journal import this module too, on machines without ssh
    from zkmigrate.hosts.transport.channels import Channels
    from zkmigrate.hosts.transport.program import Program

FENCED_OFF = 9
_OUTPUT_KEPT = 4000

Limits: TypeAlias = Callable[[str], tuple[float, float]]
"""``limits(verb)``: seconds for one message of a change with this verb, and seconds for all of the change.

An empty verb means a look. Both are infinite outside a window.
"""


def unlimited(_verb: str) -> tuple[float, float]:
    """Return infinite limits, because outside a window a change has only its own time limit."""
    return math.inf, math.inf


class Apply(Protocol):
    """A function that sends one change. It raises HostError if the outcome is unknown."""

    def __call__(self, change: Change, operation: str, fencing: int) -> Outcome: ...


class Wave:
    """Applies the plans of several targets at once, and the changes of one target in order.

    One fsync makes all intents durable before the first change is sent; one more makes the outcomes durable.
    If a change fails or its outcome is unknown, the rest of its target's plan is journaled as skipped. The
    step then observes its targets again.

    In a window each change has a time limit, and the wave does not wait for a target that is late while most
    others have answered. The outcome of that target's last change is then unknown, and nothing more is sent
    to it.
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
        self._journal, self._playbook, self._inventory = journal, playbook, inventory
        self._changed = frozenset(playbook.changed(inventory))
        self._apply, self._emit, self._now = apply, emit, now

    def run(
        self, at: Next, plans: Mapping[str, Changes], fencing: int, limits: Limits = unlimited
    ) -> dict[str, str]:
        """Send and journal the changes of one wave. Return the reason of each failed target, by target.

        at: the step. plans: the changes of each target. limits: returns the time limits for a verb. Raises
        LockedError if a host refuses this operator's fencing number, and JournalError if something could not
        be recorded.
        """
        for planned in plans.values():
            self._refuse(planned)
        leg = self._journal.history.leg + 1
        numbered = {
            target: tuple(
                (operation_id(at.id, target, at.way, leg, number), change)
                for number, change in enumerate(changes, start=1)
            )
            for target, changes in plans.items()
        }
        for target, changes in numbered.items():
            for operation, change in changes:
                self._intend(at, target, leg, operation, change)
        self._journal.sync()
        quick_s, whole_s = limits("")
        end = self._now() + whole_s
        seconds = {change.verb: limits(change.verb)[0] for planned in plans.values() for change in planned}
        sending = {target: _TargetPlan(changes, seconds, end) for target, changes in numbered.items()}
        late = None
        if not math.isinf(quick_s):
            late = GiveUp(quick_s, lambda target: self._left(target, sending[target]), self._now)
        work = {target: partial(self._send, target, plan, fencing) for target, plan in sending.items()}
        failures = together(work, late)
        self._journal.sync()
        for target, failure in failures.items():
            if failure.startswith(f"rc {FENCED_OFF}:"):
                raise LockedError(
                    f"{target} refuses this operator: {failure}. Another operator took the lock with a "
                    "higher fencing number. Next: zkmigrate status; or pass --steal if that operator's "
                    "process no longer runs"
                )
        return {target: failure for target, failure in failures.items() if failure}

    def _refuse(self, changes: Changes) -> None:
        """Raise UsageError for a change that the playbook does not declare."""
        for change in changes:
            if not isinstance(change, ClusterChange):
                if change.host not in self._changed:
                    part = next((p for p, names in self._inventory.hosts.items() if change.host in names), "")
                    raise UsageError(
                        f"nothing was sent to {change.host}, because "
                        f"{part or 'a host that is not in the inventory'} is read-only: {change.describe()}"
                    )
            elif change.inverse() is not None and self._playbook.tells_all(self._inventory):
                raise UsageError(
                    f"nothing was sent to {change.cluster}, because {self._playbook.id} does not declare "
                    f"alters_clusters: {change.describe()}"
                )

    def _intend(self, at: Next, target: str, leg: int, operation: str, change: Change) -> None:
        where = {"stage": at.stage.id, "step": at.step.id, "target": target, "way": at.way.value, "leg": leg}
        body = {"operation": operation, "change": encode_change(change, pack=True), "mono": self._now()}
        self._journal.append("intent", {**where, **body}, sync=False)

    def _send(self, target: str, plan: _TargetPlan, fencing: int) -> str:
        """Send the changes of one target in order. Return why a change failed, or an empty string."""
        failure = ""
        for operation, change in plan.changes:
            if failure:
                self._ended(target, plan, operation, "skipped", Outcome(-1))
                continue
            with plan.guard:
                if plan.left:
                    return ""
                self._journal.refuse_after_failure()  # another target's answer could not be recorded
                plan.sent = operation
            self._emit(ChangeSent(target, operation, change))
            try:
                with deadline.within(plan.seconds[change.verb], plan.end - self._now(), self._now):
                    outcome = self._apply(change, operation, fencing)
            except HostError as error:
                failure = f"not confirmed: {error}"
                self._ended(target, plan, operation, "unknown", Outcome(-1, str(error)))
                continue
            if outcome.rc:
                failure = f"rc {outcome.rc}: {outcome.output.strip()}"
            self._ended(target, plan, operation, "failed" if outcome.rc else "done", outcome)
        return failure

    def _left(self, target: str, plan: _TargetPlan) -> str:
        """Stop waiting for a target: send nothing more to it, and record its sent change as unknown."""
        said = f"{target}: no answer yet, although most other targets have answered"
        with plan.guard:
            for operation, _ in plan.changes:
                if operation not in plan.ended:
                    status = "unknown" if operation == plan.sent else "skipped"
                    self._ended(target, plan, operation, status, Outcome(-1, said))
            plan.left = True
        return f"not confirmed: {said}"

    def _ended(self, target: str, plan: _TargetPlan, operation: str, status: str, outcome: Outcome) -> None:
        with plan.guard:
            if plan.left:
                return
            plan.ended.add(operation)
            output = outcome.output[-_OUTPUT_KEPT:]
            body = {"operation": operation, "status": status, "rc": outcome.rc, "output": output}
            self._journal.append("outcome", {**body, "mono": self._now()}, sync=False)
        self._emit(ChangeEnded(target, operation, status, outcome.rc, output))


@dataclass
class _TargetPlan:
    """The changes of one target of a wave, with their operation ids.

    seconds: the time limit of one change by its verb. end: the time at which all changes must be over, by the
    engine's clock. left: whether the wave has stopped waiting for this target. sent: the operation id of the
    change sent last.
    """

    changes: tuple[tuple[str, Change], ...]
    seconds: Mapping[str, float]
    end: float
    left: bool = False
    sent: str = ""
    ended: set[str] = field(default_factory=set)
    guard: threading.RLock = field(default_factory=threading.RLock)


Send: TypeAlias = Callable[[ClusterChange], tuple[int, str]]
"""Sends one change to one cluster. Returns 0 and the result, or 1 and why the cluster refused.

Raises HostError if the outcome is unknown.
"""


class Alter(Protocol):
    """A callable that sends changes to one cluster of ``Playbook.clusters``."""

    def __call__(self, change: ClusterChange, /) -> tuple[int, str]:
        """Send one change. Return 0 and the result, or 1 and why the cluster refused it.

        Raises HostError if the outcome is unknown.
        """

    def close(self) -> None:
        """Close the connections that stay open between changes."""


class ChannelApply:
    """Sends changes to real hosts and clusters.

    A change of a host goes over an open channel to zkm-host, except that ``program`` installs and uninstalls
    zkm-host itself. A change of a cluster goes through the client of that cluster. Each change is sent once.
    Without a reply its outcome is unknown until the host's own record, or the state of the cluster, shows it.

    clusters: the sender of each cluster, by the cluster's name in a change. others: the channels to programs
    other than zkm-host, by the channel's name in a change. machine: returns all hosts on a host's machine.
    """

    def __init__(
        self,
        channels: Channels,
        program: Program,
        clusters: Mapping[str, Send],
        others: Mapping[str, Channels] | None = None,
        machine: Callable[[str], Iterable[str]] = lambda host: (host,),
    ) -> None:
        self._machine = machine
        self._channels = channels
        self._others = others or {}
        self._program = program
        self._clusters = clusters

    def __call__(self, change: Change, operation: str, fencing: int) -> Outcome:
        if isinstance(change, ClusterChange):
            alter = self._clusters.get(change.cluster)
            if alter is None:
                known = ", ".join(self._clusters)
                return Outcome(
                    1, f"nothing was sent: unknown cluster {change.cluster}; needed: one of {known}"
                )
            return Outcome(*alter(change))
        if isinstance(change, InstallProgram):
            return Outcome(0, self._program.install(change.host, change.path, change.policy))
        if isinstance(change, UninstallProgram):
            for host in self._machine(change.host):  # what they hold is that of a program that goes
                self._channels.forget(host)
                self._program.forget(host)
            done = self._program.uninstall(change.host, operation, fencing, change.answer_s)
            return Outcome(done.rc, done.text if done.rc == 0 else done.last_line)
        channels = self._others.get(change.channel) if change.channel else self._channels
        if channels is None:
            return Outcome(1, f"nothing was sent to {change.host}: the inventory names no {change.channel}")
        return channels.ask(
            change.host,
            change.verb,
            operation,
            *change.arguments(),
            fencing=fencing,
            deadline_s=change.answer_s,
        )
