"""Decoder for Jute, ZooKeeper's record encoding: big-endian, signed, no tags, no padding.

A boolean is 1 byte, 0 or 1; an int 4 bytes; a long 8. A ustring or buffer is an int length (-1: null), then
UTF-8 text or raw bytes. A vector is an int count (-1: null), then the items.

Source: org.apache.jute.BinaryInputArchive and BinaryOutputArchive. The writer encodes each UTF-16 unit by
itself: a character outside the basic plane becomes two three-byte surrogates, which are read as surrogates.
"""

from __future__ import annotations

import struct

from zkmigrate.zookeeper.data.errors import MalformedError

JUTE_MAXBUFFER = 0xFFFFF
"""The default of the property ``jute.maxbuffer`` in BinaryInputArchive, in bytes."""

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")


class JuteInput:
    """A bounded cursor over one record.

    Every read first checks that enough bytes are left, and raises MalformedError with the offset.
    """

    __slots__ = ("_data", "end", "pos")

    def __init__(self, data: bytes, pos: int = 0, end: int | None = None) -> None:
        self._data = data
        self.pos = pos
        self.end = len(data) if end is None else end

    def remaining(self) -> int:
        """Return how many bytes have not been read."""
        return self.end - self.pos

    def _take(self, length: int, what: str) -> int:
        start = self.pos
        if length > self.end - start:
            raise MalformedError(
                f"{what} needs {length} bytes, but {self.end - start} are left", offset=start
            )
        self.pos = start + length
        return start

    def int32(self) -> int:
        return int(_INT.unpack_from(self._data, self._take(4, "int"))[0])

    def int64(self) -> int:
        return int(_LONG.unpack_from(self._data, self._take(8, "long"))[0])

    def rest(self) -> bytes:
        """Read all remaining bytes."""
        start, self.pos = self.pos, self.end
        return self._data[start : self.end]

    def peek_int(self) -> int | None:
        """Return the next int without reading it; None if fewer than 4 bytes are left."""
        if self.remaining() < 4:
            return None
        return int(_INT.unpack_from(self._data, self.pos)[0])

    def boolean(self) -> bool:
        start = self._take(1, "boolean")
        value = self._data[start]
        if value > 1:
            raise MalformedError(f"the byte of a boolean is {value}, but must be 0 or 1", offset=start)
        return value == 1

    def buffer(self) -> bytes | None:
        """Read raw bytes; None for a null buffer, which differs from an empty one."""
        length = self.int32()
        if length == -1:
            return None
        if length < 0:
            raise MalformedError(
                f"the length of a buffer is {length}, but must be -1 or more", offset=self.pos - 4
            )
        start = self._take(length, "buffer")
        return self._data[start : start + length]

    def string(self) -> str:
        """Read UTF-8 text. Null is refused, because no field read here may be null."""
        at = self.pos
        raw = self.buffer()
        if raw is None:
            raise MalformedError("a string is null", offset=at)
        try:
            return raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise MalformedError(f"a string is not UTF-8: {error.reason}", offset=at + 4) from None

    def count(self, least_item_size: int) -> int:
        """Read the count of a vector (0 for null).

        A count is refused if that many items of at least `least_item_size` bytes do not fit in the remaining
        bytes. So a damaged count never makes a huge list.
        """
        value = self.int32()
        if value == -1:
            return 0
        if value < 0 or value * least_item_size > self.remaining():
            raise MalformedError(
                f"a vector cannot have {value} items, because {self.remaining()} bytes are left",
                offset=self.pos - 4,
            )
        return value
