"""Kafka's compressions, over zlib and cramjam."""

from __future__ import annotations

import struct
import zlib

import cramjam

from zkmigrate.mirror.rules.batch import BatchError

_NONE, _GZIP, _SNAPPY, _LZ4, _ZSTD = range(5)
_XERIAL = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)
"""Java's clients write snappy as blocks behind this header."""
_IN_GZIP = 31
"""zlib's window bits for the format of gzip."""


class KafkaCodecs:
    """Of ``mirror.rules.records.Codecs``."""

    def pack(self, codec: int, payload: bytes) -> tuple[int, bytes]:
        if codec == _NONE:
            return codec, payload
        if codec == _SNAPPY:
            block = bytes(cramjam.snappy.compress_raw(payload))
            return codec, _XERIAL_HEADER + struct.pack(">i", len(block)) + block
        if codec == _ZSTD:
            return codec, bytes(cramjam.zstd.compress(payload))
        # cramjam's LZ4 blocks depend on each other, which Kafka refuses.
        return _GZIP, zlib.compress(payload, wbits=_IN_GZIP)

    def unpack(self, codec: int, payload: bytes) -> bytes:
        try:
            if codec == _NONE:
                return payload
            if codec == _GZIP:
                return zlib.decompress(payload, wbits=_IN_GZIP)
            if codec == _SNAPPY:
                return _snappy(payload)
            if codec == _LZ4:
                return bytes(cramjam.lz4.decompress(payload))
            if codec == _ZSTD:
                return bytes(cramjam.zstd.decompress(payload))
        except (zlib.error, cramjam.DecompressionError, struct.error) as error:
            raise BatchError("length", f"compressed records cannot be read: {error}") from error
        raise BatchError("length", f"compression {codec} is not known")


def _snappy(payload: bytes) -> bytes:
    if not payload.startswith(_XERIAL):
        return bytes(cramjam.snappy.decompress_raw(payload))
    out, at = bytearray(), len(_XERIAL_HEADER)
    while at < len(payload):
        (size,) = struct.unpack_from(">i", payload, at)
        at += 4
        out += bytes(cramjam.snappy.decompress_raw(payload[at : at + size]))
        at += size
    return bytes(out)
