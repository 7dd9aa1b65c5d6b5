"""What: remove the leftovers that the inventory names, one at a time, after a new check of each.

Why now: no reassignment is in flight and the controller did not change. The content of each znode and setting
is recorded before it is removed.

Clients may notice: nothing.

Way back: znodes, settings and directories are restored. A leftover that Kafka would act on is not restored,
nor is one whose topic exists again; the run reports each of these.

Proof: a new check finds none of the named leftovers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from zkmigrate.cluster.leftovers.facts import Scan, scan, section
from zkmigrate.cluster.leftovers.rules import ACTS, Kind, Leftover, kind_of, leftovers, named_leftovers, quiet
from zkmigrate.kafka.rules import znodes
from zkmigrate.runbook.model.change import Applied, Changes, inverses
from zkmigrate.runbook.model.finding import Finding, Severity, blocking, claim, few, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import (
    Blocked,
    Context,
    Done,
    Forecast,
    Hazard,
    Ready,
    Step,
    Verdict,
    Waiting,
    Way,
)
from zkmigrate.runbook.model.step_record import Recorded, known


@dataclass(frozen=True)
class Named(Recorded):
    """The leftovers that a run removes, fixed by its first removal.

    names: each leftover's name in the inventory, by its name in the journal.
    """

    step: ClassVar[str] = "leftovers"

    names: Mapping[str, str]


@dataclass(frozen=True)
class RemoveFacts:
    """The current leftovers.

    found: the leftovers by their names in the journal. scan: the scan that found them.
    """

    found: Mapping[str, Leftover]
    scan: Scan


class RemoveStep(Step[RemoveFacts]):
    id = Named.step
    title = "Remove the named leftovers"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> RemoveFacts:
        found = scan(c, look)
        return RemoveFacts({one.target: one for one in leftovers(c, found)}, found)

    def check(self, c: Context, f: RemoveFacts) -> Verdict:
        if c.way is Way.BACK and not c.unrestored:
            return Done()
        findings = quiet(c, f.scan)
        if wrong := blocking(findings):
            if all(one.id in ("leftovers.answer", "leftovers.controller") for one in wrong):
                limit = c.inventory.policy.step_deadline_s
                return Waiting(
                    "a cluster without reassignments and elections", wrong[0].seen, limit, poll_s=1.0
                )
            return Blocked(wrong)
        return self._check_back(c, f) if c.way is Way.BACK else self._forward(c, f)

    def _names(self, c: Context, f: RemoveFacts) -> Mapping[str, str]:
        """Return the leftovers to remove, by their names in the journal.

        The first removal fixes this list, so a pattern matches no leftover that appears later.
        """
        record = known(Named, c) if c.begun else None
        if record is not None:
            return record.names
        return {one.target: one.name for one in named_leftovers(c, f.found.values())}

    def _forward(self, c: Context, f: RemoveFacts) -> Verdict:
        wanted = section(c)
        names = {
            target: name
            for target, name in self._names(c, f).items()
            if wanted.names(name) or target in c.unrestored
        }
        there = [f.found[target] for target in names if target in f.found]
        record = Named(self._names(c, f)).encode()
        if free := [one.target for one in there if not one.holds]:
            return Ready((free[0],), record=record)
        if there:
            return Blocked(tuple(map(_not_removable, there)))
        gone = [name for target, name in names.items() if target in c.unrestored]
        left = [name for target, name in names.items() if target not in c.unrestored]
        return Done((_removed(gone), _no_longer_leftover(left)), record)

    def _check_back(self, c: Context, f: RemoveFacts) -> Verdict:
        names = {target: self._names(c, f).get(target, target) for target in sorted(c.unrestored)}
        todo = {target: name for target, name in names.items() if not _why_not_restored(name, f)}
        running = {disks.broker.name for disks in f.scan.disks if disks.runs}
        if free := [target for target, name in todo.items() if name.partition(":")[0] not in running]:
            return Ready((free[0],))
        if todo:
            return Blocked(tuple(map(_running, todo.values())))
        kept = [f"{name}: {_why_not_restored(name, f)}" for name in names.values()]
        return Done(
            (
                claim(
                    "leftovers.back",
                    "everything that the run removed is restored",
                    not kept,
                    seen=few(kept) if kept else "every removed leftover is back",
                    needed="every removed leftover, except znodes that Kafka would act on",
                    severity=Severity.WARN,
                ),
            )
        )

    def plan(self, c: Context, f: RemoveFacts, target: str) -> Changes:
        one = f.found.get(target)
        return one.changes if one is not None and not one.holds else ()

    def undo(self, c: Context, f: RemoveFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return inverses(applied)

    def forecast(self, c: Context, look: Look) -> Forecast[RemoveFacts]:
        f = self.observe(c, look)
        return Forecast(f, tuple(target for target in self._names(c, f) if target in f.found))

    def basis(self, c: Context, f: RemoveFacts) -> Mapping[str, str]:
        """Return the leftovers that a consent covers, by their names in the journal.

        Only the names matter: a leftover's content may still change, and is recorded when the leftover is
        removed.
        """
        return dict.fromkeys(self._names(c, f), "a leftover")


def _why_not_restored(name: str, f: RemoveFacts) -> str:
    """Return why a removed leftover is not restored, or an empty string if it is restored."""
    kind = kind_of(name)
    if kind in ACTS:
        return "Kafka would act on this znode"
    topic = znodes.topic_of(name)
    if topic and topic in f.scan.live:
        return f"topic {topic} exists now"
    if kind is Kind.DIRECTORY:
        here = (f"{disks.broker.name}:{one.path}" for disks in f.scan.disks for one in disks.directories)
        return "another directory has the same path" if name in here else ""
    if kind is Kind.THROTTLE:
        what, of, _ = name.split("/")
        if what == "topic" and of not in f.scan.live:
            return f"topic {of} does not exist"
        if name in f.found:
            return "another person or tool has set this setting since"
    return ""


def _not_removable(one: Leftover) -> Finding:
    return claim(
        "leftovers.held",
        "the named leftovers can be removed now",
        False,
        seen=f"{one.name}: {one.holds}",
        needed="a stopped broker, all partitions in sync, and a log directory that is not a mount point",
    )


def _running(name: str) -> Finding:
    broker = name.partition(":")[0]
    return claim(
        "leftovers.held",
        "the directories that were moved can be moved back now",
        False,
        seen=f"{name}: broker {broker} runs",
        needed="a stopped broker",
        moves=(f"stop {broker}, then resume",),
    )


def _removed(names: Sequence[str]) -> Finding:
    return claim(
        "leftovers.removed",
        "the named leftovers do not exist any more",
        True,
        seen=f"{len(names):,}: {few(names)}" if names else "no leftover was named",
    )


def _no_longer_leftover(names: Sequence[str]) -> Finding:
    return claim(
        "leftovers.left",
        "every named leftover was still a leftover just before its removal",
        not names,
        seen=f"not removed, because they are missing or in use again: {few(names)}" if names else "yes",
        severity=Severity.WARN,
    )


MEANINGS = meanings(
    """
    leftovers.held: A directory cannot be moved now. Cause: Its broker runs and may have it open, or it may be
    the last copy of a partition. Or its log directory is a mount point, or the inventory has no section ssh.
    To do: Do what the finding says, for instance stop only that broker, then resume. Or remove the entry from
    leftovers.remove, and move the directory by hand.

    leftovers.removed: The finding lists the leftovers that the run removed. Cause: A remark; it stops
    nothing. To do: Nothing.

    leftovers.left: A leftover that leftovers.remove names was no longer one just before its removal. Cause:
    Kafka removed the leftover, or somebody created a topic of that name. To do: Nothing; the run did not
    change it.

    leftovers.back: The run did not restore a leftover that it had removed. Cause: Kafka would act on the
    restored znode, or a topic of that name exists now. To do: Restore the leftover by hand from the journal
    if you need it.
    """
)
