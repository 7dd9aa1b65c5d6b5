"""Stream reader of a snapshot: sessions, ACL table, nodes. Every seal is checked.

The package docstring describes the format. A snapshot is fuzzy: its content is certain to hold everything up
to the zxid in its name, and may hold some newer changes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from zkmigrate.zookeeper.data.errors import CorruptError, ForeignFileError, TruncatedHeaderError
from zkmigrate.zookeeper.data.reader import RandomReader
from zkmigrate.zookeeper.data.seal import MAGIC, SEAL_SIZE, seal_bytes
from zkmigrate.zookeeper.data.snapname import snapshot_codec
from zkmigrate.zookeeper.data.snapstream import raw_blocks
from zkmigrate.zookeeper.data.txn import Acl
from zkmigrate.zookeeper.data.txnlog import BLOCK, MAX_RECORD

OPEN_ACL = (Acl(31, "world", "anyone"),)
OPEN_ACL_ID = -1
_STAT = struct.Struct(">qqqqiiiqq")
_DIGEST = struct.Struct(">qiq")
_ACL_LIMIT = 1 << 20
_FEW = 10_000
_LEAST_ITEM = 12
"""The smallest size of a session or an entry of an access list, uncompressed, in bytes."""


@dataclass(frozen=True, slots=True)
class StatPersisted:
    """The stat of a znode as stored.

    cversion counts creations only. ephemeral_owner: see `effect`. Times are milliseconds since 1970.
    """

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    pzxid: int


@dataclass(frozen=True, slots=True)
class SnapshotNode:
    """A znode in a snapshot.

    path: "/" for the root. acl: None if a fuzzy dump lacks its id in the table; the transaction that created
    the znode has the ACL.
    """

    path: str
    data: bytes | None
    acl: tuple[Acl, ...] | None
    stat: StatPersisted


@dataclass(frozen=True, slots=True)
class SnapshotDigest:
    """The digest section of a snapshot (3.6+): the tree's digest at `zxid`.

    zxid: the last transaction applied when the dump ended. It is at or above the zxid in the file's name,
    unless that zxid is the beginning of an epoch. A server writes 0 (unknown) if it has applied no
    transaction since it loaded or received a snapshot.
    """

    zxid: int
    version: int
    digest: int


class Snapshot(Iterator[SnapshotNode]):
    """An iterator over the nodes of one snapshot.

    sessions (id → timeout in ms) and acls are known at once; digest and last_processed (3.9) are known at the
    end. The seals are checked at the end: trust nothing from a snapshot before.

    The iterator keeps the sessions, the ACL table and one node in memory. Raises ForeignFileError,
    TruncatedHeaderError or CorruptError with file and offset. The offset is in the file if the compressed
    stream is wrong, otherwise in the uncompressed content (the reason says so).
    """

    def __init__(self, reader: RandomReader, name: str, *, max_record: int = MAX_RECORD) -> None:
        self._name = name
        self._max_record = max_record
        self._blocks = raw_blocks(reader, name)
        self._size = reader.size()
        self._items = 0
        self._buffer = bytearray()
        self._base = 0  # offset of the buffer in the content
        self._pos = 0  # in the buffer
        self._summed = 1  # Adler-32 of everything before `_pos`, once settled
        self._done = False
        self.digest: SnapshotDigest | None = None
        self.last_processed: int | None = None
        self._header()
        self.sessions = self._sessions()
        self.acls = self._acl_table()

    def _fail(self, reason: str) -> CorruptError:
        if snapshot_codec(self._name):
            reason += " (the offset counts uncompressed bytes)"
        return CorruptError(reason, self._name, self._base + self._pos)

    def _fill(self, length: int) -> bool:
        """Buffer `length` bytes after `_pos`. Return False if the content ends before."""
        while len(self._buffer) - self._pos < length:
            block = next(self._blocks, None)
            if block is None:
                return False
            self._buffer += block
        return True

    def _take(self, length: int) -> int:
        if length > self._max_record:
            raise self._fail(f"a field has {length} bytes, but at most {self._max_record} are allowed")
        if not self._fill(length):
            raise self._fail(f"the snapshot ends inside a field of {length} bytes")
        start = self._pos
        self._pos += length
        return start

    def _settle(self, start: int) -> None:
        """Add the bytes from `start` to `_pos` to the checksum, and remove them from the buffer."""
        with memoryview(self._buffer) as view:
            self._summed = zlib.adler32(view[start : self._pos], self._summed)
        if self._pos >= BLOCK:
            del self._buffer[: self._pos]
            self._base += self._pos
            self._pos = 0

    def _int(self) -> int:
        return int.from_bytes(self._bytes(4), "big", signed=True)

    def _bytes(self, length: int) -> bytes:
        start = self._take(length)
        return bytes(self._buffer[start : start + length])

    def _field(self) -> bytes | None:
        length = self._int()
        if length == -1:
            return None
        if length < 0:
            raise self._fail(f"the length of a field is {length}, but must be -1 or more")
        return self._bytes(length)

    def _path(self) -> str:
        raw = self._field()
        if raw is None:
            raise self._fail("a path is null")
        try:
            return raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise self._fail("a path is not UTF-8") from None

    def _header(self) -> None:
        complete = self._fill(16)
        start = bytes(self._buffer[:4])
        if not MAGIC.startswith(start):
            reason = f"the file starts with {start!r}, but a snapshot starts with {MAGIC!r}"
            raise ForeignFileError(reason, self._name, 0)
        if not complete:
            reason = f"the file has only {len(self._buffer)} bytes, but a snapshot starts with 16"
            raise TruncatedHeaderError(reason, self._name, 0)
        version = int.from_bytes(self._buffer[4:8], "big", signed=True)
        if version != 2:
            raise ForeignFileError(f"the snapshot has version {version}, but must have 2", self._name, 4)
        self._pos = 16
        self._settle(0)

    def _count(self, what: str) -> int:
        count = self._int()
        if count < 0:
            raise self._fail(f"the number of {what} is {count}")
        self._expect(count, what)
        return count

    def _expect(self, count: int, what: str) -> None:
        """Refuse more items than a file of this size can hold.

        Each item takes at least one byte of the file, even compressed, because no two items are equal. So a
        few kilobytes never hold millions of sessions or znodes.
        """
        self._items += count
        least = 1 if snapshot_codec(self._name) else _LEAST_ITEM
        if self._items > _FEW and self._items * least > self._size:
            raise self._fail(
                f"{count} {what} make {self._items} items; a file of {self._size} bytes holds at most "
                f"{max(_FEW, self._size // least)}"
            )

    def _sessions(self) -> dict[int, int]:
        sessions: dict[int, int] = {}
        start = self._pos
        for _ in range(self._count("sessions")):
            session, timeout = struct.unpack(">qi", self._bytes(12))
            sessions[session] = timeout
            self._settle(start)
            start = self._pos
        self._settle(start)
        return sessions

    def _acl_table(self) -> dict[int, tuple[Acl, ...]]:
        table: dict[int, tuple[Acl, ...]] = {}
        start = self._pos
        for _ in range(self._count("access lists")):
            key, items = struct.unpack(">qi", self._bytes(12))
            if not -1 <= items <= _ACL_LIMIT:
                raise self._fail(f"an access list cannot have {items} items")
            self._expect(max(0, items), "entries of access lists")
            table[key] = tuple(self._acl() for _ in range(items))
            self._settle(start)
            start = self._pos
        self._settle(start)
        return table

    def _acl(self) -> Acl:
        perms = self._int()
        return Acl(perms, self._path(), self._path())

    def __next__(self) -> SnapshotNode:
        if self._done:
            raise StopIteration
        start = self._pos
        path = self._path()
        if path == "/":
            self._settle(start)
            self._finish()
            raise StopIteration
        self._expect(1, "znodes")
        if path and not path.startswith("/"):
            raise self._fail(f"the path {path[:80]!r} does not start with /")
        data = self._field()
        acl_id = int.from_bytes(self._bytes(8), "big", signed=True)
        stat = StatPersisted(*_STAT.unpack(self._bytes(_STAT.size)))
        self._settle(start)
        acl = OPEN_ACL if acl_id == OPEN_ACL_ID else self.acls.get(acl_id)
        return SnapshotNode(path or "/", data, acl, stat)

    def blocks(self) -> Iterator[bytes]:
        """Yield the rest of the uncompressed content in blocks, for another reader.

        A call ends the iteration over the nodes and its checks.
        """
        self._done = True
        yield bytes(self._buffer[self._pos :])
        yield from self._blocks

    def _finish(self) -> None:
        """Read the seals, and the sections of 3.6+ and 3.9 between them."""
        self._check_seal()
        if self._fill(1):
            if self._fill(_DIGEST.size + SEAL_SIZE):  # longer than 3.9's section: digests may be switched off
                start = self._pos
                self.digest = SnapshotDigest(*_DIGEST.unpack(self._bytes(_DIGEST.size)))
                self._settle(start)
                self._check_seal()
            if self._fill(1):
                start = self._pos
                self.last_processed = int.from_bytes(self._bytes(8), "big", signed=True)
                self._settle(start)
                self._check_seal()
        if self._fill(1):
            raise self._fail("data follows the last seal")
        self._done = True

    def _check_seal(self) -> None:
        wanted = seal_bytes(self._summed)
        start = self._pos
        if self._bytes(SEAL_SIZE) != wanted:
            self._pos = start
            raise self._fail("the seal does not match the content")
        self._settle(start)


read_snapshot = Snapshot
"""Open one snapshot. Its header, sessions and ACL table are read at once."""
