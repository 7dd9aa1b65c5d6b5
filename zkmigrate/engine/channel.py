"""The real apply: host changes as words over each host's held-open channel to zkm-host, cluster changes
through a client of the cluster.

Two host changes go another way: installing the program, and its uninstalling, which ends it. A change is sent
once. When its reply does not come, HostError says that the outcome is unknown; the host's own record answers,
or a look at the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from zkmigrate.hosts.transport.channels import Channels
from zkmigrate.hosts.transport.program import Program
from zkmigrate.model.change import Change, ClusterChange, InstallProgram, Outcome, UninstallProgram

Send: TypeAlias = Callable[[ClusterChange], tuple[int, str]]
"""Sends one change to one cluster: 0 and what came of it, or 1 and why the cluster refused. HostError where
the outcome is not known."""


class Alter(Protocol):
    """Sends changes to one cluster (``Playbook.clusters``)."""

    def __call__(self, change: ClusterChange, /) -> tuple[int, str]:
        """As :data:`Send`."""
        ...

    def close(self) -> None:
        """Close what is held open between changes."""
        ...


class ChannelApply:
    """``apply(change, operation, fencing)`` for the engine; the words come from the change itself."""

    def __init__(
        self,
        channels: Channels,
        program: Program,
        clusters: Mapping[str, Send],
    ) -> None:
        """clusters: by the name that a change has for it."""
        self._channels = channels
        self._program = program
        self._clusters = clusters

    def __call__(self, change: Change, operation: str, fencing: int) -> Outcome:
        """Send one change. HostError when host or cluster did not confirm: then the outcome is unknown."""
        if isinstance(change, ClusterChange):
            alter = self._clusters.get(change.cluster)
            if alter is None:
                known = ", ".join(self._clusters)
                return Outcome(1, f"nothing was sent: {change.cluster} is none of the clusters {known}")
            return Outcome(*alter(change))
        if isinstance(change, InstallProgram):
            return Outcome(0, self._program.install(change.host))
        if isinstance(change, UninstallProgram):
            self._channels.forget(change.host)
            done = self._program.uninstall(change.host, operation, fencing, change.answer_s)
            return Outcome(done.rc, done.text if done.rc == 0 else done.last_line)
        return self._channels.ask(
            change.host,
            change.verb,
            operation,
            *change.arguments(),
            fencing=fencing,
            deadline_s=change.answer_s,
        )
