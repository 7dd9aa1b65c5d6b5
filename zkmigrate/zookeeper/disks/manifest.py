"""The folder that ``collect`` fills: OUT/NAME/version-2/FILE of each server, and OUT/manifest.json.

The manifest describes each file and is always right. A file's new content is first written to FILE.part and
made durable. Then its size and checksum are written to the manifest, and FILE.part is renamed to FILE. So
after a crash at any moment, FILE is as the manifest says, or FILE.part is and ``Manifest.recover`` renames
it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from zkmigrate import input_file
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
"""The suffix for the copy of a log that the source took back. ZooKeeper's readers ignore such names."""

DIFFERS = 10
SERVER = re.compile(r"(?!\.+\Z)[A-Za-z0-9._-]+")
"""The pattern of a server's name, which is also the name of a folder directly below OUT."""

_FORMAT = 1
_BLOCK = 1 << 20

State = Literal["whole", "growing", "damaged", "cut"]
"""The state of a copied file.

whole: complete and final. growing: the server's newest log at the time of the copy. damaged: copied up to the
damage. cut: removed by the server before the end was copied.
"""

Key = tuple[str, str]
"""The names of a server and of a file."""


class ManifestError(ZkmigrateError):
    """The manifest cannot be read."""

    exit_code = 8


@dataclass(frozen=True)
class Cut:
    """The end of a copied log: after the record of `zxid`.

    offset: the end in bytes. record: where this last record begins, in bytes.
    """

    offset: int
    zxid: int
    record: int


@dataclass(frozen=True)
class Entry:
    """One copied file.

    source: the source's directory, as requested. bytes, sha256: size and checksum of the copy. source_size:
    the size of the source's file in bytes, with padding, when its directory was listed. taken_ms: the time of
    the copy, in milliseconds since 1970. cut: the end of the copy, for a log.
    """

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

    def to_json(self) -> dict[str, Any]:
        cut = self.cut
        first_zxid = log_zxid(self.name) or snapshot_zxid(self.name) or 0
        return {
            "server": self.server,
            "name": self.name,
            "source": self.source,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "state": self.state,
            "growing": self.state == "growing",
            "first_zxid": format_zxid(first_zxid),
            "cut": cut and {"offset": cut.offset, "zxid": format_zxid(cut.zxid), "record": cut.record},
            "source_size": self.source_size,
            "taken": datetime.fromtimestamp(self.taken_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        }


@dataclass(frozen=True)
class Unfinished:
    """A snapshot that was incomplete when the source had `source_size` bytes of it."""

    source_size: int
    why: str


@dataclass
class Manifest:
    """The content of manifest.json.

    servers: the place from which each server is copied, by the server's name. left: snapshots that were
    incomplete in the last run.
    """

    out: Path
    servers: dict[str, str] = field(default_factory=dict)
    files: dict[Key, Entry] = field(default_factory=dict)
    left: dict[Key, Unfinished] = field(default_factory=dict)

    def of_server(self, server: str) -> list[Entry]:
        """Return the entries of one server, sorted by file name."""
        return [entry for key, entry in sorted(self.files.items()) if key[0] == server]

    def path(self, server: str, name: str) -> Path:
        return self.out / server / FOLDER / name

    def claim(self, places: Mapping[str, str]) -> None:
        """Raise UsageError if a server's name was used for another place before. places: by server name."""
        for name, place in places.items():
            if (before := self.servers.get(name, place)) != place:
                raise UsageError(
                    f"{self.out} already has copies from {before} under the name {name}, not from {place}. "
                    "Needed: another name (NAME=), or another folder"
                )

    def save(self) -> None:
        """Write the manifest durably and atomically."""
        body = {
            "format": _FORMAT,
            "servers": self.servers,
            "files": [entry.to_json() for _, entry in sorted(self.files.items())],
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
        _sync(self.out)

    def recover(self, server: str) -> None:
        """Finish the renames of a server's files that a crash left undone."""
        for entry in self.of_server(server):
            if self.needs_rename(entry):
                self.rename(entry)

    def needs_rename(self, entry: Entry) -> bool:
        """Return whether the content that the entry describes is still in FILE.part."""
        part = self.path(entry.server, entry.name + PART)
        return size_of(part) == entry.bytes and sha256_of(part) == entry.sha256

    def keep(self, entry: Entry) -> None:
        """Record an entry whose durable content is in FILE.part, and rename FILE.part to FILE."""
        self.files[entry.key] = entry
        self.save()
        self.rename(entry)

    def rename(self, entry: Entry) -> None:
        """Rename the entry's FILE.part to FILE."""
        path = self.path(entry.server, entry.name)
        self.path(entry.server, entry.name + PART).replace(path)
        _sync(path.parent)


def load(out: Path) -> Manifest:
    """Read the manifest of a folder.

    Raises UsageError if there is none, ManifestError if it cannot be read.
    """
    path = out / MANIFEST
    try:
        text = input_file.content(path).decode("utf-8", "surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{out} has no {MANIFEST}. Needed: a folder that collect has filled") from None
    except OSError as error:
        raise ManifestError(
            f"{path} cannot be read: {error.strerror}. Next: collect into another folder"
        ) from error
    try:
        body = json.loads(text)
        if body["format"] != _FORMAT:
            raise ValueError(f"the format is {body['format']}, but only {_FORMAT} is supported")
        entries = [_entry(one) for one in body["files"]]
        return Manifest(
            out,
            {_server(name): str(place) for name, place in body["servers"].items()},
            {entry.key: entry for entry in entries},
            {
                (_server(one["server"]), one["name"]): Unfinished(int(one["source_size"]), one["why"])
                for one in body["left"]
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestError(f"{path} cannot be read: {error}. Next: collect into another folder") from error


def _entry(body: dict[str, Any]) -> Entry:
    cut = body["cut"]
    name, server = str(body["name"]), _server(body["server"])
    if body["state"] not in get_args(State) or "/" in name or not is_log_or_snapshot(name):
        raise MalformedError(f"not a file that collect writes: {server} {name}, {body['state']}")
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
    """Return a server's name, which is also the name of its folder.

    Raises MalformedError for a name that leads to a folder elsewhere.
    """
    if not SERVER.fullmatch(str(name)):
        raise MalformedError(f"{name!r} is not a server's name")
    return str(name)


@contextmanager
def locked_manifest(out: Path) -> Iterator[Manifest]:
    """Yield the manifest of a folder, locked for this process.

    The folder is new, empty, or was filled before. Raises UsageError for any other folder, LockedError if
    another process holds the lock, and the errors of `load`.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file. Needed: a new folder, or one that collect has filled")
    out.mkdir(parents=True, exist_ok=True)
    with _directory(out) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(
                f"another process is copying into {out}. Next: wait for it, or stop it with Ctrl-C and run "
                "this command again"
            ) from None
        if (out / MANIFEST).exists():
            yield load(out)
        elif any(path.name != f".{MANIFEST}{PART}" for path in out.iterdir()):
            raise UsageError(
                f"{out} is not empty and has no {MANIFEST}. Needed: a new folder, or an empty one"
            )
        else:
            yield Manifest(out)


@contextmanager
def _directory(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield handle
    finally:
        os.close(handle)


def _sync(directory: Path) -> None:
    """Make the names in a directory durable."""
    with _directory(directory) as handle:
        os.fsync(handle)


def size_of(path: Path) -> int:
    """Return the size in bytes; -1 if there is no such file."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_file(path: Path, to: Path) -> str:
    """Copy a file, and return the SHA-256 of the copied bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as source, to.open("wb") as target:
        while block := source.read(_BLOCK):
            digest.update(block)
            target.write(block)
    return digest.hexdigest()


@dataclass(frozen=True)
class Verified:
    """The result of comparing a folder with its manifest.

    files, bytes: the number and total size of the files in the manifest. problems: the differences, one text
    each. unfinished: part files that the next run continues.
    """

    files: int
    bytes: int
    problems: tuple[str, ...]
    unfinished: tuple[str, ...]

    @property
    def code(self) -> int:
        return DIFFERS if self.problems else 0


def verify(out: Path) -> Verified:
    """Compare every file with the manifest, and report files that are not in the manifest.

    Raises the errors of `load`, and OSError for an unreadable file.
    """
    manifest = load(out)
    problems = [
        problem for _, entry in sorted(manifest.files.items()) if (problem := _problem(manifest, entry))
    ]
    unfinished: list[str] = []
    for pattern in (f"*/{FOLDER}/*", "*/*.parquet", f"*/*{PART}"):
        for path in sorted(out.glob(pattern)):
            server = path.relative_to(out).parts[0]
            if path.name.endswith(PART):
                unfinished.append(f"{server} {path.name}")
            elif (server, path.name) not in manifest.files and not path.name.endswith(ASIDE):
                problems.append(f"{server} {path.name}: is not in the manifest")
    size = sum(entry.bytes for entry in manifest.files.values())
    return Verified(len(manifest.files), size, tuple(problems), tuple(unfinished))


def _problem(manifest: Manifest, entry: Entry) -> str:
    """Return how a file differs from its manifest entry; "" if there is no difference."""
    path = manifest.path(entry.server, entry.name)
    size = size_of(path)
    if size == entry.bytes and sha256_of(path) == entry.sha256:
        return ""
    if manifest.needs_rename(entry):
        why = f"a run was killed before it renamed {entry.name}{PART}. Next: run collect again"
    elif size < 0:
        why = "is missing"
    elif size != entry.bytes:
        why = f"has {size} bytes, but the manifest has {entry.bytes}"
    else:
        why = "its SHA-256 differs from the manifest"
    return f"{entry.server} {entry.name}: {why}"
