"""Control on which cluster copiers may write, by records on both clusters and by units on mirror hosts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zkmigrate.runbook.model.change import Applied, Changes, SetService
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Finding, claim, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context
from zkmigrate.topics.mirror.changes import MIRRORED, SetDirection
from zkmigrate.topics.mirror.questions import ReadDirection
from zkmigrate.topics.mirror.rules.direction import Copies, Direction
from zkmigrate.topics.topic_move.facts import Copiers, forward
from zkmigrate.topics.topic_move.rules import cannot_read
from zkmigrate.topics.topic_move.section import switched

DIRECTION = "direction"
"""The name that steps use as target of the change that records where copiers may write."""


def recorded_direction(c: Context, look: Look) -> Reading[Direction]:
    """Return on which clusters copiers may write, as recorded on both clusters."""
    return look.ask(ReadDirection(*forward(c), switched(c.inventory).topics))


def record_direction(c: Context, copies: Copies) -> Changes:
    """Plan a change that records on both clusters where copiers may write."""
    return (SetDirection(MIRRORED, copies, switched(c.inventory).topics, c.fencing),)


def start(found: Copiers, host: str) -> Changes:
    """Plan to start the copier on a host now and at each boot.

    A unit that systemd cannot enable is only started now. found: the state of the copiers.
    """
    told = found.at.get(host)
    at_boot = isinstance(told, Seen) and told.value.unit_file == "disabled"
    enable = (SetService(host, found.unit, "enable"),) if at_boot else ()
    return (*enable, SetService(host, found.unit, "start"))


def stop(found: Copiers, host: str) -> Changes:
    """Plan to stop the copier on a host, and to disable its start at boot.

    found: the state of the copiers.
    """
    stopped = () if host in found.down else (SetService(host, found.unit, "stop"),)
    return (*stopped, *((SetService(host, found.unit, "disable"),) if host in found.enabled else ()))


def start_again(found: Copiers, host: str, applied: Iterable[Applied]) -> Changes:
    """Plan to undo the changes of ``stop`` on a host.

    applied: the changes that were sent.
    """
    sent = [one.change.action for one in applied if isinstance(one.change, SetService)]
    enable = (SetService(host, found.unit, "enable"),) if "disable" in sent else ()
    return (*enable, SetService(host, found.unit, "start"))


def check_direction(c: Context, reading: Reading[Direction]) -> Iterator[Finding]:
    """Check that a switch may begin: source leads the topics, and no newer run has recorded otherwise."""
    if not isinstance(reading, Seen):
        yield cannot_read("the recorded direction of the mirror", reading)
        return
    found = reading.value
    yield claim(
        "switch.direction",
        "no cluster has recorded that copiers may write anywhere but on target",
        found.copies in ("", "forward"),
        seen=found.words,
        needed="copiers that may write on target, and not on source",
    )
    if c.fencing:
        yield claim(
            "switch.direction-newer",
            "no newer run has recorded a direction",
            found.number <= c.fencing,
            seen=f"number {found.number}; this run has {c.fencing}",
            needed="a number of this run that is the highest",
        )


MEANINGS = meanings(
    """
    switch.direction: The clusters have recorded that copiers may not write on target. Cause: Clients use
    target already, or an earlier run was not ended. To do: Look at zkmigrate mirror status. Roll back or end
    the run that recorded it. If clients use target, exchange topic_move.source and target.

    switch.direction-newer: The clusters have recorded the number of a newer run. Cause: Another run is
    active, or the mirror hosts have lost their numbers. To do: End the other run. If there is none, for
    instance because zkm-host was removed, delete the consumer group zkmigrate-mirror on both clusters.
    """
)
