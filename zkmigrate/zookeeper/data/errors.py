"""The errors of the readers: each says what is wrong, and names file and offset where it has them."""

from __future__ import annotations


class ZkDataError(ValueError):
    """Bytes or text that do not say what ZooKeeper would have written.

    `file` and `offset` (bytes from the file's start) are None until the reader that knows them fills them in.
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
    """A file that is named like ZooKeeper's but does not start as one, or has an unknown version."""


class CorruptError(ZkDataError):
    """Damage that is not a torn end: a checksum, a length, zeros before data, zxids that do not rise."""


class NoDataError(ZkDataError):
    """A directory that holds neither a usable snapshot nor a transaction."""


class CursorError(ZkDataError):
    """A cursor that no longer fits its directory: the file is gone, shorter, or changed before the cursor."""
