"""Make Arrow arrays from a buffer of bytes, for the columns of logs and snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from zkmigrate.zookeeper.data.txn import Acl

Longs: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Flags: TypeAlias = npt.NDArray[np.bool_]
Columns: TypeAlias = dict[str, Callable[[], pa.Array]]
"""For each column by name, the function that makes the column."""

ACL = pa.list_(pa.struct([("perms", pa.int32()), ("scheme", pa.string()), ("id", pa.string())]))
_MOST_MS = ((1 << 63) - 1) // 1000


def numbers(buffer: Bytes, at: Longs, width: int) -> Longs:
    """Return the big-endian integers of `width` bytes at the offsets `at` of the buffer."""
    return everywhere(buffer, np.dtype(f">i{width}"))[at].astype(np.int64)


def everywhere(buffer: Bytes, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a view with the value of type `kind` at every offset of the buffer, aligned or not."""
    return np.ndarray((max(0, len(buffer) - kind.itemsize + 1),), kind, buffer, strides=(1,))


def begin_with(buffer: Bytes, at: Longs, length: Longs, prefix: str) -> Flags:
    """Return for each text in the buffer whether it begins with a prefix; false for a negative length.

    at, length: the offset and the length in bytes of each text.
    """
    wanted = np.frombuffer(prefix.encode("utf-8", "surrogatepass"), np.uint8)
    found: Flags = length >= len(wanted)
    some = np.flatnonzero(found)
    found[some] = (buffer[at[some][:, None] + np.arange(len(wanted))] == wanted).all(axis=1)
    return found


def one_row(schema: pa.Schema, **known: object) -> pa.RecordBatch:
    """Return a batch of one row with the known values; all other columns are null."""
    columns = [pa.array([known.get(name)], schema.field(name).type) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def timestamps(ms: Longs) -> pa.Array:
    """Return timestamps for milliseconds since 1970. A time out of range becomes the nearest possible one."""
    return pa.array(np.clip(ms, -_MOST_MS, _MOST_MS) * 1000).view(pa.timestamp("us", tz="UTC"))


def binary(buffer: Bytes, at: Longs, length: Longs, kind: pa.DataType | None = None) -> pa.Array:
    """Return an array of byte strings from the buffer; null where the length is negative.

    at, length: the offset and the length in bytes of each string. kind: the array's type, binary by default.
    """
    there = length >= 0
    sizes = np.where(there, length, 0)
    offsets = np.zeros(len(at) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    from_where = np.repeat(at - offsets[:-1], sizes) + np.arange(offsets[-1])
    bitmap = np.packbits(there, bitorder="little")
    buffers = [pa.py_buffer(bitmap), pa.py_buffer(offsets), pa.py_buffer(buffer[from_where])]
    return pa.Array.from_buffers(kind or pa.binary(), len(at), buffers, null_count=int((~there).sum()))


def texts(buffer: Bytes, at: Longs, length: Longs, refuse: Callable[[int], Exception]) -> pa.Array:
    """Return an array of texts from the buffer; null where the length is negative.

    at, length: the offset and the length in bytes of each text. refuse: returns the error for the text with
    this number, if it is not UTF-8. Texts that are not ASCII are decoded one by one. ZooKeeper writes
    characters outside the basic plane as two surrogates (see `zookeeper.data.jute`), which no Arrow string
    may hold.
    """
    found = binary(buffer, at, length, pa.string())
    raw = np.frombuffer(found.buffers()[2], np.uint8) if len(found) else np.zeros(0, np.uint8)
    if not (raw & 0x80).any():
        return found
    decoded: list[str | None] = []
    for place, (begin, size) in enumerate(zip(at.tolist(), length.tolist(), strict=True)):
        if size < 0:
            decoded.append(None)
            continue
        try:
            decoded.append(whole_text(buffer[begin : begin + size].tobytes()))
        except UnicodeDecodeError:
            raise refuse(place) from None
    return pa.array(decoded, pa.string())


def whole_text(raw: bytes) -> str:
    """Decode text for Arrow and Spark: two surrogates become their character, a lone surrogate U+FFFD."""
    text = raw.decode("utf-8", "surrogatepass")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def rights(acls: Sequence[Acl]) -> list[dict[str, object]]:
    """Return an ACL as rows of the Arrow type ``ACL``, each with perms, scheme and id."""
    return [{"perms": acl.perms, "scheme": _plain(acl.scheme), "id": _plain(acl.id)} for acl in acls]


def _plain(text: str) -> str:
    return whole_text(text.encode("utf-8", "surrogatepass"))
