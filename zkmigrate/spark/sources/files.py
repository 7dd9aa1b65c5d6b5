"""List and read logs and snapshots, given as directories, files or globs.

The files may be on this machine or at any URI that fsspec reads. `entries` lists any directory.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from zkmigrate.errors import UsageError
from zkmigrate.zookeeper.data.reader import FileReader, RandomReader

_GLOB = re.compile(r"[*?\[]")
_URI = re.compile(r"[a-z][a-z0-9+.-]*://")
INSIDE = "version-2"


@dataclass(frozen=True)
class File:
    """One log or snapshot.

    server: the name of the file's server in the rows. path: a local path or a URI. size: in bytes.
    """

    server: str
    path: str
    size: int

    @property
    def name(self) -> str:
        return posixpath.basename(self.path)

    def reader(self) -> RandomReader:
        """Return a reader that opens the file for every read, so that a task keeps no file open."""
        return _Fsspec(self.path) if _URI.match(self.path) else FileReader(Path(self.path))


class _Fsspec:
    """A reader of a file at a URI."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._end = 0  # the known size

    @cached_property
    def _place(self) -> tuple[Any, str]:
        return _file_system(self._uri)

    def size(self) -> int:
        fs, path = self._place
        return int(fs.info(path)["size"])

    def read(self, offset: int, length: int) -> bytes:
        fs, path = self._place
        if offset + length > self._end:
            self._end = self.size()
        end = min(offset + length, self._end)
        return bytes(fs.cat_file(path, offset, end)) if offset < end else b""


def _file_system(uri: str) -> tuple[Any, str]:
    """Return the file system of a URI, and the path in this file system.

    Raises UsageError if fsspec, or its package for the scheme, is missing.
    """
    try:
        from fsspec.core import url_to_fs

        fs, path = url_to_fs(uri)
    except (ImportError, ValueError) as error:
        needed = "a scheme that fsspec knows, and its package on every machine that reads"
        raise UsageError(f"{uri}: {error}. Needed: {needed}") from error
    return fs, path


@dataclass(frozen=True)
class Entry:
    """One entry of a directory.

    path: a local path or a URI. size: the bytes of a file. folder: whether the entry is a directory.
    modified: the time of the last change in seconds since 1970; None if the file system does not report it.
    """

    name: str
    path: str
    size: int
    folder: bool
    modified: float | None

    def reader(self) -> RandomReader:
        """Return a reader for this file, as `File.reader` does."""
        return File("", self.path, self.size).reader()


def entries(path: str) -> list[Entry]:
    """Return the files and folders of a directory, sorted by name.

    Entries that vanish meanwhile are left out. Raises OSError, and UsageError if the path's scheme cannot be
    read.
    """
    if _URI.match(path):
        return sorted(_distant_entries(path), key=lambda entry: entry.name)
    found = []
    for one in Path(path).iterdir():
        try:
            info = one.stat()
        except FileNotFoundError:
            continue
        found.append(Entry(one.name, str(one), info.st_size, one.is_dir(), info.st_mtime))
    return sorted(found, key=lambda entry: entry.name)


def _distant_entries(uri: str) -> Iterable[Entry]:
    fs, path = _file_system(uri)
    for one in fs.ls(path, detail=True):
        name = posixpath.basename(one["name"].rstrip("/"))
        folder = one["type"] == "directory"
        yield Entry(name, f"{uri.rstrip('/')}/{name}", int(one["size"] or 0), folder, _modified(one))


def _modified(info: Mapping[str, Any]) -> float | None:
    """Return the time of a file's last change in seconds since 1970; None if the file system reports none.

    File systems use different names for this value.
    """
    for value in map(info.get, ("mtime", "LastModified", "last_modified", "updated")):
        if isinstance(value, datetime | int | float):
            return value.timestamp() if isinstance(value, datetime) else float(value)
    return None


def files(paths: Sequence[str], server: str, is_one: Callable[[str], bool]) -> list[File]:
    """Return the files at these paths that `is_one` accepts by name.

    Each path is a dataDir, its version-2, a file, or a glob of these. server: the server's name for all
    files; "" to use the name of the directory that holds version-2, or the file. Raises UsageError for a path
    without such files.
    """
    found: dict[str, File] = {}
    for path in paths:
        here = [file for file in _at(path) if is_one(posixpath.basename(file[0]))]
        if not here:
            needed = f"a dataDir, its {INSIDE}, a file of it, or a glob"
            raise UsageError(f"{path}: there is no file to read. Needed: {needed}")
        for name, size in here:
            found[name] = File(server or server_of(name), name, size)
    return sorted(found.values(), key=lambda file: (file.server, file.path))


def server_of(path: str) -> str:
    """Return the name of a log's or snapshot's server: the directory with version-2, or with the file."""
    folders = [part for part in posixpath.dirname(path).split("/") if part]
    if folders and folders[-1] == INSIDE:
        folders.pop()
    return folders[-1] if folders else "."


def _at(path: str) -> Iterable[tuple[str, int]]:
    """Return paths and sizes of the regular files that a path names."""
    if _URI.match(path):
        return _distant(path)
    places = sorted(Path("/").glob(str(Path(path).absolute())[1:])) if _GLOB.search(path) else [Path(path)]
    return [(str(file), file.stat().st_size) for place in places for file in _local(place) if file.is_file()]


def _local(place: Path) -> Iterable[Path]:
    if not place.is_dir():
        return [place]
    inside = place / INSIDE
    return sorted((inside if inside.is_dir() else place).iterdir())


def _distant(uri: str) -> Iterable[tuple[str, int]]:
    fs, path = _file_system(uri)
    scheme = uri.partition("://")[0]
    for place in sorted(fs.glob(path)) if _GLOB.search(path) else [path]:
        if not fs.exists(place):
            continue
        inside = f"{place.rstrip('/')}/{INSIDE}"
        folder = inside if fs.isdir(inside) else place
        for one in fs.ls(folder, detail=True) if fs.isdir(folder) else [fs.info(place)]:
            if one["type"] == "file":
                name = one["name"] if scheme == "file" else one["name"].lstrip("/")
                yield f"{scheme}://{name}", int(one["size"])
