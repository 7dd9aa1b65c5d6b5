"""Check written reassignment files against the rules that every plan must keep.

It deliberately shares no code with the planners.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from zkmigrate.cluster.placement.cluster import Cluster

Name = tuple[str, int]
Set = tuple[int, ...]


def sets_of(written: str) -> dict[Name, Set]:
    """Return the replica lists of a reassignment as Kafka's tool reads it, in the order of the file.

    Raises ValueError if the text is not a reassignment in JSON, or names a partition twice.
    """
    found: dict[Name, Set] = {}
    document = json.loads(written)
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise ValueError("a reassignment is an object with a list of partitions")
    for entry in document["partitions"]:
        match entry:
            case {"topic": str(topic), "partition": int(number), "replicas": [*replicas]} if all(
                type(broker) is int for broker in (number, *replicas)
            ):
                if (topic, number) in found:
                    raise ValueError(f"{topic}-{number} occurs twice in one reassignment")
                found[topic, number] = tuple(replicas)
            case _:
                raise ValueError(f"{json.dumps(entry)} needs a topic, a partition and a list of broker ids")
    return found


def log_dirs_of(written: str) -> dict[Name, tuple[str, ...]]:
    """Return the log directories that a reassignment names, one for each replica.

    Raises ValueError if a log directory is not a string.
    """
    found: dict[Name, tuple[str, ...]] = {}
    for entry in json.loads(written)["partitions"]:
        match entry.get("log_dirs", []):
            case [*paths] if all(type(path) is str for path in paths):
                found[entry["topic"], entry["partition"]] = tuple(paths)
            case wrong:
                raise ValueError(f"log_dirs {json.dumps(wrong)} is not a list of paths")
    return found


def log_dir_faults(
    before: Cluster, maps: Sequence[Mapping[Name, Set]], named: Sequence[Mapping[Name, tuple[str, ...]]]
) -> tuple[str, ...]:
    """Check the log directories that a plan's reassignments name, and return the faults in words.

    maps: the replica lists of each reassignment, in the order in which they are carried out.
    named: the log directories of each reassignment.

    Only brokers with several known directories count. There each new copy of known size must have a
    directory, and no directory may ever have less than 0 bytes free. Old copies are removed last. Names of
    more than 215 characters must have no directory, because Kafka refuses one.
    """
    free = {
        (broker.id, one.path): one.free
        for broker in before.brokers.values()
        if len(broker.dirs) > 1
        for one in broker.dirs
    }
    choosing = {broker for broker, _ in free}
    state = {partition.name: partition.replicas for partition in before.partitions}
    at: dict[tuple[Name, int], str] = {
        (partition.name, broker): path
        for partition in before.partitions
        for broker, path in zip(partition.replicas, partition.dirs, strict=bool(partition.dirs))
    }
    found: list[str] = []
    for number, (sets, dirs) in enumerate(zip(maps, named, strict=True)):
        for name, replicas in sets.items():
            paths = dirs.get(name) or ("any",) * len(replicas)
            size = before.by_name[name].size or 0
            long = len(f"{name[0]}-{name[1]}") > 215
            bad = [] if len(paths) == len(replicas) else [f"{len(paths)} log directories"]
            freed = [(broker, at.pop((name, broker), "")) for broker in set(state[name]) - set(replicas)]
            for broker, path in zip(replicas, paths, strict=False):
                old = at.get((name, broker), "")
                if path == "any":
                    if broker in choosing and broker not in state[name] and size and not long:
                        bad.append(f"broker {broker} gets a copy without a log directory")
                elif long:
                    bad.append(f"Kafka accepts no named log directory for such a long topic name: {path}")
                elif (broker, path) not in free:
                    bad.append(f"broker {broker} has no log directory {path}")
                elif path != old:
                    free[broker, path] -= size
                    freed.append((broker, old))
                    at[name, broker] = path
                    if free[broker, path] < 0:
                        bad.append(f"{path} of broker {broker} is {-free[broker, path]} bytes short")
            for place in freed:
                if place in free:
                    free[place] += size
            state[name] = replicas
            found += (
                f"reassignment {number + 1}, {name[0]}-{name[1]}, {list(replicas)}: {text}" for text in bad
            )
    return tuple(found)


def faults(
    before: Cluster,
    maps: Sequence[Mapping[Name, Set]],
    *,
    replication: int = 0,
    away: Mapping[str, frozenset[int]] | None = None,
    sized: bool = True,
) -> tuple[str, ...]:
    """Check the replica lists of a plan's reassignments, and return the faults in words.

    maps: the replica lists of each reassignment, in the order in which they are carried out.
    replication: the replicas requested for each partition; 0 for as many as before.
    away: by topic, the brokers that must not be preferred leaders.
    sized: whether a copy of unknown size is wrong; otherwise it takes no room.

    A replica list that a later reassignment changes again has at least the requested number of replicas, and
    at most the requested or the former number, whichever is higher. It may have one replica more if that is
    the old leader in front of the partition's next replica list.
    """
    state = {partition.name: partition.replicas for partition in before.partitions}
    free = {broker.id: broker.free for broker in before.brokers.values()}
    found: list[str] = []
    for number, sets in enumerate(maps):
        for name, replicas in sets.items():
            if name not in state:
                wrong: Iterator[str] = iter(["the cluster does not have this partition"])
            else:
                following = next((later[name] for later in maps[number + 1 :] if name in later), None)
                wrong = _wrong_set(before, name, state[name], replicas, following, replication)
            bad = list(wrong)
            if replicas and replicas[0] in (away or {}).get(name[0], ()):
                bad.append(f"broker {replicas[0]} would lead, although it is evacuated")
            if name in state:
                bad += _wrong_room(before, name, state[name], replicas, free, sized=sized)
                state[name] = replicas
            found += (
                f"reassignment {number + 1}, {name[0]}-{name[1]}, {list(replicas)}: {text}" for text in bad
            )
    return tuple(found)


def _wrong_set(
    before: Cluster, name: Name, now: Set, replicas: Set, following: Set | None, replication: int
) -> Iterator[str]:
    first = before.by_name[name].replicas
    asked = replication or len(first)
    if twice := sorted({broker for broker in replicas if replicas.count(broker) > 1}):
        yield f"broker {twice[0]} occurs twice"
    for broker in replicas:
        if broker not in now and broker not in before.brokers:
            yield f"broker {broker} gets a copy, but is not registered"
    leads_on = following is not None and replicas[:1] == now[:1] and replicas[1:] == following
    length = len(replicas) - leads_on
    longest = asked if following is None else max(asked, len(first))
    if not asked <= length <= longest:
        yield f"{length} replicas; needed: {asked}" + (f" to {longest}" if longest > asked else "")
    racks, needed = (
        _racks(before, replicas),
        min(_racks(before, first), asked, _racks(before, tuple(before.brokers))),
    )
    if racks < needed:
        yield f"{racks} racks; needed: {needed}"


def _racks(before: Cluster, replicas: Set) -> int:
    """Return the number of racks that a replica list spans.

    A broker that is gone or has no rack counts as a rack of its own.
    """
    alone = {broker for broker in replicas if broker not in before.brokers or not before.brokers[broker].rack}
    return len(alone) + len({before.brokers[broker].rack for broker in replicas if broker not in alone})


def _wrong_room(
    before: Cluster, name: Name, now: Set, replicas: Set, free: dict[int, int], *, sized: bool
) -> Iterator[str]:
    """Check the free bytes of brokers during one change of a replica list, and yield the faults in words.

    New copies take free bytes first, and only then do the old copies free theirs.
    """
    size = before.by_name[name].size
    gets = sorted(set(replicas) - set(now))
    if size is None:
        if gets and sized:
            yield f"broker {gets[0]} gets a copy of unknown size"
        return
    for broker in gets:
        free[broker] = free.get(broker, 0) - size
        if free[broker] < 0:
            yield f"broker {broker} is {-free[broker]} bytes short"
    for broker in (set(now) - set(replicas)) & free.keys():
        free[broker] += size
