"""Checks of current changes in Kafka's chroot, and of other users of the chroot or of source."""

from __future__ import annotations

from collections.abc import Iterator

from zkmigrate.kafka.facts.chroot import ChrootState, describe
from zkmigrate.move.preflight import members
from zkmigrate.move.preflight.check import JOINED, Gate, Judged, Scope, check, unseen, why
from zkmigrate.move.preflight.evidence import NOT_ASKED, Evidence
from zkmigrate.move.preflight.kafka_evidence import of_kafka
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import Severity
from zkmigrate.runbook.model.step import Context

LISTED = 5
QUIET_S = 600
"""Seconds before the roll during which no leader or ISR may have changed."""

AHEAD_S = 5
"""The seconds that source's clock may be ahead of the operator's.

If it is further ahead, the check does not use the times that source reports.
"""


@check(
    "kafka.admin-work", "no topic is being deleted and no leader election is requested", Scope.CLUSTER, JOINED
)
def admin_work(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P28. Deletions and elections go through the controller, which the roll restarts and the window cuts
    off. A deletion that waits for a broker that is down never ends. The check reads through a dest host,
    after the join.

    To do: Wait until the deletion or election has ended. If it does not end, find the broker of these topics
    that is down.
    """
    needed = "neither"
    deleting, electing = _chroot(e).deleting, _chroot(e).electing
    if isinstance(deleting, Seen) and isinstance(electing, Seen):
        found = [f"Kafka is deleting {_few(deleting.value)}"] if deleting.value else []
        found += ["somebody has requested an election of preferred leaders"] if electing.value else []
        moves = (
            "wait until the deletion or election has ended",
            "if it does not end: find the broker of these topics that is down",
        )
        yield Judged(not found, "; ".join(found) or "neither", needed, moves=moves)
    else:
        yield unseen(electing if isinstance(deleting, Seen) else deleting, needed)


@check(
    "kafka.quiet", f"no partition has changed its leader or ISR for {QUIET_S // 60} minutes", Scope.CLUSTER,
    (Gate.ROLL,), Severity.WARN,
)  # fmt: skip
def quiet(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P28. Replicas that keep falling behind and catching up may look healthy in a single reading, yet be out
    of sync when a broker restarts. The check reads when each partition's state znode last changed, by the
    clock of source's leader. It reads through a dest host and puts no load on source. When a stopped roll is
    resumed, the restarts that it made before the stop show up here too.

    To do: Wait until no leader and no ISR changes. If they go on changing, find the broker that the changing
    partitions have in common.
    """
    needed = f"none in the last {QUIET_S // 60} minutes"
    changed = _chroot(e).changed
    if not isinstance(changed, Seen):
        yield unseen(changed, needed)
        return
    newest = max(changed.value.values(), default=0) / 1000
    if newest > e.at + AHEAD_S:
        yield Judged(None, f"a change {newest - e.at:.0f} s in the future: clocks differ", needed)
        return
    recent = sorted(name for name, at in changed.value.items() if e.at - at / 1000 < QUIET_S)
    names = f": {_few(recent)}" if recent else ""
    seen = f"{len(recent)} of {len(changed.value)} partitions changed leader or ISR in the last "
    moves = ("wait until no leader and no ISR changes, and find the broker that these partitions share",)
    yield Judged(not recent, f"{seen}{QUIET_S // 60} minutes{names}", needed, moves=moves)


@check(
    "kafka.tools",
    "no system other than Kafka keeps state under the chroot",
    Scope.CLUSTER,
    JOINED,
    Severity.WARN,
)
def tools(c: Context, e: Evidence) -> Iterator[Judged]:
    """P35. A tool (CMAK, Cruise Control, Burrow) or script with source's addresses goes on writing to
    source after the move, and its writes are lost. Consumer groups under /consumers keep their offsets in
    ZooKeeper.

    To do: Before the cut-over give each of these tools dest's connect string, or stop the tool.
    """
    needed = "no znode that is not Kafka's, no consumer group in ZooKeeper"
    strangers, groups = _chroot(e).strangers, _chroot(e).groups
    if not isinstance(strangers, Seen) or not isinstance(groups, Seen):
        yield unseen(groups if isinstance(strangers, Seen) else strangers, needed)
        return
    others = [describe(path) for path in strangers.value] if c.inventory.kafka.prefix else []
    found = others[:LISTED] + (["…"] if len(others) > LISTED else [])
    found += [f"{len(groups.value)} consumer groups: {_few(groups.value)}"] if groups.value else []
    moves = ("give each of these tools dest's connect string before the cut-over, or stop the tool",)
    yield Judged(not found, ", ".join(found) or "none", needed, moves=moves)


@check(
    "kafka.foreign-znodes", "every znode directly below / is Kafka's or ZooKeeper's", Scope.CLUSTER, JOINED,
    early=True,
)  # fmt: skip
def foreign_znodes(c: Context, e: Evidence) -> Iterator[Judged]:
    """P35. With the chroot / Kafka shares the top level with others. Their znodes are on dest as they were
    at the cut-over, but no proof covers them, and their clients stay on source. Before the join the check
    reads source's disk, if the newest snapshot has at most 64 MB, and only warns. With another chroot it does
    not apply.

    To do: Add a znode of Kafka's own to kafka.znodes. Accept one of another system, if its clients stay on
    source.
    """
    needed = "none"
    strangers = _chroot(e).strangers
    if c.inventory.kafka.prefix:
        return
    if not isinstance(strangers, Seen):
        if e.joined:
            yield unseen(strangers, needed)
        else:
            yield Judged(None, f"{why(strangers)}. It is known after the join", needed, later=True)
        return
    moves = (
        "if it is Kafka's: add its name to kafka.znodes in migration.yml",
        "if another system's clients stay on source with it: accept it in migration.yml",
    )
    for path in strangers.value:
        yield Judged(False, f"{describe(path)} is neither Kafka's nor ZooKeeper's", needed, path, moves)
    if not strangers.value:
        yield Judged(True, "none", needed)


@check(
    "kafka.writers", "only brokers have written under the chroot recently", Scope.CLUSTER,
    (Gate.PREFLIGHT, Gate.CUTOVER), Severity.WARN,
)  # fmt: skip
def writers(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P35. An admin tool that comes and goes (kafka-topics --zookeeper in cron, an old consumer) may not be
    connected when the checks run. After the cut-over its writes to source are lost. The check reads the
    last day of the leader's log, at most 64 MB, and says how far back that reached. A session counts as a
    broker's if it registered a broker or wrote znodes that only brokers write.

    To do: Find the writer. Before the cut-over give it dest's connect string, or stop it. Changes below
    kafka-acl from a broker's address may be those of the broker's authorizer, which has a session of its own
    and moves with the broker.
    """
    k = of_kafka(e)
    needed = "no other writer, or each writer given dest's addresses"
    if not isinstance(k.written, Seen):
        yield unseen(k.written, needed)
        return
    found = k.written.value
    minutes = round(found.hours * 60)
    span = f"{found.hours:.1f} hours" if minutes >= 60 else f"{minutes} minutes" if minutes > 1 else "minute"
    span = f"in the last {span}"
    moves = ("find the writer, and give it dest's connect string before the cut-over, or stop it",)
    for stranger in found.strangers:
        yield Judged(False, f"{stranger.what} {span}", needed, stranger.session, moves)
    if found.hole:
        yield Judged(None, f"the log has a gap, writers may be missing: {found.hole}", needed)
    elif not found.strangers:
        yield Judged(True, f"{found.brokers} sessions of brokers {span}", needed)


def _chroot(e: Evidence) -> ChrootState:
    k = of_kafka(e)
    return k.chroot or ChrootState(NOT_ASKED, NOT_ASKED, NOT_ASKED, k.foreign, NOT_ASKED, NOT_ASKED)


def _few(names: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


CHECKS = (admin_work, quiet, tools, foreign_znodes, members.other_clients, members.foreign_client, writers)
