"""Decode the bodies of many operations at once with numpy, as `zookeeper.data.txn` decodes one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from zkmigrate.spark.sources import arrays
from zkmigrate.spark.sources.arrays import Bytes, Flags, Longs
from zkmigrate.spark.sources.operations import Operations
from zkmigrate.zookeeper.data.effect import CONTAINER_OWNER, CREATES, DELETES, TTL_OWNER, WRITES
from zkmigrate.zookeeper.data.errors import MalformedError
from zkmigrate.zookeeper.data.jute import JuteInput
from zkmigrate.zookeeper.data.txn import DIGEST_SIZE, TxnType, read_acl

ABSENT = -2
"""The length that marks an operation without the field; -1 is jute's null."""
_FEW_ACLS = 16


@dataclass
class _Cursor:
    """A reader of many bodies at once, like JuteInput for one body.

    at, end: the current and the last offset of each body. bad: marks the bodies that do not decode; values
    read from these bodies mean nothing.
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
        """Read a field of each body, and return its offset and its length (-1 for null)."""
        length = self.int32()
        self.bad |= length < -1
        return self._take(np.where(self.bad, 0, np.maximum(length, 0))), length

    def text(self) -> tuple[Longs, Longs]:
        at, length = self.field()
        self.bad |= length < 0
        return at, length

    def acl(self) -> tuple[Longs, Longs]:
        """Read an ACL of each body, and return the offsets where it begins and ends."""
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
        """Yield a cursor over some of the bodies, and take over its positions at the end of the block."""
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
"""The fields of a body, in order, for each group of operation types, as in `zookeeper.data.txn`."""


class Bodies:
    """The fields of the bodies as arrays, with one item for each operation.

    If an operation lacks a field, the field's length is ABSENT and its `present` is false.
    """

    def __init__(self, rows: Operations) -> None:
        self._rows = rows
        count = len(rows.record)
        self.path_at, self.path_length = np.zeros(count, np.int64), np.full(count, ABSENT, np.int64)
        self.data_at, self.data_length = np.zeros(count, np.int64), np.full(count, ABSENT, np.int64)
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
        """Return for each body whether it does not end where it should.

        A digest may follow a record's own body. The old body of an operation that failed with its multi may
        follow the error; see `zookeeper.data.txn`.
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
        """Read the next field of the bodies with these numbers. name: the field."""
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
        """Read the fields after the ACL of a create."""
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
