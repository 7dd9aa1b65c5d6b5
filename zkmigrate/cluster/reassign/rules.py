"""Findings before the first change, and the choice of the moves that may start next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from zkmigrate.cluster.placement.cluster import Broker, Name
from zkmigrate.cluster.placement.cluster import Cluster as Placed
from zkmigrate.cluster.placement.log_dirs import nameable
from zkmigrate.cluster.placement.order import after, in_order
from zkmigrate.cluster.placement.plan import Refused
from zkmigrate.cluster.reassign.estimate import Copies, ends, load
from zkmigrate.cluster.reassign.facts import (
    Cluster,
    Disks,
    FirstLook,
    Move,
    joined,
    reassign_inventory,
    section,
    unmade,
)
from zkmigrate.cluster.reassign.section import Pace
from zkmigrate.kafka.questions import InFlight, PartitionState, TopicSetting
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Severity, claim, few, meanings
from zkmigrate.runbook.model.report import counted
from zkmigrate.runbook.model.step import Context, Way

AGAIN = "resume"
COPYING = (
    "num.replica.fetchers",
    "replica.fetch.max.bytes",
    "replica.fetch.response.max.bytes",
    "replica.lag.time.max.ms",
)
"""Broker settings that bound a copy, and that decide when a replica leaves the ISR."""
GIB = 1 << 30


def next_moves(wanted: Pace, flying: Iterable[Move], todo: Iterable[Move], way: Way) -> tuple[Move, ...]:
    """Return the moves that may start now within all caps, in order.

    A move that must wait for a broker does not hold up those after it.
    """
    now = load(flying, way)
    total, to, of = now.total, Counter(now.to), Counter(now.of)
    chosen = []
    for move in todo:
        if total >= wanted.in_flight:
            break
        sender, receivers = ends(move, way)
        written = (*receivers, *move.inside)
        full = any(to[broker] >= wanted.per_broker for broker in written)
        if full or (receivers and of[sender] >= wanted.per_broker):
            continue
        total += 1
        to.update(written)
        of.update((sender,) if receivers else ())
        chosen.append(move)
    return tuple(chosen)


def fitting(moves: Iterable[Move], way: Way, room: Mapping[int, int]) -> tuple[Move, ...]:
    """Return the moves for which every receiving broker has room, in their order.

    room: free bytes of the brokers that are short of it, less what copies in flight will still take. A move
    that waits also makes later moves to the same brokers wait.
    """
    left, chosen = dict(room), []
    for move in moves:
        scarce = [broker for broker in ends(move, way)[1] if broker in left]
        fits = all(left[broker] >= move.size for broker in scarce)
        if fits:
            chosen.append(move)
        for broker in scarce:
            left[broker] = left[broker] - move.size if fits else -1
    return tuple(chosen)


def tight(moves: Iterable[Move], room: Mapping[int, int]) -> tuple[int, ...]:
    """Return the brokers without room for all their new replicas at once.

    Brokers that report no room are left out.
    """
    gets: Counter[int] = Counter()
    for move in moves:
        gets.update(dict.fromkeys(move.added, move.size))
    return tuple(broker for broker, count in sorted(gets.items()) if count > room.get(broker, count))


def in_room(moves: Sequence[Move], room: Mapping[int, int]) -> tuple[Move, ...] | Refused:
    """Return the moves in an order in which each broker has room, given that old replicas go as moves end.

    room: free bytes by broker; a broker that is not in it limits nothing. Returns Refused if there is no such
    order.
    """
    brokers = {broker for move in moves for broker in (*move.before, *move.after)}
    endless = sum(move.bytes for move in moves)
    free = {id: room.get(id, endless) for id in brokers}
    found: list[Move] = []
    for phase in sorted({move.phase for move in moves}):
        by_name = {move.name: move for move in moves if move.phase == phase}
        cluster = Placed.of((Broker(id, "", left) for id, left in free.items()), ())
        ordered = in_order(cluster, by_name.values())
        if isinstance(ordered, Refused):
            return ordered
        free = after(free, ordered)
        found += (by_name[move.name] for move in ordered)
    return tuple(found)


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
        _room(steps, f.disks),
        *_log_dirs(moves, f.disks),
        *_cordoned(moves, f.disks),
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
        "every broker of the new sets is alive",
        not dead,
        seen=f"not registered: {few(map(str, dead))}" if dead else counted(len(brokers), "registered broker"),
        needed="each broker that a new set names",
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
    """Check that each partition still has the set that the plan expects, or a new one.

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
    told = "the sets have not changed" if inventory.back else "unknown: reassign.back names no file"
    return claim(
        "reassign.stale",
        "the sets that the plan expects have not changed",
        not odd,
        seen=f"{len(odd):,} changed: {few(odd)}" if odd else told,
        needed="the sets of reassign.back",
    )


def _room(moves: Sequence[Move], disks: Disks) -> Finding:
    """Check that every broker has room for its new replicas beside the old ones.

    Moves to a broker without room for all its new replicas wait until earlier moves have ended.
    """
    room = disks.room
    ordered = in_room(moves, room)
    full = [reason.text for reason in ordered.reasons] if isinstance(ordered, Refused) else []
    shut = sorted(broker for broker in {id for move in moves for id in move.added} if disks.shut(broker))
    full += [f"broker {broker}: all its log directories are cordoned" for broker in shut]
    silent = sorted({broker for move in moves for broker in move.added} - set(room))
    short = tight(moves, room)
    seen = f"not reported by broker{'s' * (len(silent) > 1)} {few(map(str, silent))}" if silent else "at once"
    if short:
        told = few(map(str, short))
        seen = f"one after the other; moves to brokers {told} wait until old copies are deleted"
        seen += f"; not reported by brokers {few(map(str, silent))}" if silent else ""
    return claim(
        "reassign.room",
        "every broker has room for its new replicas",
        False if full else None if silent else True,
        seen=few(full) if full else seen,
        needed="free bytes on log directories that are not cordoned; brokers report them since Kafka 3.3",
        severity=Severity.BLOCK if full else Severity.WARN,
    )


def _log_dirs(moves: Sequence[Move], disks: Disks) -> tuple[Finding, ...]:
    """Check that each directory that the plan names can take its replica. Empty if the plan names none."""
    named = [(move, broker, path) for move in moves for broker, path in move.paths(Way.FORWARD).items()]
    silent, wrong = [], []
    for move, broker, path in named:
        at, where = (broker, move.name), f"{move.target} on {broker}"
        if not disks.paths.get(broker) or (broker in move.before and at not in disks.places):
            silent.append(where)
        elif path not in disks.paths[broker]:
            wrong.append(f"broker {broker} has no {path}, only {', '.join(sorted(disks.paths[broker]))}")
        elif path in disks.cordoned.get(broker, ()):
            wrong.append(f"{where}: {path} is cordoned")
        elif not nameable(move.name):
            wrong.append(f"{where}: Kafka does not move a log with such a long name")
        elif at in disks.futures:
            wrong.append(f"{where} is moving to {disks.futures[at][0]} already")
    if not named:
        return ()
    seen = (
        few(dict.fromkeys(wrong))
        if wrong
        else f"not reported: {few(silent)}"
        if silent
        else "all of them can"
    )
    return (
        claim(
            "reassign.log-dirs",
            "the log directories of the plan can take their replicas",
            False if wrong else None if silent else True,
            seen=seen,
            needed="directories that their brokers report, that are not cordoned and receive no other move",
        ),
    )


def _cordoned(moves: Sequence[Move], disks: Disks) -> tuple[Finding, ...]:
    """Warn about replicas that the way back cannot return to their original log directory."""
    shut = [
        f"{move.target} on {broker}: {path}"
        for move in moves
        for broker in move.before
        if (path := disks.places.get((broker, move.name), "")) in disks.cordoned.get(broker, ())
        and (broker not in move.after or broker in move.paths(Way.FORWARD))
    ]
    if not shut:
        return ()
    return (
        claim(
            "reassign.cordoned",
            "no replica leaves a cordoned log directory",
            False,
            seen=few(shut),
            needed="directories to which the way back can return; Kafka assigns none to a cordoned one by "
            "name",
            severity=Severity.WARN,
        ),
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
            seen=few(f"broker {id}: {why}" for id, why in missing.items()) if missing else "it can",
            needed="counters of each broker's host; without them its rate falls to floor_bytes_s and "
            "remains there",
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
            "partitions that have their new set already",
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
        seen="they do not support this request",
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
    """Return the finding for a journal that lacks the original sets, without which their order is unknown."""
    return claim(
        "reassign.original",
        "the journal holds the replica sets from before the first change",
        None,
        seen="its lines are lost; Kafka knows the moves in flight, but not the order of the old sets",
        needed="the journal of this run",
    )


MEANINGS = meanings(
    """
    reassign.cluster: The brokers belong to another cluster than the inventory names. Cause: kafka.brokers or
    kafka.cluster_id is wrong. To do: Check which cluster has the addresses under kafka.brokers, and correct
    migration.yml.

    reassign.partitions: A partition of the plan does not exist, or may not be described. Cause: The plan is
    for another cluster or is outdated, or the account lacks Describe. To do: Make the plan again, or grant
    Describe on the topics.

    reassign.brokers: A new set names a broker that is not registered. Cause: The broker is down or removed.
    To do: Start the broker, then resume. Or make the plan again without it.

    reassign.foreign: Another reassignment is in flight. Cause: Another person or tool moves partitions. To
    do: Wait until it ends, or cancel it with the tool that began it, then resume. Or set reassign.others.

    reassign.others: Other reassignments are in flight, and the run handles them as reassign.others says.
    Cause: A remark; it stops nothing. To do: Nothing, or set reassign.others in migration.yml to another
    value.

    reassign.leaders: A partition of the plan has no leader. Cause: Its brokers are down. To do: Start the
    brokers of these partitions, then resume.

    reassign.in-sync: A replica that the plan keeps is not in sync. Cause: Its broker is down or overloaded.
    To do: Wait until it is in sync, then resume. If it remains behind, find out why.

    reassign.stale: A partition has another set than the one that the plan expects. Cause: It was moved after
    the plan was made. To do: Make the plan again.

    reassign.room: A broker has no room for its new replicas, or does not report it. Cause: The disk is full,
    all its log directories are cordoned, or Kafka is older than 3.3. To do: Free space on these brokers, make
    another plan, or check the disks with df.

    reassign.log-dirs: A log directory of the plan cannot take its replica, or its broker does not report it.
    Cause: The broker has no such directory, has it in cordoned.log.dirs, or moves the replica already. To do:
    Make the plan again, for instance with --log-dirs kafka. If the broker reports no directory, find out why.

    reassign.cordoned: Replicas leave a log directory that is in cordoned.log.dirs. Cause: Kafka 4.3 accepts
    no replica that is assigned to such a directory by name. To do: Nothing; on a rollback Kafka chooses the
    directory.

    reassign.load: The throttle cannot read the load of a broker, so its rate falls to the floor and remains
    there. Cause: No ssh, no route to its address, or log directories on NFS, ZFS or an overlay. To do: Find
    out why the host does not report its load. Or continue at the floor, or leave out reassign.adapt. Without
    disks set busy_limit to null.

    reassign.bytes: The finding shows how much the moves copy, and how long that takes at the throttle. Cause:
    A remark; it stops nothing. To do: Nothing.

    reassign.done: Some partitions have their new set already. Cause: A remark; it stops nothing. To do:
    Nothing.

    reassign.throttles-found: Throttle settings existed before the run. Cause: A remark; another tool, or a
    person, set them. To do: Nothing; the run restores them at its end.

    reassign.copying: The finding shows how fast brokers copy, and when a replica leaves the ISR. Kafka does
    not interrupt a fetch that has begun: below its bytes / 11 s a throttle does not slow down further. Cause:
    A remark; it stops nothing. To do: Nothing, or raise num.replica.fetchers if copies are slower than the
    throttle.

    reassign.release: The brokers are older than Kafka 2.4. Cause: They have no AlterPartitionReassignments
    request. To do: Update Kafka, or move these partitions with kafka-reassign-partitions.sh.

    reassign.answer: No broker reports its partitions. Cause: The brokers do not respond, or refuse this
    client. To do: Find out why no broker responds, then resume.

    reassign.original: The journal does not contain the sets from before the run. Cause: Lines of the journal
    are lost. To do: Restore the journal from a copy, then resume. Or move the partitions back in another run,
    with way-back.json of the run's directory as its plan.
    """
)
