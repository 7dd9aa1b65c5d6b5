"""Send changes to target, the cluster to which topics are mirrored."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from zkmigrate import deadline
from zkmigrate.errors import HostError, UsageError
from zkmigrate.kafka.error_text import describe_error
from zkmigrate.kafka.rights import Acl
from zkmigrate.runbook.model.change import ClusterChange
from zkmigrate.runbook.model.finding import few
from zkmigrate.runbook.model.look import Look
from zkmigrate.topics.mirror.changes import AlterAcls, CopyOffsets, SetDirection
from zkmigrate.topics.mirror.clients import groups, rights
from zkmigrate.topics.mirror.clients.cluster import REQUEST_S, Cluster
from zkmigrate.topics.mirror.clients.owners import owned
from zkmigrate.topics.mirror.clients.pair import Pair
from zkmigrate.topics.mirror.questions import ClusterAt
from zkmigrate.topics.mirror.rules.commits import INACTIVE, standing, to_commit
from zkmigrate.topics.mirror.rules.direction import Lead, leaders
from zkmigrate.topics.mirror.rules.outcome import Again, outcome
from zkmigrate.topics.mirror.rules.position import Ends

_AGAIN_S = 0.1
"""Seconds between two attempts while target's coordinators are not ready."""


class Mirroring(Protocol):
    """An inventory with two clusters.

    ends: the addresses of source and of target.
    """

    @property
    def ends(self) -> tuple[ClusterAt, ClusterAt]: ...


def alterer(inventory: Mirroring, _look: Look) -> Alter:
    """Return the sender of changes to the inventory's target."""
    return Alter(inventory)


class Alter:
    """A sender of changes to mirrored clusters.

    It connects to both clusters at the first change, and keeps the connections.
    """

    def __init__(self, inventory: Mirroring) -> None:
        self._inventory = inventory
        self._guard = threading.Lock()
        self._pair: Pair | None = None

    def __call__(self, change: ClusterChange) -> tuple[int, str]:
        """Send one change, and return an exit code and a text.

        The exit code is 0 if the change was made; the text then says what was done. It is 1 if nothing was
        done; the text then says why. Raises HostError if the outcome is unknown.
        """
        if not isinstance(change, CopyOffsets | AlterAcls | SetDirection):
            return 1, f"nothing was sent: {change.describe()} is not a change of a mirrored cluster"
        with self._guard:
            pair = self._pair = self._pair or Pair(*self._inventory.ends)
        try:
            with pair.clusters() as (here, there):
                if isinstance(change, SetDirection):
                    return set_direction(here, there, change)
                if isinstance(change, AlterAcls):
                    return alter_acls(there, change)
                return copy_offsets(here, there, change)
        except UsageError as error:
            return 1, f"nothing was sent: {error}"

    def close(self) -> None:
        if self._pair is not None:
            self._pair.close()


def alter_acls(target: Cluster, change: AlterAcls) -> tuple[int, str]:
    """Add ACLs to target, or delete ACLs from target.

    Returns the exit code 0 and a text that says what was done. Raises HostError if Kafka refuses one ACL,
    because others may have been changed.
    """
    (rights.grant if change.action == "grant" else rights.revoke)(target, [Acl(*one) for one in change.acls])
    return 0, f"{change.action} on target: {len(change.acls)} ACLs"


def set_direction(source: Cluster, target: Cluster, change: SetDirection) -> tuple[int, str]:
    """Record on both clusters where copiers may write.

    The cluster where copiers must stop writing is changed first. If clients now write to target, the former
    copiers to target also lose the transactional ids of their partitions. Returns the exit code 0 and what
    was done, or 1 and why it was refused. Raises HostError if the outcome is unknown.
    """
    sides, ids = (source, target), (source.id(), target.id())
    for side in sides:
        told = side.leads.told(change.topics, side.leads.ask(change.topics))
        if newer := [topic for topic, one in told.items() if one.number > change.number]:
            return 1, (
                f"nothing was sent: {side.what} has recorded the number {told[newer[0]].number} of a newer "
                f"run for topic {newer[0]}, and this run has {change.number}"
            )
    for number, leader in leaders(change.copies, ids):
        sides[number].leads.keep(dict.fromkeys(change.topics, Lead(leader, change.number)))
    if change.copies == "backward" and (left := _not_taken(target, change.topics)):
        return (
            1,
            f"target's former copiers still own transactional ids: {few(left)}. Needed: the right Write "
            "on these ids",
        )
    return 0, f"{change.describe()}, by the run with number {change.number}"


def _not_taken(target: Cluster, topics: Sequence[str]) -> list[str]:
    """Take over the transactional ids of all partitions, so that their former copiers can no longer write.

    Returns the ids that could not be taken over, each with Kafka's error as text.
    """
    led = target.leaders(topics)
    left = {owned((topic, number)): 0 for topic, numbers in led.items() for number in numbers}
    end = time.monotonic() + deadline.remaining(REQUEST_S)
    while left:
        told = target.take(list(left))
        left = {name: one for name, one in told.items() if isinstance(one, int)}
        if time.monotonic() > end or not all(isinstance(outcome(one), Again) for one in left.values()):
            break
        time.sleep(_AGAIN_S)
    return [f"{name}: {describe_error(error)}" for name, error in left.items()]


def copy_offsets(source: Cluster, target: Cluster, change: CopyOffsets) -> tuple[int, str]:
    """Commit on target the offsets that the groups have committed on source.

    An offset beyond the end of target's log is lowered to that end. Nothing is committed unless the offsets
    of every group can be committed. Returns the exit code 0 and what was done, or 1 and why nothing was done.
    Raises HostError if the outcome is unknown.
    """
    read = groups.read(source, target, change.topics, change.groups)
    if read.troubles:
        return _refused(read.troubles)
    if wrong := {
        one.name: standing(one).why for one in read.groups if one.refused or one.state not in INACTIVE
    }:
        return _refused(wrong)
    led = target.leaders(change.topics)
    told = target.ends([(topic, number) for topic, numbers in led.items() for number in numbers])
    ends = {part: one.end for part, one in told.items() if isinstance(one, Ends)}
    if lost := {f"{topic}-{n}" for one in read.groups for topic, n in one.source if (topic, n) not in ends}:
        return 1, f"nothing was sent: target does not report the log ends of {', '.join(sorted(lost))}"
    differing = {one.name: commits for one in read.groups if (commits := to_commit(one, ends))}
    read = _coordinated(target, read)
    if read.troubles:
        return _refused(read.troubles)
    wanted = {name: (read.brokers[name], commits) for name, commits in differing.items()}
    failed = groups.commit(target, wanted)
    if unknown := {name: why for name, why in failed.items() if isinstance(why, HostError)}:
        raise HostError(_by_group(unknown))
    if failed:
        return 1, _by_group(failed)
    offsets = sum(map(len, differing.values()))
    return 0, f"committed on target for {len(differing)} of {len(read.groups)} groups, offsets: {offsets}"


def _coordinated(target: Cluster, read: groups.Read) -> groups.Read:
    """Return the result of a read with the coordinators of its groups on target added.

    The request is repeated for up to ``REQUEST_S`` seconds, because a new cluster does not report its
    coordinators at once.
    """
    end = time.monotonic() + deadline.remaining(REQUEST_S)
    while (touched := groups.touch(target, read)).troubles and time.monotonic() < end:
        time.sleep(_AGAIN_S)
    return touched


def _refused(why: Mapping[str, str]) -> tuple[int, str]:
    return 1, f"nothing was sent: {_by_group(why)}"


def _by_group(why: Mapping[str, object]) -> str:
    return "; ".join(f"group {name}: {text}" for name, text in sorted(why.items()))
