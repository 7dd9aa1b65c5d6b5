"""Build the cluster of a live system from its replica lists, its racks and its brokers' log directories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zkmigrate.cluster.placement.cluster import Assigned, Broker, Cluster, LogDir, Partition
from zkmigrate.cluster.placement.plan import Notice, Refused
from zkmigrate.cluster.placement.validation import SHOWN


@dataclass(frozen=True, slots=True)
class Directory:
    """A log directory of a broker.

    sizes: bytes of each replica in it, by partition.
    free, total: bytes of its volume; None if unknown.
    volume: the mount point of the volume; empty if only the broker was queried.
    """

    sizes: Mapping[tuple[str, int], int]
    free: int | None = None
    total: int | None = None
    volume: str = ""


def needs_host(dirs: Mapping[str, Directory]) -> bool:
    """Return whether only the broker's host can report its free bytes.

    Brokers before 3.3 report no free bytes. Later ones do not report whether two directories of the same
    total are on one volume, whose bytes would then count twice.
    """
    totals = [one.total for one in dirs.values()]
    unknown = any(one.free is None or one.total is None for one in dirs.values())
    return unknown or len(set(totals)) < len(totals)


def cluster(
    assigned: Assigned, dirs: Mapping[int, Mapping[str, Directory]], unseen: Mapping[int, str]
) -> Cluster | Refused:
    """Return the cluster made of replica lists and log directories.

    dirs: the log directories of each registered broker, by path.
    unseen: why the directories of a broker are unknown.

    The size of a partition is that of its largest replica; None if no broker of its replica list holds one.
    Returns Refused if something about a registered broker is unknown.
    """
    missing = {
        id_: why for id_ in sorted(assigned.racks) if (why := unseen.get(id_) or _missing(dirs.get(id_)))
    }
    if missing:
        told = "; ".join(f"broker {id_}: {why}" for id_, why in list(missing.items())[:SHOWN])
        more = f"; and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        text = (
            f"too little is known of {len(missing)} brokers: {told}{more}. Needed: the log "
            "directories and free "
            "bytes of each registered broker. Next: make them reachable; zkmigrate placement also "
            "accepts --cluster"
        )
        return Refused((Notice("placement.disk-unseen", text),))
    at = {
        (id_, name): (path, size)
        for id_, held in dirs.items()
        for path, one in held.items()
        for name, size in one.sizes.items()
    }
    return Cluster.of(
        (
            _broker(id_, rack, assigned.hosts.get(id_, ""), dirs[id_], new=id_ not in assigned.holding)
            for id_, rack in assigned.racks.items()
        ),
        (_partition(name, replicas, at) for name, replicas in assigned.sets.items()),
    )


def moving_partitions(names: Sequence[tuple[str, object]]) -> str:
    """Describe the partitions that are being reassigned: their number, and the first of them."""
    topic, number = names[0]
    return f"{len(names)} partitions are being reassigned, the first is {topic}-{number}"


def reassigning(seen: str) -> Refused:
    """Return the refusal to plan while replicas are being moved. seen: the evidence that they are."""
    text = (
        f"{seen}. Needed: replicas that do not move. Next: wait until the moves end; zkmigrate "
        "placement also accepts --cluster"
    )
    return Refused((Notice("placement.reassigning", text),))


def _missing(dirs: Mapping[str, Directory] | None) -> str:
    if not dirs:
        return "its log directories are not known"
    silent = [path for path, one in sorted(dirs.items()) if one.free is None]
    return f"the free bytes of {', '.join(silent)} are not known" if silent else ""


def _broker(id_: int, rack: str, host: str, dirs: Mapping[str, Directory], *, new: bool) -> Broker:
    """Return one broker.

    Directories that share a volume have no free bytes of their own, so they are left out.
    """
    volumes = {one.volume or path: one.free or 0 for path, one in sorted(dirs.items())}
    own = tuple(LogDir(path, one.free or 0, one.total or 0) for path, one in sorted(dirs.items()))
    kept = own if len(volumes) == len(own) else ()
    return Broker(id_, rack, sum(volumes.values()), new=new, dirs=kept, host=host)


def _partition(
    name: tuple[str, int],
    replicas: tuple[int, ...],
    at: Mapping[tuple[int, tuple[str, int]], tuple[str, int]],
) -> Partition:
    found = [at[broker, name] for broker in replicas if (broker, name) in at]
    dirs = tuple(path for path, _ in found) if len(found) == len(replicas) else ()
    return Partition(*name, replicas, max((size for _, size in found), default=None), dirs=dirs)
