"""Find the operations in complete records of a transaction log, thousands at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from zkmigrate.spark.sources import arrays
from zkmigrate.spark.sources.arrays import ACL, Bytes, Flags, Longs
from zkmigrate.zookeeper.data.errors import MalformedError
from zkmigrate.zookeeper.data.jute import JuteInput
from zkmigrate.zookeeper.data.txn import DIGEST_SIZE, IN_MULTI, KNOWN_TYPES, TxnType
from zkmigrate.zookeeper.data.txnlog import FRAME_SIZE, TXN_HEADER, Record

SCHEMA = pa.schema([
    ("server", pa.string()), ("file", pa.string()), ("offset", pa.int64()), ("zxid", pa.int64()),
    ("epoch", pa.int32()), ("counter", pa.int64()), ("time", pa.timestamp("us", tz="UTC")),
    ("session", pa.int64()), ("cxid", pa.int32()), ("type", pa.string()), ("path", pa.string()),
    ("sequence", pa.int32()), ("multi", pa.bool_()), ("failed", pa.bool_()), ("data_length", pa.int32()),
    ("data", pa.binary()), ("version", pa.int32()), ("parent_cversion", pa.int32()), ("acl", ACL),
    ("ephemeral_owner", pa.int64()), ("ttl_ms", pa.int64()), ("timeout_ms", pa.int32()),
    ("error", pa.int32()), ("digest", pa.int64()), ("corrupt", pa.string()),
])  # fmt: skip
"""The columns of a transaction log. Columns that an operation does not have are null.

server: the name of the log's server, as the caller names it. file, offset: the place of the record. session:
the session that sent the request. sequence: the operation's number in its transaction, from 0. multi: whether
the operation is one of several in one request. failed: whether the operation belongs to a multi that had no
effect.

data_length: -1 for null data. data: null unless requested. version: the znode's new version (setData, setACL)
or the version to check (check). parent_cversion: the parent's new cversion after a create; -1 if the log
leaves it to be counted. ephemeral_owner: of a create: 0, a session, or ZooKeeper's mark of a container or TTL
znode. digest: the digest of the whole tree after the transaction, if the server wrote it. corrupt: the record
that could not be read and why, at file and offset; all other columns are null then.
"""

_FROM_BODIES = frozenset([
    "path", "data_length", "data", "version", "parent_cversion", "acl", "ephemeral_owner", "ttl_ms",
    "timeout_ms", "error", "digest",
])  # fmt: skip
"""The columns that are read from the bodies of the operations."""

_HEADER = np.dtype([
    ("checksum", ">i8"), ("length", ">i4"), ("session", ">i8"), ("cxid", ">i4"), ("zxid", ">i8"),
    ("time_ms", ">i8"), ("kind", ">i4"),
])  # fmt: skip
"""The beginning of a record: the header of its frame, then the header of the transaction."""
_Operation: TypeAlias = tuple[int, int, int, int, int, bool]
"""One operation: its values for the arrays of `Operations`, from `record` to `in_multi`."""


@dataclass(frozen=True)
class Wanted:
    """The operations and columns of SCHEMA to read.

    data: whether to read the operations' data. zxids, times_ms: inclusive bounds. prefix: the beginning of
    the path, not necessarily whole elements; operations without a path are left out if a prefix is given.
    types: numbers as in TxnType; None for all. schema: the columns to return.
    """

    data: bool = False
    zxids: tuple[int, int] = (-(1 << 63), (1 << 63) - 1)
    times_ms: tuple[int, int] = (-(1 << 63), (1 << 63) - 1)
    types: frozenset[int] | None = None
    prefix: str = ""
    schema: pa.Schema = SCHEMA

    @property
    def bodies(self) -> bool:
        """Whether the bodies are needed. Otherwise the bodies are not decoded and cannot cause an error."""
        return bool(self.prefix) or not _FROM_BODIES.isdisjoint(self.schema.names)


ALL = Wanted()


@dataclass
class Stretch:
    """A sequence of complete records without a gap between them.

    starts: where each record begins in `buffer`. base: where `buffer` begins in the file.
    """

    server: str
    file: str
    base: int
    buffer: bytes
    starts: Sequence[int]

    @cached_property
    def zxids(self) -> Longs:
        """The zxid of each record."""
        return arrays.numbers(np.frombuffer(self.buffer, np.uint8), np.asarray(self.starts, np.int64) + 24, 8)

    def record(self, start: int) -> Record:
        """Return one record as `zookeeper.data.txnlog` reads it. start: where it begins in `buffer`."""
        length = int.from_bytes(self.buffer[start + 8 : start + 12], "big", signed=True)
        payload = self.buffer[start + 12 : start + 12 + length]
        session, cxid, zxid, time_ms, kind = TXN_HEADER.unpack_from(payload)
        at = self.base + start
        end = at + FRAME_SIZE + length
        return Record(self.file, at, end, session, cxid, zxid, time_ms, kind, payload)


class _Records:
    """The headers of records as arrays, with one item for each record.

    start, end: where the record and its body begin and end in the buffer. digest: where the digest's long
    begins; -1 if there is no digest. failed: whether the record is a multi that had no effect.
    """

    def __init__(self, buffer: Bytes, starts: Longs) -> None:
        head = arrays.everywhere(buffer, _HEADER)[starts]
        names = ("session", "cxid", "zxid", "time_ms", "kind")
        self.session, self.cxid, self.zxid, self.time_ms, self.kind = (
            head[name].astype(np.int64) for name in names
        )
        self.start = starts
        self.end: Longs = starts + 12 + head["length"]
        self.digest = np.full(len(starts), -1, np.int64)
        self.failed = np.zeros(len(starts), np.bool_)


@dataclass
class Operations:
    """Operations as arrays, with one item for each operation.

    record: the number of the operation's record. at, end: where the operation's body (for a closeSession the
    path) begins and ends in the buffer; 0 if there is none.
    """

    stretch: Stretch
    buffer: Bytes
    records: _Records
    record: Longs
    sequence: Longs
    kind: Longs
    at: Longs
    end: Longs
    in_multi: Flags

    def refuse(self, operation: int) -> MalformedError:
        """Return the error for this operation's record, which cannot be read."""
        return refusal(self.stretch, int(self.records.start[self.record[operation]]))


def refusal(stretch: Stretch, start: int) -> MalformedError:
    """Return the error for an unreadable record, with the reason that `zookeeper.data.txn` gives."""
    found = stretch.record(start)
    try:
        found.txn()
    except MalformedError as error:
        return error
    return MalformedError("the columns cannot read this record", found.file, found.offset)


def read_operations(stretch: Stretch, wanted: Wanted) -> Operations:
    """Return the operations of the records within the wanted bounds of zxid and time."""
    buffer = np.frombuffer(stretch.buffer, np.uint8)
    starts = np.asarray(stretch.starts, np.int64)
    records = _Records(buffer, starts)
    keep = _between(records.zxid, wanted.zxids) & _between(records.time_ms, wanted.times_ms)
    if not keep.all():
        records = _Records(buffer, starts[keep])
    several = (records.kind == TxnType.multi) | (records.kind == TxnType.closeSession)
    found: list[_Operation] = []
    for record in np.flatnonzero(several).tolist():
        try:
            found += _of_body(stretch.buffer, records, record)
        except MalformedError:
            raise refusal(stretch, int(records.start[record])) from None
    unknown = np.flatnonzero(~np.isin(records.kind, list(KNOWN_TYPES)))
    if len(unknown):
        raise refusal(stretch, int(records.start[unknown[0]]))
    single = np.flatnonzero(~several)
    zeros = np.zeros(len(single), np.int64)
    begin = records.start[single] + _HEADER.itemsize
    rows = np.stack([single, zeros, records.kind[single], begin, records.end[single], zeros])
    if found:
        rows = np.concatenate([rows, np.asarray(found, np.int64).T], axis=1)
        rows = rows.take(np.lexsort((rows[1], rows[0])), axis=1)
    of_record, sequence, kind, at, end, in_multi = rows
    return Operations(stretch, buffer, records, of_record, sequence, kind, at, end, in_multi.astype(np.bool_))


def _of_body(data: bytes, records: _Records, record: int) -> Iterator[_Operation]:
    """Yield the operations of a multi or a closeSession, whose number is known only from the body.

    Sets `digest` and `failed` of the record. Raises MalformedError.
    """
    src = JuteInput(data, int(records.start[record]) + _HEADER.itemsize, int(records.end[record]))
    multi = bool(records.kind[record] == TxnType.multi)
    # By the rule of `zookeeper.data.txn` for a digest or paths.
    only_digest = not src.remaining() or (src.remaining() == DIGEST_SIZE and src.peek_int() == 2)
    count = src.count(8) if multi else 0 if only_digest else src.count(4)
    for sequence in range(count):
        kind = src.int32() if multi else int(TxnType.closeSession)
        length = src.int32()
        if (multi and kind not in IN_MULTI) or length < 0 or length > src.remaining():
            raise MalformedError("")
        yield record, sequence, kind, src.pos, src.pos + length, multi
        src.pos += length
        records.failed[record] |= kind == TxnType.error
    if not count:  # still a row, or its zxid would look like a hole
        yield record, 0, int(records.kind[record]), 0, 0, multi
    if src.remaining() == DIGEST_SIZE:
        records.digest[record] = src.pos + 4
    elif src.remaining():
        raise MalformedError("")


def _between(values: Longs, bounds: tuple[int, int]) -> Flags:
    return (values >= bounds[0]) & (values <= bounds[1])
