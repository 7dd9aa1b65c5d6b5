"""The errors of the readers, with file and offset if known."""

from __future__ import annotations


class ZkDataError(ValueError):
    """Bytes or text that ZooKeeper would not have written.

    file: the name of the file. offset: bytes from its start. Both are None until a reader that knows them
    sets them.
    """

    def __init__(self, reason: str, file: str | None = None, offset: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.file = file
        self.offset = offset

    def __str__(self) -> str:
        where = self.file or ""
        if self.offset is not None:
            where += f" at offset {self.offset}" if where else f"offset {self.offset}"
        return f"{where}: {self.reason}" if where else self.reason


class MalformedError(ZkDataError):
    """A record whose bytes do not decode: a bad length, type or text."""


class TruncatedHeaderError(ZkDataError):
    """A file that ends inside its own header (the empty file included)."""


class ForeignFileError(ZkDataError):
    """A file with one of ZooKeeper's names that has another beginning or an unknown version."""


class CorruptError(ZkDataError):
    """Damage other than a torn end: a checksum, a length, zeros before data, or zxids that do not rise."""


class NoDataError(ZkDataError):
    """A directory without a usable snapshot or transaction."""


class CursorError(ZkDataError):
    """A cursor that no longer fits: its file no longer exists, is shorter, or changed before the cursor."""
