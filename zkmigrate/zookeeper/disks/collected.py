"""What ``collect`` keeps: OUT/NAME/version-2/FILE, and OUT/manifest.json that says what each file is.

The manifest is what counts. A file's new content is made in FILE.part; when it is durable, the manifest takes
its size and checksum, and only then it gets its name. So after a crash at any moment FILE is as the manifest
said before, or FILE.part is as it says now, and ``Manifest.recover`` gives that its name.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from zkmigrate.errors import LockedError, UsageError, ZkmigrateError
from zkmigrate.zookeeper.data.errors import MalformedError
from zkmigrate.zookeeper.data.logdir import is_log_or_snapshot
from zkmigrate.zookeeper.data.snapname import snapshot_zxid
from zkmigrate.zookeeper.data.txnlog import log_zxid
from zkmigrate.zookeeper.data.zxid import format_zxid, parse_zxid

MANIFEST = "manifest.json"
FOLDER = "version-2"
PART = ".part"
ASIDE = ".truncated"
"""Ending of a log that the source took back. No reader of ZooKeeper's files takes such a name."""

NOT_AS_SAID = 10
SERVER = re.compile(r"(?!\.+\Z)[A-Za-z0-9._-]+")
"""Names that are a folder below, and no other."""

_FORMAT = 1
_BLOCK = 1 << 20

State = Literal["whole", "growing", "damaged", "cut"]
"""whole: to its end, and nothing comes to it any more. growing: was its server's newest log. damaged: up to
the damage. cut: its server removed it before its end was taken."""

Key = tuple[str, str]
"""A server's name and a file's."""


class ManifestError(ZkmigrateError):
    """The manifest does not read."""

    exit_code = 8


@dataclass(frozen=True)
class Cut:
    """Where a log was cut: behind the record of `zxid`, which begins at `record`, in bytes."""

    offset: int
    zxid: int
    record: int


@dataclass(frozen=True)
class Entry:
    """A file that was taken. source: its directory as it was asked for. cut: of a log. source_size: in bytes,
    padding included, when the directory was listed. taken_ms: since 1970."""

    server: str
    name: str
    source: str
    bytes: int
    sha256: str
    state: State
    source_size: int
    taken_ms: int
    cut: Cut | None = None

    @property
    def key(self) -> Key:
        return self.server, self.name

    @property
    def first_zxid(self) -> int:
        """The zxid in the name."""
        return zxid_of(self.name)


@dataclass(frozen=True)
class Left:
    """A snapshot that was not whole when the source had so many bytes of it."""

    source_size: int
    why: str


@dataclass
class Manifest:
    """servers: name → the place it is taken from. left: what was looked at last time and not taken."""

    out: Path
    servers: dict[str, str] = field(default_factory=dict)
    files: dict[Key, Entry] = field(default_factory=dict)
    left: dict[Key, Left] = field(default_factory=dict)

    def of(self, server: str) -> list[Entry]:
        """The files of one server, by name."""
        return [entry for key, entry in sorted(self.files.items()) if key[0] == server]

    def path(self, server: str, name: str) -> Path:
        """Where a file is."""
        return self.out / server / FOLDER / name

    def save(self) -> None:
        """Durable, whole or not at all."""
        body = {
            "format": _FORMAT,
            "servers": self.servers,
            "files": [told(entry) for _, entry in sorted(self.files.items())],
            "left": [
                {"server": server, "name": name, "source_size": one.source_size, "why": one.why}
                for (server, name), one in sorted(self.left.items())
            ],
        }
        fresh = self.out / f".{MANIFEST}{PART}"
        with fresh.open("w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(json.dumps(body, ensure_ascii=False, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.out / MANIFEST)
        synced(self.out)

    def recover(self, server: str) -> None:
        """Finish what a crash left between the manifest and the file's name."""
        for entry in self.of(server):
            if self.unnamed(entry):
                self.named(entry)

    def unnamed(self, entry: Entry) -> bool:
        """Whether the file that an entry tells of is still in its FILE.part."""
        part = self.path(entry.server, entry.name + PART)
        return size_of(part) == entry.bytes and sha256_of(part) == entry.sha256

    def named(self, entry: Entry) -> None:
        """Give a file that is complete its name."""
        path = self.path(entry.server, entry.name)
        self.path(entry.server, entry.name + PART).replace(path)
        synced(path.parent)


def zxid_of(name: str) -> int:
    """The zxid in a log's or snapshot's name; 0 for any other."""
    return log_zxid(name) or snapshot_zxid(name) or 0


def told(entry: Entry) -> dict[str, Any]:
    """An entry as JSON values."""
    cut = entry.cut
    return {
        "server": entry.server,
        "name": entry.name,
        "source": entry.source,
        "bytes": entry.bytes,
        "sha256": entry.sha256,
        "state": entry.state,
        "growing": entry.state == "growing",
        "first_zxid": format_zxid(entry.first_zxid),
        "cut": cut and {"offset": cut.offset, "zxid": format_zxid(cut.zxid), "record": cut.record},
        "source_size": entry.source_size,
        "taken": datetime.fromtimestamp(entry.taken_ms / 1000, UTC).isoformat(timespec="milliseconds"),
    }


def load(out: Path) -> Manifest:
    """The manifest of a folder. Raises UsageError where there is none, ManifestError where it does not
    read."""
    path = out / MANIFEST
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{out} has no {MANIFEST}. Needed: a folder that collect has filled") from None
    try:
        body = json.loads(text)
        if body["format"] != _FORMAT:
            raise ValueError(f"format {body['format']}, known is {_FORMAT}")
        entries = [_entry(one) for one in body["files"]]
        return Manifest(
            out,
            {_server(name): str(place) for name, place in body["servers"].items()},
            {entry.key: entry for entry in entries},
            {
                (_server(one["server"]), one["name"]): Left(int(one["source_size"]), one["why"])
                for one in body["left"]
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestError(f"{path} does not read: {error}. Next: collect into another folder") from error


def _entry(body: dict[str, Any]) -> Entry:
    cut = body["cut"]
    name, server = str(body["name"]), _server(body["server"])
    if body["state"] not in get_args(State) or "/" in name or not is_log_or_snapshot(name):
        raise MalformedError(f"no file of ZooKeeper's: {server} {name}, {body['state']}")
    return Entry(
        server,
        name,
        str(body["source"]),
        int(body["bytes"]),
        str(body["sha256"]),
        body["state"],
        int(body["source_size"]),
        round(datetime.fromisoformat(body["taken"]).timestamp() * 1000),
        Cut(int(cut["offset"]), parse_zxid(cut["zxid"]), int(cut["record"])) if cut else None,
    )


def _server(name: object) -> str:
    """A server's name, which is a folder's too. MalformedError for one that leads elsewhere."""
    if not SERVER.fullmatch(str(name)):
        raise MalformedError(f"{name!r} is no server's name")
    return str(name)


def counted(number: int, what: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


@contextmanager
def filling(out: Path) -> Iterator[Manifest]:
    """The manifest of a folder that is new, empty, or was filled before; no other process fills it as long.

    Raises as `load`, UsageError for any other folder, LockedError.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file. Needed: a folder, new or filled by collect before")
    out.mkdir(parents=True, exist_ok=True)
    directory = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(
                f"{out} is being filled by another process. Next: wait for it, or end it with Ctrl-C "
                "and go on with this one"
            ) from None
        if (out / MANIFEST).exists():
            yield load(out)
        elif any(path.name != f".{MANIFEST}{PART}" for path in out.iterdir()):
            raise UsageError(
                f"{out} is not empty and has no {MANIFEST}. Needed: a new folder, or an empty one"
            )
        else:
            yield Manifest(out)
    finally:
        os.close(directory)


def synced(directory: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def size_of(path: Path) -> int:
    """In bytes; -1 where there is no such file."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


def sha256_of(path: Path) -> str:
    """Of the whole file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copied(path: Path, to: Path) -> str:
    """Copy a file; the SHA-256 of what was copied."""
    summed = hashlib.sha256()
    with path.open("rb") as source, to.open("wb") as target:
        while block := source.read(_BLOCK):
            summed.update(block)
            target.write(block)
    return summed.hexdigest()


@dataclass(frozen=True)
class Verified:
    """problems: what is not as the manifest says. unfinished: parts that the next run goes on with."""

    files: int
    bytes: int
    problems: tuple[str, ...]
    unfinished: tuple[str, ...]

    @property
    def code(self) -> int:
        return NOT_AS_SAID if self.problems else 0


def verify(out: Path) -> Verified:
    """Read every file that the manifest names, and look for others. Raises as `load`, OSError for a file
    that cannot be read."""
    manifest = load(out)
    problems = [problem for _, entry in sorted(manifest.files.items()) for problem in _wrong(manifest, entry)]
    unfinished: list[str] = []
    for folder in sorted(out.glob(f"*/{FOLDER}")):
        server = folder.parent.name
        for path in sorted(folder.iterdir()):
            told_as = f"{server} {path.name}"
            if path.name.endswith(PART):
                unfinished.append(told_as)
            elif (server, path.name) not in manifest.files and not path.name.endswith(ASIDE):
                problems.append(f"{told_as}: is not in the manifest")
    size = sum(entry.bytes for entry in manifest.files.values())
    return Verified(len(manifest.files), size, tuple(problems), tuple(unfinished))


def _wrong(manifest: Manifest, entry: Entry) -> Iterable[str]:
    path = manifest.path(entry.server, entry.name)
    size = size_of(path)
    if size == entry.bytes and sha256_of(path) == entry.sha256:
        return
    what = f"{entry.server} {entry.name}"
    if manifest.unnamed(entry):
        yield f"{what}: a run was killed just before {entry.name}{PART} got this name; collect again does it"
    elif size < 0:
        yield f"{what}: is missing"
    elif size != entry.bytes:
        yield f"{what}: has {size} bytes, the manifest says {entry.bytes}"
    else:
        yield f"{what}: its SHA-256 is not the manifest's"
