"""Read the znodes of a snapshot as Arrow columns, thousands at a time.

This module works like `columns` for logs: `zookeeper.data.snapshot` defines a snapshot, and numpy reads the
znodes. The last seal, over every byte, is checked before the first row is returned. If the seal or a znode is
wrong, `zookeeper.data.snapshot` raises the error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zkmigrate.spark.sources import arrays
from zkmigrate.spark.sources.arrays import ACL, Bytes, Columns, Longs
from zkmigrate.zookeeper.data.errors import CorruptError
from zkmigrate.zookeeper.data.reader import RandomReader
from zkmigrate.zookeeper.data.seal import check_snapshot
from zkmigrate.zookeeper.data.snapname import snapshot_zxid
from zkmigrate.zookeeper.data.snapshot import OPEN_ACL, OPEN_ACL_ID, Snapshot, read_snapshot
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD

NODES = pa.schema([
    ("server", pa.string()), ("file", pa.string()), ("zxid", pa.int64()), ("path", pa.string()),
    ("data_length", pa.int32()), ("data", pa.binary()), ("acl", ACL), ("czxid", pa.int64()),
    ("mzxid", pa.int64()), ("pzxid", pa.int64()), ("ctime", pa.timestamp("us", tz="UTC")),
    ("mtime", pa.timestamp("us", tz="UTC")), ("version", pa.int32()), ("cversion", pa.int32()),
    ("aversion", pa.int32()), ("ephemeral_owner", pa.int64()), ("corrupt", pa.string()),
])  # fmt: skip
"""The columns of a snapshot's znodes, with the fields of `zookeeper.data.snapshot`.

zxid: the zxid in the file's name. acl: null if the ACL's id is missing in the snapshot's table. data: null
unless requested. corrupt: why the file cannot be read.
"""

SESSIONS = pa.schema([
    ("server", pa.string()), ("file", pa.string()), ("zxid", pa.int64()), ("session", pa.int64()),
    ("timeout_ms", pa.int32()), ("corrupt", pa.string()),
])  # fmt: skip
"""The columns of a snapshot's sessions."""

BLOCK = 8 << 20
_INT = struct.Struct(">i")
_FIXED = np.dtype([
    ("acl", ">i8"), ("czxid", ">i8"), ("mzxid", ">i8"), ("ctime", ">i8"), ("mtime", ">i8"),
    ("version", ">i4"), ("cversion", ">i4"), ("aversion", ">i4"), ("ephemeral_owner", ">i8"),
    ("pzxid", ">i8"),
])  # fmt: skip
"""The fields that follow a znode's data: the id of its ACL, then StatPersisted."""


@dataclass(frozen=True)
class Sought:
    """The znodes and columns to read.

    data: whether to read the znodes' data too. prefix: the beginning of the paths to read. schema: the
    columns of NODES to return.
    """

    data: bool = False
    prefix: str = ""
    schema: pa.Schema = NODES


@dataclass
class SnapshotTable:
    """A snapshot that is read as tables. Reading raises the errors of `zookeeper.data.snapshot`."""

    reader: RandomReader
    server: str
    name: str
    max_record: int = MAX_RECORD
    block: int = BLOCK
    _acls: dict[int, list[dict[str, object]] | None] = field(default_factory=dict)

    def nodes(self, sought: Sought) -> Iterator[pa.RecordBatch]:
        """Yield the snapshot's znodes in the order of the file, in batches."""
        snapshot = self._opened()
        self._acls = {key: arrays.rights(acls) for key, acls in snapshot.acls.items()}
        self._acls[OPEN_ACL_ID] = arrays.rights(OPEN_ACL)
        data, blocks, ended = b"", snapshot.blocks(), False
        while not ended:
            parts, size = [data], len(data)
            for one in blocks:
                parts.append(one)
                size += len(one)
                if size >= self.block:
                    break
            else:
                ended = True
            data = b"".join(parts)
            starts, used, last = _znode_starts(data)
            if starts:
                batch = self._batch(data, np.asarray(starts, np.int64), sought)
                if batch.num_rows:
                    yield batch
            if last:
                return
            data = data[used:]
        self._refuse()

    def sessions(self) -> pa.RecordBatch:
        found = self._opened().sessions
        columns: Columns = {
            **self._common(len(found)),
            "session": lambda: pa.array(found.keys(), pa.int64()),
            "timeout_ms": lambda: pa.array(found.values(), pa.int32()),
        }
        return pa.RecordBatch.from_arrays([columns[name]() for name in SESSIONS.names], schema=SESSIONS)

    def _opened(self) -> Snapshot:
        snapshot = read_snapshot(self.reader, self.name, max_record=self.max_record)
        if check_snapshot(self.reader, self.name):
            self._refuse()
        return snapshot

    def _refuse(self) -> None:
        for _ in read_snapshot(self.reader, self.name, max_record=self.max_record):
            pass
        raise CorruptError("the columns cannot read this snapshot", self.name)

    def _common(self, count: int) -> Columns:
        return {
            "server": lambda: pa.repeat(pa.scalar(self.server), count),
            "file": lambda: pa.repeat(pa.scalar(self.name), count),
            "zxid": lambda: pa.repeat(pa.scalar(snapshot_zxid(self.name), pa.int64()), count),
            "corrupt": lambda: pa.nulls(count, pa.string()),
        }

    def _batch(self, data: bytes, starts: Longs, sought: Sought) -> pa.RecordBatch:
        buffer = np.frombuffer(data, np.uint8)
        path_at, path_length = starts + 4, arrays.numbers(buffer, starts, 4)
        if ((path_length > 0) & (buffer[path_at] != ord("/"))).any():
            self._refuse()
        if sought.prefix not in ("", "/"):
            keep = np.flatnonzero(arrays.begin_with(buffer, path_at, path_length, sought.prefix))
            starts, path_at, path_length = starts[keep], path_at[keep], path_length[keep]
        count = len(starts)
        length_at = path_at + path_length
        data_length = arrays.numbers(buffer, length_at, 4)
        fixed_at = length_at + 4 + np.maximum(data_length, 0)
        fixed = arrays.everywhere(buffer, _FIXED)[fixed_at]
        columns: Columns = {
            **self._common(count),
            "path": lambda: self._paths(buffer, path_at, path_length),
            "data_length": lambda: pa.array(data_length.astype(np.int32)),
            "data": lambda: (
                arrays.binary(buffer, length_at + 4, data_length)
                if sought.data
                else pa.nulls(count, pa.binary())
            ),
            "acl": lambda: self._acl_column(fixed["acl"].astype(np.int64)),
        }
        wanted = sought.schema
        found = [
            columns[name]() if name in columns else _fixed(wanted.field(name), fixed) for name in wanted.names
        ]
        return pa.RecordBatch.from_arrays(found, schema=wanted)

    def _paths(self, buffer: Bytes, at: Longs, length: Longs) -> pa.Array:
        paths = arrays.texts(buffer, at, length, self._no_text)
        return pc.if_else(pc.equal(pc.binary_length(paths), 0), "/", paths)

    def _no_text(self, _place: int) -> Exception:
        self._refuse()
        raise AssertionError  # unreachable: _refuse always raises

    def _acl_column(self, ids: Longs) -> pa.Array:
        unique, index = np.unique(ids, return_inverse=True)
        return pa.array([self._acls.get(int(one)) for one in unique], ACL).take(pa.array(index))


def _fixed(column: pa.Field, fixed: np.ndarray) -> pa.Array:
    """Return one field of `_FIXED` as a column with the type in the schema."""
    values = fixed[column.name].astype(np.int64)
    return (
        arrays.timestamps(values)
        if pa.types.is_timestamp(column.type)
        else pa.array(values).cast(column.type)
    )


def _znode_starts(data: bytes) -> tuple[list[int], int, bool]:
    """Return where complete znodes begin, the end of the last one, and whether no znode follows it."""
    starts: list[int] = []
    unpack, size, fixed = _INT.unpack_from, len(data), _FIXED.itemsize
    at = 0
    while at + 5 <= size:
        (length,) = unpack(data, at)
        if length == 1 and data[at + 4] == 0x2F:
            return starts, at, True
        behind = at + 4 + length
        if length < 0 or behind + 4 > size:
            break
        (length,) = unpack(data, behind)
        end = behind + 4 + (length if length > 0 else 0) + fixed
        if length < -1 or end > size:
            break
        starts.append(at)
        at = end
    return starts, at, False
