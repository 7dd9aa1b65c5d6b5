"""Check whether a snapshot is complete, without parsing its tree.

Each section of a snapshot ends in a seal of 13 bytes: long Adler-32 of everything before it (uncompressed),
then the string "/". Because each seal covers all earlier bytes, the last one proves the file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from zkmigrate.zookeeper.data.errors import CorruptError, ForeignFileError, TruncatedHeaderError, ZkDataError
from zkmigrate.zookeeper.data.reader import RandomReader
from zkmigrate.zookeeper.data.snapname import snapshot_codec
from zkmigrate.zookeeper.data.snapstream import GZIP_MAGIC, SNAPPY_MAGIC, raw_blocks

SEAL_SIZE = 13
SEAL_TEXT = b"\0\0\0\x01/"
MAGIC = b"ZKSN"


def check_snapshot(reader: RandomReader, name: str, *, whole: bool = True) -> str:
    """Return why a snapshot is not usable; "" if it is usable.

    whole=True checks the magic number, and the last seal against all bytes. whole=False makes only the quick
    check that the server itself makes: of an uncompressed file the magic number and the last five bytes, of a
    gzip or snappy file the magic number.
    """
    if not whole:
        return _quick_problem(reader, snapshot_codec(name))
    try:
        _check_seal(raw_blocks(reader, name), name)
    except ZkDataError as error:
        return error.reason
    return ""


def _quick_problem(reader: RandomReader, codec: str) -> str:
    magic = {"": MAGIC, "gz": GZIP_MAGIC, "snappy": SNAPPY_MAGIC}[codec]
    size = reader.size()
    if reader.read(0, len(magic)) != magic:
        return "the file does not start like a snapshot"
    if not codec and (size < 10 or reader.read(size - 5, 5) != SEAL_TEXT):
        return "the file does not end like a snapshot"
    return ""


def _check_seal(blocks: Iterator[bytes], name: str) -> None:
    """Check Adler-32 over all bytes except the last ones, which are the seal itself."""
    summed = 1
    total = 0
    kept = b""
    for block in blocks:
        kept += block
        total += len(block)
        if len(kept) > SEAL_SIZE:
            if total == len(kept) and not kept.startswith(MAGIC):
                reason = f"the file starts with {kept[:4]!r}, but a snapshot starts with {MAGIC!r}"
                raise ForeignFileError(reason, name, 0)
            summed = zlib.adler32(kept[:-SEAL_SIZE], summed)
            kept = kept[-SEAL_SIZE:]
    if total < len(MAGIC) + SEAL_SIZE:
        raise TruncatedHeaderError("the file is too short for a snapshot", name, 0)
    if kept != seal_bytes(summed):
        raise CorruptError("the last seal does not match the content", name, total - SEAL_SIZE)


def seal_bytes(checksum: int) -> bytes:
    """Return the 13 bytes that close a section. checksum: the Adler-32 of all bytes before them."""
    return struct.pack(">q", checksum) + SEAL_TEXT
