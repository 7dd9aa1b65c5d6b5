"""The disks of two ensembles as the verbs name them: one of source, one or more of dest."""

from __future__ import annotations

from typing import Any

from zkmigrate.errors import UsageError
from zkmigrate.zookeeper.data.proofs import Side
from zkmigrate.zookeeper.disks.place import Disks, Place, parse_place

Pair = tuple[Place, Place | None]
"""A dataDir, and the dataLogDir where it is another."""


def paired(options: dict[str, Any]) -> list[Pair]:
    """Source's, then those of dest, from ``source_dir``, ``source_log_dir``, ``dest_dirs``,
    ``dest_log_dirs``. Raises UsageError where the lists do not fit each other."""
    dests, logs = options["dest_dirs"], options["dest_log_dirs"]
    if logs and len(logs) != len(dests):
        raise UsageError(
            f"{len(dests)} --dest-dir and {len(logs)} --dest-log-dir. Needed: one for each, in the same order"
        )
    named = [(options["source_dir"], options["source_log_dir"])]
    named += zip(dests, logs or [None] * len(dests), strict=True)
    return [(parse_place(data), parse_place(log) if log else None) for data, log in named]


def distant(pairs: list[Pair]) -> bool:
    """Whether any of them is on a host."""
    return any(place.host for pair in pairs for place in pair if place is not None)


def opened(disks: Disks, data: Place, log: Place | None) -> Side:
    """Raises as `Disks.directory`."""
    snapshots = disks.directory(data)
    return Side(str(data), snapshots, disks.directory(log) if log else snapshots)
