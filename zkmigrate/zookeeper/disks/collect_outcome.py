"""The request to ``collect``, and the outcome of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from zkmigrate.runbook.model.report import counted
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.disks.download import megabytes
from zkmigrate.zookeeper.disks.location import VERSION_2, Place
from zkmigrate.zookeeper.disks.manifest import Entry, Manifest

FAILED, INTERRUPTED = 8, 130
_FAILURES = ("damaged", "unread", "unreached")


@dataclass(frozen=True)
class Server:
    """A server whose files are copied.

    name: the name of the server's folder. data: its dataDir. log: its dataLogDir; None if it is the dataDir.
    """

    name: str
    data: Place
    log: Place | None = None

    @property
    def place(self) -> str:
        """Both directories as text, without ``version-2``."""
        return " and ".join(
            str(Place(one.host, one.path.rstrip("/").removesuffix(f"/{VERSION_2}")))
            for one in (self.data, self.log)
            if one is not None
        )


@dataclass(frozen=True)
class Request:
    """The files to collect, and the limits for it.

    out: the folder for the copies. snapshots: how many of the newest complete snapshots to copy. since_zxid,
    since_hours: leave out older logs; hours count back from the newest transaction. rate: bytes per second
    from all hosts together; 0 for no limit. max_record: the largest accepted record in bytes.
    """

    out: Path
    servers: tuple[Server, ...]
    snapshots: int
    rate: float
    max_record: int
    since_zxid: int | None = None
    since_hours: float | None = None


@dataclass(frozen=True)
class Note:
    """An unusual event while a file or server was copied.

    what: ``left``, ``purged``, ``again``, ``aside`` or ``torn``; or ``damaged``, ``unread`` or ``unreached``,
    which make the run a failure. why: a text for the operator.
    """

    server: str
    name: str
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.server}{f' {self.name}' if self.name else ''}: {self.why}"


@dataclass
class Outcome:
    """The outcome of a run.

    taken: files that are new or grew. bytes_read: bytes read from the sources, including bytes that were not
    kept.
    """

    manifest: Manifest
    servers: tuple[str, ...]
    taken: list[Entry] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    bytes_read: int = 0
    seconds: float = 0.0
    stopped: bool = False

    @property
    def code(self) -> int:
        """The exit code of the command: 0, FAILED or INTERRUPTED."""
        if self.stopped:
            return INTERRUPTED
        return FAILED if any(note.what in _FAILURES for note in self.notes) else 0


def body(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome as JSON values."""
    return {
        "out": str(outcome.manifest.out),
        "code": outcome.code,
        "stopped": outcome.stopped,
        "bytes_read": outcome.bytes_read,
        "seconds": round(outcome.seconds, 3),
        "taken": [entry.to_json() for entry in outcome.taken],
        "notes": [asdict(note) for note in outcome.notes],
        "servers": {name: _server_body(outcome.manifest, name) for name in outcome.servers},
    }


def _server_body(manifest: Manifest, server: str) -> dict[str, Any]:
    """Return what has been copied of a server, as JSON values."""
    entries = manifest.of_server(server)
    newest = max((entry.cut.zxid for entry in entries if entry.cut), default=None)
    return {
        "files": len(entries),
        "bytes": sum(entry.bytes for entry in entries),
        "logs": sum(entry.cut is not None for entry in entries),
        "newest": None if newest is None else format_zxid(newest),
    }


def text(outcome: Outcome) -> str:
    """Return the outcome as text for the operator."""
    lines = []
    for name in outcome.servers:
        taken = sum(entry.server == name for entry in outcome.taken)
        here = _server_body(outcome.manifest, name)
        logs, snapshots = here["logs"], here["files"] - here["logs"]
        upto = f", log up to {here['newest']}" if here["newest"] else ""
        lines.append(
            f"{name}: {counted(taken, 'file')} copied; the folder has {counted(logs, 'log')} and "
            f"{counted(snapshots, 'snapshot')}, {megabytes(here['bytes'])}{upto}"
        )
    stopped = (
        ["stopped before the end. Next: run the same command again to continue"] if outcome.stopped else []
    )
    read = f"{megabytes(outcome.bytes_read)} read in {outcome.seconds:.1f} s"
    return "\n".join([*lines, *map(str, outcome.notes), *stopped, read])
