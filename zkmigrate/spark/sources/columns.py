"""Whole records of a transaction log as Arrow columns, thousands at a time.

One row is one operation: each of a multi is a row (a multi of none is one of type multi), each ephemeral that
a closeSession of 3.6 or later names is one, every other transaction is one. What a record means is said by
`zookeeper.data.txn`, what it does by `zookeeper.data.effect`; here the same is read for many records at once,
with numpy, because a record at a time in Python is ten times slower. A test over random logs holds both to
the same. Where these columns refuse a record, `zookeeper.data.txn` is asked to refuse it, so that both give
the same reason.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from zkmigrate.spark.sources.arrays import (
    ACL,
    Bytes,
    Columns,
    Flags,
    Longs,
    begin_with,
    binary,
    numbers,
    rights,
    texts,
    timestamps,
)
from zkmigrate.zookeeper.data.effect import CONTAINER_OWNER, CREATES, DELETES, TTL_OWNER, WRITES
from zkmigrate.zookeeper.data.errors import MalformedError
from zkmigrate.zookeeper.data.jute import JuteInput
from zkmigrate.zookeeper.data.txn import DIGEST_SIZE, HEADER_SIZE, IN_MULTI, KNOWN_TYPES, TxnType, read_acl
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
"""Columns of a transaction log.

server: whose log it is, as the caller names it. file, offset: of the record. session: who request. sequence:
place in its transaction, from 0. multi: one of several operations of one request; failed: of a multi that
had no effect. data_length: -1 for null data; data: only where it is asked for. version: the znode's new one
(setData, setACL) or the one asked for (check). parent_cversion: of a create: the parent's new one, -1 where
the log leaves it to be counted. ephemeral_owner: of a create: 0, a session, or ZooKeeper's
mark of a container or TTL znode. digest: of the whole tree after the transaction, where the server wrote
it. corrupt: what could not be read, at file and offset; all else is null then. Columns that an operation
does not have are null.
"""

_FROM_BODIES = frozenset([
    "path", "data_length", "data", "version", "parent_cversion", "acl", "ephemeral_owner", "ttl_ms",
    "timeout_ms", "error", "digest",
])  # fmt: skip
"""Columns that say more than records' headers, and which operations a transaction has, do."""

_INT = struct.Struct(">i")
_ABSENT = -2
"""A length where the operation has no such field; -1 is jute's own null."""
_FEW_ACLS = 16


@dataclass(frozen=True)
class Wanted:
    """Which operations, whether their data, and which columns of SCHEMA. Bounds are inclusive. prefix: of the
    path, whole elements or not; what has no path has no prefix. types: numbers as in TxnType; None for
    all."""

    data: bool = False
    zxids: tuple[int, int] = (-(1 << 63), (1 << 63) - 1)
    times_ms: tuple[int, int] = (-(1 << 63), (1 << 63) - 1)
    types: frozenset[int] | None = None
    prefix: str = ""
    schema: pa.Schema = SCHEMA

    @property
    def bodies(self) -> bool:
        """Whether the headers do not say it all. Bodies that nobody asks for are not decoded, so none of them
        is refused."""
        return bool(self.prefix) or not _FROM_BODIES.isdisjoint(self.schema.names)


ALL = Wanted()


@dataclass
class Stretch:
    """Whole records that stand one behind the other. starts: where each begins in `buffer`, which begins at
    `base` in the file."""

    server: str
    file: str
    base: int
    buffer: bytes
    starts: Sequence[int]

    @cached_property
    def zxids(self) -> Longs:
        """One for each record."""
        return numbers(np.frombuffer(self.buffer, np.uint8), np.asarray(self.starts, np.int64) + 24, 8)

    def record(self, start: int) -> Record:
        """One of them, for the reader that reads one at a time."""
        length = _INT.unpack_from(self.buffer, start + 8)[0]
        payload = self.buffer[start + 12 : start + 12 + length]
        session, cxid, zxid, time_ms, kind = TXN_HEADER.unpack_from(payload)
        at = self.base + start
        end = at + FRAME_SIZE + length
        return Record(self.file, at, end, session, cxid, zxid, time_ms, kind, payload)


def table(stretch: Stretch, wanted: Wanted = ALL) -> pa.RecordBatch:
    """The operations of a stretch in order, by the schema that is wanted. Raises MalformedError naming file
    and offset."""
    rows = _expanded(stretch, wanted)
    bodies = _Bodies(rows)
    if wanted.bodies:
        bodies.read()
    return _batch(rows, bodies, _kept(rows, bodies, wanted), wanted)


# --- from records to operations


@dataclass
class _Records:
    """Headers, one item for each record."""

    start: Longs
    session: Longs
    cxid: Longs
    zxid: Longs
    time_ms: Longs
    kind: Longs
    end: Longs
    digest: Longs
    """Where the digest's long stands; -1 for none."""
    failed: Flags


@dataclass
class _Rows:
    """One item for each operation. of: its record; at, end: its body in the buffer, for a closeSession the
    path, 0 where there is none."""

    stretch: Stretch
    buffer: Bytes
    records: _Records
    of: Longs
    sequence: Longs
    kind: Longs
    at: Longs
    end: Longs
    in_multi: Flags

    def refuse(self, record: int) -> MalformedError:
        """The reason why this record cannot be read, as the reader of one record at a time gives it."""
        found = self.stretch.record(int(self.records.start[record]))
        try:
            found.txn()
        except MalformedError as error:
            return error
        return MalformedError("the columns cannot read this record", found.file, found.offset)


def _headers(buffer: Bytes, starts: Longs) -> _Records:
    head = starts + 12
    return _Records(
        starts,
        numbers(buffer, head, 8),
        numbers(buffer, head + 8, 4),
        numbers(buffer, head + 12, 8),
        numbers(buffer, head + 20, 8),
        numbers(buffer, head + 28, 4),
        head + numbers(buffer, starts + 8, 4),
        np.full(len(starts), -1, np.int64),
        np.zeros(len(starts), np.bool_),
    )


def _expanded(stretch: Stretch, wanted: Wanted) -> _Rows:
    """The operations of the records whose zxid and time are wanted."""
    buffer = np.frombuffer(stretch.buffer, np.uint8)
    starts = np.asarray(stretch.starts, np.int64)
    records = _headers(buffer, starts)
    keep = _between(records.zxid, wanted.zxids) & _between(records.time_ms, wanted.times_ms)
    if not keep.all():
        records = _headers(buffer, starts[keep])
    plain = np.flatnonzero((records.kind != TxnType.multi) & (records.kind != TxnType.closeSession))
    more = _More(stretch, records)
    rows = _Rows(
        stretch,
        buffer,
        records,
        np.concatenate([plain, more.column("of")]),
        np.concatenate([np.zeros(len(plain), np.int64), more.column("sequence")]),
        np.concatenate([records.kind[plain], more.column("kind")]),
        np.concatenate([records.start[plain] + 12 + HEADER_SIZE, more.column("at")]),
        np.concatenate([records.end[plain], more.column("end")]),
        np.concatenate([np.zeros(len(plain), np.bool_), more.column("in_multi").astype(np.bool_)]),
    )
    if more.refused is not None:
        raise rows.refuse(more.refused)
    unknown = np.flatnonzero(~np.isin(records.kind, list(KNOWN_TYPES)))
    if len(unknown):
        raise rows.refuse(int(unknown[0]))
    order = np.lexsort((rows.sequence, rows.of))
    for name in ("of", "sequence", "kind", "at", "end", "in_multi"):
        setattr(rows, name, getattr(rows, name)[order])
    return rows


class _More:
    """The operations of multis and closeSessions, whose number only their bodies say."""

    def __init__(self, stretch: Stretch, records: _Records) -> None:
        self._data = stretch.buffer
        self._records = records
        self._columns: dict[str, list[int]] = {
            name: [] for name in ("of", "sequence", "kind", "at", "end", "in_multi")
        }
        self.refused: int | None = None
        for of in np.flatnonzero(
            (records.kind == TxnType.multi) | (records.kind == TxnType.closeSession)
        ).tolist():
            at, end = int(records.start[of]) + 12 + HEADER_SIZE, int(records.end[of])
            src = JuteInput(self._data, at, end)
            try:
                if records.kind[of] == TxnType.multi:
                    self._multi(of, src)
                else:
                    self._close(of, src)
                if src.remaining() == DIGEST_SIZE:
                    records.digest[of] = src.pos + 4
                elif src.remaining():
                    raise MalformedError("")
            except MalformedError:
                self.refused = of
                return

    def column(self, name: str) -> Longs:
        return np.asarray(self._columns[name], np.int64)

    def _row(self, of: int, sequence: int, kind: int, at: int, end: int, in_multi: bool) -> None:
        for name, value in zip(self._columns, (of, sequence, kind, at, end, in_multi), strict=True):
            self._columns[name].append(value)

    def _multi(self, of: int, src: JuteInput) -> None:
        count = src.count(8)
        for sequence in range(count):
            kind, length = src.int32(), src.int32()
            if kind not in IN_MULTI or length < 0 or length > src.remaining():
                raise MalformedError("")
            self._row(of, sequence, kind, src.pos, src.pos + length, True)
            src.pos += length
            if kind == TxnType.error:
                self._records.failed[of] = True
        if not count:  # a row all the same, else its zxid would look like a hole
            self._row(of, 0, TxnType.multi, 0, 0, True)

    def _close(self, of: int, src: JuteInput) -> None:
        """As `zookeeper.data.txn` tells a digest from paths."""
        count = 0
        if src.remaining() and not (src.remaining() == DIGEST_SIZE and src.peek_int() == 2):
            count = src.count(4)
        for sequence in range(count):
            length = src.int32()
            if length < 0 or length > src.remaining():
                raise MalformedError("")
            at, src.pos = src.pos, src.pos + length
            self._row(of, sequence, TxnType.closeSession, at, src.pos, False)
        if not count:
            self._row(of, 0, TxnType.closeSession, 0, 0, False)


# --- bodies


@dataclass
class _Cursor:
    """A JuteInput over many bodies at once. bad: those that do not decode; what is read of them means
    nothing."""

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
        return numbers(self.buffer, self._take(4), 4)

    def int64(self) -> Longs:
        return numbers(self.buffer, self._take(8), 8)

    def boolean(self) -> Longs:
        found = numbers(self.buffer, self._take(1), 1)
        self.bad |= (found != 0) & (found != 1)
        return found

    def field(self) -> tuple[Longs, Longs]:
        """Where it stands, and its length: -1 for null."""
        length = self.int32()
        self.bad |= length < -1
        return self._take(np.where(self.bad, 0, np.maximum(length, 0))), length

    def text(self) -> tuple[Longs, Longs]:
        at, length = self.field()
        self.bad |= length < 0
        return at, length

    def acl(self) -> tuple[Longs, Longs]:
        """Where a vector of ACL begins and ends."""
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
            part = _part(self, some)
            part.int32()
            part.text()
            part.text()
            _join(self, some, part)
        return begin, self.at.copy()


_FIELDS: tuple[tuple[tuple[str, ...], tuple[TxnType, ...]], ...] = (
    (("path", "data", "acl", "created"), CREATES),
    (("path",), DELETES),
    (("path", "data", "version"), WRITES),
    (("path", "acl", "version"), (TxnType.setACL,)),
    (("path", "version"), (TxnType.check,)),
    (("error",), (TxnType.error,)),
    (("timeout_ms",), (TxnType.createSession,)),
)
"""The fields of a body, in order, by its types: as `zookeeper.data.txn` reads them."""


class _Bodies:
    """What the bodies say, one item for each operation. Lengths are _ABSENT, and `has` is false, where an
    operation has no such field."""

    def __init__(self, rows: _Rows) -> None:
        self._rows = rows
        count = len(rows.of)
        self.path_at, self.path_length = np.zeros(count, np.int64), np.full(count, _ABSENT, np.int64)
        self.data_at, self.data_length = np.zeros(count, np.int64), np.full(count, _ABSENT, np.int64)
        self.acl_at, self.acl_end = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.numbers = {
            name: np.zeros(count, np.int64)
            for name in ("version", "parent_cversion", "owner", "ttl_ms", "timeout_ms", "error")
        }
        self.has = {name: np.zeros(count, np.bool_) for name in (*self.numbers, "acl")}

    def read(self) -> None:
        """All of them. Raises MalformedError for the first record that does not decode."""
        kind = self._rows.kind
        bad: list[Longs] = []
        for fields, kinds in _FIELDS:
            index = np.flatnonzero(np.isin(kind, kinds))
            if len(index):
                rows = self._rows
                cursor = _Cursor(rows.buffer, rows.at[index], rows.end[index], np.zeros(len(index), np.bool_))
                for field in fields:
                    self._field(field, index, cursor)
                bad.append(self._ended(index, cursor))
        closed = np.flatnonzero((kind == TxnType.closeSession) & (self._rows.at > 0))
        self.path_at[closed] = self._rows.at[closed]
        self.path_length[closed] = self._rows.end[closed] - self._rows.at[closed]
        wrong = np.concatenate(bad) if bad else np.zeros(0, np.int64)
        if len(wrong):
            raise self._rows.refuse(int(self._rows.of[wrong].min()))

    def _ended(self, index: Longs, cursor: _Cursor) -> Longs:
        """Those that do not end where their bodies do; behind a record's own body a digest may stand. The old
        body of an operation that failed with its multi may stand behind its error, see
        `zookeeper.data.txn`."""
        rows = self._rows
        left = cursor.end - cursor.at
        own = ~rows.in_multi[index]
        digested = ~cursor.bad & own & (left == DIGEST_SIZE)
        rows.records.digest[rows.of[index[digested]]] = cursor.at[digested] + 4
        failed = rows.in_multi[index] & (rows.kind[index] == TxnType.error)
        wrong: Flags = cursor.bad | ((left != 0) & ~digested & ~failed)
        return index[np.flatnonzero(wrong)]

    def _put(self, name: str, index: Longs, values: Longs) -> None:
        self.numbers[name][index] = values
        self.has[name][index] = True

    def _field(self, name: str, index: Longs, cursor: _Cursor) -> None:
        """The next field of these bodies."""
        match name:
            case "path":
                self.path_at[index], self.path_length[index] = cursor.text()
            case "data":
                self.data_at[index], self.data_length[index] = cursor.field()
            case "acl":
                self.acl_at[index], self.acl_end[index] = cursor.acl()
                self.has["acl"][index] = True
            case "created":
                self._created(index, cursor)
            case _:
                self._put(name, index, cursor.int32())

    def _created(self, index: Longs, cursor: _Cursor) -> None:
        """What stands behind the ACL of a create."""
        kind = self._rows.kind[index]
        plain = (kind == TxnType.create) | (kind == TxnType.create2)
        ephemeral = np.zeros(len(index), np.int64)
        some = np.flatnonzero(plain)
        flags = _part(cursor, some)
        ephemeral[some] = flags.boolean()
        _join(cursor, some, flags)
        self._put("parent_cversion", index, cursor.int32())
        timed = np.flatnonzero(kind == TxnType.createTTL)
        ttl = _part(cursor, timed)
        self._put("ttl_ms", index[timed], ttl.int64())
        _join(cursor, timed, ttl)
        session = self._rows.records.session[self._rows.of[index]]
        owner = np.where(ephemeral == 1, session, 0)
        owner[kind == TxnType.createContainer] = CONTAINER_OWNER
        owner[timed] = TTL_OWNER | self.numbers["ttl_ms"][index[timed]]
        self._put("owner", index, owner)


def _part(cursor: _Cursor, some: Longs) -> _Cursor:
    """A cursor over some of the bodies; `_join` brings it back."""
    return _Cursor(cursor.buffer, cursor.at[some], cursor.end[some], cursor.bad[some])


def _join(cursor: _Cursor, some: Longs, part: _Cursor) -> None:
    cursor.at[some], cursor.bad[some] = part.at, part.bad


# --- from operations to Arrow


def _between(values: Longs, bounds: tuple[int, int]) -> Flags:
    return (values >= bounds[0]) & (values <= bounds[1])


def _kept(rows: _Rows, bodies: _Bodies, wanted: Wanted) -> Longs:
    """The operations that are wanted, in order."""
    keep = np.ones(len(rows.of), np.bool_)
    if wanted.types is not None:
        keep &= np.isin(rows.kind, list(wanted.types))
    if wanted.prefix:
        keep &= begin_with(rows.buffer, bodies.path_at, bodies.path_length, wanted.prefix)
    return np.flatnonzero(keep)


def _batch(rows: _Rows, bodies: _Bodies, keep: Longs, wanted: Wanted) -> pa.RecordBatch:
    records, of = rows.records, rows.of[keep]
    count = len(keep)
    zxid = records.zxid[of]
    digest_at = records.digest[of]

    def from_body(name: str, kind: type[np.int32] | type[np.int64]) -> Callable[[], pa.Array]:
        return lambda: _integers(bodies.numbers[name][keep], bodies.has[name][keep], kind)

    columns: Columns = {
        "server": lambda: pa.repeat(pa.scalar(rows.stretch.server), count),
        "file": lambda: pa.repeat(pa.scalar(rows.stretch.file), count),
        "offset": lambda: pa.array(records.start[of] + rows.stretch.base),
        "zxid": lambda: pa.array(zxid),
        "epoch": lambda: pa.array((zxid >> 32).astype(np.int32)),
        "counter": lambda: pa.array(zxid & 0xFFFFFFFF),
        "time": lambda: timestamps(records.time_ms[of]),
        "session": lambda: pa.array(records.session[of]),
        "cxid": lambda: pa.array(records.cxid[of].astype(np.int32)),
        "type": lambda: _KIND_NAMES.take(pa.array(np.searchsorted(_KINDS, rows.kind[keep]))),
        "path": lambda: texts(
            rows.buffer,
            bodies.path_at[keep],
            bodies.path_length[keep],
            lambda place: rows.refuse(int(of[place])),
        ),
        "sequence": lambda: pa.array(rows.sequence[keep].astype(np.int32)),
        "multi": lambda: pa.array(rows.in_multi[keep]),
        "failed": lambda: pa.array(records.failed[of]),
        "data_length": lambda: _integers(
            bodies.data_length[keep], bodies.data_length[keep] != _ABSENT, np.int32
        ),
        "data": lambda: (
            binary(rows.buffer, bodies.data_at[keep], bodies.data_length[keep])
            if wanted.data
            else pa.nulls(count, pa.binary())
        ),
        "version": from_body("version", np.int32),
        "parent_cversion": from_body("parent_cversion", np.int32),
        "acl": lambda: _access(rows, bodies, keep),
        "ephemeral_owner": from_body("owner", np.int64),
        "ttl_ms": from_body("ttl_ms", np.int64),
        "timeout_ms": from_body("timeout_ms", np.int32),
        "error": from_body("error", np.int32),
        "digest": lambda: _integers(
            numbers(rows.buffer, np.maximum(digest_at, 0), 8) if count else digest_at,
            digest_at >= 0,
            np.int64,
        ),
        "corrupt": lambda: pa.nulls(count, pa.string()),
    }
    return pa.RecordBatch.from_arrays([columns[name]() for name in wanted.schema.names], schema=wanted.schema)


def _integers(values: Longs, there: Flags, kind: type[np.int32] | type[np.int64]) -> pa.Array:
    return pa.array(values.astype(kind), mask=~there)


_KINDS = np.asarray(sorted(KNOWN_TYPES), np.int64)
_KIND_NAMES = pa.array([TxnType(int(kind)).name for kind in _KINDS], pa.string())


def _access(rows: _Rows, bodies: _Bodies, keep: Longs) -> pa.Array:
    """ACLs. There are few different ones, so each is decoded once."""
    there = bodies.has["acl"][keep]
    known: dict[bytes, int] = {}
    decoded: list[list[dict[str, object]]] = []
    index = np.zeros(len(keep), np.int64)
    data = rows.stretch.buffer
    for place in np.flatnonzero(there).tolist():
        row = keep[place]
        raw = data[int(bodies.acl_at[row]) : int(bodies.acl_end[row])]
        number = known.get(raw)
        if number is None:
            try:
                acls = read_acl(JuteInput(raw))
            except MalformedError:
                raise rows.refuse(int(rows.of[row])) from None
            number = known[raw] = len(decoded)
            decoded.append(rights(acls))
        index[place] = number
    return pa.array(decoded, ACL).take(pa.array(index, mask=~there))
