"""Random access to files and directories in memory, on this machine, or remote.

The readers of ZooKeeper's formats work on all of them.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol


class RandomReader(Protocol):
    """Random access to one file. The creator of the reader closes its handle, if it has one."""

    def size(self) -> int:
        """Return the current length in bytes."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`; fewer only at the end of the file."""
        ...


class Directory(Protocol):
    """One flat directory (`version-2` of a dataDir or dataLogDir)."""

    def names_with_sizes(self) -> Mapping[str, int]:
        """Return the size in bytes of each entry by name; -1 for an entry that is not a regular file."""
        ...

    def open(self, name: str) -> RandomReader:
        """Return a reader for one regular file."""
        ...


class FileReader:
    """A reader of a local file, which it opens for each read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def size(self) -> int:
        return self._path.stat().st_size

    def read(self, offset: int, length: int) -> bytes:
        chunks: list[bytes] = []
        with self._path.open("rb", buffering=0) as file:
            file.seek(offset)
            while length > 0 and (chunk := file.read(length)):
                chunks.append(chunk)
                length -= len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class FileDirectory:
    """A local directory. Its methods raise OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names_with_sizes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for entry in self._path.iterdir():
            try:
                info = entry.stat()
            except FileNotFoundError:  # purged after the listing
                continue
            found[entry.name] = info.st_size if stat.S_ISREG(info.st_mode) else -1
        return found

    def open(self, name: str) -> FileReader:
        return FileReader(self._path / name)


class Listed:
    """A directory whose entries are listed only once, so that all uses of the list agree."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._names = dict(directory.names_with_sizes())

    def names_with_sizes(self) -> Mapping[str, int]:
        return self._names

    def open(self, name: str) -> RandomReader:
        return self._directory.open(name)


class CountingReader:
    """A reader that counts its reads and their bytes."""

    def __init__(self, inner: RandomReader) -> None:
        self._inner = inner
        self.reads = 0
        self.bytes_read = 0

    def size(self) -> int:
        return self._inner.size()

    def read(self, offset: int, length: int) -> bytes:
        data = self._inner.read(offset, length)
        self.reads += 1
        self.bytes_read += len(data)
        return data
