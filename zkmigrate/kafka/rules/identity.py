"""Check whether a broker finds its own id and cluster in its log directories when it starts.

Kafka compares ``broker.id`` (``node.id`` in KRaft) and ``cluster.id`` with ``meta.properties`` of each
directory (BrokerMetadataCheckpoint), and does not start if one differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from zkmigrate.kafka.facts.broker import LogDirectory
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown

_GENERATED = ("", "-1")
"""The configured ids of a broker that generates its own id (``broker.id.generation.enable``)."""


def configured_id(properties: Mapping[str, str]) -> str:
    """Return the id in a broker's config file; empty if it has none."""
    return properties.get("node.id", properties.get("broker.id", "")).strip()


def effective_id(given: str, dirs: Iterable[Reading[LogDirectory]]) -> str:
    """Return the id that a broker starts with; empty if it is unknown or the directories differ.

    given: the id in its config file. If that leaves the id to be generated, the id in meta.properties counts.
    """
    if given not in _GENERATED:
        return given
    held = {one.value.broker_id or "" for one in dirs if isinstance(one, Seen)}
    return held.pop() if len(held) == 1 else ""


def cluster_ids(dirs: Iterable[Reading[LogDirectory]]) -> set[str | None]:
    """Return the cluster ids in the log directories that could be read.

    A directory without a cluster id gives None.
    """
    return {one.value.cluster_id for one in dirs if isinstance(one, Seen)}


@dataclass(frozen=True)
class Identity:
    """The result of comparing a broker's identity with its log directories.

    wrong: what would keep the broker from starting as itself. unread: a directory that could not be read.
    unnamed: directories without a cluster.id, as before Kafka 2.4. moves: possible corrections. None of them
    deletes a log directory, because it may hold the last copy of its data.
    """

    wrong: tuple[str, ...]
    unread: Unknown | None
    unnamed: tuple[str, ...]
    moves: tuple[str, ...]


def identity(
    path: str,
    properties: Mapping[str, str],
    dirs: Mapping[str, Reading[LogDirectory]],
    id: int,
    cluster_id: str,
) -> Identity:
    """Compare a broker's config and its log directories with its registration in the cluster.

    path: path of the config. dirs: by path, the content of ``meta.properties`` in each log directory. id,
    cluster_id: the ids under which the broker is, or was, registered.
    """
    given = configured_id(properties)
    wrong, moves = [], dict[str, None]()
    for folder, reading in dirs.items():
        file = f"{folder}/meta.properties"
        if isinstance(reading, Absent):
            wrong.append(f"no {file}")
            moves["fix log.dirs, or mount the missing disk again"] = None
        if not isinstance(reading, Seen):
            continue
        held = reading.value.broker_id or "(none)"
        if reading.value.cluster_id not in (None, cluster_id):
            wrong.append(f"{file}: cluster.id={reading.value.cluster_id}")
            if len(cluster_ids(dirs.values())) == 1:
                moves[
                    f"if {reading.value.cluster_id} is the right cluster: fix kafka.cluster_id in "
                    "migration.yml"
                ] = None
            moves["find out which broker owns the directory, and fix log.dirs"] = None
        if given not in (*_GENERATED, held) or held != str(id):
            wrong.append(f"{file}: broker.id={held}, {path}: {given or '(none)'}")
            moves |= dict.fromkeys(_fixes(path, held, given or str(id)))
    unread = next((one for one in dirs.values() if isinstance(one, Unknown)), None)
    unnamed = [p for p, one in dirs.items() if isinstance(one, Seen) and one.value.cluster_id is None]
    return Identity(tuple(wrong), unread, tuple(unnamed), tuple(moves))


def _fixes(path: str, held: str, given: str) -> tuple[str, ...]:
    if held == given:
        return (f"fix the broker's id in migration.yml: its files all have {held}",)
    return (
        f"set the id in {path} back to {held}, so that the broker starts with its existing replicas",
        f"start it as broker {given} with new, empty log directories, move the replicas of {held} to it, "
        "and keep the old directories until all are in sync",
    )
