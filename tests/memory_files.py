"""Files and directories in memory, for the readers of ZooKeeper's formats."""

from __future__ import annotations

from collections.abc import Mapping


class BytesReader:
    """A reader over bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def read(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]


class BytesDirectory:
    """A directory in memory: name → content."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = dict(files)

    def names_with_sizes(self) -> dict[str, int]:
        return {name: len(data) for name, data in self._files.items()}

    def open(self, name: str) -> BytesReader:
        return BytesReader(self._files[name])
