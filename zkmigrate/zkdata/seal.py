"""Whether a snapshot is whole, without parsing its tree.

A snapshot is a stream of sections, each closed by a seal of 13 bytes: long Adler-32 of everything before
it, then the string "/". 3.4 and 3.5 write one seal; 3.6+ (digests on) add long zxid, int version, long
digest and a second; 3.9 adds long lastProcessedZxid and a third. Because each seal covers all earlier
bytes, the last one proves the file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from zkmigrate.zkdata.errors import (
    CorruptError,
    ForeignFileError,
    TruncatedHeaderError,
    UnsupportedError,
    ZkDataError,
)
from zkmigrate.zkdata.reader import RandomReader
from zkmigrate.zkdata.snapname import snapshot_codec

SEAL_SIZE = 13
SEAL_TEXT = b"\0\0\0\x01/"
MAGIC = b"ZKSN"
BLOCK = 256 << 10
_SNAPPY_MAGIC = b"\x82SNAPPY\0"


def raw_blocks(reader: RandomReader, name: str) -> Iterator[bytes]:
    """The uncompressed bytes of a snapshot, in blocks of bounded size.

    Raises UnsupportedError for snappy, CorruptError for a gzip stream that is damaged, cut, or followed by
    anything.
    """
    codec = snapshot_codec(name)
    if codec == "snappy":
        raise UnsupportedError("snappy snapshots cannot be read yet; plain and gzip can", name, 0)
    inflate = zlib.decompressobj(wbits=31) if codec == "gz" else None
    offset = 0
    while block := reader.read(offset, BLOCK):
        at, offset = offset, offset + len(block)
        if inflate is None:
            yield block
            continue
        if inflate.eof:
            raise CorruptError("there is data behind the end of the gzip stream", name, at)
        while block:
            try:
                out = inflate.decompress(block, BLOCK)
            except zlib.error as error:
                raise CorruptError(f"gzip: {error}", name, at) from None
            block = inflate.unconsumed_tail
            if out:
                yield out
        if inflate.unused_data:
            raise CorruptError("there is data behind the end of the gzip stream", name, at)
    if inflate is not None and not inflate.eof:
        raise CorruptError("the gzip stream is cut", name, offset)


def check_snapshot(reader: RandomReader, name: str, *, whole: bool = True) -> str:
    """Why a snapshot is not usable, "" when it is: its magic, and its last seal over all bytes. With
    whole=False only what the server itself tests (plain: the last five bytes; gzip: the magic). Raises
    UnsupportedError for snappy when the whole is asked for."""
    if not whole:
        return _quick_problem(reader, snapshot_codec(name))
    try:
        _check_seal(raw_blocks(reader, name), name)
    except UnsupportedError:
        raise
    except ZkDataError as error:
        return error.reason
    return ""


def _quick_problem(reader: RandomReader, codec: str) -> str:
    magic = {"": MAGIC, "gz": b"\x1f\x8b", "snappy": _SNAPPY_MAGIC}[codec]
    size = reader.size()
    if reader.read(0, len(magic)) != magic:
        return "does not start as a snapshot"
    if not codec and (size < 10 or reader.read(size - 5, 5) != SEAL_TEXT):
        return "does not end as a snapshot"
    return ""


def _check_seal(blocks: Iterator[bytes], name: str) -> None:
    """Adler-32 over everything but the last bytes, which hold the seal itself."""
    summed = 1
    total = 0
    kept = b""
    for block in blocks:
        kept += block
        total += len(block)
        if len(kept) > SEAL_SIZE:
            if total == len(kept) and not kept.startswith(MAGIC):
                raise ForeignFileError(f"starts with {kept[:4]!r}, a snapshot starts with {MAGIC!r}", name, 0)
            summed = zlib.adler32(kept[:-SEAL_SIZE], summed)
            kept = kept[-SEAL_SIZE:]
    if total < len(MAGIC) + SEAL_SIZE:
        raise TruncatedHeaderError("too short for a snapshot", name, 0)
    if kept != seal_bytes(summed):
        raise CorruptError("the last seal does not match the content", name, total - SEAL_SIZE)


def seal_bytes(checksum: int) -> bytes:
    """The 13 bytes that close a section."""
    return struct.pack(">q", checksum) + SEAL_TEXT
