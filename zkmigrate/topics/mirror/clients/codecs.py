"""Compress and decompress records with the codecs that Kafka uses, by zlib and cramjam."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from types import ModuleType

import cramjam

from zkmigrate.topics.mirror.rules.batch import BatchError

_NONE, _GZIP, _SNAPPY, _LZ4, _ZSTD = range(5)
_XERIAL = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)
"""The header that Java clients write before their snappy blocks."""
_LZ4_BLOCK = 64 << 10
_LZ4_HEADER = bytes.fromhex("04224d18 60 40 82")
"""The header of an LZ4 frame with independent blocks of at most 64 KiB.

Kafka reads no other kind of frame. The last byte is a checksum of the two bytes before it.
"""
_PLAIN, _LZ4_END = 1 << 31, bytes(4)
"""The bit in a block's size that marks the block as uncompressed, and the mark that ends a frame."""
_IN_GZIP = 31
"""The value of zlib's parameter wbits for the gzip format."""
MAX_INFLATED = 128 << 20
"""The most bytes that the records of one batch may have after decompression.

The whole response of a broker has the same limit.
"""
_FIRST_BUFFER, _GROWTH = 1 << 16, 8
_FULL = "failed to write whole buffer"
"""The text of cramjam's error for a buffer that is too small."""


@dataclass(frozen=True)
class KafkaCodecs:
    """An implementation of ``mirror.rules.records.Codecs``.

    limit: the most bytes that a payload may have after decompression.
    """

    limit: int = MAX_INFLATED

    def pack(self, codec: int, payload: bytes) -> tuple[int, bytes]:
        if codec == _NONE:
            return codec, payload
        if codec == _SNAPPY:
            block = bytes(cramjam.snappy.compress_raw(payload))
            return codec, _XERIAL_HEADER + struct.pack(">i", len(block)) + block
        if codec == _ZSTD:
            return codec, bytes(cramjam.zstd.compress(payload))
        if codec == _LZ4:
            return codec, _lz4(payload)
        return _GZIP, zlib.compress(payload, wbits=_IN_GZIP)

    def unpack(self, codec: int, payload: bytes) -> bytes:
        try:
            if codec == _NONE:
                return payload
            if codec == _GZIP:
                return self._gzip(payload)
            if codec == _SNAPPY:
                return self._snappy(payload)
            if codec == _LZ4:
                return self._frames(cramjam.lz4, payload)
            if codec == _ZSTD:
                return self._frames(cramjam.zstd, payload)
        except (zlib.error, cramjam.DecompressionError, struct.error) as error:
            raise _unread(error) from error
        raise BatchError("length", f"compression {codec} is not supported")

    def _gzip(self, payload: bytes) -> bytes:
        reader = zlib.decompressobj(wbits=_IN_GZIP)
        found = reader.decompress(payload, self.limit + 1)
        self._check(len(found))
        if not reader.eof or reader.unused_data:
            raise _unread("the compressed stream ends before the batch")
        return found

    def _snappy(self, payload: bytes) -> bytes:
        if not payload.startswith(_XERIAL):
            return self._block(payload, 0)
        out, at = bytearray(), len(_XERIAL_HEADER)
        while at < len(payload):
            (size,) = struct.unpack_from(">i", payload, at)
            at += 4
            if not 0 < size <= len(payload) - at:
                raise _unread(f"a block should have {size} bytes, but only {len(payload) - at} remain")
            out += self._block(payload[at : at + size], len(out))
            at += size
        return bytes(out)

    def _block(self, payload: bytes, before: int) -> bytes:
        """Decompress a snappy block, unless the result would exceed the limit.

        The size is checked first, because cramjam reserves as much memory as the beginning of the block says.
        before: how many bytes of the payload were decompressed already.
        """
        self._check(before + int(cramjam.snappy.decompress_raw_len(payload)))
        return bytes(cramjam.snappy.decompress_raw(payload))

    def _frames(self, module: ModuleType, payload: bytes) -> bytes:
        """Decompress LZ4 or zstd into a buffer that grows up to the limit."""
        size = max(_FIRST_BUFFER, len(payload))
        while True:
            size = min(size * _GROWTH, self.limit)
            buffer = bytearray(size)
            try:
                return bytes(memoryview(buffer)[: module.decompress_into(payload, buffer)])
            except cramjam.DecompressionError as error:
                if _FULL not in str(error):
                    raise
                if size == self.limit:
                    raise self._too_large() from None

    def _check(self, size: int) -> None:
        if size > self.limit:
            raise self._too_large()

    def _too_large(self) -> BatchError:
        text = f"compressed records inflate to more than {self.limit} bytes, the limit for a batch"
        return BatchError("length", text)


def _lz4(payload: bytes) -> bytes:
    """Compress the payload to an LZ4 frame that Kafka can read.

    The frames that cramjam itself makes have blocks that depend on each other, which Kafka does not accept.
    """
    out = bytearray(_LZ4_HEADER)
    for at in range(0, len(payload), _LZ4_BLOCK):
        plain = payload[at : at + _LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        small = len(block) < len(plain)
        out += struct.pack("<I", len(block) if small else len(plain) | _PLAIN) + (block if small else plain)
    return bytes(out + _LZ4_END)


def _unread(why: object) -> BatchError:
    return BatchError("length", f"compressed records cannot be read: {why}")
