"""Read complete records of a transaction log as Arrow columns, thousands at a time.

A row is an operation: each of a multi, each ephemeral that a closeSession of 3.6 or later names, and every
other transaction. An empty multi is one row of type multi. `zookeeper.data.txn` defines a record,
`zookeeper.data.effect` its effect. Here numpy reads many records at once, because one at a time in Python is
ten times slower. A test over random logs compares both. `zookeeper.data.txn` raises the error for a record
that these columns cannot read, so that both give the same reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from zkmigrate.spark.sources import arrays
from zkmigrate.spark.sources.arrays import ACL, Bytes, Columns, Flags, Longs
from zkmigrate.zookeeper.data.effect import CONTAINER_OWNER, CREATES, DELETES, TTL_OWNER, WRITES
from zkmigrate.zookeeper.data.errors import MalformedError
from zkmigrate.zookeeper.data.jute import JuteInput
from zkmigrate.zookeeper.data.txn import DIGEST_SIZE, IN_MULTI, KNOWN_TYPES, TxnType, read_acl
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

server: name of the log's server, as the caller names it. file, offset: place of the record. session: the
session that requested it. sequence: place in its transaction, from 0. multi: whether it is one of several
operations of one request. failed: whether it belongs to a multi that had no effect.

data_length: -1 for null data. data: only if wanted. version: the znode's new version (setData, setACL) or the
one to check (check). parent_cversion: the parent's new cversion after a create; -1 if the log leaves it to be
counted. ephemeral_owner: of a create: 0, a session, or ZooKeeper's mark of a container or TTL znode. digest:
digest of the whole tree after the transaction, if the server wrote it. corrupt: what could not be read, at
file and offset; all other columns are null then.
"""

_FROM_BODIES = frozenset([
    "path", "data_length", "data", "version", "parent_cversion", "acl", "ephemeral_owner", "ttl_ms",
    "timeout_ms", "error", "digest",
])  # fmt: skip
"""The columns that need the bodies of the operations."""

_HEADER = np.dtype([
    ("checksum", ">i8"), ("length", ">i4"), ("session", ">i8"), ("cxid", ">i4"), ("zxid", ">i8"),
    ("time_ms", ">i8"), ("kind", ">i4"),
])  # fmt: skip
"""The beginning of a record: the header of its frame, then the header of the transaction."""
_Operation: TypeAlias = tuple[int, int, int, int, int, bool]
"""One item of each array of `_Operations`, from `record` on."""
_ABSENT = -2
"""The length for an operation without the field; -1 is jute's null."""
_FEW_ACLS = 16


@dataclass(frozen=True)
class Wanted:
    """The operations and columns of SCHEMA to read.

    data: whether to read the operations' data. zxids, times_ms: inclusive bounds. prefix: beginning of the
    path, not necessarily whole elements; operations without a path do not match one. types: numbers as in
    TxnType; None for all.
    """

    data: bool = False
    zxids: tuple[int, int] = (-(1 << 63), (1 << 63) - 1)
    times_ms: tuple[int, int] = (-(1 << 63), (1 << 63) - 1)
    types: frozenset[int] | None = None
    prefix: str = ""
    schema: pa.Schema = SCHEMA

    @property
    def bodies(self) -> bool:
        """Whether the bodies are needed; otherwise they are not decoded, so they cannot cause an error."""
        return bool(self.prefix) or not _FROM_BODIES.isdisjoint(self.schema.names)


ALL = Wanted()


@dataclass
class Stretch:
    """Complete records that follow each other.

    starts: where each record begins in `buffer`, which begins at `base` in the file.
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
        """Return one record, for the reader that reads one at a time."""
        length = int.from_bytes(self.buffer[start + 8 : start + 12], "big", signed=True)
        payload = self.buffer[start + 12 : start + 12 + length]
        session, cxid, zxid, time_ms, kind = TXN_HEADER.unpack_from(payload)
        at = self.base + start
        end = at + FRAME_SIZE + length
        return Record(self.file, at, end, session, cxid, zxid, time_ms, kind, payload)


def table(stretch: Stretch, wanted: Wanted = ALL) -> pa.RecordBatch:
    """Return the operations of a stretch in order, by the schema that is wanted.

    Raises MalformedError with file and offset.
    """
    rows = _operations(stretch, wanted)
    bodies = _Bodies(rows)
    if wanted.bodies:
        bodies.read()
    keep = np.ones(len(rows.record), np.bool_)
    if wanted.types is not None:
        keep &= np.isin(rows.kind, list(wanted.types))
    if wanted.prefix:
        keep &= arrays.begin_with(rows.buffer, bodies.path_at, bodies.path_length, wanted.prefix)
    return _batch(rows, bodies, np.flatnonzero(keep), wanted)


# --- from records to operations


class _Records:
    """The headers, one item for each record.

    end: end of the record's body. digest: where the digest's long begins; -1 if there is none. failed:
    whether the record is a multi that had no effect.
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
class _Operations:
    """The operations, one item for each.

    record: number of the record. at, end: the operation's body in the buffer; for a closeSession the path; 0
    if there is none.
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
        """Return the error that says why this operation's record cannot be read."""
        return _refused(self.stretch, int(self.records.start[self.record[operation]]))


def _refused(stretch: Stretch, start: int) -> MalformedError:
    """Return the error for an unreadable record, as the reader of one record at a time gives it."""
    found = stretch.record(start)
    try:
        found.txn()
    except MalformedError as error:
        return error
    return MalformedError("the columns cannot read this record", found.file, found.offset)


def _operations(stretch: Stretch, wanted: Wanted) -> _Operations:
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
            raise _refused(stretch, int(records.start[record])) from None
    unknown = np.flatnonzero(~np.isin(records.kind, list(KNOWN_TYPES)))
    if len(unknown):
        raise _refused(stretch, int(records.start[unknown[0]]))
    single = np.flatnonzero(~several)
    zeros = np.zeros(len(single), np.int64)
    begin = records.start[single] + _HEADER.itemsize
    rows = np.stack([single, zeros, records.kind[single], begin, records.end[single], zeros])
    if found:
        rows = np.concatenate([rows, np.asarray(found, np.int64).T], axis=1)
        rows = rows.take(np.lexsort((rows[1], rows[0])), axis=1)
    of_record, sequence, kind, at, end, in_multi = rows
    return _Operations(
        stretch, buffer, records, of_record, sequence, kind, at, end, in_multi.astype(np.bool_)
    )


def _of_body(data: bytes, records: _Records, record: int) -> Iterator[_Operation]:
    """Yield the operations of a multi or a closeSession; only its body has their number.

    Sets the record's `digest` and `failed`. Raises MalformedError.
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


# --- bodies


@dataclass
class _Cursor:
    """A JuteInput over many bodies at once.

    bad: marks the bodies that do not decode; their values mean nothing.
    """

    buffer: Bytes
    at: Longs
    end: Longs
    bad: Flags

    def _take(self, width: Longs | int) -> Longs:
        start = self.at
        self.at = start + width
        self.bad |= self.at > self.end
        return np.where(self.bad, 0, start)

    def int32(self) -> Longs:
        return arrays.numbers(self.buffer, self._take(4), 4)

    def int64(self) -> Longs:
        return arrays.numbers(self.buffer, self._take(8), 8)

    def boolean(self) -> Longs:
        found = arrays.numbers(self.buffer, self._take(1), 1)
        self.bad |= (found != 0) & (found != 1)
        return found

    def field(self) -> tuple[Longs, Longs]:
        """Read a field and return its place and its length, -1 for null."""
        length = self.int32()
        self.bad |= length < -1
        return self._take(np.where(self.bad, 0, np.maximum(length, 0))), length

    def text(self) -> tuple[Longs, Longs]:
        at, length = self.field()
        self.bad |= length < 0
        return at, length

    def acl(self) -> tuple[Longs, Longs]:
        """Read a vector of ACL and return where it begins and ends."""
        begin = self.at
        count = self.int32()
        self.bad |= (count < -1) | (count * 12 > self.end - self.at)
        count = np.where(self.bad, 0, count)
        for one in np.flatnonzero(count > _FEW_ACLS).tolist():
            src = JuteInput(self.buffer[begin[one] : self.end[one]].tobytes())
            try:
                read_acl(src)
            except MalformedError:
                self.bad[one] = True
            self.at[one], count[one] = begin[one] + src.pos, 0
        for item in range(int(count.max(initial=0))):
            some = np.flatnonzero((count > item) & ~self.bad)
            with self.part(some) as part:
                part.int32()
                part.text()
                part.text()
        return begin, self.at.copy()

    @contextmanager
    def part(self, some: Longs) -> Iterator[_Cursor]:
        """Open a cursor over some of the bodies, and at the end set their positions to where it stopped."""
        part = _Cursor(self.buffer, self.at[some], self.end[some], self.bad[some])
        yield part
        self.at[some], self.bad[some] = part.at, part.bad


_FIELDS: tuple[tuple[tuple[str, ...], tuple[TxnType, ...]], ...] = (
    (("path", "data", "acl", "created"), CREATES),
    (("path",), DELETES),
    (("path", "data", "version"), WRITES),
    (("path", "acl", "version"), (TxnType.setACL,)),
    (("path", "version"), (TxnType.check,)),
    (("error",), (TxnType.error,)),
    (("timeout_ms",), (TxnType.createSession,)),
)
"""The fields of a body, in order, by its types, as `zookeeper.data.txn` reads them."""


class _Bodies:
    """The content of the bodies, one item for each operation.

    If an operation has no such field, its length is _ABSENT and `present` is false.
    """

    def __init__(self, rows: _Operations) -> None:
        self._rows = rows
        count = len(rows.record)
        self.path_at, self.path_length = np.zeros(count, np.int64), np.full(count, _ABSENT, np.int64)
        self.data_at, self.data_length = np.zeros(count, np.int64), np.full(count, _ABSENT, np.int64)
        self.acl_at, self.acl_end = np.zeros(count, np.int64), np.zeros(count, np.int64)
        names = ("version", "parent_cversion", "ephemeral_owner", "ttl_ms", "timeout_ms", "error")
        self.numbers = {name: np.zeros(count, np.int64) for name in names}
        self.present = {name: np.zeros(count, np.bool_) for name in (*names, "acl")}

    def read(self) -> None:
        """Read all bodies. Raises MalformedError for the first record that does not decode."""
        rows, bad = self._rows, np.zeros(len(self._rows.record), np.bool_)
        for fields, kinds in _FIELDS:
            index = np.flatnonzero(np.isin(rows.kind, kinds))
            if len(index):
                cursor = _Cursor(rows.buffer, rows.at[index], rows.end[index], np.zeros(len(index), np.bool_))
                for field in fields:
                    self._field(field, index, cursor)
                bad[index] = self._malformed(index, cursor)
        closed = np.flatnonzero((rows.kind == TxnType.closeSession) & (rows.at > 0))
        self.path_at[closed] = rows.at[closed]
        self.path_length[closed] = rows.end[closed] - rows.at[closed]
        if bad.any():
            raise rows.refuse(int(np.argmax(bad)))

    def _malformed(self, index: Longs, cursor: _Cursor) -> Flags:
        """Return which bodies do not end where they should.

        A digest may follow a record's own body. The old body of an operation that failed with its multi may
        follow its error; see `zookeeper.data.txn`.
        """
        rows = self._rows
        left = cursor.end - cursor.at
        digested = ~cursor.bad & ~rows.in_multi[index] & (left == DIGEST_SIZE)
        rows.records.digest[rows.record[index[digested]]] = cursor.at[digested] + 4
        failed = rows.in_multi[index] & (rows.kind[index] == TxnType.error)
        wrong: Flags = cursor.bad | ((left != 0) & ~digested & ~failed)
        return wrong

    def _put(self, name: str, index: Longs, values: Longs) -> None:
        self.numbers[name][index] = values
        self.present[name][index] = True

    def _field(self, name: str, index: Longs, cursor: _Cursor) -> None:
        """Read the next field of these bodies."""
        match name:
            case "path":
                self.path_at[index], self.path_length[index] = cursor.text()
            case "data":
                self.data_at[index], self.data_length[index] = cursor.field()
            case "acl":
                self.acl_at[index], self.acl_end[index] = cursor.acl()
                self.present["acl"][index] = True
            case "created":
                self._created(index, cursor)
            case _:
                self._put(name, index, cursor.int32())

    def _created(self, index: Longs, cursor: _Cursor) -> None:
        """Read what follows the ACL of a create."""
        kind = self._rows.kind[index]
        owner = np.zeros(len(index), np.int64)
        session = self._rows.records.session[self._rows.record[index]]
        some = np.flatnonzero((kind == TxnType.create) | (kind == TxnType.create2))
        with cursor.part(some) as flags:
            owner[some] = np.where(flags.boolean() == 1, session[some], 0)
        self._put("parent_cversion", index, cursor.int32())
        timed = np.flatnonzero(kind == TxnType.createTTL)
        with cursor.part(timed) as ttl:
            self._put("ttl_ms", index[timed], ttl.int64())
        owner[kind == TxnType.createContainer] = CONTAINER_OWNER
        owner[timed] = TTL_OWNER | self.numbers["ttl_ms"][index[timed]]
        self._put("ephemeral_owner", index, owner)


# --- from operations to Arrow


def _between(values: Longs, bounds: tuple[int, int]) -> Flags:
    return (values >= bounds[0]) & (values <= bounds[1])


def _batch(rows: _Operations, bodies: _Bodies, keep: Longs, wanted: Wanted) -> pa.RecordBatch:
    records, record = rows.records, rows.record[keep]
    count = len(keep)
    data_length = bodies.data_length[keep]
    digest_at = records.digest[record]

    def integers(name: str, values: Longs, present: Flags | None = None) -> pa.Array:
        kind = SCHEMA.field(name).type.to_pandas_dtype()
        return pa.array(values.astype(kind), mask=None if present is None else ~present)

    def of_body(name: str) -> pa.Array:
        return integers(name, bodies.numbers[name][keep], bodies.present[name][keep])

    columns: Columns = {
        "server": lambda: pa.repeat(pa.scalar(rows.stretch.server), count),
        "file": lambda: pa.repeat(pa.scalar(rows.stretch.file), count),
        "offset": lambda: pa.array(records.start[record] + rows.stretch.base),
        "zxid": lambda: pa.array(records.zxid[record]),
        "epoch": lambda: integers("epoch", records.zxid[record] >> 32),
        "counter": lambda: pa.array(records.zxid[record] & 0xFFFFFFFF),
        "time": lambda: arrays.timestamps(records.time_ms[record]),
        "session": lambda: pa.array(records.session[record]),
        "cxid": lambda: integers("cxid", records.cxid[record]),
        "type": lambda: _KIND_NAMES.take(pa.array(np.searchsorted(_KINDS, rows.kind[keep]))),
        "path": lambda: arrays.texts(
            rows.buffer, bodies.path_at[keep], bodies.path_length[keep], lambda n: rows.refuse(int(keep[n]))
        ),
        "sequence": lambda: integers("sequence", rows.sequence[keep]),
        "multi": lambda: pa.array(rows.in_multi[keep]),
        "failed": lambda: pa.array(records.failed[record]),
        "data_length": lambda: integers("data_length", data_length, data_length != _ABSENT),
        "data": lambda: (
            arrays.binary(rows.buffer, bodies.data_at[keep], data_length)
            if wanted.data
            else pa.nulls(count, pa.binary())
        ),
        "acl": lambda: _acls(rows, bodies, keep),
        **{name: partial(of_body, name) for name in bodies.numbers},
        "digest": lambda: integers(
            "digest",
            arrays.numbers(rows.buffer, np.maximum(digest_at, 0), 8) if count else digest_at,
            digest_at >= 0,
        ),
        "corrupt": lambda: pa.nulls(count, pa.string()),
    }
    return pa.RecordBatch.from_arrays([columns[name]() for name in wanted.schema.names], schema=wanted.schema)


_KINDS = np.asarray(sorted(KNOWN_TYPES), np.int64)
_KIND_NAMES = pa.array([TxnType(int(kind)).name for kind in _KINDS], pa.string())


def _acls(rows: _Operations, bodies: _Bodies, keep: Longs) -> pa.Array:
    """Return the ACLs. There are few different ones, so each is decoded once."""
    present = bodies.present["acl"][keep]
    known: dict[bytes, int] = {}
    decoded: list[list[dict[str, object]]] = []
    index = np.zeros(len(keep), np.int64)
    for place in np.flatnonzero(present).tolist():
        row = keep[place]
        raw = rows.stretch.buffer[int(bodies.acl_at[row]) : int(bodies.acl_end[row])]
        if raw not in known:
            try:
                decoded.append(arrays.rights(read_acl(JuteInput(raw))))
            except MalformedError:
                raise rows.refuse(int(row)) from None
            known[raw] = len(known)
        index[place] = known[raw]
    return pa.array(decoded, ACL).take(pa.array(index, mask=~present))
