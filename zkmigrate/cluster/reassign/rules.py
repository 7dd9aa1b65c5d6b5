"""Findings before the first change, and the choice of the moves that may start next."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign.answers import Cluster
from zkmigrate.cluster.reassign.disk_rules import check_cordoned, check_log_dirs, check_room
from zkmigrate.cluster.reassign.estimate import Copies
from zkmigrate.cluster.reassign.facts import FirstLook, unmade
from zkmigrate.cluster.reassign.moves import Move, joined, reassign_inventory, section
from zkmigrate.kafka.questions import InFlight, PartitionState, TopicSetting
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Severity, claim, few, meanings
from zkmigrate.runbook.model.report import counted
from zkmigrate.runbook.model.step import Context

AGAIN = "resume"
COPYING = (
    "num.replica.fetchers",
    "replica.fetch.max.bytes",
    "replica.fetch.response.max.bytes",
    "replica.lag.time.max.ms",
)
"""Broker settings that limit the speed of a copy, or decide when a replica leaves the ISR."""
GIB = 1 << 30


def gib(count: int) -> str:
    """Format a number of bytes for messages."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count:,} bytes"


def before(c: Context, f: FirstLook) -> tuple[Finding, ...]:
    """Return the findings before the first change."""
    if isinstance(f.cluster.in_flight, Absent):
        return (too_old(),)
    missing = f.cluster.missing_answer
    if missing is not None or not isinstance(f.cluster.seen, Seen):
        return (no_answer(missing),)
    seen = f.cluster.seen.value
    id = c.inventory.kafka.cluster_id
    same = claim(
        "reassign.cluster",
        "the brokers are those of the cluster that the inventory names",
        seen.cluster_id == id,
        seen=f"cluster id {seen.cluster_id}",
        needed=id,
    )
    mode, names = reassign_inventory(c.inventory).reassign.others, reassign_inventory(c.inventory).sets
    flown = f.awaited(mode, names)  # reassignments in flight are checked once they have ended
    steps = tuple(move for move in unmade(c, f) if move.name not in flown)
    moves = joined(steps)
    return (
        same,
        _cluster_known(c, f.cluster),
        _alive(moves, seen.brokers),
        _others(f.cluster.flights, mode),
        *in_sync(moves, f.cluster.partitions),
        _stale(c, f.cluster, flown),
        check_room(steps, f.disks),
        *check_log_dirs(moves, f.disks),
        *check_cordoned(moves, f.disks),
        *_loads(c, f.loads),
        *_remarks(c, f, joined(unmade(c, f))),
    )


def _cluster_known(c: Context, found: Cluster) -> Finding:
    sets = reassign_inventory(c.inventory).sets
    dark = found.undescribed
    gone = [f"{topic}-{n}" for topic, n in sets if (topic, n) not in found.partitions and topic not in dark]
    seen = counted(len(sets), "partition")
    if gone or dark:
        seen = "; ".join((*([f"missing: {few(gone)}"] if gone else ()), *map(str, dark.values())))
    return claim(
        "reassign.partitions",
        "every partition of the plan exists and can be described",
        False if gone else None if dark else True,
        seen=seen,
        needed="each partition of reassign.plan",
    )


def _alive(moves: Sequence[Move], brokers: Collection[int]) -> Finding:
    dead = sorted({broker for move in moves for broker in move.after if broker not in brokers})
    return claim(
        "reassign.brokers",
        "every broker of the new replica lists is alive",
        not dead,
        seen=f"not registered: {few(map(str, dead))}" if dead else counted(len(brokers), "registered broker"),
        needed="every broker of the new replica lists",
    )


def _flying(flights: Mapping[Name, InFlight]) -> tuple[str, ...]:
    return tuple(f"{t}-{n} to {','.join(map(str, flight.target))}" for (t, n), flight in flights.items())


def foreign(flights: Mapping[Name, InFlight]) -> Finding:
    """Return the finding that says whether other tools have reassignments in flight."""
    return claim(
        "reassign.foreign",
        "no other reassignment is in flight",
        not flights,
        seen=f"{len(flights):,} in flight: {few(_flying(flights))}" if flights else "none",
        needed="none, because Kafka silently replaces the target of a partition in flight",
    )


def _others(flights: Mapping[Name, InFlight], mode: str) -> Finding:
    """Return the finding that says how the run treats reassignments of other tools."""
    if mode == "refuse" or not flights:
        return foreign(flights)
    then = {
        "wait": "the run waits for their end before its first change",
        "take": "the run throttles them, reports their progress, and waits for those on partitions "
        "of the plan",
    }
    return claim(
        "reassign.others",
        "the run does not change moves of other tools",
        True,
        seen=f"{few(_flying(flights))}; {then[mode]}",
        severity=Severity.INFO,
    )


def in_sync(moves: Sequence[Move], partitions: Mapping[Name, PartitionState]) -> tuple[Finding, ...]:
    """Check that the moving partitions have a leader, and that the replicas that stay are in sync.

    A replica that the plan drops need not be in sync: that may be why the plan drops it.
    """
    states = [(move, partitions[move.name]) for move in moves]
    offline = [move.target for move, state in states if state.leader < 0]
    behind = [
        f"{move.target} on {','.join(map(str, missing))}"
        for move, state in states
        if (missing := [b for b in move.before if b not in state.isr and b in move.after])
    ]
    return (
        claim(
            "reassign.leaders",
            "every partition of the plan has a leader",
            not offline,
            seen=f"{len(offline):,} have no leader: {few(offline)}"
            if offline
            else f"{len(states):,} have one",
            needed="a leader, from which the new replicas copy",
        ),
        claim(
            "reassign.in-sync",
            "every replica that the plan keeps is in sync",
            not behind,
            seen=f"under-replicated: {len(behind):,}: {few(behind)}" if behind else "all are in sync",
            needed="all replicas in sync, apart from those that the plan removes",
        ),
    )


def _stale(c: Context, found: Cluster, flown: Collection[Name]) -> Finding:
    """Check that each partition still has the replica list that the plan expects, or already has its new one.

    flown: partitions with a reassignment in flight, which are not checked.
    """
    inventory = reassign_inventory(c.inventory)
    odd = [
        f"{topic}-{number} has {','.join(map(str, state.replicas))}, not {','.join(map(str, rests))}"
        for (topic, number), rests in inventory.back.items()
        if (state := found.partitions.get((topic, number))) is not None
        and (topic, number) not in flown
        and state.replicas not in (rests, *(sets.get((topic, number)) for sets, _ in inventory.phases))
    ]
    told = "the replica lists have not changed" if inventory.back else "unknown: reassign.back names no file"
    return claim(
        "reassign.stale",
        "the replica lists that the plan expects have not changed",
        not odd,
        seen=f"{len(odd):,} changed: {few(odd)}" if odd else told,
        needed="the replica lists of reassign.back",
    )


def _loads(c: Context, missing: Mapping[int, str]) -> tuple[Finding, ...]:
    """Warn if a throttle that follows the load cannot read the load of a broker."""
    if section(c.inventory).adapt is None:
        return ()
    return (
        claim(
            "reassign.load",
            "the throttle can read the load of every broker of the moves",
            not missing,
            seen=few(f"broker {id}: {why}" for id, why in missing.items()) if missing else "yes",
            needed="counters of each broker's host; without these the broker's rate falls to "
            "floor_bytes_s and remains there",
            severity=Severity.WARN,
        ),
    )


def _remarks(c: Context, f: FirstLook, moves: Sequence[Move]) -> tuple[Finding, ...]:
    how = section(c.inventory)
    whole = sum(move.bytes for move in moves)
    unsized = [move.target for move in moves if move.name not in f.sizes]
    takes = Copies.before(moves, how).words
    seen = f"{gib(whole)} for {counted(len(moves), 'partition')}, {takes}"
    if inside := sum(move.size * len(move.inside) for move in moves):
        seen += f"; and {gib(inside)} between directories of brokers"
    if unsized:
        seen += f"; without {len(unsized):,} of unknown size: {few(unsized)}"
    done = len(reassign_inventory(c.inventory).sets) - len(moves)
    return (
        claim("reassign.bytes", "the moves copy", True, seen=seen, severity=Severity.INFO),
        claim(
            "reassign.done",
            "partitions that have their new replica list already",
            True,
            seen=f"{done:,} of {len(reassign_inventory(c.inventory).sets):,}; the run does not change them",
            severity=Severity.INFO,
        ),
        claim(
            "reassign.throttles-found",
            "throttle settings before the run",
            True,
            seen=f"{len(f.throttles):,}, which the run restores: {few(f.throttles)}"
            if f.throttles
            else "none",
            severity=Severity.INFO,
        ),
        _copying(f.copying),
    )


def _copying(found: Mapping[str, Mapping[int, Reading[TopicSetting]]]) -> Finding:
    """Report each setting once for all brokers that have the same value."""
    told, silent = [], set()
    for key, of_brokers in found.items():
        alike: dict[tuple[str, bool], list[int]] = {}
        for broker, setting in of_brokers.items():
            if isinstance(setting, Seen) and (value := setting.value.value) is not None:
                alike.setdefault((value, setting.value.read_only), []).append(broker)
            else:
                silent.add(broker)
        for (value, read_only), brokers in alike.items():
            where = f" on {', '.join(map(str, brokers))}" if len(alike) > 1 else ""
            told.append(f"{key} {value}{where}{'' if read_only else ' (can be changed while they run)'}")
    told += [f"not reported by brokers {', '.join(map(str, sorted(silent)))}"] if silent else []
    return claim(
        "reassign.copying",
        "the brokers' settings that limit a copy",
        True,
        seen="; ".join(told) or "no partition moves",
        severity=Severity.INFO,
    )


def too_old() -> Finding:
    """Return the finding for brokers that cannot list reassignments."""
    return claim(
        "reassign.release",
        "the brokers can list reassignments",
        False,
        seen="the brokers do not support the request ListPartitionReassignments",
        needed="Kafka 2.4 or later",
    )


def no_answer(reading: object) -> Finding:
    """Return the finding for brokers that do not report what is needed. reading: the missing answer."""
    return claim(
        "reassign.answer",
        "the brokers report their partitions and reassignments",
        None,
        seen=str(reading),
        cause=reading.cause if isinstance(reading, Unknown) else "",
    )


def originals_lost() -> Finding:
    """Return the finding for a journal without the original replica lists, whose order is then unknown."""
    return claim(
        "reassign.original",
        "the journal has the replica lists from before the first change",
        None,
        seen="the journal has lost them; Kafka knows the moves in flight, but not the former replica lists",
        needed="the journal of this run",
    )


MEANINGS = meanings(
    """
    reassign.cluster: The brokers belong to another cluster than the inventory names. Cause: kafka.brokers or
    kafka.cluster_id is wrong. To do: Check which cluster has the addresses under kafka.brokers, and correct
    migration.yml.

    reassign.partitions: A partition of the plan does not exist, or the account may not describe it. Cause:
    The plan is for another cluster or is outdated, or the account lacks Describe. To do: Make the plan again,
    or grant Describe on the topics.

    reassign.brokers: A new replica list names a broker that is not registered. Cause: The broker is down or
    removed. To do: Start the broker, then resume. Or make the plan again without it.

    reassign.foreign: Another reassignment is in flight. Cause: Another person or tool moves partitions. To
    do: Wait until the other reassignment ends, or cancel it with the tool that began it, then resume. Or set
    reassign.others.

    reassign.others: Other reassignments are in flight, and the run handles them as reassign.others says.
    Cause: A remark; it stops nothing. To do: Nothing, or set reassign.others in migration.yml to another
    value.

    reassign.leaders: A partition of the plan has no leader. Cause: Its brokers are down. To do: Start the
    brokers of these partitions, then resume.

    reassign.in-sync: A replica that the plan keeps is not in sync. Cause: Its broker is down or overloaded.
    To do: Wait until the replica is in sync, then resume. If it remains behind, find out why.

    reassign.stale: A partition has another replica list than the plan expects. Cause: The partition was moved
    after the plan was made. To do: Make the plan again.

    reassign.room: A broker has no room for its new replicas, or does not report its free bytes. Cause: The
    disk is full, all its log directories are cordoned, or Kafka is older than 3.3. To do: Free space on these
    brokers, make another plan, or check the disks with df.

    reassign.log-dirs: A log directory of the plan cannot take its replica, or the broker does not report the
    directory. Cause: The broker has no such directory, has it in cordoned.log.dirs, or moves the replica
    already. To do: Make the plan again, for instance with --log-dirs kafka. If the broker reports no
    directory, find out why.

    reassign.cordoned: Replicas leave a log directory that is in cordoned.log.dirs. Cause: Kafka 4.3 accepts
    no replica that is assigned to such a directory by name. To do: Nothing; on a rollback Kafka chooses the
    directory.

    reassign.load: The throttle cannot read the load of a broker, so its rate falls to the floor and remains
    there. Cause: No ssh, no route to its address, or log directories on NFS, ZFS or an overlay. To do: Find
    out why the host does not report its load. Or continue at the floor, or leave out reassign.adapt. Without
    disks set busy_limit to null.

    reassign.bytes: The finding shows how much the moves copy, and how long that takes at the throttle. Cause:
    A remark; it stops nothing. To do: Nothing.

    reassign.done: Some partitions have their new replica list already. Cause: A remark; it stops nothing. To
    do: Nothing.

    reassign.throttles-found: Throttle settings existed before the run. Cause: A remark; another tool, or a
    person, set them. To do: Nothing; the run restores them at its end.

    reassign.copying: The finding shows how fast brokers copy, and when a replica leaves the ISR. Kafka does
    not interrupt a fetch that has begun. So a throttle below replica.fetch.response.max.bytes / 11 s slows
    down no further. Cause: A remark; it stops nothing. To do: Nothing, or raise num.replica.fetchers if
    copies are slower than the throttle.

    reassign.release: The brokers are older than Kafka 2.4. Cause: They have no AlterPartitionReassignments
    request. To do: Update Kafka, or move these partitions with kafka-reassign-partitions.sh.

    reassign.answer: No broker reports its partitions. Cause: The brokers do not respond, or refuse this
    client. To do: Find out why no broker responds, then resume.

    reassign.original: The journal does not contain the replica lists from before the run. Cause: Lines of the
    journal are lost. To do: Restore the journal from a copy, then resume. Or move the partitions back in
    another run, with way-back.json of the run's directory as its plan.
    """
)
