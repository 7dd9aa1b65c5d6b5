"""Choose the log directory of each copy on brokers that have several.

Kafka puts a new replica into the directory with the fewest partitions, however full that is
(``LogManager.nextLogDirs``, Kafka 2.8 to 3.9). A reassignment file may name the directory instead. The choice
is left to Kafka on brokers whose directories are not known individually, for copies that ``nameable``
excludes, and for copies of unknown size, because the emptiest directory would get all of those.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from zkmigrate.cluster.placement.cluster import Cluster, Name
from zkmigrate.cluster.placement.plan import Notice, Plan, Reassignment, Refused


@dataclass(frozen=True, slots=True)
class Usage:
    """A directory of a broker.

    before, after: its free bytes before and after the plan. copies: the number of replicas that come into it.
    """

    broker: int
    path: str
    before: int
    after: int
    copies: int


Copy = tuple[Name, int]
"""A replica: its partition and its broker."""

LONGEST = 255 - len(f".{'0' * 32}-future")
"""The most characters of a topic and partition that Kafka can move between directories."""

LEVEL = 0.1
"""The share of the mean by which free bytes of a broker's directories may differ and still count as level."""


def several(cluster: Cluster) -> dict[int, dict[str, int]]:
    """Return the free bytes by path of each broker with more than one known directory."""
    return {
        broker.id: {one.path: one.free for one in broker.dirs}
        for broker in cluster.brokers.values()
        if len(broker.dirs) > 1
    }


def without_log_dirs(cluster: Cluster) -> Cluster:
    """Return the cluster without the individual log directories of its brokers."""
    return Cluster.of((replace(one, dirs=()) for one in cluster.brokers.values()), cluster.partitions)


def nameable(name: Name) -> bool:
    """Return whether Kafka accepts a named log directory for a partition.

    Kafka refuses a named directory if ``TOPIC-NUMBER.UUID-future`` is too long for a file name
    (``ReplicaManager``, ``alterReplicaLogDirs``). Kafka's tool then ends and names no further directory.
    """
    topic, number = name
    return len(f"{topic}-{number}") <= LONGEST


def held_in(cluster: Cluster, copy: Copy) -> str:
    """Return the directory that holds a replica now; empty if unknown."""
    one = cluster.by_name[copy[0]]
    return one.dirs[one.replicas.index(copy[1])] if one.dirs and copy[1] in one.replicas else ""


def narrowed(cluster: Cluster, names: Collection[Name]) -> Cluster:
    """Limit brokers with several directories to the bytes that are certain to fit, and return that cluster.

    names: the partitions that may move.

    If a copy fits into no directory, each directory has less than the copy's size free. So copies of at most
    the largest partition's size fit in any order, as long as they total no more than what each directory has
    free beyond that.
    """
    largest = max((one.size or 0 for one in cluster.partitions if one.name in names), default=0)
    limits = {
        broker: sum(max(free - largest, 0) for free in dirs.values())
        for broker, dirs in several(cluster).items()
    }
    return Cluster.of(
        (replace(broker, limit=limits.get(broker.id)) for broker in cluster.brokers.values()),
        cluster.partitions,
    )


def laid(plan: Plan) -> Plan | Refused:
    """Return the plan with a directory for each new copy on a broker with several directories.

    No directory gets more bytes than it has free, at any point of the order. A refusal names the broker, its
    directories and the largest copy.
    """
    known = several(plan.cluster)
    coming: dict[int, list[Reassignment]] = defaultdict(list)
    for move in plan.moves:
        for broker in known.keys() & set(move.added) if move.size and nameable(move.name) else ():
            coming[broker].append(move)
    chosen: dict[Copy, str] = {}
    refused = []
    for broker in sorted(coming):
        heaviest = sorted(coming[broker], key=lambda move: (-move.size, move.name))
        found = (
            _spread(known[broker], heaviest)
            or _packed(known[broker], heaviest)
            or _in_turn(plan, broker, known[broker])
        )
        if found:
            chosen |= {(name, broker): path for name, path in found.items()}
        else:
            refused.append(_no_room(broker, known[broker], heaviest))
    if refused:
        return Refused(tuple(refused))
    short = tuple(
        notice for broker in sorted(coming) for notice in _begun(plan, broker, coming[broker], chosen)
    )
    return replace(plan, dirs={**plan.dirs, **chosen}, notices=(*plan.notices, *short))


def _spread(free: Mapping[str, int], moves: Iterable[Reassignment]) -> dict[Name, str] | None:
    """Put each copy into the directory with the most free bytes. Return None if one does not fit."""
    left, found = dict(free), {}
    for move in moves:
        path = min(left, key=lambda one: (-left[one], one))
        left[path] -= move.size
        if left[path] < 0:
            return None
        found[move.name] = path
    return found


def _packed(free: Mapping[str, int], moves: Iterable[Reassignment]) -> dict[Name, str] | None:
    """Put each copy into the fullest directory that still has room. Return None if one does not fit."""
    left, found = dict(free), {}
    for move in moves:
        if not (may := [one for one in left if left[one] >= move.size]):
            return None
        path = min(may, key=lambda one: (left[one], one))
        left[path] -= move.size
        found[move.name] = path
    return found


def _in_turn(plan: Plan, broker: int, free: Mapping[str, int]) -> dict[Name, str] | None:
    """Put each copy into a directory in the order of the moves, using the bytes that earlier moves freed.

    Return None if one does not fit.
    """
    left, found = dict(free), {}
    for move in chain.from_iterable(plan.phases or (plan.moves,)):
        if broker in move.added and move.size and nameable(move.name):
            path = min(left, key=lambda one: (-left[one], one))
            left[path] -= move.size
            if left[path] < 0:
                return None
            found[move.name] = path
        if broker in move.dropped and (path := held_in(plan.cluster, (move.name, broker))) in left:
            left[path] += move.size
    return found


def kafkas_choice(cluster: Cluster, broker: int, copies: int) -> list[str]:
    """Return the directories that Kafka chooses for ``copies`` new replicas that start at once.

    Each replica goes into the directory with the fewest partitions. Between equal directories Kafka has no
    order; here the order of the paths decides.
    """
    counts = {one.path: cluster.in_dir[broker, one.path] for one in cluster.brokers[broker].dirs}
    found = []
    for _ in range(copies):
        path = min(counts, key=lambda one: (counts[one], one))
        counts[path] += 1
        found.append(path)
    return found


def _begun(
    plan: Plan, broker: int, moves: Sequence[Reassignment], chosen: Mapping[Copy, str]
) -> Iterable[Notice]:
    """Yield a notice for each directory that runs full while copies are in two directories.

    A copy may exist in full both in the directory that Kafka chose and in the one that the plan names.

    Kafka's tool starts the reassignment before it names directories (``ReassignPartitionsCommand``, 2.6 and
    later). A replica that exists by then started in Kafka's directory, and is moved from there.
    """
    left = {one.path: one.free for one in plan.cluster.brokers[broker].dirs}
    for move, begun in zip(moves, kafkas_choice(plan.cluster, broker, len(moves)), strict=True):
        for path in {begun, chosen[move.name, broker]}:
            left[path] -= move.size
    for path, free in left.items():
        if free < 0:
            text = (
                f"{path} of broker {broker} can be {-free} bytes short during the moves: Kafka may "
                "begin copies "
                "there before its tool names their directories. Next: submit the moves in small files, and "
                "keep --replica-alter-log-dirs-throttle at --throttle or above"
            )
            yield Notice("placement.log-dir-on-the-way", text)


def _no_room(broker: int, free: Mapping[str, int], heaviest: Sequence[Reassignment]) -> Notice:
    dirs = ", ".join(f"{path} ({bytes_} bytes free)" for path, bytes_ in sorted(free.items()))
    first = heaviest[0]
    text = (
        f"no arrangement was found to put {sum(move.size for move in heaviest)} bytes of "
        f"{len(heaviest)} copies into "
        f"the directories of broker {broker}: {dirs}; the largest copy is {first.topic}-{first.number} with "
        f"{first.size} bytes. Next: exclude the broker or the topic, or free space in a directory"
    )
    return Notice("placement.no-log-dir", text)


def levelled(plan: Plan, names: Collection[Name], brokers: Collection[int]) -> Plan:
    """Add moves between the directories of each broker to a plan, until their free bytes are level.

    names, brokers: the partitions and brokers whose replicas may move.

    A replica moves at most once. While it is copied it takes space in both directories, and space that other
    moves will free is not counted as free. If no broker reports more than one log directory, the plan has a
    notice that refuses it.
    """
    known = several(plan.cluster)
    if not known:
        text = "--log-dirs balance has no effect: no broker reports several log directories"
        return replace(
            plan, notices=(*plan.notices, Notice("placement.log-dirs-unknown", text, refuses=True))
        )
    free_after = after(plan)
    staying: dict[int, list[tuple[int, Name, str]]] = defaultdict(list)
    sets = {move.name: move.after for move in plan.moves}
    for one in plan.cluster.partitions:
        for broker, path in zip(one.replicas, one.dirs, strict=bool(one.dirs)):
            if (
                one.name in names
                and nameable(one.name)
                and broker in brokers
                and broker in sets.get(one.name, one.replicas)
            ):
                staying[broker].append((one.size or 0, one.name, path))
    moved: dict[Copy, str] = {}
    rooms = {broker: dict(dirs) for broker, dirs in known.items()}
    for (name, broker), path in plan.dirs.items():
        rooms[broker][path] -= plan.cluster.by_name[name].size or 0
    for broker in sorted(known.keys() & staying.keys()):
        level, room = {path: free_after[broker, path] for path in known[broker]}, rooms[broker]
        for size, name, path in _steps(level, room, staying[broker]):
            moved[name, broker] = path
            room[path] -= size
    return replace(plan, dirs={**plan.dirs, **moved})


def _steps(
    level: dict[str, int], room: Mapping[str, int], held: list[tuple[int, Name, str]]
) -> Iterable[tuple[int, Name, str]]:
    """Yield replicas to move from the fullest to the emptiest directory, each as (bytes, partition, path).

    The path is the old directory. Each move takes the replica whose size is nearest to half the difference
    between the two directories.
    """
    while True:
        low = min(level, key=lambda path: (level[path], path))
        high = max(level, key=lambda path: (level[path], path))
        gap = level[high] - level[low]
        if gap <= LEVEL * sum(level.values()) / len(level):
            return
        may = [one for one in held if one[2] == low and 0 < one[0] < gap and one[0] <= room[high]]
        if not may:
            return
        best = min(may, key=lambda one: (abs(gap - 2 * one[0]), one[1]))
        held.remove(best)
        level[low] += best[0]
        level[high] -= best[0]
        yield best[0], best[1], high


def inside(plan: Plan) -> list[Copy]:
    """Return the replicas that stay on their broker and move into another directory."""
    return sorted(copy for copy in plan.dirs if copy[1] in plan.cluster.by_name[copy[0]].replicas)


def usage(plan: Plan) -> tuple[Usage, ...]:
    """Return the usage of the directories of brokers that have several, by broker and path."""
    left = after(plan)
    coming = Counter((broker, path) for (_, broker), path in plan.dirs.items())
    return tuple(
        Usage(broker, path, free, left[broker, path], coming[broker, path])
        for broker, dirs in several(plan.cluster).items()
        for path, free in dirs.items()
    )


def after(plan: Plan) -> dict[tuple[int, str], int]:
    """Return the free bytes by broker and directory once the plan is complete."""
    known = several(plan.cluster)
    left = {(broker, path): free for broker, dirs in known.items() for path, free in dirs.items()}
    for (name, broker), path in plan.dirs.items():
        size = plan.cluster.by_name[name].size or 0
        left[broker, path] -= size
        if (was := (broker, held_in(plan.cluster, (name, broker)))) in left:
            left[was] += size
    for move in plan.moves:
        for broker in move.dropped:
            if (was := (broker, held_in(plan.cluster, (move.name, broker)))) in left:
                left[was] += move.size
    return left
