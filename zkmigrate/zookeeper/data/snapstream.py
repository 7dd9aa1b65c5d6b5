"""Reader of a snapshot file's uncompressed content: plain, gzip or snappy.

The end of the name shows the compression (`snapshot.compression.method`, 3.6+); the package docstring
describes the formats. snappy is the stream of snappy-java's SnappyOutputStream, neither the official framing
nor Hadoop's. Its second int is the lowest compatible version; a raw block begins with its uncompressed
length. It has no checksum: the snapshot's own seals cover it.

Sources: org.apache.zookeeper.server.persistence.SnapStream, org.xerial.snappy.SnappyOutputStream and
SnappyCodec; checked on snapshots of 3.6, 3.7, 3.8 and 3.9.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from zkmigrate.zookeeper.data.errors import CorruptError, ForeignFileError, TruncatedHeaderError
from zkmigrate.zookeeper.data.reader import RandomReader
from zkmigrate.zookeeper.data.snapname import snapshot_codec

BLOCK = 256 << 10
GZIP_MAGIC = b"\x1f\x8b"
SNAPPY_MAGIC = b"\x82SNAPPY\0"
SNAPPY_HEADER = SNAPPY_MAGIC + struct.pack(">ii", 1, 1)
MAX_SNAPPY_BLOCK = 1 << 20  # uncompressed; 32 times what the writer makes
_MAX_PACKED = 32 + MAX_SNAPPY_BLOCK + MAX_SNAPPY_BLOCK // 6  # snappy's own bound for that many bytes
_LARGEST = 4 + _MAX_PACKED  # a block with its length: a shorter read means the end of the file
_GZIP_HEADER_SIZE = 10
_MOST_TIMES = 200
"""The most uncompressed bytes for each byte of a gzip file.

gzip reaches 1032. A snapshot stays far below 200, because each znode has its own path and times.
"""

_ALWAYS_FINE = 64 << 20
"""The uncompressed bytes that even a small file may hold: one znode may be as large as a record."""


def raw_blocks(reader: RandomReader, name: str) -> Iterator[bytes]:
    """Yield the uncompressed bytes of a snapshot, in blocks of at most MAX_SNAPPY_BLOCK bytes.

    All errors have the offset in the file on disk. TruncatedHeaderError and ForeignFileError: a compressed
    stream has a wrong beginning. CorruptError: a compressed stream is damaged, cut, followed by other data,
    or expands to more bytes than a snapshot has. Plain bytes are not checked.
    """
    codec = snapshot_codec(name)
    if codec == "gz":
        return _gzip(reader, name)
    if codec == "snappy":
        return _snappy(reader, name)
    return _plain(reader)


def _plain(reader: RandomReader) -> Iterator[bytes]:
    offset = 0
    while block := reader.read(offset, BLOCK):
        yield block
        offset += len(block)


def _gzip(reader: RandomReader, name: str) -> Iterator[bytes]:
    _check_start(reader.read(0, _GZIP_HEADER_SIZE), GZIP_MAGIC, _GZIP_HEADER_SIZE, "gzip", name)
    inflate = zlib.decompressobj(wbits=31)
    at, made, size = 0, 0, reader.size()
    most = max(_ALWAYS_FINE, _MOST_TIMES * size)
    for block in _plain(reader):
        if inflate.eof:
            raise CorruptError("data follows the end of the gzip stream", name, at)
        rest = block
        while rest:
            try:
                out = inflate.decompress(rest, BLOCK)
            except zlib.error as error:
                raise CorruptError(f"gzip: {error}", name, at) from None
            rest = inflate.unconsumed_tail
            made += len(out)
            if made > most:
                raise CorruptError(
                    f"{size} bytes of gzip expand to more than {most} bytes, which no snapshot does", name, at
                )
            if out:
                yield out
        at += len(block)
        if inflate.unused_data:
            behind = at - len(inflate.unused_data)
            raise CorruptError("data follows the end of the gzip stream", name, behind)
    if not inflate.eof:
        raise CorruptError("the gzip stream is truncated", name, at)


def _snappy(reader: RandomReader, name: str) -> Iterator[bytes]:
    head = reader.read(0, len(SNAPPY_HEADER))
    _check_start(head, SNAPPY_MAGIC, len(SNAPPY_HEADER), "snappy", name)
    if head != SNAPPY_HEADER:
        version, compatible = struct.unpack_from(">ii", head, len(SNAPPY_MAGIC))
        reason = f"the snappy stream has version {version}, compatible from {compatible}; both must be 1"
        raise ForeignFileError(reason, name, len(SNAPPY_MAGIC))
    offset = len(head)  # in the file, of the next byte to take
    buffer, taken, ended = b"", 0, False
    while True:
        if not ended and len(buffer) - taken < _LARGEST:
            more = reader.read(offset + len(buffer) - taken, _LARGEST)
            buffer, taken, ended = buffer[taken:] + more, 0, len(more) < _LARGEST
        if taken == len(buffer):
            return
        if len(buffer) - taken < 4:
            raise CorruptError("the snappy stream is truncated inside a block's length", name, offset)
        length = int.from_bytes(buffer[taken : taken + 4], "big", signed=True)
        if not 0 < length <= _MAX_PACKED:
            raise CorruptError(
                f"a snappy block has {length} bytes, but 1 to {_MAX_PACKED} are allowed", name, offset
            )
        packed = buffer[taken + 4 : taken + 4 + length]
        if len(packed) < length:
            raise CorruptError(
                f"the snappy stream is truncated: {length - len(packed)} bytes of a block are missing",
                name,
                offset,
            )
        yield _unpack(packed, name, offset + 4)
        taken += 4 + length
        offset += 4 + length


def _unpack(packed: bytes, name: str, offset: int) -> bytes:
    """Decode one raw block after checking its declared length, which the decoder allocates."""
    import cramjam  # here: a machine that reads no such snapshot can be without it

    try:
        declared = cramjam.snappy.decompress_raw_len(packed)
        if not 0 < declared <= MAX_SNAPPY_BLOCK:
            reason = f"a snappy block declares {declared} bytes, but 1 to {MAX_SNAPPY_BLOCK} are allowed"
            raise CorruptError(reason, name, offset)
        return bytes(cramjam.snappy.decompress_raw(packed))
    except cramjam.DecompressionError as error:
        raise CorruptError(str(error), name, offset) from None


def _check_start(head: bytes, magic: bytes, size: int, what: str, name: str) -> None:
    if not magic.startswith(head[: len(magic)]):
        seen = head[: len(magic)]
        reason = f"the file starts with {seen!r}, but a {what} stream starts with {magic!r}"
        raise ForeignFileError(reason, name, 0)
    if len(head) < size:
        reason = f"the file has only {len(head)} bytes, but a {what} stream starts with {size}"
        raise TruncatedHeaderError(reason, name, 0)
